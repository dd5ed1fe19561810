"""What a guest holds and what it says, bounded."""

from __future__ import annotations

import pytest

from toolexec.runtime.wasm import ffi
from toolexec.runtime.wasm.guest import MAX_HANDLES, RESOURCE_TYPES, Handles, Output, Thing
from toolexec.runtime.wasm.refused import GuestFaultError
from toolexec.runtime.wasm.streams import InputStream, Pollable


class Door(Thing):
    """Tells whether it was closed."""

    kind = "pollable"
    closed = False

    def close(self) -> None:
        self.closed = True


def test_output_is_passed_on_up_to_the_limit() -> None:
    """Both streams together; the rest is counted."""
    said: list[tuple[str, bytes]] = []
    output = Output(10, lambda stream, data: said.append((stream, data)))
    output.write("stdout", b"123456")
    output.write("stderr", b"abcdef")
    output.write("stdout", b"more")
    assert said == [("stdout", b"123456"), ("stderr", b"abcd")]
    assert output.dropped == 6


def test_the_last_words_on_stderr_are_kept() -> None:
    """The tail of stderr is kept even behind the limit, but never much of it."""
    output = Output(0, lambda *_: None)
    output.write("stderr", b"x" * 10_000)
    output.write("stdout", b"not these")
    output.write("stderr", b"MemoryError\n")
    assert output.last_words.endswith(b"xxMemoryError\n")
    assert len(output.last_words) == 4096


def test_handles_are_numbered_and_dropped_once() -> None:
    """A number stands for one thing until it is dropped."""
    handles, door = Handles(), Door()
    number, kind = handles.own(door)
    assert kind == RESOURCE_TYPES["pollable"]
    assert handles.get(number) is door
    handles.drop(number)
    handles.drop(number)
    assert door.closed
    with pytest.raises(GuestFaultError, match="does not hold"):
        handles.get(number)


def test_numbers_come_round_without_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the last number the first that is free is next."""
    handles = Handles()
    first = handles.own(Pollable()).number
    monkeypatch.setattr(handles, "_last", 2**32 - 1)
    assert handles.own(Pollable()).number == first + 1
    assert isinstance(handles.get(first), Pollable)


def test_a_guest_cannot_hold_without_end() -> None:
    """One more than the bound ends it, and the thing is closed."""
    handles, door = Handles(), Door()
    for _ in range(MAX_HANDLES):
        handles.own(InputStream())
    assert handles.is_full()
    with pytest.raises(GuestFaultError, match="wants another"):
        handles.own(door)
    assert door.closed


def test_a_host_function_belongs_to_a_run() -> None:
    """Outside of one there is no guest to speak for."""
    with pytest.raises(GuestFaultError, match="outside of a run"):
        ffi.current_guest()
