"""Recorded runs that are made again offline: their programs, with nothing that could be reached behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolexec.code.executor import CodeConfig, Executor
from toolexec.discovery.index import Index
from toolexec.durable.journal import RunRecord
from toolexec.durable.recorder import RECORDED
from toolexec.durable.runner import DurableRunner
from toolexec.durable.waits import RUN_TOOLS, DocsOfRun, IndexOfRun
from toolexec.errors import ToolExecError
from toolexec.exec.chain import ChainResult, execute_chain, steps_of
from toolexec.exec.offline_session import run_in_session
from toolexec.exec.run_data import code_settings, session_of, steps_from_text
from toolexec.model.binding import LocalBinding
from toolexec.model.ids import ToolID
from toolexec.model.origin import Origin
from toolexec.model.tool import Tool, ToolAnnotations
from toolexec.run.checks import CHECKS
from toolexec.run.undo import DryRun, undo

if TYPE_CHECKING:
    from toolexec.code.types import CodeResult
    from toolexec.exec.code import CodeRuns
    from toolexec.exec.scope import Scope

_ORIGIN = Origin()


class _KnownTools(IndexOfRun):
    """The tools that there are now, and those that the run has called by their names. Implements `Index`."""

    def __init__(self, index: Index, tool_ids: Iterable[str], own: Mapping[str, Tool], *, idempotent: bool) -> None:
        super().__init__(index, own)
        hints = ToolAnnotations(idempotent=idempotent)
        for tool_id in {*tool_ids} - RUN_TOOLS.keys():
            if index.find(tool_id) is None:
                with suppress(ToolExecError):
                    known = ToolID.parse(tool_id)
                    schema = {"type": "object"}
                    tool = Tool(name=known.name, namespace=known.namespace, input_schema=schema, annotations=hints)
                    self._own.register(tool, LocalBinding(tool_id))


class Offline:
    """Makes programs of recorded runs again, for one `Exec`.

    Their calls go to the runner that is given, and to nothing else: no backend is started, no gate is asked, and
    nothing is recorded. What the program can know of tools is what is known of them at this moment; a tool that it has
    called is there by its name at least.
    """

    def __init__(self, scope: Scope, code: Callable[[], CodeRuns]) -> None:
        self._scope = scope
        self._code = code

    async def work(
        self, run: RunRecord, runner: DurableRunner, before: Sequence[tuple[RunRecord, DurableRunner]] = ()
    ) -> ChainResult | CodeResult:
        """Make the program of *run* again, with its calls made by *runner*; raises what that raises. *before* are those
        of its session before it, if it has one."""
        replay = runner.replay
        if replay.records:  # it was checked when it began, by the tools of then
            CHECKS.set(_no_check)
        runners = [*(each for _, each in before), runner]
        called = (call.tool for each in runners for call in each.replay.records.values())
        own = {} if run.settings.get(RECORDED) else RUN_TOOLS
        is_chain = run.kind == "chain"  # a step of which could not be repeated else
        index = _KnownTools(self._scope.index, called, own, idempotent=is_chain)
        if run.kind == "chain":
            return await self._chain(run, runner, index)
        code, origin = self._code(), _ORIGIN.within("code", "")
        code.enter()
        docs = DocsOfRun(self._scope.docs, index)

        def configure(_: RunRecord, makes: DurableRunner) -> CodeConfig:
            return replace(code.executor.config, run=makes, index=index, docs=docs, deliveries=makes.replay)

        if session_of(run):
            return await run_in_session(code, [*before, (run, runner)], configure, origin)
        settings: Any
        settings, replay.keeps_time = code_settings(run)
        request = code.request(run.source, settings).given(origin=origin)
        return await Executor(configure(run, runner)).execute(request)

    async def _chain(self, run: RunRecord, runner: DurableRunner, index: Index) -> ChainResult:
        settings = run.settings.get("given") or {}
        result, origin = ChainResult(), _ORIGIN.within("chain", "")
        makes = DryRun(runner, index) if settings.get("dry_run") else runner
        await execute_chain(makes, index, steps_of(steps_from_text(run.source), None), result, origin=origin)
        if result.error is not None and settings.get("on_error") == "undo" and not settings.get("dry_run"):
            result.undone = await undo(runner, index, result.steps, origin)
        return result


def _no_check(check: Callable[[], None]) -> None:
    """Leave out a check of the program."""
