"""Handlers that worker processes import; the tests put this directory on the path."""

from __future__ import annotations

import ctypes
import datetime as dt
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from toolexec import ToolReply, tool
from toolexec.errors import ExecutionError, Outcome, RateLimitedError
from toolexec.model.content import text


class Colour(Enum):
    """An enum to convert."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    """A dataclass to convert."""

    x: int
    y: int


@tool(killable=True)
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(killable=True)
def mirror(point: Point, colour: Colour, when: dt.date) -> Point:
    """Take typed arguments, give a typed result."""
    assert isinstance(colour, Colour)
    assert isinstance(when, dt.date)
    return Point(x=point.y, y=point.x)


@tool(killable=True)
def pid() -> int:
    """The worker's process ID."""
    return os.getpid()


@tool(killable=True)
def whereabouts() -> dict[str, Any]:
    """Report the worker's process and surroundings."""
    return {"stdin": sys.stdin.read(), "argv": sys.argv[1:], "main": threading.current_thread().name}


@tool(killable=True)
def sleep(started: str, seconds: float = 60) -> str:
    """Say who works, in the file *started*, and sleep."""
    Path(started).write_text(str(os.getpid()))
    time.sleep(seconds)
    return "slept"


@tool(killable=True)
def sleep_with_child(started: str) -> str:
    """Start a child that sleeps for long, say who works, and sleep."""
    child = subprocess.Popen(["sleep", "600"])
    Path(started).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)
    return "slept"


@tool(killable=True)
def crash_with_child(started: str) -> str:
    """Start a child that sleeps for long, by forking, and crash."""
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    Path(started).write_text(str(child))
    os._exit(3)


@tool(killable=True)
def fail(how: str) -> None:
    """Fail in one of many ways."""
    if how == "raise":
        raise ValueError("no luck")
    if how == "SystemExit":
        sys.exit(4)
    if how == "KeyboardInterrupt":
        raise KeyboardInterrupt
    if how == "_exit":
        os._exit(5)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "recursion":
        fail(how)
    if how == "StopIteration":
        raise StopIteration
    if how == "unreadable":
        raise _UnreadableError
    if how == "reset":
        raise ConnectionResetError("gone")
    if how == "limited":
        raise RateLimitedError("slower", details={"retry_after": 3})
    if how == "stated":
        raise ExecutionError("perhaps", outcome=Outcome.UNKNOWN)
    if how == "close":
        os.closerange(3, 64)


class _UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@tool(killable=True)
def match_for_ever(started: str) -> bool:
    """Hold Python's lock: a regular expression that takes ages."""
    Path(started).write_text(f"{os.getpid()} ")
    return re.match(r"(a+)+$", "a" * 60 + "b") is None


@tool(killable=True)
def noisy() -> str:
    """Print a lot, in every way there is."""
    print("printed", flush=True)
    sys.__stdout__.write("written\n")
    sys.__stdout__.flush()
    os.write(1, b"\x00\x00\x00\x01raw")
    subprocess.run(["echo", "from a child"], check=True)
    return "quiet"


@tool(killable=True)
def give(what: str) -> Any:
    """Give something that is hard to pass on."""
    if what == "object":
        return {"deep": [1, lambda: None]}
    if what == "nan":
        return float("nan")
    if what == "set":
        return {1, 2}
    if what == "reply":
        return ToolReply(content=[text("look")], structured={"ok": True}, has_structured=True)
    if what == "large":
        return "x" * (5 << 20)
    return "x" * (65 << 20)


@tool(killable=True)
def length(text: str) -> int:
    """Return the length of a string."""
    return len(text)


def total(args: dict[str, Any]) -> int:
    """A handler that takes all arguments as one dict."""
    return sum(args["numbers"])


class Group:
    """A handler one level down."""

    @staticmethod
    def double(args: dict[str, Any]) -> int:
        """Double a number."""
        return args["number"] * 2


def repeat(word: str, times: int = 2) -> str:
    """A typed function that is declared elsewhere."""
    return word * times


class QuotaError(ExecutionError):
    """An error with a code of its own."""

    code = "quota"


ERRORS: dict[str, Callable[[], BaseException]] = {
    "own": lambda: QuotaError("no more today", retryable=True, details={"limit": 5, "retry_after": 3}),
    "stated": lambda: ExecutionError("cut off", outcome=Outcome.DONE, code="half"),
    "plain": lambda: ExecutionError("no", details={"on": dt.date(2026, 1, 31), "raw": {1}}),
    "long": lambda: ExecutionError("x" * 5000),
    "half": lambda: ExecutionError("a\ud800b"),
    "foreign": lambda: ValueError("no luck"),
    "foreign_half": lambda: ValueError("a\ud800b"),
    "passing": lambda: ConnectionError("gone"),
    "not_sent": lambda: ExecutionError("not there", outcome=Outcome.NOT_SENT),
    "limited": lambda: RateLimitedError("slow down", details={"retry_after": 2}),
}


@tool("kind:killable", killable=True)
def raises_in_a_process(name: str) -> None:
    """Raises one of the errors in a worker process."""
    error = ERRORS[name]()
    raise error


@tool("kind:thread")
def raises_in_a_thread(name: str) -> None:
    """Raises one of the errors in a thread."""
    error = ERRORS[name]()
    raise error


@tool("kind:async")
async def raises_on_the_loop(name: str) -> None:
    """Raises one of the errors on the event loop."""
    error = ERRORS[name]()
    raise error
