"""One run of a program: its output as it comes, its end, and that of all that it has started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

from toolexec.process.child import Child
from toolexec.process.stream import Pipes

_LINGER: Final = 0.2
"""How many seconds output may stay open after the end of a program that has started others."""
_PATIENCE: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to run: `argv` as it is, with just this environment, in this directory, with `stdin` to read."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    stdin: bytes = b""


class Process(Protocol):
    """A program that runs, with all that it starts."""

    @property
    def stream(self) -> Pipes:
        """Its stdout and stdin."""
        ...

    def stderr_tail(self) -> bytes:
        """Return the last of what it has written to stderr until now."""
        ...

    async def wait(self) -> int:
        """Return the exit code, once it has ended; a negative code is a signal."""
        ...

    def kill(self) -> None:
        """Begin to kill it with all that it has started, at once."""
        ...

    async def aclose(self) -> None:
        """Kill it with all that it has started, and close its pipes; twice is fine."""
        ...


async def start_here(program: Program) -> Process:
    """Start a program on this machine, as this user. Raises OSError when it cannot be started."""
    return Child(program.argv, env=program.env, cwd=program.cwd, marked=True)


class Running:
    """A program that runs until the block ends; with the block ends everything that it has started, too."""

    def __init__(self, process: Process, stdin: bytes = b"") -> None:
        self._child = process
        self._feeding = asyncio.create_task(self._feed(stdin))
        self._until: float | None = None
        self._killed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._feeding.cancel()
        await self._child.aclose()

    async def output(self) -> AsyncGenerator[bytes, None]:
        """Yield what it writes to stdout, to its end: what it leaves behind cannot keep that open."""
        exited = asyncio.ensure_future(self._child.wait())
        reading: asyncio.Task[bytes] | None = None
        try:
            while True:
                reading = reading or asyncio.create_task(self._child.stream.read())
                await asyncio.wait({reading, exited}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done() and not await self._closes(reading):
                    return
                data, reading = reading.result(), None
                if not data:
                    return
                yield data
        finally:
            exited.cancel()
            if reading is not None:
                reading.cancel()

    async def exit_code(self) -> int:
        """Return the exit code, once it has ended; a negative code is a signal."""
        return await self._child.wait()

    def stderr(self) -> str:
        """Return the end of what it has written to stderr."""
        return self._child.stderr_tail().decode(errors="replace")

    async def _closes(self, reading: asyncio.Task[bytes]) -> bool:
        """Return whether there is something to read from a program that has ended; ends what holds its output open."""
        now = asyncio.get_running_loop().time()
        self._until = self._until or now + _LINGER
        await asyncio.wait({reading}, timeout=max(0, self._until - now))
        if not reading.done():
            if not self._killed:
                self._killed = True
                self._child.kill()
            await asyncio.wait({reading}, timeout=_PATIENCE)
        return reading.done()

    async def _feed(self, data: bytes) -> None:
        with suppress(OSError):  # it need not read what it is given
            await self._child.stream.write(data)
        self._child.stream.close_writing()
