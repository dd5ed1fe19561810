"""Host functions called as no C library calls them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from toolexec.runtime.wasm.files import MemoryFiles
from toolexec.runtime.wasm.guest import MAX_HANDLES, Guest, Handles, Output, StopCalled, make_clock, make_random
from toolexec.runtime.wasm.refused import GuestFaultError, RefusedError
from toolexec.runtime.wasm.world import FUNCTIONS

from .conftest import TestHost


class Caller:
    """Calls host functions for one guest."""

    def __init__(self) -> None:
        self.output: list[tuple[str, bytes]] = []
        self.guest = Guest(
            clock=make_clock(0.0),
            random=make_random(1),
            disk=MemoryFiles.from_mapping({"f": b"abc", "d/g": b""}, max_bytes=10),
            environment={},
            output=Output(100, lambda stream, data: self.output.append((stream, data))),
            host=TestHost(),
            handles=Handles(),
            stopped=threading.Event(),
        )
        self.root = self("wasi:filesystem/preopens", "get-directories")[0][0].number

    def __call__(self, interface: str, name: str, *arguments: Any) -> Any:
        return FUNCTIONS[interface][name](self.guest, *arguments)

    def file(self, name: str, number: int, *arguments: Any) -> Any:
        """A method of a descriptor."""
        return self("wasi:filesystem/types", f"[method]descriptor.{name}", number, *arguments)

    def open(self, path: str, how: str = "", flags: str = "read") -> int:
        """The handle to a file."""
        return self.file("open-at", self.root, set(), path, set(how.split()), set(flags.split())).number


@pytest.fixture
def call() -> Caller:
    """A caller with a fresh guest."""
    return Caller()


def refused(function: Any, *arguments: Any) -> Any:
    """Return the reason why a call is refused."""
    with pytest.raises(RefusedError) as caught:
        function(*arguments)
    return caught.value.reason


def test_a_descriptor_tells_what_it_was_opened_for(call: Caller) -> None:
    """Its flags and type, and whether two are one."""
    read, write = call.open("f"), call.open("f", flags="write")
    assert call.file("get-flags", read) == {"read"}
    assert call.file("get-flags", write) == {"write"}
    assert call.file("get-flags", call.root) == {"read", "mutate-directory"}
    assert call.file("get-type", call.root) == "directory"
    assert call.file("get-type", read) == "regular-file"
    assert call.file("is-same-object", read, write)
    assert not call.file("is-same-object", read, call.root)


def test_reading_and_writing_at_offsets(call: Caller) -> None:
    """The end is told with the last bytes; offsets without meaning are refused."""
    number = call.open("f", flags="read write")
    assert call.file("write", number, b"XY", 2) == 2
    assert call.file("read", number, 3, 0) == (b"abX", False)
    assert call.file("read", number, 100, 3) == (b"Y", True)
    assert refused(call.file, "read", number, 1, 2**63) == "invalid"
    assert refused(call.file, "write-via-stream", number, 2**64 - 1) == "invalid"


def test_a_stream_that_cannot_go_on_says_why(call: Caller) -> None:
    """The error is a handle, from which the code is asked."""
    stream = call.file("append-via-stream", call.open("f", flags="write")).number
    tag, handle = refused(call, "wasi:io/streams", "[method]output-stream.write", stream, b"x" * 50)
    assert tag == "last-operation-failed"
    assert call("wasi:filesystem/types", "filesystem-error-code", handle.number) == "insufficient-space"


def test_a_stream_ends(call: Caller) -> None:
    """With the file, and reading nothing is not the end."""
    stream = call.file("read-via-stream", call.open("f"), 1).number
    read = ("wasi:io/streams", "[method]input-stream.blocking-read", stream)
    assert call(*read, 0) == b""
    assert call(*read, 100) == b"bc"
    assert refused(call, *read, 100) == ("closed", None)
    call.guest.handles.drop(stream)


def test_making_a_directory_by_opening_is_refused(call: Caller) -> None:
    """As it is elsewhere; and a file is no directory."""
    assert refused(call.open, "new", "create directory") == "invalid"
    assert refused(call.open, "f", "directory") == "not-directory"
    assert call.file("get-type", call.open("d", "directory")) == "directory"


def test_a_guest_that_holds_too_much_is_refused_files(call: Caller) -> None:
    """Such a guest may still close some; the file that was not given is not held."""
    numbers: list[int] = []
    while not call.guest.handles.is_full():
        numbers.append(call.open("f"))
    assert MAX_HANDLES - 10 < len(numbers) < MAX_HANDLES
    assert refused(call.open, "f") == "quota"
    call.guest.handles.drop(numbers[0])
    call.open("f")


def test_handles_are_of_their_kind(call: Caller) -> None:
    """A stream is no file, and a number that was never given nothing at all."""
    stdout = call("wasi:cli/stdout", "get-stdout").number
    with pytest.raises(GuestFaultError, match="used a output-stream as another kind"):
        call.file("stat", stdout)
    with pytest.raises(GuestFaultError, match="does not hold"):
        call.file("stat", 12345)


def test_random_bytes_come_in_bounded_pieces(call: Caller) -> None:
    """One call cannot make the host work without end."""
    assert len(call("wasi:random/random", "get-random-bytes", 1000)) == 1000
    assert 0 <= call("wasi:random/random", "get-random-u64") < 2**64
    with pytest.raises(GuestFaultError, match="random bytes at once"):
        call("wasi:random/random", "get-random-bytes", 2**40)


def test_exit_codes(call: Caller) -> None:
    """Where the interface tells them, they are kept."""
    with pytest.raises(Exception, match="exited with code 7"):
        call("wasi:cli/exit", "exit-with-code", 7)


def test_waiting_for_timers_ends_with_the_first(call: Caller) -> None:
    """All that are due then are told; who is stopped meanwhile does not go on."""
    clocks = "wasi:clocks/monotonic-clock"
    long, short = (call(clocks, "subscribe-duration", seconds * 10**9).number for seconds in (100, 5))
    assert call("wasi:io/poll", "poll", [long, short]) == [1]
    ready = call("wasi:io/streams", "[method]output-stream.subscribe", 0).number
    assert call("wasi:io/poll", "poll", [ready, long]) == [0]
    call("wasi:io/poll", "[method]pollable.block", ready)
    call.guest.stopped.set()
    with pytest.raises(StopCalled):
        call("wasi:io/poll", "[method]pollable.block", long)
