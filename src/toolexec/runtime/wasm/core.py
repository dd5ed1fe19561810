"""One guest that is a core module: what it is granted, how it is run and stopped, and what it used.

What `guest` and `instance` are for components, this is for core modules.
"""

from __future__ import annotations

import codecs
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wasmtime import Engine, Func, Instance, Linker, Memory, Module, Store, WasmtimeError

from toolexec.code.types import Output, Stream
from toolexec.runtime.wasm import core_ffi as ffi
from toolexec.runtime.wasm.ffi import CallError
from toolexec.runtime.wasm.guest import Clock, InstanceFailed, InstanceStopped, Random, StopCalled
from toolexec.runtime.wasm.instance import judge

_NO_LIMIT = 2**62
_PAGE_BYTES = 65_536
_TABLES = 8
_ELEMENT_BYTES = 8
_LEAST_ELEMENTS = 1 << 17
_LARGE = 4 << 30
_DEADLINE = 1  # in raises of the engine's epoch: every raise asks every running guest


class TextWriter:
    """Bytes of one stream, passed on as text as they come; invalid UTF-8 is replaced."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def write(self, data: bytes) -> None:
        """Pass on what is complete."""
        text = self._decoder.decode(data)
        if text:
            self._write(text)

    def close(self) -> None:
        """Pass on what an unfinished character is shown as."""
        text = self._decoder.decode(b"", final=True)
        if text:
            self._write(text)


class CoreGuest:
    """One guest as its host functions see it. All but `stop` and `stopped` is for the guest's own thread."""

    def __init__(
        self,
        *,
        clock: Clock,
        random: Random,
        output: Output,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        calls: Any = None,
        hear: Callable[[str], None] | None = None,
    ) -> None:
        """*calls* is what host functions of one kind of guest need; *hear* gets what is written to stdout, too."""
        self.clock = clock
        self.random = random
        self.args: tuple[str, ...] = tuple(args)
        self.env: dict[str, str] = dict(env or {})
        self.stdin: memoryview[int] = memoryview(stdin)
        self.calls = calls
        self.memory: ffi.LinearMemory = ffi.LinearMemory()
        self.stopped: threading.Event = threading.Event()

        def _writer(stream: Stream) -> TextWriter:
            def _write(text: str) -> None:
                output.write(text, stream)
                if hear is not None and stream == "stdout":
                    hear(text)

            return TextWriter(_write)

        self.streams: dict[int, TextWriter] = {1: _writer("stdout"), 2: _writer("stderr")}

    def check_stopped(self) -> None:
        """Raise StopCalled once the guest is to be stopped."""
        if self.stopped.is_set():
            raise StopCalled

    def finish(self) -> None:
        """Pass on what is left of its output."""
        for stream in self.streams.values():
            stream.close()


class CoreInstance:
    """A core module with a store of its own. `stop` may be called by any thread; the rest is for one at a time."""

    def __init__(self, engine: Engine, guest: CoreGuest, *, memory_bytes: int | None, fuel: int | None) -> None:
        """*memory_bytes* bounds its memory, of which there can be one, and *fuel* the instructions; None sets no bound
        of its own. Its tables together take at most an eighth of that memory, or 8 MiB if that is more."""
        self._engine = engine
        self._guest = guest
        self._fuel = _NO_LIMIT if fuel is None else min(fuel, _NO_LIMIT)
        self.most_memory_bytes: int = _NO_LIMIT if memory_bytes is None else memory_bytes
        self._store = Store(engine)
        self._store.set_limits(
            memory_size=self.most_memory_bytes,
            table_elements=max(_LEAST_ELEMENTS, min(self.most_memory_bytes, _LARGE) // (8 * _TABLES * _ELEMENT_BYTES)),
            memories=1,
            tables=_TABLES,
        )
        self._store.set_fuel(self._fuel)
        self._store.set_epoch_deadline(_DEADLINE)
        ffi.watch_epochs(self._store)
        self._instance: Instance | None = None

    def start(self, linker: Linker, module: Module) -> None:
        """Instantiate *module*, which runs its start function. Raises InstanceStopped and InstanceFailed."""
        if self._guest.stopped.is_set():
            raise _stopped_before()
        try:
            instance = ffi.instantiate(linker, self._store, module, self._guest)
        except CallError as error:
            raise self._outcome(error) from error.failure
        self._instance = instance

    def function(self, name: str, params: str, results: str) -> ffi.ExportedFunction:
        """Return an exported function by its signature, in letters of `core_ffi.KINDS`. Raises KeyError without one."""
        export = self._export(name)
        if not isinstance(export, Func):
            raise KeyError(name)
        return ffi.ExportedFunction(self._store, export, params, results)

    def _export(self, name: str) -> Any:
        return ffi.find_export(self._store, self._instance, name) if self._instance is not None else None

    def call(self, function: ffi.ExportedFunction, *arguments: Any) -> Any:
        """Return what an exported function gives. Raises InstanceStopped and InstanceFailed."""
        if self._guest.stopped.is_set():
            raise _stopped_before()
        try:
            return function(self._guest, *arguments)
        except CallError as error:
            raise self._outcome(error) from error.failure

    def _outcome(self, error: CallError) -> BaseException:
        return judge(error, stopped=self._guest.stopped.is_set(), fuel_left=self._store.get_fuel())

    def image(self, memory: str, pointer: str) -> tuple[bytes, int]:
        """Return what is in an exported memory and in an exported global, for `restore`."""
        found, marked = self._export(memory), self._export(pointer)
        return bytes(found.read(self._store)), marked.value(self._store)

    def restore(self, memory: tuple[str, bytes], pointer: tuple[str, int]) -> None:
        """Put an image of another instance of the same module into this one, which has not run yet.

        Raises InstanceFailed when the memory is more than this one may have.
        """
        found, content = self._export(memory[0]), memory[1]
        pages = (len(content) - found.data_len(self._store)) // _PAGE_BYTES
        try:
            if pages > 0:
                found.grow(self._store, pages)
        except WasmtimeError as error:
            raise InstanceFailed("memory", "the guest needs more memory to begin with") from error
        self._guest.memory.bind(self._store, found)
        self._guest.memory.write(0, content)
        self._export(pointer[0]).set_value(self._store, pointer[1])

    def stop(self) -> None:
        """End the guest as soon as possible, whatever it does. A host call that blocks is not interrupted."""
        self._guest.stopped.set()
        self._engine.increment_epoch()

    @property
    def fuel_used(self) -> int:
        """The fuel that it has burned."""
        return self._fuel - self._store.get_fuel()

    @property
    def memory_bytes(self) -> int:
        """How large the memory is that it exports as `memory`."""
        memory = self._export("memory")
        return memory.data_len(self._store) if isinstance(memory, Memory) else 0

    def close(self) -> None:
        """Free its memory."""
        self._instance = None
        self._store.close()


def _stopped_before() -> InstanceStopped:
    return InstanceStopped("the guest was stopped before it ran")
