"""A sandbox that keeps its state between the runs of code of one `Exec`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from toolexec.code.executor import Executor, check_timeout
from toolexec.code.handles import Handles
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.model.origin import CURRENT
from toolexec.runtime.base import SandboxSession

if TYPE_CHECKING:
    from toolexec.exec.code import CodeRuns, CodeSettings
    from toolexec.exec.recorded_code import RecordedCode
    from toolexec.exec.recorded_session import RecordedSession


class CodeSession:
    """A sandbox that keeps its state between runs, as `async with`."""

    def __init__(self, runs: CodeRuns, settings: CodeSettings) -> None:
        """Raises as `CodeRuns.request` does."""
        asked = runs.request("", settings)
        check_timeout(asked.timeout)
        self._profile = asked.profile
        self._runs = runs
        self._settings = settings
        self._session: SandboxSession | None = None
        self._handles: Handles | None = None
        self._recorded: RecordedSession | None = None
        self._held = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Raises ConfigurationError and SandboxError, and what `held` raises."""
        self._runs.enter()
        runtime = self._runs.runtime
        asked = self._runs.request("", self._settings)
        executor, recordings = self._runs.executor, self._runs.recordings
        self._recorded = recordings.begin_session(self._runs, asked) if recordings is not None else None
        if self._recorded is not None:
            executor, asked = Executor(self._recorded.change(executor.config)), self._recorded.request
        tools, request = executor.prepare(asked)
        self._handles = tools.handles
        request = request.given(gateway=tools, output=tools.output, origin=CURRENT.get())
        async with AsyncExitStack() as opening:
            await opening.enter_async_context(self._runs.held(asked))
            self._session = await runtime.open_session(request)
            self._held = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        async with self._held:
            if session is not None:
                await session.aclose()

    async def execute_code(self, code: str, **settings: Unpack[CodeSettings]) -> CodeResult:
        """Run more code where the last run ended; names and files are still there.

        *settings* as for `Exec.execute_code`; what concerns the sandbox itself (env, files, seed, clock, memory) holds
        from its start on. A run that is stopped, at its time limit or by a cancellation, leaves the session as it is
        where its program can be interrupted: the `session` of the error's details is `kept`, or else `ended`, and then
        the state is lost and this raises SandboxFailedError.
        A workflow (`language="workflow"`) runs beside the sandbox, and within the settings of the session.
        """
        session = self._session
        if session is None:
            raise ConfigurationError("the session is not open; use it as `async with ex.session() as s`")
        request = self._runs.request(code, self._settings, settings)
        if request.profile != self._profile:  # it is that of the sandbox, whatever this run asks for
            request = request.given(profile=self._profile)
        if self._runs.language(request) == "workflow":
            recordings = self._runs.recordings
            program = recordings.begin_code(self._runs, request) if recordings is not None else None
            result = await self._execute(session, request, program)
            if program is not None:
                await program.write(result)
            return result
        recorded = self._recorded
        if recorded is None:
            return await self._execute(session, request, None)
        async with recorded.turn:  # programs of one session wait for each other anyway
            recording = recorded.begin(request)
            try:
                result = await self._execute(session, request, recording)
            except ToolExecError:  # nothing was run
                raise
            except BaseException:
                recorded.stop()
                raise
            await asyncio.shield(recorded.end(recording, result))
            return result

    async def _execute(
        self, session: SandboxSession, request: ExecuteRequest, recorded: RecordedCode | None
    ) -> CodeResult:
        return await self._runs.under_way.run(self._run(session, request, recorded))

    async def _run(self, session: SandboxSession, request: ExecuteRequest, recorded: RecordedCode | None) -> CodeResult:
        if recorded is not None:
            request = recorded.request
        async with self._runs.run(request, counts=False) as run:
            config = run.executor.config
            executor = run.executor if recorded is None else Executor(recorded.change(config))
            tools, request = executor.prepare(run.request, is_session=True)
            if self._handles is not None:  # names of earlier runs may stand for results that are kept there
                tools.handles = self._handles
            request = request.given(gateway=tools, output=tools.output)
            engine = config.engine if request.language == "workflow" else None
            under_way = self._runs.under_way
            work = under_way.worked(session.execute(request)) if engine is None else engine.execute(request, tools)
            result = await executor.run(request, tools, work)
            run.failure = result.error
            return result
