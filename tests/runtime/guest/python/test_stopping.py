"""Stopping a program in a guest, and what it says that the program has left."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from toolexec.runtime.guest.python import stopping
from toolexec.runtime.guest.python.stopping import Stopping


class Line:
    """What a guest speaks to its host through, of which nothing is under way."""

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[Any], None]] = {}

    def is_sending(self) -> bool:
        """Return False."""
        return False

    def discard(self, answer: Any) -> None:
        """Have no calls to answer."""


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """Give a line whose stopping thread sleeps for long, with no time for what is left to end."""
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(stopping, "_PAUSE", 0.3)
    monkeypatch.setattr(stopping, "_PATIENCE", 0.0)
    yield Line()
    signal.signal(signal.SIGINT, before)


def ended(
    line: Line, program: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Run *program*, then wait, be stopped, and return what is said of the end; *after* ends what it has left."""
    there = set(threading.enumerate())
    stop = Stopping(line)
    stop.begin("7")
    with pytest.raises(KeyboardInterrupt), stop:
        program()
        line.handlers["cancel"]({"id": "7"})
        threading.Event().wait(60)
    said: dict[str, Any] = json.loads(stop.end("{}"))
    after()
    for thread in set(threading.enumerate()) - there:
        thread.join(60)
    return said


def test_the_thread_that_stops_a_program_is_not_the_programs(line: Line) -> None:
    """The session goes on, however late that one ends."""
    assert ended(line) == {
        "error": {"kind": "KeyboardInterrupt", "message": "KeyboardInterrupt"},
        "interrupted": True,
        "left": "",
    }


def test_a_thread_of_the_program_is_left(line: Line) -> None:
    """Nothing can stop one that goes on after its program."""
    lasts = threading.Event()
    thread = threading.Thread(target=lasts.wait, args=(60.0,), daemon=True)
    assert ended(line, thread.start, lasts.set)["left"] == "threads"
