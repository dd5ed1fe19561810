"""Forks hosts of runs from a process that has imported what they need: to do that takes each longer than to run.

It reads a line of JSON for each host: a pipe for what the host prints, and the arguments of `tests.durable.host`; and
prints the number of its process. A host that is killed dies as one does that was started by itself.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import until_blocking

_IMPORTED = (
    "toolexec.durable.postgres",
    "toolexec.durable.sqlite",
    "toolexec.exec.chain",
    "toolexec.exec.code",
    "toolexec.runtime.wasm.backend",
    "toolexec.runtime.wasm.programs",
    "toolexec.workflow",
)
"""What hosts of every kind import when they begin; nothing of it starts a thread."""


class Nursery:
    """The process that forks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def fork(self, pipe: Path, *arguments: str) -> int:
        """Begin a host that prints into *pipe*; return the number of its process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(pipe), *arguments]), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


@contextmanager
def nursery() -> Iterator[Nursery]:
    """Start one; it ends with the block."""
    command = [sys.executable, "-m", "tests.durable.nursery"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Nursery(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


def has_ended(pid: int) -> bool:
    """Return whether a host is gone, with all of its locks."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_for(pid: int) -> None:
    """Wait until a host is gone."""
    until_blocking(lambda: has_ended(pid))


def _main() -> None:
    from tests.durable import host

    for name in _IMPORTED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel forgets hosts that have ended
    for line in sys.stdin:
        pipe, directory, *more = json.loads(line)
        pid = os.fork()
        if not pid:
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.dup2(os.open(pipe, os.O_WRONLY), 1)
                asyncio.run(host.main(Path(directory), *more))
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    _main()
