"""Frames between a host and its workers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from toolexec.runtime.wasm.workers.wire import Kind, Line, pack, unpack


@pytest.fixture
def lines() -> Iterator[tuple[Line, Line]]:
    """Both ends, for frames of up to 1 MiB."""
    pair = socket.socketpair()
    yield Line(pair[0], 1 << 20), Line(pair[1], 1 << 20)
    for each in pair:
        each.close()


@pytest.mark.parametrize("size", [0, 1, 65_530, 65_536, 65_541, 1 << 20])
def test_frames_arrive_as_they_were_sent(lines: tuple[Line, Line], size: int) -> None:
    """Several of them, of any size, with their kind."""
    ours, theirs = lines
    sent = [(Kind.EXCHANGE, b"x" * size), (Kind.POST, b"y"), (Kind.END, b"z" * size)]

    def send() -> None:
        for kind, body in sent:
            ours.send(kind, body[:5], body[5:])

    thread = threading.Thread(target=send)
    thread.start()
    assert [theirs.receive() for _ in sent] == sent
    thread.join()


def test_a_frame_over_the_bound_is_refused(lines: tuple[Line, Line]) -> None:
    """Only the length is read."""
    ours, theirs = lines
    ours.socket.sendall(b"\x04\xff\xff\xff\xff")
    with pytest.raises(ValueError, match="over the limit"):
        theirs.receive()


@pytest.mark.parametrize("begun", [b"", b"\x04\x00", b"\x04\x00\x00\x00\x05ab"])
def test_a_line_that_ends(lines: tuple[Line, Line], begun: bytes) -> None:
    """At the end of a frame or within one."""
    ours, theirs = lines
    ours.socket.sendall(begun)
    ours.socket.close()
    with pytest.raises(EOFError):
        theirs.receive()


def test_packed_parts() -> None:
    """Packed parts come out again."""
    parts = pack({"a": 1, "b": ["é"]}, [b"", b"\x00\x01", b"x" * 1000])
    assert unpack(b"".join(parts)) == ({"a": 1, "b": ["é"]}, [b"", b"\x00\x01", b"x" * 1000])


@pytest.mark.parametrize(
    "body", [b"", b"\x00\x00", b"\x00\x00\x00\x02[]", b"\x00\x00\x00\x09[{}, [5]]ab", b"\x00\x00\x00\x05[[1]]"]
)
def test_what_is_not_packed(body: bytes) -> None:
    """A ValueError, whatever it is."""
    with pytest.raises(ValueError, match=r".+"):
        unpack(body)
