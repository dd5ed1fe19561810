"""wasi:io, wasi:cli and wasi:clocks: streams, timers, the process, and the time, as host functions.

A host function gets the guest and the arguments as `values` describes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from toolexec.runtime.wasm.files import File, MemoryFiles
from toolexec.runtime.wasm.guest import ExitCalled, Guest, Handle, Thing
from toolexec.runtime.wasm.refused import GuestFaultError, RefusedError

HostFunction: TypeAlias = Callable[..., Any]
T = TypeVar("T", bound=Thing)

CHUNK_BYTES = 64 * 1024
"""The most that one call reads or writes: wasmtime makes a value of 32 bytes from each byte."""

_MOST_RANDOM_BYTES = 64 * 1024
_CLOSED = ("closed", None)


def expect(guest: Guest, number: int, kind: type[T]) -> T:
    """Return what a handle stands for. Raises GuestFaultError if it is not a *kind*."""
    thing = guest.handles.get(number)
    if not isinstance(thing, kind):
        raise GuestFaultError(f"the guest used a {thing.kind} as another kind of handle")
    return thing


class Pollable(Thing):
    """Something to wait for: ready at a time of the monotonic clock, or at once."""

    kind = "pollable"

    def __init__(self, when: int | None = None) -> None:
        self.when = when

    def wait(self, guest: Guest) -> None:
        """Let the guest's time pass until this is ready. Raises StopCalled if the guest is stopped meanwhile."""
        if self.when is not None:
            guest.clock.sleep_until(self.when, guest.stopped)
            guest.check_stopped()


class InputStream(Thing):
    """A stream with nothing in it."""

    kind = "input-stream"

    def read(self, length: int) -> bytes:
        """Return the next bytes, at most *length*. Raises RefusedError at the end."""
        raise RefusedError(_CLOSED)


class OutputStream(Thing):
    """A standard stream of the guest."""

    kind = "output-stream"

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, guest: Guest, data: bytes) -> None:
        """Take all of *data*."""
        guest.output.write(self._name, data)


class FileReader(InputStream):
    """A file, read from an offset on."""

    def __init__(self, files: MemoryFiles, file: File, offset: int) -> None:
        files.hold(file)
        self._files, self._file, self._offset = files, file, offset

    def read(self, length: int) -> bytes:
        """Return the next bytes. Raises RefusedError at the end."""
        data = self._files.read(self._file, self._offset, length)
        if not data and length:
            raise RefusedError(_CLOSED)
        self._offset += len(data)
        return data

    def close(self) -> None:
        """Release the file."""
        self._files.release(self._file)


class StreamError(Thing):
    """Why a stream failed: `code` is one of the file system's."""

    kind = "error"

    def __init__(self, code: str) -> None:
        self.code = code


class FileWriter(OutputStream):
    """A file, written from an offset on; from wherever its end is if the offset is None."""

    def __init__(self, files: MemoryFiles, file: File, offset: int | None) -> None:
        super().__init__("file")
        files.hold(file)
        self._files, self._file, self._offset = files, file, offset

    def write(self, guest: Guest, data: bytes) -> None:
        """Write all of *data*. Raises RefusedError with a handle to the reason."""
        offset = len(self._file.data) if self._offset is None else self._offset
        try:
            self._files.write(self._file, offset, data)
        except RefusedError as error:
            raise RefusedError(("last-operation-failed", guest.handles.own(StreamError(error.reason)))) from None
        if self._offset is not None:
            self._offset += len(data)

    def close(self) -> None:
        """Release the file."""
        self._files.release(self._file)


def _poll(guest: Guest, numbers: list[int]) -> list[int]:
    if not numbers:
        raise GuestFaultError("the guest waits for nothing")
    pollables = [expect(guest, number, Pollable) for number in numbers]
    if all(pollable.when is not None for pollable in pollables):
        first = min(pollables, key=lambda pollable: pollable.when or 0)
        first.wait(guest)
        limit = first.when or 0
    else:
        limit = -1
    return [i for i, pollable in enumerate(pollables) if pollable.when is None or pollable.when <= limit]


def _subscribe_duration(guest: Guest, nanoseconds: int) -> Handle:
    return guest.handles.own(Pollable(guest.clock.monotonic() + nanoseconds))


def _read(guest: Guest, number: int, length: int) -> bytes:
    return expect(guest, number, InputStream).read(min(length, CHUNK_BYTES))


def _write(guest: Guest, number: int, data: bytes) -> None:
    expect(guest, number, OutputStream).write(guest, data)


def _ready(guest: Guest, _number: int) -> Handle:
    return guest.handles.own(Pollable())


def _nothing(_guest: Guest, *_arguments: Any) -> None:
    return None


def _random_bytes(guest: Guest, count: int) -> bytes:
    if count > _MOST_RANDOM_BYTES:
        raise GuestFaultError(f"the guest asked for {count} random bytes at once")
    return guest.random.take(count)


def _exit(_guest: Guest, succeeded: bool) -> None:
    raise ExitCalled(0 if succeeded else 1)


def _exit_with_code(_guest: Guest, code: int) -> None:
    raise ExitCalled(code)


def _wall(guest: Guest) -> tuple[int, int]:
    return divmod(guest.clock.wall(), 1_000_000_000)


FUNCTIONS: Mapping[str, Mapping[str, HostFunction]] = {
    "wasi:cli/environment": {
        "get-environment": lambda guest: list(guest.environment.items()),
        "get-arguments": lambda _guest: [],
        "initial-cwd": lambda _guest: None,
    },
    "wasi:cli/exit": {"exit": _exit, "exit-with-code": _exit_with_code},
    "wasi:cli/stdin": {"get-stdin": lambda guest: guest.handles.own(InputStream())},
    "wasi:cli/stdout": {"get-stdout": lambda guest: guest.handles.own(OutputStream("stdout"))},
    "wasi:cli/stderr": {"get-stderr": lambda guest: guest.handles.own(OutputStream("stderr"))},
    "wasi:cli/terminal-stdin": {"get-terminal-stdin": _nothing},
    "wasi:cli/terminal-stdout": {"get-terminal-stdout": _nothing},
    "wasi:cli/terminal-stderr": {"get-terminal-stderr": _nothing},
    "wasi:clocks/monotonic-clock": {
        "now": lambda guest: guest.clock.monotonic(),
        "resolution": lambda _guest: 1,
        "subscribe-instant": lambda guest, when: guest.handles.own(Pollable(when)),
        "subscribe-duration": _subscribe_duration,
    },
    "wasi:clocks/wall-clock": {"now": _wall, "resolution": lambda _guest: (0, 1)},
    "wasi:io/poll": {
        "[method]pollable.block": lambda guest, number: expect(guest, number, Pollable).wait(guest),
        "poll": _poll,
    },
    "wasi:io/streams": {
        "[method]input-stream.read": _read,
        "[method]input-stream.blocking-read": _read,
        "[method]input-stream.subscribe": _ready,
        "[method]output-stream.check-write": lambda _guest, _number: CHUNK_BYTES,
        "[method]output-stream.write": _write,
        "[method]output-stream.blocking-write-and-flush": _write,
        "[method]output-stream.flush": _nothing,
        "[method]output-stream.blocking-flush": _nothing,
        "[method]output-stream.subscribe": _ready,
    },
    "wasi:random/random": {
        "get-random-bytes": _random_bytes,
        "get-random-u64": lambda guest: int.from_bytes(guest.random.take(8), "little"),
    },
}
"""The functions by interface, without its version, and name."""
