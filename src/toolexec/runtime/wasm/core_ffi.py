"""wasmtime's C interface for core modules, where its Python package is too slow or not safe with threads.

wasmtime's Python package keeps host functions in one table and their last exception in one global for all threads.
Here a host function is a bare C callback, and an exception belongs to the guest that runs in the calling thread.
What `ffi` is for components, this is for core modules.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from wasmtime import (
    Func,
    FuncType,
    Global,
    Instance,
    Linker,
    Memory,
    Module,
    Store,
    Trap,
    TrapCode,
    ValType,
    WasmtimeError,
)
from wasmtime import _ffi as _c  # pyright: ignore[reportPrivateUsage]

from toolexec.runtime.wasm.ffi import CallError, EpochCallback, c_function, held, on_epoch, released
from toolexec.runtime.wasm.refused import GuestFaultError

CoreHostFunction: TypeAlias = Callable[..., int | None]
"""Gets the guest and then its parameters, integers without a sign; gives the result, if it has one."""

KINDS: Final = {"i": "i32", "I": "i64", "f": "f32", "F": "f64"}
"""How a signature is written here: one letter for each value."""

_VALUE_BYTES = ctypes.sizeof(_c.wasmtime_val_raw_t)
_UNSIGNED = {"i": "I12x", "I": "Q8x", "f": "f12x", "F": "d8x"}
_SIGNED = {"i": "i12x", "I": "q8x", "f": "f12x", "F": "d8x"}
_ADDRESS = ctypes.c_size_t

if _VALUE_BYTES != 16:
    raise ImportError(f"this wasmtime lays out a core value in {_VALUE_BYTES} bytes, not 16; install wasmtime 50")

_callback_type = ctypes.CFUNCTYPE(_ADDRESS, *[_ADDRESS] * 4)

_define = c_function(
    held,
    "wasmtime_linker_define_func_unchecked",
    _ADDRESS,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
    _callback_type,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
_call = c_function(
    released,
    "wasmtime_func_call_unchecked",
    _ADDRESS,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.POINTER(_c.wasm_trap_t)),
)
_new_trap = c_function(held, "wasmtime_trap_new", _ADDRESS, ctypes.c_char_p, ctypes.c_size_t)
_new_error = c_function(held, "wasmtime_error_new", _ADDRESS, ctypes.c_char_p)
_export = c_function(
    held, "wasmtime_caller_export_get", ctypes.c_bool, _ADDRESS, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p
)
_find = c_function(
    held,
    "wasmtime_instance_export_get",
    ctypes.c_bool,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
)
_context = c_function(held, "wasmtime_caller_context", _ADDRESS, _ADDRESS)
_memory_address = c_function(held, "wasmtime_memory_data", _ADDRESS, _ADDRESS, ctypes.c_void_p)
_memory_size = c_function(held, "wasmtime_memory_data_size", ctypes.c_size_t, _ADDRESS, ctypes.c_void_p)
_REPORT = b"the host ended the guest"


class _Thread(threading.local):
    """What a thread is doing: the guest that runs in it, and the exception that ended the guest."""

    guest: Any = None
    failure: BaseException | None = None


_thread = _Thread()


def _keep(error: BaseException) -> None:
    if _thread.failure is None:
        _thread.failure = error


class OutOfBoundsError(GuestFaultError):
    """The guest passed an address that is not in its memory."""


class LinearMemory:
    """The memory that a guest exports, read and written within its bounds."""

    def __init__(self) -> None:
        self._extern = _c.wasmtime_extern_t()
        self._handle = 0
        self._in = 0

    def attach(self, caller: int) -> None:
        """Find the memory of the module that called a host function, unless it is known already."""
        if self._handle:
            return
        if _export(caller, b"memory", 6, ctypes.addressof(self._extern)):
            kind: Any = self._extern.kind
            if kind != _c.WASMTIME_EXTERN_MEMORY.value:
                raise GuestFaultError("the module's export 'memory' is no memory")
            self._handle = ctypes.addressof(self._extern.of)
            self._in = _context(caller)

    def bind(self, store: Store, memory: Memory) -> None:
        """Use *memory*, before any host function was called."""
        self._extern.of.memory = memory._memory  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        self._handle = ctypes.addressof(self._extern.of)
        context = store._context()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        self._in = ctypes.cast(context, ctypes.c_void_p).value or 0

    def read(self, address: int, size: int) -> bytes:
        """Return a copy of *size* bytes. Raises OutOfBoundsError."""
        return ctypes.string_at(self._at(address, size), size) if size else b""

    def write(self, address: int, data: bytes) -> None:
        """Copy *data* there. Raises OutOfBoundsError."""
        ctypes.memmove(self._at(address, len(data)), data, len(data))

    def check(self, address: int, size: int) -> None:
        """Raise OutOfBoundsError unless all of it is in the memory."""
        self._at(address, size)

    def _at(self, address: int, size: int) -> int:
        if not self._handle:
            raise GuestFaultError("the module passes addresses to the host and must export its memory as 'memory'")
        if address + size > _memory_size(self._in, self._handle):
            raise OutOfBoundsError(f"{size} bytes at {address} are not all in the module's memory")
        return _memory_address(self._in, self._handle) + address


def define_function(
    linker: Linker, module: str, name: str, params: str, results: str, function: CoreHostFunction
) -> object:
    """Define *module*.*name* with a signature of KINDS letters (at most one result, an i32).

    The guest needs an attribute `memory`, a LinearMemory. The object returned must live as long as anything linked.
    """
    unpack = struct.Struct("<" + "".join(_UNSIGNED[kind] for kind in params)).unpack
    size = len(params) * _VALUE_BYTES
    thread, string_at = _thread, ctypes.string_at
    result_at = ctypes.c_uint32.from_address

    def callback(_data: int, caller: int, values: int, _count: int) -> int:
        try:
            guest = thread.guest
            guest.memory.attach(caller)
            result = function(guest, *unpack(string_at(values, size)))
            if result is not None:
                result_at(values).value = result & 0xFFFFFFFF
        except BaseException as error:
            _keep(error)
            return int(_new_trap(_REPORT, len(_REPORT)))
        return 0

    keep = _callback_type(callback)
    signature = FuncType([_value_type(kind) for kind in params], [_value_type(kind) for kind in results])
    within, called = module.encode(), name.encode()
    error = _define(linker.ptr(), within, len(within), called, len(called), signature.ptr(), keep, None, None)
    if error:
        raise WasmtimeError(_message(error))
    return keep


def _value_type(kind: str) -> ValType:
    return getattr(ValType, KINDS[kind])()


def watch_epochs(store: Store) -> None:
    """Ask the running guest's `check_stopped` whenever the engine's epoch is raised; if that raises, the guest ends."""
    on_epoch(store.ptr(), _epoch_callback, None, None)


@EpochCallback
def _epoch_callback(_of: int, _data: int, delta: Any, kind: int) -> int:
    try:
        _thread.guest.check_stopped()
        delta[0] = 1  # ask again at the next raise
        ctypes.c_uint8.from_address(kind).value = 0
    except BaseException as error:
        _keep(error)
        return int(_new_error(_REPORT))
    return 0


def instantiate(linker: Linker, store: Store, module: Module, guest: Any) -> Instance:
    """Instantiate *module* and run its start function. Raises CallError."""
    before = _thread.guest, _thread.failure
    _thread.guest, _thread.failure = guest, None
    try:
        return linker.instantiate(store, module)
    except (Trap, WasmtimeError) as error:
        raise CallError(_report(error), _thread.failure) from None
    finally:
        _thread.guest, _thread.failure = before


def find_export(store: Store, instance: Instance, name: str) -> Func | Memory | Global | None:
    """Return the export *name*, None if it is not of these kinds; wasmtime's package makes objects for all exports."""
    found = _c.wasmtime_extern_t()
    encoded = name.encode()
    raw = instance._instance  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    context = store._context()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    if not _find(context, ctypes.byref(raw), encoded, len(encoded), ctypes.addressof(found)):
        return None
    kind: Any = found.kind
    if kind == _c.WASMTIME_EXTERN_FUNC.value:
        return Func._from_raw(found.of.func)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    if kind == _c.WASMTIME_EXTERN_MEMORY.value:
        return Memory._from_raw(found.of.memory)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    if kind == _c.WASMTIME_EXTERN_GLOBAL.value:
        return Global._from_raw(found.of.global_)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return None


class ExportedFunction:
    """An exported function of a core module, ready to be called; its signature must be the one given."""

    def __init__(self, store: Store, function: Func, params: str, results: str) -> None:
        self._function = function._func  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        self._context = store._context()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        self._pack = struct.Struct("<" + "".join(_SIGNED[kind] for kind in params)).pack
        self._unpack = struct.Struct("<" + "".join(_SIGNED[kind] for kind in results)).unpack
        self._size = max(len(params), len(results)) * _VALUE_BYTES
        self._results = len(results) * _VALUE_BYTES
        self._count = max(len(params), len(results))
        self._no_trap = ctypes.POINTER(_c.wasm_trap_t)

    def __call__(self, guest: Any, *arguments: Any) -> Any:
        """Run it in this thread; gives its result, a list of several, or None. Raises CallError."""
        values = ctypes.create_string_buffer(self._pack(*arguments), self._size or 1)
        trap = self._no_trap()
        thread = _thread
        before = thread.guest, thread.failure  # a host function may itself run a guest, even this one
        thread.guest, thread.failure = guest, None
        try:
            error = _call(
                self._context, ctypes.byref(self._function), ctypes.addressof(values), self._count, ctypes.byref(trap)
            )
            if error:
                raise CallError(_message(error), thread.failure)
            if trap:
                with Trap._from_ptr(trap) as report:  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
                    raise CallError(_report(report), thread.failure)
        finally:
            thread.guest, thread.failure = before
        results = self._unpack(values.raw[: self._results])
        return results[0] if len(results) == 1 else list(results) if results else None


def kinds_of(types: list[ValType]) -> str | None:
    """Return the KINDS letters of *types*; None if one of them is not numeric."""
    letters = {name: letter for letter, name in KINDS.items()}
    found = [letters.get(str(kind)) for kind in types]
    return None if None in found else "".join(letter for letter in found if letter)


def _report(error: Trap | WasmtimeError) -> str:
    code = error.trap_code if isinstance(error, Trap) else None
    return f"{_TRAPS[code]}\n{error}" if code in _TRAPS else str(error)


_TRAPS = {
    TrapCode.STACK_OVERFLOW: "call stack exhausted",
    TrapCode.OUT_OF_FUEL: "all fuel consumed by WebAssembly",
}
"""What `instance.judge` looks for, whatever wasmtime's text is."""


def _message(error: int) -> str:
    """wasmtime's report, with its causes; frees the error."""
    pointer = ctypes.cast(error, ctypes.POINTER(_c.wasmtime_error_t))
    with WasmtimeError._from_ptr(pointer) as report:  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        return str(report)
