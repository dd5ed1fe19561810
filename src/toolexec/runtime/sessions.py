"""Sessions: one guest that keeps its names, and how a run in it is stopped so that they stay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from time import monotonic
from typing import Final, TypeAlias

from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import InvalidRequestError, SandboxFailedError
from toolexec.runtime.base import SandboxBackend, located
from toolexec.runtime.outcome import Ending
from toolexec.runtime.runs import OwnRuns

GRACE: Final = 1.0
"""Seconds that an interrupted program has to end before its guest is ended, and its session with it."""
_INTERRUPTS: Final = 2


class Stop:
    """Stops one run in a session before its end: its program is interrupted, and has `GRACE` to obey.

    Belongs to the running event loop.
    """

    def __init__(self) -> None:
        self._wanted = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_armed = False
        self.was_pressed: bool = False
        """Whether the program was interrupted."""

    def ask(self) -> bool:
        """Have the run stopped now; return whether it can be, and so ends by itself soon."""
        self._wanted.set()
        return self._is_armed

    def ask_at(self, ends: float) -> None:
        """Have it stopped at *ends* (of `monotonic()`), unless it is `off` before."""
        self._timer = asyncio.get_running_loop().call_later(ends - monotonic(), self._wanted.set)

    def off(self) -> None:
        """Have it stop nothing at a time. Twice is fine."""
        if self._timer is not None:
            self._timer.cancel()

    async def press(self, interrupt: Callable[[], bool]) -> None:
        """Wait until the run is to be stopped, and then call *interrupt*, twice within the grace: a program may lose an
        exception where it handles another one. Return when it had its time; at once where *interrupt* gives False, as
        the guest cannot do it."""
        self._is_armed = True
        try:
            await self._wanted.wait()
            for _ in range(_INTERRUPTS):
                if not interrupt():
                    return
                self.was_pressed = True
                await asyncio.sleep(GRACE / _INTERRUPTS)
        finally:
            self._is_armed = False

    def judged(self, ending: Ending, *, spent: bool) -> Ending:
        """Return the ending of the run, with what became of its session where it was stopped. A program that was
        interrupted has no value, whatever it gave; *spent* says that the guest is not to be used again."""
        result = ending.result or {}
        if self.was_pressed and result.get("interrupted") is True:
            ending = replace(ending, stopped="deadline", left=left_behind(ending))
        if ending.stopped != "deadline":
            return ending
        return replace(ending, session="ended" if spent or ending.left else "kept")


def left_behind(ending: Ending) -> str:
    """Return what an interrupted program has left running in its guest, which must not be used again then."""
    left = (ending.result or {}).get("left")
    return left[:50] if isinstance(left, str) else ""


RunInSession: TypeAlias = Callable[[ExecuteRequest, Stop], Coroutine[None, None, tuple[CodeResult, bool]]]
"""Runs a program in the guest of a session, and says whether the guest can run another one after it."""


class GuestSession:
    """One guest for Python that keeps its names from one program to the next; see `SandboxSession`.

    *run* runs a program in it. *close* ends the guest; it may be called more than once.
    """

    def __init__(
        self, backend: SandboxBackend, run: RunInSession, close: Callable[[GuestSession], Awaitable[None]]
    ) -> None:
        self._backend = backend
        self._run = run
        self._close = close
        self._over = ""
        self._turn = asyncio.Lock()
        self._runs = OwnRuns()

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Implement `SandboxSession.execute`; programs that are given at the same time run one after the other."""
        async with self._turn:
            if self._over:
                raise located(SandboxFailedError(f"this session is over: {self._over}; open a new one"), self._backend)
            if request.language not in ("", "python"):
                raise located(InvalidRequestError(f"this session runs python, not {request.language}"), self._backend)
            stop, lives = Stop(), False

            async def run() -> CodeResult:
                nonlocal lives
                result, lives = await self._run(request, stop)
                return result

            try:
                result = await self._runs.run(run(), stop.ask)
            except InvalidRequestError:
                raise  # nothing was run
            except BaseException:
                if not lives:
                    await self._end("its last run was stopped")
                raise
            finally:
                stop.off()
            if not lives:
                await self._end("its last run was stopped, or ended the process")
            return result

    async def aclose(self) -> None:
        """Implement `SandboxSession.aclose`; a program that runs is cancelled."""
        await self._runs.aclose()
        await self._end("it was closed")

    async def _end(self, why: str) -> None:
        self._over = self._over or why
        await self._close(self)
