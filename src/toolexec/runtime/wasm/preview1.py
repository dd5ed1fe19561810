"""WASI preview 1 for core modules: arguments, environment, standard streams, clocks, random numbers, and no files.

Every function of the interface is there, so that ordinary modules link; what a guest has no business with answers
ENOSYS (not supported), and every file descriptor but the three standard ones EBADF.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from wasmtime import Linker

from toolexec.runtime.wasm.core import CoreGuest
from toolexec.runtime.wasm.core_ffi import OutOfBoundsError, define_function
from toolexec.runtime.wasm.guest import ExitCalled

MODULE: Final = "wasi_snapshot_preview1"

SIGNATURES: Final[Mapping[str, str]] = {
    "args_get": "ii",
    "args_sizes_get": "ii",
    "clock_res_get": "ii",
    "clock_time_get": "iIi",
    "environ_get": "ii",
    "environ_sizes_get": "ii",
    "fd_advise": "iIIi",
    "fd_allocate": "iII",
    "fd_close": "i",
    "fd_datasync": "i",
    "fd_fdstat_get": "ii",
    "fd_fdstat_set_flags": "ii",
    "fd_fdstat_set_rights": "iII",
    "fd_filestat_get": "ii",
    "fd_filestat_set_size": "iI",
    "fd_filestat_set_times": "iIIi",
    "fd_pread": "iiiIi",
    "fd_prestat_dir_name": "iii",
    "fd_prestat_get": "ii",
    "fd_pwrite": "iiiIi",
    "fd_read": "iiii",
    "fd_readdir": "iiiIi",
    "fd_renumber": "ii",
    "fd_seek": "iIii",
    "fd_sync": "i",
    "fd_tell": "ii",
    "fd_write": "iiii",
    "path_create_directory": "iii",
    "path_filestat_get": "iiiii",
    "path_filestat_set_times": "iiiiIIi",
    "path_link": "iiiiiii",
    "path_open": "iiiiiIIii",
    "path_readlink": "iiiiii",
    "path_remove_directory": "iii",
    "path_rename": "iiiiii",
    "path_symlink": "iiiii",
    "path_unlink_file": "iii",
    "poll_oneoff": "iiii",
    "proc_exit": "i",
    "proc_raise": "i",
    "random_get": "ii",
    "sched_yield": "",
    "sock_accept": "iii",
    "sock_recv": "iiiiii",
    "sock_send": "iiiii",
    "sock_shutdown": "ii",
}
"""The parameters of each function; all but `proc_exit` give an error number."""

_OK, _BADF, _FAULT, _INVAL, _NOSYS, _SPIPE = 0, 8, 21, 28, 52, 70
_STREAMS = (0, 1, 2)
_CHARACTER_DEVICE = 2  # what the C library then writes line by line, so that output comes while the module runs
_READ_RIGHT, _WRITE_RIGHT = 1 << 1, 1 << 6
_MOST_VECTORS = 1024
_CHUNK = 1 << 20
_RANDOM_CHUNK = 64 * 1024
_SUBSCRIPTION, _EVENT = 48, 32
_REALTIME, _MONOTONIC, _ABSOLUTE = 0, 1, 1


def define_preview1(linker: Linker) -> list[object]:
    """Define all functions; what is returned must live as long as anything that was linked."""
    kept: list[object] = []
    for name, params in SIGNATURES.items():
        function = _answering(_FUNCTIONS.get(name) or (_file_function if name.startswith("fd_") else _unsupported))
        kept.append(define_function(linker, MODULE, name, params, "" if name == "proc_exit" else "i", function))
    return kept


def _answering(function: Callable[..., int | None]) -> Callable[..., int | None]:
    def _answer(guest: CoreGuest, *arguments: Any) -> int | None:
        try:
            return function(guest, *arguments)
        except OutOfBoundsError:
            return _FAULT

    return _answer


def _unsupported(_guest: CoreGuest, *_arguments: Any) -> int:
    return _NOSYS


def _file_function(_guest: CoreGuest, number: int, *_arguments: Any) -> int:
    return _NOSYS if number in _STREAMS else _BADF


def _u32(guest: CoreGuest, address: int, value: int) -> None:
    guest.memory.write(address, value.to_bytes(4, "little"))


def _put_sizes(guest: CoreGuest, texts: list[bytes], count_at: int, size_at: int) -> int:
    _u32(guest, count_at, len(texts))
    _u32(guest, size_at, sum(map(len, texts)))
    return _OK


def _put_texts(guest: CoreGuest, texts: list[bytes], pointers_at: int, content_at: int) -> int:
    for i, text in enumerate(texts):
        _u32(guest, pointers_at + 4 * i, content_at)
        guest.memory.write(content_at, text)
        content_at += len(text)
    return _OK


def _args(guest: CoreGuest) -> list[bytes]:
    return [arg.replace("\0", "").encode(errors="replace") + b"\0" for arg in ("module", *guest.args)]


def _environ(guest: CoreGuest) -> list[bytes]:
    return [f"{key}={value}".replace("\0", "").encode(errors="replace") + b"\0" for key, value in guest.env.items()]


def _clock_res_get(guest: CoreGuest, clock: int, at: int) -> int:
    if clock not in (_REALTIME, _MONOTONIC):
        return _INVAL
    guest.memory.write(at, (1000).to_bytes(8, "little"))
    return _OK


def _clock_time_get(guest: CoreGuest, clock: int, _precision: int, at: int) -> int:
    if clock not in (_REALTIME, _MONOTONIC):  # the CPU time of the host's process is private
        return _INVAL
    now = guest.clock.wall() if clock == _REALTIME else guest.clock.monotonic()
    guest.memory.write(at, now.to_bytes(8, "little"))
    return _OK


def _fd_close(_guest: CoreGuest, number: int) -> int:
    return _OK if number in _STREAMS else _BADF


def _fd_fdstat_get(guest: CoreGuest, number: int, at: int) -> int:
    if number not in _STREAMS:
        return _BADF
    rights = _READ_RIGHT if number == 0 else _WRITE_RIGHT
    guest.memory.write(at, struct.pack("<BxHxxxxQQ", _CHARACTER_DEVICE, 0, rights, 0))
    return _OK


def _fd_seek(_guest: CoreGuest, number: int, *_arguments: Any) -> int:
    return _SPIPE if number in _STREAMS else _BADF


def _vectors(guest: CoreGuest, at: int, count: int) -> list[tuple[int, int]]:
    data = guest.memory.read(at, 8 * count)
    return [struct.unpack_from("<II", data, 8 * i) for i in range(count)]


def _fd_read(guest: CoreGuest, number: int, at: int, count: int, read_at: int) -> int:
    if number != 0:
        return _BADF
    if count > _MOST_VECTORS:
        return _INVAL
    read = 0
    for address, size in _vectors(guest, at, count):
        part = guest.stdin[:size]
        guest.memory.write(address, bytes(part))
        guest.stdin = guest.stdin[len(part) :]
        read += len(part)
    _u32(guest, read_at, read)
    return _OK


def _fd_write(guest: CoreGuest, number: int, at: int, count: int, written_at: int) -> int:
    stream = guest.streams.get(number)
    if stream is None:
        return _BADF
    if count > _MOST_VECTORS:
        return _INVAL
    left = _CHUNK
    for address, size in _vectors(guest, at, count):
        taken = min(size, left)
        stream.write(guest.memory.read(address, taken))
        left -= taken
    _u32(guest, written_at, _CHUNK - left)
    return _OK


def _random_get(guest: CoreGuest, at: int, size: int) -> int:
    guest.memory.check(at, size)
    for offset in range(0, size, _RANDOM_CHUNK):
        guest.check_stopped()
        guest.memory.write(at + offset, guest.random.take(min(size - offset, _RANDOM_CHUNK)))
    return _OK


def _poll_oneoff(guest: CoreGuest, subscriptions_at: int, events_at: int, count: int, count_at: int) -> int:
    """Streams are always ready; else wait until the first of the times, or until the guest is stopped."""
    if not 0 < count <= _MOST_VECTORS:
        return _INVAL
    data = guest.memory.read(subscriptions_at, _SUBSCRIPTION * count)
    ready: list[bytes] = []
    times: list[tuple[int, bytes]] = []
    for i in range(count):
        user, kind = struct.unpack_from("<QB", data, _SUBSCRIPTION * i)
        if kind == 0:
            clock, timeout, _precision, flags = struct.unpack_from("<IxxxxQQH", data, _SUBSCRIPTION * i + 16)
            if clock not in (_REALTIME, _MONOTONIC):
                return _INVAL
            times.append((_until(guest, clock, timeout, flags), _event(user, _OK, kind)))
        else:
            (number,) = struct.unpack_from("<I", data, _SUBSCRIPTION * i + 16)
            ready.append(_event(user, _OK if kind <= 2 and number in _STREAMS else _BADF, kind))
    if not ready:
        first = min(when for when, _ in times)
        guest.clock.sleep_until(first, guest.stopped)
        guest.check_stopped()
        ready = [event for when, event in times if when <= first]
    guest.memory.write(events_at, b"".join(ready))
    _u32(guest, count_at, len(ready))
    return _OK


def _until(guest: CoreGuest, clock: int, timeout: int, flags: int) -> int:
    """When a subscription is due, by the monotonic clock."""
    if not flags & _ABSOLUTE:
        return guest.clock.monotonic() + timeout
    return timeout if clock == _MONOTONIC else guest.clock.monotonic() + max(timeout - guest.clock.wall(), 0)


def _event(user: int, error: int, kind: int) -> bytes:
    return struct.pack("<QHB5xQH6x", user, error, kind, 0, 0)


def _proc_exit(_guest: CoreGuest, code: int) -> None:
    raise ExitCalled(code)


def _sched_yield(guest: CoreGuest) -> int:
    guest.check_stopped()
    return _OK


_FUNCTIONS: Mapping[str, Callable[..., int | None]] = {
    "args_get": lambda guest, pointers, content: _put_texts(guest, _args(guest), pointers, content),
    "args_sizes_get": lambda guest, count, size: _put_sizes(guest, _args(guest), count, size),
    "clock_res_get": _clock_res_get,
    "clock_time_get": _clock_time_get,
    "environ_get": lambda guest, pointers, content: _put_texts(guest, _environ(guest), pointers, content),
    "environ_sizes_get": lambda guest, count, size: _put_sizes(guest, _environ(guest), count, size),
    "fd_close": _fd_close,
    "fd_fdstat_get": _fd_fdstat_get,
    "fd_prestat_get": lambda _guest, _number, _at: _BADF,
    "fd_prestat_dir_name": lambda _guest, *_arguments: _BADF,
    "fd_read": _fd_read,
    "fd_seek": _fd_seek,
    "fd_tell": _fd_seek,
    "fd_write": _fd_write,
    "poll_oneoff": _poll_oneoff,
    "proc_exit": _proc_exit,
    "random_get": _random_get,
    "sched_yield": _sched_yield,
}
