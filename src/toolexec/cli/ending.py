"""How the command's process ends where threads of it still run."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress


def leave_threads(end: SystemExit) -> None:
    """End the process with the code of *end* where daemon threads still run; return where there are none.

    A command whose reader has gone, or that was interrupted, may leave a program in the sandbox running in a thread.
    The interpreter's own end takes such a thread away wherever it is, which crashed (SIGILL) now and then inside a
    guest. What is registered for the end is done, and what is written is flushed. Other threads are waited for, and so
    is the message of an *end* that has one in place of a code: both are the interpreter's to do.
    """
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    if not others or not all(thread.daemon for thread in others) or not isinstance(end.code, int | None):
        return
    # There is no public name for it, and `os._exit` does none of it.
    atexit._run_exitfuncs()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # its reader has gone, or it is closed
            stream.flush()
    os._exit(end.code or 0)
