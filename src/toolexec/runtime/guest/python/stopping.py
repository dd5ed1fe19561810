"""Stops the program that runs when the host says so, and leaves its guest fit for the next one."""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - signal takes longer to import
import _thread
import os
import sys
from typing import Any

from .values import from_text, to_text

INTERRUPT = "interrupt"
"""The capability of a guest that has this."""
_PAUSE = 0.02
_PATIENCE = 0.25
_STOPPED: Any = {"error": "the run of this call was stopped", "code": "cancelled", "retryable": False}


class Stopping:
    """Raises a KeyboardInterrupt in the program, once for each `cancel` message of the host.

    As a context manager it surrounds what of a run belongs to the program: only there is anything raised, and never
    while a message is half sent. Belongs to the main thread, which gets a signal, so that a program that waits for
    something is stopped as well.
    """

    def __init__(self, line: Any) -> None:
        self._line = line
        self._main = _thread.get_ident()
        self._run = ""
        self._wanted = ""
        self._pending = False
        self._open = False
        self._was_raised = False
        self._threads: frozenset[int] = frozenset()
        self._senders: set[int] = set()  # threads of ours: on a busy machine one may outlive the program that it stops
        self._children: Any = None
        line.handlers["cancel"] = self._take

    def begin(self, run_id: str) -> None:
        """Begin a run; a handler of signals that an earlier program has left counts no more."""
        self._was_raised = False
        self._threads = frozenset(sys._current_frames())  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self._children = _children()
        _signal.signal(_signal.SIGINT, self._interrupt)
        self._run = run_id
        self._pending = self._wanted == run_id

    def end(self, result: str) -> str:
        """End a run; returns *result*, the payload of its message, or if the program was stopped another one: without
        its value, and with what it has left running."""
        self._run = ""
        self._pending = False
        if not self._was_raised:
            return result
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        _cancel_calls()
        self._line.discard(_STOPPED)
        import gc

        gc.collect()  # what it left half done speaks up now, and not during the next program
        payload = from_text(result)
        error = payload.get("error") or {"kind": "KeyboardInterrupt", "message": "KeyboardInterrupt"}
        return to_text({"error": error, "interrupted": True, "left": self._left()})

    def __enter__(self) -> None:
        self._open = True
        if self._pending:
            self._raise()

    def __exit__(self, *_: object) -> None:
        self._open = False

    def _take(self, message: Any) -> None:
        """Take a `cancel` message, in the thread that reads; one for a run that is over changes nothing."""
        self._wanted = message.get("id")
        if self._wanted == self._run:
            self._pending = True
            try:
                _thread.start_new_thread(self._send, (self._wanted,))
            except RuntimeError:  # there are as many threads as there may be
                _signal.pthread_kill(self._main, _signal.SIGINT)

    def _send(self, run_id: str) -> None:
        """Signal the main thread until it has raised: it may be in the middle of a message."""
        import time

        own = _thread.get_ident()
        self._senders.add(own)
        try:
            while self._pending and self._run == run_id:
                _signal.pthread_kill(self._main, _signal.SIGINT)
                time.sleep(_PAUSE)
        finally:
            self._senders.discard(own)

    def _interrupt(self, *_: Any) -> None:
        """Handle the signal; one that the program sends to itself does what Python does by default."""
        if not self._open or self._line.is_sending():
            return
        self._raise()

    def _raise(self) -> None:
        if self._pending:
            self._pending = False
            self._was_raised = True
        raise KeyboardInterrupt

    def _left(self) -> str:
        """Return what the run has begun and not ended: threads and processes, which nothing can stop from here."""
        import time

        ends = time.monotonic() + _PATIENCE
        while True:
            left = self._running()
            if not left or time.monotonic() > ends:
                return left
            time.sleep(_PAUSE)

    def _running(self) -> str:
        """Return what of the run goes on now."""
        threads = frozenset(sys._current_frames())  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        if threads - self._threads - self._senders:
            return "threads"
        children = _children()
        if children is None:
            return "processes"
        return "processes" if any(map(_lives, children - (self._children or frozenset()))) else ""


def _cancel_calls() -> None:
    """Cancel what the program began to call and did not wait for: its event loop is closed, and nothing else would."""
    deferred = sys.modules.get((__package__ or "") + ".deferred")
    for call in list(deferred.unfinished) if deferred is not None else ():
        try:
            call.cancel()
        except RuntimeError:  # it has callbacks, which need the loop
            continue


def _children() -> Any:
    """Return the numbers of the processes that this one has started; None if there are some, and nothing says which."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return frozenset()
    except AttributeError:  # a system without it
        return None
    found: set[bytes] = set()
    try:
        for task in os.listdir("/proc/self/task"):  # noqa: PTH208
            with open("/proc/self/task/" + task + "/children", "rb") as file:  # noqa: PTH123
                found.update(file.read().split())
    except OSError:
        return None
    return frozenset(found)


def _lives(process: bytes) -> bool:
    """Return True for a process that has not ended, though nothing may have asked how."""
    try:
        with open(b"/proc/" + process + b"/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()[:1] != [b"Z"]
    except OSError:
        return False
