"""Handlers that a worker process can import."""

from __future__ import annotations

import time
from pathlib import Path

from toolexec import tool


@tool(killable=True)
def sleep_then_write(seconds: float, path: str) -> str:
    """Say so at the start, sleep, and say so at the end."""
    Path(path).write_text("started")
    time.sleep(seconds)
    Path(path).write_text("finished")
    return "slept"
