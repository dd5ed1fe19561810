"""One guest of the unsafe backend: its process, its directory and the talk with it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from signal import SIGKILL
from time import monotonic
from typing import Any

from toolexec.code.types import ExecuteRequest
from toolexec.errors import GatewayError
from toolexec.process.child import Child
from toolexec.process.directory import WorkDirectory
from toolexec.process.settling import to_the_end
from toolexec.process.stream import SocketStream
from toolexec.runtime.guest.go.program import crash_error, with_source
from toolexec.runtime.outcome import Ending
from toolexec.runtime.protocol.conversation import Conversation
from toolexec.runtime.runs import Deadline
from toolexec.runtime.sessions import GRACE, Stop
from toolexec.runtime.unsafe_host.languages import CompileFailedError, Launcher, base_environment
from toolexec.runtime.unsafe_host.limits import watch_limits

_LAST_WORDS = 1.0


@dataclass(slots=True, kw_only=True)
class Run:
    """What came of one program."""

    ending: Ending
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    left_out: Sequence[str] = ()
    spent: bool = False
    """Whether the guest can run nothing more: it was stopped, or has ended."""


class Guest:
    """A child process that runs programs in one language, one after the other. `aclose` must be called in the end."""

    def __init__(self, launcher: Launcher, language: str) -> None:
        self._launcher = launcher
        self._language = language
        self._directory: WorkDirectory | None = None
        self._process: Child | None = None
        self._talk: Conversation | None = None
        self._putting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    async def open(self, request: ExecuteRequest) -> None:
        """Start it; of *request* only the code counts, and only for a language that is compiled.

        Raises OSError, SandboxUnavailableError and CompileFailedError.
        """
        self._directory = directory = WorkDirectory()  # not in a thread: a cancellation would lose it
        ours, theirs = socket.socketpair()
        try:
            command = await self._launcher.command(self._language, request.code, directory.root, theirs.fileno())
            self._process = Child(
                command,
                cwd=directory.work,
                env=base_environment(directory.work),
                on_output=request.output.write,
                fds=[theirs.fileno()],
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._talk = Conversation(SocketStream(ours))

    async def execute(self, request: ExecuteRequest, *, last: bool, stop: Stop | None = None) -> Run:
        """Run one program within its time; *last* says that the guest is not used again. With *stop*, in a session, the
        program is interrupted when its time is over, and its process ends only where it does not obey.

        Raises InvalidRequestError, and what `open` raises; both with nothing run.
        """
        ends = monotonic() + request.seconds
        deadline = asyncio.timeout(request.seconds)
        try:
            async with deadline:
                if self._process is None:
                    await self.open(request)
                assert self._directory is not None
                self._putting = asyncio.create_task(asyncio.to_thread(self._directory.put, request.files))
                await asyncio.shield(self._putting)
        except TimeoutError:
            if not deadline.expired():
                raise
            return Run(ending=self._explained(Ending(stopped="deadline", began=False), request), spent=True)
        except CompileFailedError as error:
            return Run(ending=Ending(result={"error": dict(error.error)}), spent=True)
        ending, late = await self._drive(request, last, ends, stop)
        if last:
            await self._stop()
        files = await asyncio.to_thread(self._directory.take)
        spent = late or ending.result is None
        ending = self._explained(ending, request)
        if stop is not None:
            ending = stop.judged(ending, spent=spent)
            spent = spent or ending.session == "ended"
        return Run(ending=ending, files=files, left_out=self._directory.left_out, spent=spent)

    async def _drive(self, request: ExecuteRequest, last: bool, ends: float, stop: Stop | None) -> tuple[Ending, bool]:
        """Run the program until it is done, gone, over a limit or out of time, whichever comes first; and whether it
        was stopped at its deadline. What it gave before that counts, however late it is received."""
        process, talk = self._process, self._talk
        assert process is not None
        assert talk is not None
        process.listen(request.output.write)
        if stop is not None:
            stop.ask_at(ends)
            ends += GRACE
        deadline = Deadline(ends, process.kill)
        running = asyncio.create_task(self._converse(talk, process, request, last))
        gone = asyncio.create_task(process.wait())
        pressing = asyncio.create_task(stop.press(talk.interrupt)) if stop is not None else None
        mine: set[asyncio.Task[Any]] = {running, gone} if pressing is None else {running, gone, pressing}
        try:
            await asyncio.wait({*mine, deadline.passed}, return_when=asyncio.FIRST_COMPLETED)
            disobeys = pressing is not None and pressing.done() and not running.done()
            if disobeys:
                process.kill()
            if deadline.late or disobeys:
                await asyncio.wait({gone}, timeout=_LAST_WORDS)
            if gone.done():  # what it said last may be on its way
                await asyncio.wait({running}, timeout=_LAST_WORDS)
            if not running.done():
                ending = Ending(exit_code=gone.result() if gone.done() else None)
            else:
                ending = running.result()
                if ending.result is None and not ending.stopped:
                    await asyncio.wait({gone}, timeout=_LAST_WORDS)
                    ending = replace(ending, exit_code=gone.result() if gone.done() else None)
            killed = ending.exit_code in (None, -SIGKILL)  # what had ended by itself has an exit code of its own
            late = deadline.late or disobeys
            if late and ending.result is None and not ending.stopped and killed:
                ending = replace(ending, stopped="deadline")
        finally:
            deadline.off()
            for task in mine:
                task.cancel()
            await asyncio.wait(mine)
        process.drain()
        return ending, late

    async def _converse(self, talk: Conversation, process: Child, request: ExecuteRequest, last: bool) -> Ending:
        """Talk with the guest while its processes are watched."""
        with suppress(GatewayError):
            await talk.start()
        watch = await asyncio.to_thread(watch_limits, process.tree, request.limits, self._language, last=last)
        watching = asyncio.create_task(watch.broken())
        talking = asyncio.create_task(talk.run(request))
        try:
            await asyncio.wait({watching, talking}, return_when=asyncio.FIRST_COMPLETED)
            return Ending(stopped=watching.result()) if watching.done() else talking.result()
        finally:
            for task in (watching, talking):
                task.cancel()
            await asyncio.wait({watching, talking})

    def _explained(self, ending: Ending, request: ExecuteRequest) -> Ending:
        """Return the ending with what else is known."""
        memory_limited = bool(request.limits.memory_bytes)
        ending = replace(ending, memory_limited=memory_limited, seconds=request.seconds)
        if self._language != "go":
            return ending
        error = (ending.result or {}).get("error")
        if isinstance(error, dict):
            return replace(ending, result={"error": with_source(error, request.code)})
        crash = crash_error(request.output.text("stderr"), request.code) if ending.exit_code == 2 else None
        return replace(ending, result={"error": crash}) if crash is not None else ending

    async def _stop(self) -> None:
        """End its processes; what they wrote last goes to where the last run's output goes."""
        if self._talk is not None:
            talk, self._talk = self._talk, None
            await talk.aclose()
        if self._process is not None:
            await self._process.aclose()

    async def aclose(self) -> None:
        """End the guest with all that it started, and delete its directory; a cancellation waits until that is done."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await to_the_end(self._closing)

    async def _close(self) -> None:
        await self._stop()
        if self._putting is not None:  # a thread cannot be stopped, and would write into what is being deleted
            await asyncio.wait({self._putting})
            self._putting.exception()
        if self._directory is not None:
            await asyncio.to_thread(self._directory.remove)
