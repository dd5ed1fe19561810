"""Which of several server processes behind one port has a run that was sent by POST: its ID alone says so, and so a
request that is sent again reaches the process that has it, whichever one took the connection."""

from __future__ import annotations

from secrets import token_hex
from typing import Final
from zlib import crc32

PROCESS_HEADER: Final = "X-Toolruntime-Process"
"""Has the number of the process, from 1 on, that a connection is for."""
MAX_PROCESSES: Final = 64
"""How many processes there can be behind one port."""


def home_of(run: str, processes: int) -> int:
    """Return the number of the process, of 1 to *processes*, that has the run with this ID."""
    return crc32(run.encode()) % max(1, processes) + 1


def new_run(process: int, processes: int) -> str:
    """Return a new ID that *process* is the home of."""
    while True:
        run = token_hex(16)
        if processes < 2 or home_of(run, processes) == process:
            return run
