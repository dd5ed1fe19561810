"""One guest in one container: started, greeted, given programs, ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from signal import SIGKILL
from time import monotonic
from typing import Any, Final

from toolexec.code.types import ExecuteRequest
from toolexec.errors import GatewayError, SandboxUnavailableError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.process.settling import to_the_end
from toolexec.runtime.containers.engine import Booted, Container, ContainerEngine, Exit, Image, Killable
from toolexec.runtime.containers.network import Reach
from toolexec.runtime.containers.spec import ContainerSpec
from toolexec.runtime.failure_patterns import engine_error
from toolexec.runtime.guest import go
from toolexec.runtime.guest.bundle import boot_bytes
from toolexec.runtime.guest.go.program import compile_error, crash_error, program_file, with_source
from toolexec.runtime.outcome import Ending, Stopped, judge
from toolexec.runtime.protocol.conversation import Conversation
from toolexec.runtime.runs import Deadline
from toolexec.runtime.sessions import GRACE, Stop

_LAST_WORDS: Final = 1.0
_LAST_FILES: Final = 3.0
_LOOK: Final = 0.1
_LEAST_LOOK: Final = 0.01
_KILLED: Final = (None, -SIGKILL, 128 + SIGKILL)


@dataclass(slots=True, kw_only=True)
class Run:
    """What came of one program."""

    ending: Ending
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    left_out: tuple[str, ...] = ()
    requests: list[JSONDict] = field(default_factory=list[JSONDict])
    """What it asked of the network."""
    spent: bool = False
    """Whether the guest can run nothing more: it was stopped, has ended, or did not give its files."""


class ContainerGuest:
    """A guest that runs programs, one after the other; made by `start`. `aclose` must be called in the end."""

    def __init__(
        self, container: Container, talk: Conversation, image: Image, language: str, reach: Reach | None
    ) -> None:
        self.container = container
        self.image = image
        self.language = language
        self._reach = reach
        self._talk = talk
        self._gone: asyncio.Task[Exit] = asyncio.create_task(container.wait())
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, engine: ContainerEngine, image: Image, spec: ContainerSpec, language: str, reach: Reach | None = None
    ) -> ContainerGuest:
        """Return a guest that has said hello.

        Raises SandboxUnavailableError when the container cannot be started or has no guest in it. Cancelling leaves
        nothing behind.
        """
        return await cls.greet(await engine.start(image, spec), image, language, reach)

    @classmethod
    async def greet(
        cls, container: Container, image: Image, language: str, reach: Reach | None = None
    ) -> ContainerGuest:
        """Return the guest of a *container* that was just started; raises as `start` does, and has closed the container
        then."""
        guest: ContainerGuest | None = None
        try:
            if not (isinstance(container, Booted) and container.booted):
                with suppress(OSError):  # it has ended already; why is asked below
                    await container.stream.write(boot_bytes())
            talk = Conversation(container.stream, reach.connect if reach is not None else None)
            guest = cls(container, talk, image, language, reach)
            try:
                await talk.start()
            except GatewayError as error:
                raise await guest._unusable(error) from error
            if language not in talk.capabilities:
                there = ", ".join(sorted({"python", "bash", "javascript", "go"} & {*talk.capabilities}))
                raise SandboxUnavailableError(
                    f"the image {image.name} cannot run {language}, only {there}; build one that can with: "
                    "toolexec image build"
                )
            undropped = talk.hello.get("undropped")
            if undropped:
                raise SandboxUnavailableError(f"the guest could not give up what it must: {str(undropped)[:200]}")
        except BaseException:
            await (guest or container).aclose()
            raise
        return guest

    @property
    def alive(self) -> bool:
        """See `WarmGuest.alive`."""
        return not self._gone.done() and self._closing is None and not self._talk.over

    async def wait(self) -> Exit:
        """Implement `WarmGuest.wait`."""
        return await asyncio.shield(self._gone)

    def when_gone(self, then: Callable[[], None]) -> None:
        """Have *then* called once its container has ended, or is closed; it must not raise."""
        self._gone.add_done_callback(lambda _: then())

    @property
    def version(self) -> str:
        """That of its Python, as it says itself; the image may lie."""
        return str(self._talk.hello.get("python") or "")[:20]

    async def execute(self, request: ExecuteRequest, ends: float, stop: Stop | None = None) -> Run:
        """Run one program until it is done, gone, over a limit or past *ends* (of `monotonic()`).

        Raises InvalidRequestError, with nothing run, for files that cannot be put.

        A container that can be killed from a thread ends at *ends* also while the event loop is held up; what its
        program gave before that counts, however late it is received. With *stop*, in a session, the program is
        interrupted at *ends*, and the container ends only where it does not obey.
        """
        run = Run(ending=Ending())
        container = self.container
        if stop is not None:
            stop.ask_at(ends)
            ends += GRACE
        deadline = Deadline(ends, container.kill) if isinstance(container, Killable) else None
        patience = _LAST_WORDS if deadline is not None else 0.0
        try:
            async with asyncio.timeout(max(0.0, ends - monotonic()) + patience) as limit:
                files = {**request.files, **self._reach.files} if self._reach is not None else request.files
                if files:
                    await self._talk.put_files(files)
                run.ending = await self._drive(request, stop)
                if stop is not None and stop.was_pressed and run.ending.result is not None:
                    if deadline is not None:
                        deadline.off()
                    limit.reschedule(asyncio.get_running_loop().time() + _LAST_FILES)
                if run.ending.result is not None and run.ending.result.get("files") is not False:
                    run.files, run.left_out = await self._talk.take_files()
        except TimeoutError:
            run.spent = True
            if run.ending.result is None:
                run.ending = Ending(stopped="deadline")
        except GatewayError as error:  # the guest hung up, or broke the protocol, while files went in or out
            if run.ending.result is None:
                run.ending = await self._ended(Ending(stderr=str(error)))
        finally:
            if deadline is not None:
                deadline.off()
        self._finish(run, request, stop, late=deadline is not None and deadline.late)
        return run

    def _finish(self, run: Run, request: ExecuteRequest, stop: Stop | None, *, late: bool) -> None:
        """Complete what is known of a *run* that is over; *late* says that its container was killed for it."""
        if late:
            run.spent = True
            end = run.ending
            if end.result is None and not end.stopped and not end.oom and end.exit_code in _KILLED:
                run.ending = Ending(stopped="deadline")
        run.spent = run.spent or run.ending.result is None or self._talk.over
        run.ending = self._explained(run.ending, request)
        if stop is not None:
            run.ending = stop.judged(run.ending, spent=run.spent)
            run.spent = run.spent or run.ending.session == "ended"
        run.requests = self._reach.told() if self._reach is not None else []

    async def _drive(self, request: ExecuteRequest, stop: Stop | None) -> Ending:
        talking = asyncio.create_task(self._talk.run(request, extra_for(self.language, request)))
        mine: set[asyncio.Task[Any]] = {talking}
        watching = asyncio.create_task(self._watch(request.limits.cpu_ms)) if request.limits.cpu_ms else None
        pressing = asyncio.create_task(stop.press(self._talk.interrupt)) if stop is not None else None
        mine |= {task for task in (watching, pressing) if task is not None}
        try:
            await asyncio.wait({*mine, self._gone}, return_when=asyncio.FIRST_COMPLETED)
            if self._gone.done():  # what it said last may be on its way
                await asyncio.wait({talking}, timeout=_LAST_WORDS)
            if talking.done():
                ending = talking.result()
                return ending if ending.result is not None or ending.stopped else await self._ended(ending)
            if watching is not None and watching.done():
                return Ending(stopped=watching.result())
            if pressing is not None and pressing.done():
                return Ending(stopped="deadline")
            return await self._ended(Ending())
        finally:
            for task in mine:
                task.cancel()
            await asyncio.wait(mine)

    async def _watch(self, cpu_ms: int) -> Stopped:
        """Returns when the CPU time is used up; what the guest has used for its start does not count."""
        before = await self.container.cpu_seconds() or 0.0
        while True:
            await asyncio.sleep(min(_LOOK, max(_LEAST_LOOK, cpu_ms / 4000)))
            used = await self.container.cpu_seconds()
            if used is not None and (used - before) * 1000 >= cpu_ms:
                return "cpu"

    async def _ended(self, ending: Ending) -> Ending:
        """Return an ending without a result, with what the container has to say about it."""
        await asyncio.wait({self._gone}, timeout=_LAST_WORDS)
        said = self.container.said() or ending.stderr
        if not self._gone.done():
            return replace(ending, stderr=said)
        end = self._gone.result()
        stopped: Stopped = "pids" if end.pids and not end.oom and end.code not in (0, None) else ""
        stopped = ending.stopped or stopped
        return replace(
            ending,
            stopped=stopped,
            exit_code=end.code,
            oom=end.oom,
            oom_told=end.oom_told,
            lost=end.lost,
            reason=end.reason,
            retryable=end.retryable,
            stderr=said,
        )

    def _explained(self, ending: Ending, request: ExecuteRequest) -> Ending:
        """Return the ending with what else is known."""
        limits = request.limits
        ending = replace(
            ending,
            memory_limited=bool(limits.memory_bytes),
            pids_limited=bool(limits.pids),
            disk_limited=bool(limits.disk_bytes),
            seconds=request.seconds,
        )
        error = (ending.result or {}).get("error")
        if self.language != "go":
            return ending
        if isinstance(error, dict) and error.get("raw"):
            return replace(ending, result={"error": compile_error(str(error.get("message")), request.code)})
        if isinstance(error, dict):
            return replace(ending, result={"error": with_source(error, request.code)})
        crash = crash_error(request.output.text("stderr"), request.code) if ending.exit_code == 2 else None
        return replace(ending, result={"error": crash}) if crash is not None else ending

    async def _unusable(self, error: GatewayError) -> ToolExecError:
        """Why there is no guest in the container."""
        ending = await self._ended(Ending(stderr=str(error)))
        name = self.image.name
        known = engine_error(ending.stderr, kind="", image=name)
        if known is not None:
            return known
        found = judge(ending)
        why = found.message if found is not None else error.message
        reason = {"reason": ending.reason} if ending.reason else {}
        return SandboxUnavailableError(
            f"no guest can be started in the image {name}: {why}",
            retryable=ending.retryable,
            details={"image": name, **reason},
        )

    async def aclose(self) -> None:
        """End the guest and remove its container; a cancellation waits until that is done."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await to_the_end(self._closing)

    async def _close(self) -> None:
        await self._talk.aclose()
        await self.container.aclose()
        self._gone.cancel()
        await asyncio.wait({self._gone})


def extra_for(language: str, request: ExecuteRequest) -> JSONObject:
    """Return what the guest for *language* receives of a request besides what every guest receives.

    A Go program is made compilable here, where its author's line numbers are kept, and compiled in the sandbox.
    """
    if language != "go":
        return {}
    return {"program": program_file(request.code), "tools": _go_tools()}


@cache
def _go_tools() -> str:
    return (Path(go.__file__).parent / "tools.go").read_text("utf-8")
