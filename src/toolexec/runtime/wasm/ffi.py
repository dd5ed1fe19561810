"""The one place that touches wasmtime's C interface below its Python package.

wasmtime's Python package reads the types of a host function again at each call, converts lists byte by byte, and keeps
the last exception in one global for all threads. Here a host function is a bare C callback, values are copied as
blocks of memory, and an exception belongs to the guest that runs in the calling thread.

Every guest runs in one thread at a time, and its host functions are called in that thread: that is how they find it.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar, cast

from wasmtime import Config, Store, WasmtimeError
from wasmtime import _ffi as _c  # pyright: ignore[reportPrivateUsage]
from wasmtime.component import ExportIndex, Instance, LinkerInstance, ResourceType

from toolexec.runtime.wasm.refused import GuestFaultError

Guest = TypeVar("Guest")
HostCallback: TypeAlias = Callable[[int, int, int], None]
"""Gets the store's context, and the addresses of the arguments and of the result."""

VALUE_BYTES = ctypes.sizeof(_c.wasmtime_component_val_t)
_STRING = _c.WASMTIME_COMPONENT_STRING.value
_VECTOR = struct.Struct("@QQ")  # size, address
_ADDRESS = ctypes.c_size_t
_TEXT_AT = 8  # where a value's content starts, after its kind
_CONTINUE = 0

if VALUE_BYTES != 32:
    raise ImportError(f"this wasmtime lays out a component value in {VALUE_BYTES} bytes, not 32; install wasmtime 50")


# Short C functions are called without giving up the GIL: letting go of it costs more than they do.
_library = cast("ctypes.CDLL", _c.dll)
held: ctypes.PyDLL = ctypes.PyDLL("wasmtime", handle=_library._handle)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
released: ctypes.CDLL = ctypes.CDLL("wasmtime", handle=_library._handle)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def c_function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of wasmtime's by its name, with the types of its result and its arguments."""
    function = library[name]  # a new object each time, so the prototypes of wasmtime's own bindings stay as they are
    function.restype = result
    function.argtypes = arguments
    return function


_callback_type = ctypes.CFUNCTYPE(_ADDRESS, *[_ADDRESS] * 7)
_destructor_type = ctypes.CFUNCTYPE(_ADDRESS, _ADDRESS, _ADDRESS, ctypes.c_uint32)
EpochCallback: Any = ctypes.CFUNCTYPE(_ADDRESS, _ADDRESS, _ADDRESS, ctypes.POINTER(ctypes.c_uint64), ctypes.c_void_p)

_new_vector = c_function(held, "wasm_byte_vec_new", None, _ADDRESS, ctypes.c_size_t, ctypes.c_char_p)
_new_list = c_function(held, "wasmtime_component_vallist_new_uninit", None, ctypes.c_void_p, ctypes.c_size_t)
_new_record = c_function(held, "wasmtime_component_valrecord_new_uninit", None, ctypes.c_void_p, ctypes.c_size_t)
_new_flags = c_function(held, "wasmtime_component_valflags_new_uninit", None, ctypes.c_void_p, ctypes.c_size_t)
_new_boxed = c_function(held, "wasmtime_component_val_new", _ADDRESS, ctypes.c_char_p)
_delete = c_function(held, "wasmtime_component_val_delete", None, ctypes.c_void_p)
_new_error = c_function(held, "wasmtime_error_new", _ADDRESS, ctypes.c_char_p)
_delete_error = c_function(held, "wasmtime_error_delete", None, _ADDRESS)
_new_handle = c_function(
    held, "wasmtime_component_resource_host_new", _ADDRESS, ctypes.c_bool, ctypes.c_uint32, ctypes.c_uint32
)
_delete_handle = c_function(held, "wasmtime_component_resource_host_delete", None, _ADDRESS)
_handle_number = c_function(held, "wasmtime_component_resource_host_rep", ctypes.c_uint32, _ADDRESS)
_to_any = c_function(
    held, "wasmtime_component_resource_host_to_any", _ADDRESS, _ADDRESS, _ADDRESS, ctypes.POINTER(_ADDRESS)
)
_to_host = c_function(
    held, "wasmtime_component_resource_any_to_host", _ADDRESS, _ADDRESS, _ADDRESS, ctypes.POINTER(_ADDRESS)
)
_add_function = c_function(
    held,
    "wasmtime_component_linker_instance_add_func",
    _ADDRESS,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
    _callback_type,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
_add_resource = c_function(
    held,
    "wasmtime_component_linker_instance_add_resource",
    _ADDRESS,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
    _destructor_type,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
on_epoch: Any = c_function(
    held,
    "wasmtime_store_epoch_deadline_callback",
    None,
    ctypes.c_void_p,
    EpochCallback,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
_set_concurrency = c_function(held, "wasmtime_config_concurrency_support_set", None, ctypes.c_void_p, ctypes.c_bool)
_set_registers = c_function(
    held, "wasmtime_config_cranelift_regalloc_algorithm_set", None, ctypes.c_void_p, ctypes.c_uint8
)
_SINGLE_PASS = 1
_set_target = c_function(held, "wasmtime_config_target_set", _ADDRESS, ctypes.c_void_p, ctypes.c_char_p)
_enable = c_function(held, "wasmtime_config_cranelift_flag_enable", None, ctypes.c_void_p, ctypes.c_char_p)
_set_async_stack = c_function(held, "wasmtime_config_async_stack_size_set", None, ctypes.c_void_p, ctypes.c_uint64)
_call = c_function(
    released,
    "wasmtime_component_func_call",
    _ADDRESS,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_size_t,
)
_post_return = c_function(released, "wasmtime_component_func_post_return", _ADDRESS, ctypes.c_void_p, ctypes.c_void_p)


class _Thread(threading.local):
    """What a thread is doing: the guest that runs in it, and the exception that ended the guest."""

    guest: Any = None
    failure: BaseException | None = None


_thread = _Thread()


class CallError(Exception):
    """The guest was ended: `message` is wasmtime's report, `failure` the exception of a host function, if any."""

    def __init__(self, message: str, failure: BaseException | None) -> None:
        super().__init__(message)
        self.message = message
        self.failure = failure


def current_guest() -> Any:
    """Return the guest that runs in this thread. Raises GuestFaultError if none does."""
    guest = _thread.guest
    if guest is None:
        raise GuestFaultError("a host function was called outside of a run")
    return guest


def _fail(error: BaseException) -> int:
    """Keep what ended the guest for the call that runs it; the answer to wasmtime is a trap."""
    if _thread.failure is None:
        _thread.failure = error
    return int(_new_error(b"the host ended the guest"))


# Memory blocks, as bytes.


def read_memory(address: int, size: int) -> bytes:
    """Return a copy of *size* bytes at *address*."""
    return ctypes.string_at(address, size) if size else b""


def write_memory(address: int, data: bytes) -> None:
    """Copy *data* to *address*."""
    ctypes.memmove(address, data, len(data))


def new_text(data: bytes) -> tuple[int, int]:
    """Make a byte vector that wasmtime owns; return its size and address."""
    vector = (ctypes.c_uint64 * 2)()
    _new_vector(ctypes.addressof(vector), len(data), data)
    return vector[0], vector[1]


def new_list(images: bytes | bytearray) -> tuple[int, int]:
    """Make a list or tuple of values that wasmtime owns; return its length and address. The values move into it."""
    vector = (ctypes.c_uint64 * 2)()
    _new_list(vector, len(images) // VALUE_BYTES)
    ctypes.memmove(vector[1], bytes(images), len(images))
    return vector[0], vector[1]


def new_record(entries: bytes, count: int) -> tuple[int, int]:
    """Make a record that wasmtime owns; return its length and address. The names and values of *entries* move in."""
    vector = (ctypes.c_uint64 * 2)()
    _new_record(vector, count)
    ctypes.memmove(vector[1], entries, len(entries))
    return vector[0], vector[1]


def new_flags(names: bytes) -> tuple[int, int]:
    """Make a list of names that wasmtime owns; return its length and address. The names move into it."""
    vector = (ctypes.c_uint64 * 2)()
    _new_flags(vector, len(names) // _VECTOR.size)
    ctypes.memmove(vector[1], names, len(names))
    return vector[0], vector[1]


def new_boxed(image: bytes) -> int:
    """Put a value on wasmtime's heap, as results, options and variants point to; it moves. Return its address."""
    scratch = ctypes.create_string_buffer(image, VALUE_BYTES)  # emptied by the move
    return int(_new_boxed(scratch))


def delete_value(image: bytes) -> None:
    """Free what a value that was never handed to wasmtime owns."""
    _delete(ctypes.create_string_buffer(image, VALUE_BYTES))


def new_handle(context: int, number: int, resource_type: int) -> int:
    """Return the address of an owned handle for the host object *number*."""
    handle = _new_handle(True, number, resource_type)
    handle_any = _ADDRESS()
    error = _to_any(context, handle, ctypes.byref(handle_any))
    _delete_handle(handle)
    if error:
        _delete_error(error)
        raise GuestFaultError("the guest has too many handles")
    return handle_any.value


def borrowed_number(context: int, handle_any: int) -> int:
    """Return the number of the host object that a borrowed handle stands for, and end the borrow."""
    handle = _ADDRESS()
    error = _to_host(context, handle_any, ctypes.byref(handle))
    if error:
        _delete_error(error)
        raise GuestFaultError("the guest passed a handle that is not the host's")
    number = int(_handle_number(handle))
    _delete_handle(handle)
    return number


# Definitions. Each returns an object that must live as long as anything that was linked with it.


def define_callback(instance: LinkerInstance, name: str, function: HostCallback) -> object:
    """Define *name* as a function with any signature; *function* reads and writes the values itself."""

    def callback(
        _data: int, context: int, _type: int, arguments: int, _count: int, results: int, _result_count: int
    ) -> int:
        try:
            function(context, arguments, results)
        except BaseException as error:
            return _fail(error)
        return 0

    return _add(instance, name, callback)


def define_exchange(instance: LinkerInstance, name: str, function: Callable[[Any, str], str]) -> object:
    """Define *name* as `func(string) -> string`, in as few steps as possible; *function* gets the guest first."""
    thread, string_at, unpack = _thread, ctypes.string_at, _VECTOR.unpack
    kind = ctypes.c_uint8.from_address

    def callback(
        _data: int, _context: int, _type: int, arguments: int, _count: int, results: int, _result_count: int
    ) -> int:
        try:
            size, address = unpack(string_at(arguments + _TEXT_AT, 16))
            reply = function(thread.guest, string_at(address, size).decode()).encode()
            _new_vector(results + _TEXT_AT, len(reply), reply)
            kind(results).value = _STRING
        except BaseException as error:
            return _fail(error)
        return 0

    return _add(instance, name, callback)


def define_post(instance: LinkerInstance, name: str, function: Callable[[Any, str], None]) -> object:
    """Define *name* as `func(string)`; *function* gets the guest first."""

    def post(_context: int, arguments: int, _results: int) -> None:
        size, address = _VECTOR.unpack(ctypes.string_at(arguments + _TEXT_AT, 16))
        function(_thread.guest, ctypes.string_at(address, size).decode())

    return define_callback(instance, name, post)


def _add(instance: LinkerInstance, name: str, callback: Callable[..., int]) -> object:
    keep = _callback_type(callback)
    encoded = name.encode()
    _raise_if(_add_function(instance.ptr(), encoded, len(encoded), keep, None, None))
    return keep


def define_resource(
    instance: LinkerInstance, name: str, resource_type: int, drop: Callable[[Any, int], None]
) -> object:
    """Define *name* as a resource of the host; *drop* gets the guest and the object's number when it is dropped."""

    def destructor(_data: int, _context: int, number: int) -> int:
        try:
            drop(current_guest(), number)
        except BaseException as error:
            return _fail(error)
        return 0

    keep = _destructor_type(destructor)
    encoded = name.encode()
    with ResourceType.host(resource_type) as kind:
        _raise_if(_add_resource(instance.ptr(), encoded, len(encoded), kind.ptr(), keep, None, None))
    return keep


def watch_epochs(store: Store) -> None:
    """Ask the running guest's `check_stopped` whenever the engine's epoch is raised; if that raises, the guest ends."""
    on_epoch(store.ptr(), _epoch_callback, None, None)


@EpochCallback
def _epoch_callback(_context: int, _data: int, delta: Any, kind: int) -> int:
    try:
        current_guest().check_stopped()
        delta[0] = 1  # ask again at the next raise
        ctypes.c_uint8.from_address(kind).value = _CONTINUE
    except BaseException as error:
        return _fail(error)
    return 0


class StringFunction(Generic[Guest]):
    """An exported `func(string) -> string`, ready to be called."""

    def __init__(self, store: Store, instance: Instance, index: ExportIndex) -> None:
        function = instance.get_func(store, index)
        if function is None:
            raise WasmtimeError("the component does not export this function")
        self._function = function._func  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        self._context = store._context()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]

    def __call__(self, guest: Guest, text: str) -> str:
        """Run the guest in this thread with *text*; *guest* is what its host functions get. Raises CallError."""
        data = text.encode()
        values = ctypes.create_string_buffer(2 * VALUE_BYTES)  # the argument and the result
        argument = ctypes.addressof(values)
        result = argument + VALUE_BYTES
        _new_vector(argument + _TEXT_AT, len(data), data)
        values[0] = _STRING
        before = _thread.guest, _thread.failure  # a host function may itself run another guest
        _thread.guest, _thread.failure = guest, None
        try:
            error = _call(ctypes.byref(self._function), self._context, argument, 1, result, 1)
            if error:
                raise CallError(_message(error), _thread.failure)
            size, address = _VECTOR.unpack(ctypes.string_at(result + _TEXT_AT, 16))
            reply = ctypes.string_at(address, size)
            error = _post_return(ctypes.byref(self._function), self._context)
            if error:
                raise CallError(_message(error), _thread.failure)
        finally:
            _thread.guest, _thread.failure = before
            _delete(argument)
            _delete(result)
        return reply.decode()


def _raise_if(error: int) -> None:
    if error:
        raise WasmtimeError(_message(error))


def _message(error: int) -> str:
    """wasmtime's report, with its causes; frees the error."""
    pointer = ctypes.cast(error, ctypes.POINTER(_c.wasmtime_error_t))
    with WasmtimeError._from_ptr(pointer) as report:  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        return str(report)


def configure(config: Config, *, stack_bytes: int) -> None:
    """Set what wasmtime's Python package has no name for, or sets in a way that ends the process.

    No async support of the component model, as guests here are synchronous: with it, wasmtime 50.0 cannot call a host
    function that borrows two handles, such as renaming a file ("BUG: deferred host scope has no call context"). And
    the stack of a guest: a larger one than that of async guests is refused with a panic, so both are set.
    """
    _set_concurrency(config.ptr(), False)
    _set_async_stack(config.ptr(), stack_bytes)
    config.max_wasm_stack = stack_bytes


def compile_quickly(config: Config) -> None:
    """Compile without optimisation, and allocate registers in a single pass."""
    config.cranelift_opt_level = "none"
    _set_registers(config.ptr(), _SINGLE_PASS)


def compile_for(config: Config, target: str, *features: str) -> None:
    """Compile for any machine of *target* whose processor has *features*, not for the one that compiles.

    Raises WasmtimeError for a target that this wasmtime does not know.
    """
    _raise_if(_set_target(config.ptr(), target.encode()))
    for feature in features:
        _enable(config.ptr(), feature.encode())


_SLOTS = "wasmtime_pooling_allocation_"
_TABLE_BYTES = 1 << 20  # of what a slot keeps
_TABLES = 8
_INSTANCES = 100
_ELEMENTS = 20_000


def has_slots() -> bool:
    """Check that this wasmtime can keep memory for guests; see `use_slots`."""
    return all(
        hasattr(_c, f"{_SLOTS}{name}")
        for name in ("config_new", "config_delete", "strategy_set", *(f"config_{name}_set" for name in _slots(1, 0)))
    )


def use_slots(config: Config, count: int, *, keep_bytes: int) -> None:
    """Have *count* components at most run at once, in memory of which *keep_bytes* each are kept for the next one."""
    pool = getattr(_c, f"{_SLOTS}config_new")()
    for name, value in _slots(count, keep_bytes).items():
        getattr(_c, f"{_SLOTS}config_{name}_set")(pool, value)
    getattr(_c, f"{_SLOTS}strategy_set")(config.ptr(), pool)
    getattr(_c, f"{_SLOTS}config_delete")(pool)


def _slots(count: int, keep_bytes: int) -> dict[str, int]:
    """Return the settings of slots. Python is 14 instances with one memory and two tables of 5,700 elements."""
    return {
        "total_component_instances": count,
        "total_core_instances": count * _INSTANCES,
        "max_core_instances_per_component": _INSTANCES,
        "total_memories": count,
        "max_memories_per_component": 1,
        "total_tables": count * _TABLES,
        "max_tables_per_component": _TABLES,
        "table_elements": _ELEMENTS,
        "total_stacks": 1,  # of async guests, of which there are none
        "total_gc_heaps": 1,  # nor any with collected objects
        "max_unused_warm_slots": count,
        "linear_memory_keep_resident": max(keep_bytes - _TABLE_BYTES, 0),
        "table_keep_resident": _TABLE_BYTES // _TABLES,
    }
