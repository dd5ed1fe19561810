"""QuickJS as the package `quickjs-rs` brings it: a core module, driven here without that package's own host.

So a guest gets this sandbox's limits, clock and random numbers, and its compiled form comes from the private cache.
Only a few of its exports are used; all are checked when it is loaded.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from wasmtime import FuncType, Linker, Module

from toolexec.runtime.wasm.core import CoreGuest, CoreInstance
from toolexec.runtime.wasm.core_ffi import define_function, kinds_of
from toolexec.runtime.wasm.preview1 import define_preview1

_EXPORTS: Final = {
    "call_function": ("iiiii", "i"),
    "eval_code": ("iii", "i"),
    "execute_pending_jobs": ("", "i"),
    "free_value": ("i", ""),
    "get_string": ("i", "i"),
    "global_object": ("", "i"),
    "last_exception": ("i", "i"),
    "new_function": ("ii", "i"),
    "new_string": ("ii", "i"),
    "new_undefined": ("", "i"),
    "qjs_alloc": ("i", "i"),
    "qjs_free": ("ii", ""),
    "qjs_last_len": ("", "i"),
    "qjs_last_ptr": ("", "i"),
    "qjs_result_free": ("", ""),
    "set_prop": ("iiii", "i"),
}
_OK: Final = 0
_REFUSED: Final = -1  # the answer to a host call that makes the guest throw
_U32: Final = 0xFFFFFFFF
HostFunctions = dict[str, Callable[..., str]]


class ScriptError(Exception):
    """A call into the guest threw; the text is that of what was thrown."""


def misfits(module: Module) -> list[str]:
    """Return the exports that *module* lacks, or has with another signature."""
    found: dict[str, Any] = {item.name or "": item.type for item in module.exports}
    wrong: list[str] = []
    for name, wanted in _EXPORTS.items():
        kind = found.get(name)
        if not isinstance(kind, FuncType) or (kinds_of(kind.params), kinds_of(kind.results)) != wanted:
            wrong.append(name)
    wrong += [name for name in ("memory", "__stack_pointer") if name not in found]
    return wrong


def define_imports(linker: Linker) -> list[object]:
    """Define all that the module imports; what is returned must live as long as anything that was linked."""
    return [
        *define_preview1(linker),
        define_function(linker, "env", "host_call", "iiiii", "i", _host_call),
        define_function(linker, "env", "host_interrupt", "", "i", lambda _guest: 0),  # the epoch does that
        define_function(linker, "env", "host_module_normalize", "iiiii", "i", lambda *_: 0),  # there are no modules
        define_function(linker, "env", "host_module_load", "iii", "i", lambda *_: 0),
    ]


def _host_call(guest: CoreGuest, name_at: int, name_size: int, _this: int, count: int, handles_at: int) -> int:
    script: QuickJS = guest.calls
    return script.answer(name_at, name_size, count, handles_at)


class Image(NamedTuple):
    """A context with the guest's half in it, to begin runs from: its memory, and where things are in there."""

    memory: bytes
    stack_pointer: int
    start: int
    pump: int
    undefined: int
    slot: int


class QuickJS:
    """One JavaScript context. *functions* are those of the host: they get and give text; if they raise, the guest ends.

    All methods raise InstanceStopped and InstanceFailed.
    """

    def __init__(self, instance: CoreInstance, guest: CoreGuest, functions: HostFunctions) -> None:
        self._instance = instance
        self._memory = guest.memory
        self._functions = functions
        self._slot = self._undefined = 0
        guest.calls = self

    def build(self, linker: Linker, module: Module, sources: Sequence[str]) -> Image:
        """Build a context in which *sources* have left `__toolexec.start` and `__toolexec.pump`. Raises ScriptError."""
        self._instantiate(linker, module)
        self._slot, self._undefined = self._call("qjs_alloc", 4), self._call("new_undefined")
        anything = self._call("global_object")
        for name in self._functions:
            self._install(anything, name)
        self._call("free_value", anything)
        for source in sources:
            self._call("free_value", self._run(source))
        start, pump = self._run("__toolexec.start"), self._run("__toolexec.pump")
        self._call("free_value", self._run("delete globalThis.__toolexec"))
        memory, stack_pointer = self._instance.image("memory", "__stack_pointer")
        return Image(memory, stack_pointer, start, pump, self._undefined, self._slot)

    def restore(self, linker: Linker, module: Module, image: Image) -> None:
        """Begin where *image* was made."""
        self._instantiate(linker, module)
        self._instance.restore(("memory", image.memory), ("__stack_pointer", image.stack_pointer))
        self._slot, self._undefined = image.slot, image.undefined

    def _instantiate(self, linker: Linker, module: Module) -> None:
        self._instance.start(linker, module)
        self._exports = {name: self._instance.function(name, *kinds) for name, kinds in _EXPORTS.items()}

    def _install(self, target: int, name: str) -> None:
        at, size = self._put(name)
        function = self._call("new_function", at, size)
        self._call("set_prop", target, at, size, function)
        self._call("qjs_free", at, size)
        self._call("free_value", function)

    def _run(self, source: str) -> int:
        at, size = self._put(source)
        try:
            return self._value(self._call("eval_code", at, size, self._slot))
        finally:
            self._call("qjs_free", at, size)

    def call(self, function: int, argument: str) -> None:
        """Call a function with a text. Raises ScriptError."""
        handle = self._text(argument)
        at = self._call("qjs_alloc", 4)
        self._memory.write(at & _U32, struct.pack("<i", handle))
        self._finish(self._call("call_function", function, self._undefined, at, 1, self._slot))
        self._call("qjs_free", at, 4)
        self._call("free_value", handle)

    def call_plain(self, function: int) -> None:
        """Call a function without anything. Raises ScriptError."""
        self._finish(self._call("call_function", function, self._undefined, 0, 0, self._slot))

    def run_jobs(self) -> None:
        """Run what waits to be run, until nothing does."""
        while self._call("execute_pending_jobs") > 0:
            continue

    def _finish(self, status: int) -> None:
        self._call("free_value", self._value(status))

    # -- host calls -------------------------------------------------------------------------------------------------

    def answer(self, name_at: int, name_size: int, count: int, handles_at: int) -> int:
        """Return a handle for the answer to a host call."""
        function = self._functions.get(self._memory.read(name_at, name_size).decode(errors="replace"))
        if function is None:
            return _REFUSED
        handles = struct.unpack(f"<{count}i", self._memory.read(handles_at, 4 * count))
        return self._text(function(*(self._read(handle) for handle in handles)))

    # -- values -----------------------------------------------------------------------------------------------------

    def _call(self, name: str, *arguments: int) -> Any:
        return self._instance.call(self._exports[name], *arguments)

    def _put(self, text: str) -> tuple[int, int]:
        data = text.encode("utf-8", "replace")
        at = self._call("qjs_alloc", len(data))
        self._memory.write(at & _U32, data)
        return at, len(data)

    def _text(self, text: str) -> int:
        at, size = self._put(text)
        try:
            return self._call("new_string", at, size)
        finally:
            self._call("qjs_free", at, size)

    def _read(self, handle: int) -> str:
        """Return the text that *handle* stands for; the empty text for anything else."""
        if self._call("get_string", handle) != _OK:
            return ""
        size = self._call("qjs_last_len")
        data = self._memory.read(self._call("qjs_last_ptr") & _U32, size) if size else b""
        self._call("qjs_result_free")
        return data.decode(errors="replace")

    def _value(self, status: int) -> int:
        """Return the handle that a call has left, if *status* says so."""
        if status == _OK:
            return self._handle()
        if self._call("last_exception", self._slot) == _OK:
            raise ScriptError(self._read(self._handle()))
        raise ScriptError(f"the interpreter failed with status {status}")

    def _handle(self) -> int:
        (handle,) = struct.unpack("<i", self._memory.read(self._slot & _U32, 4))
        return handle
