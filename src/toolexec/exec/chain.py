"""Chains as the facade runs them: as a whole that the gate knows of, tried, or undone after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, get_args

from toolexec.discovery.index import Index
from toolexec.errors import ClosedError, InvalidChainError, ToolExecError
from toolexec.errors.base import reworded
from toolexec.model.arguments import bounded
from toolexec.model.call import ProgressCallback
from toolexec.model.json_value import JSONObject
from toolexec.model.origin import HERE, Origin, current_origin
from toolexec.model.tool import DRY_RUN
from toolexec.model.tree_size import has_many
from toolexec.run.admission import begun
from toolexec.run.ceilings import refuse_above
from toolexec.run.checks import check_first
from toolexec.run.large import walked
from toolexec.run.run_request import RunRequest
from toolexec.run.runner import Runner
from toolexec.run.steps import ChainResult, Step, Unknown, execute_chain, read_chain_steps, stop_chain, unknown_step
from toolexec.run.types import OnError
from toolexec.run.undo import DryRun, tried_by, undo

if TYPE_CHECKING:
    from toolexec.exec.options import Options
    from toolexec.exec.scope import Scope
    from toolexec.exec.sources import Sources

__all__ = ["DRY_RUN", "ChainResult", "Chains", "Step", "asked_chain", "check_ways", "execute_chain"]

_ON_ERROR = get_args(OnError)


class Chains:
    """Runs chains by one runner, each as a whole that the gate knows of; starts the backends first.

    A chain that *goes_on* elsewhere when it is cancelled here is not undone then.
    """

    def __init__(
        self, options: Options, scope: Scope, sources: Sources, runner: Runner, *, goes_on: bool = False
    ) -> None:
        self._goes_on = goes_on
        self._gate = options.own_gate
        self._most = options.max_timeout
        self._scope = scope
        self._index = scope.index
        self._sources = sources
        self._runner = runner

    async def run(
        self,
        steps: Sequence[Step | JSONObject],
        *,
        on_progress: ProgressCallback | None = None,
        on_error: OnError = "stop",
        dry_run: bool = False,
        asks: bool = True,
    ) -> ChainResult:
        """Run tools one after the other; see `Exec.run_chain`, and `begun` for *asks*."""
        work = self._run(steps, on_progress, on_error, dry_run=dry_run, asks=asks)
        return await self._sources.under_way.run(work)

    async def _run(
        self,
        steps: Sequence[Step | JSONObject],
        on_progress: ProgressCallback | None,
        on_error: OnError,
        *,
        dry_run: bool,
        asks: bool,
    ) -> ChainResult:
        check_ways(on_error, dry_run=dry_run)
        if on_progress is not None and not callable(on_progress):  # pyright: ignore[reportUnnecessaryComparison]
            raise InvalidChainError(f"on_progress of a chain must be a function or None, not {on_progress!r}")
        if self._sources.pending:
            await self._sources.start()
        chain = steps_of(steps, self._most)
        runner = self._runner
        if dry_run:
            index, on_error = self._visible(), "stop"  # nothing is done, so nothing is undone
            for number, step in enumerate(chain):
                _check_trial(index, step, number)
            runner = DryRun(runner, index)
        origin = current_origin()
        if self._gate is None:
            origin = origin.within("chain", "") if origin is not HERE else HERE
            return await self._execute(runner, chain, on_progress, origin, on_error)
        ask = partial(asked_chain, chain, origin)
        request = await walked(ask) if any(has_many(step.args) for step in chain) else ask()
        async with begun(self._gate, request, asks=asks) as scope:
            result = await self._execute(runner, chain, on_progress, scope.origin, on_error)
            scope.failure = result.error
            return result

    def _visible(self) -> Index:
        """Return the index as the caller may know it."""
        return self._gate.view(self._index, self._scope.docs, current_origin())[0] if self._gate else self._index

    async def _execute(
        self,
        runner: Runner,
        chain: Sequence[Step],
        on_progress: ProgressCallback | None,
        origin: Origin,
        on_error: OnError,
    ) -> ChainResult:
        result = ChainResult()
        try:
            unknown = self._unknown(chain)
            calls = self._sources.under_way.calls_by(runner)
            work = execute_chain(
                calls, self._index, chain, result, on_progress=on_progress, origin=origin, unknown=unknown
            )
            await self._sources.under_way.worked(work)
        except asyncio.CancelledError as cancelled:
            if on_error == "undo" and not self._goes_on:
                await undo(self._runner, self._index, result.steps, origin, cut_off=cancelled)
            raise
        except ClosedError as closed:
            stop_chain(result, chain, closed)
            if on_error == "undo" and not self._goes_on:
                result.undone = await undo(self._runner, self._index, result.steps, origin, cut_off=closed)
            return result
        if result.error is not None and on_error == "undo":
            result.undone = await undo(self._runner, self._index, result.steps, origin)
        return result

    def _unknown(self, chain: Sequence[Step]) -> Unknown | None:
        """Return the step that would stop the chain because there is no such tool, unless it was checked before."""
        found: list[Unknown] = []

        def check() -> None:
            unknown = unknown_step(self._index, chain, self._visible())
            if unknown is not None:
                found.append(unknown)
                raise unknown[1]

        try:
            check_first(check)
        except ToolExecError as error:
            return found[0] if found else (0, error)
        return None


def steps_of(steps: Sequence[Step | JSONObject], most: float | None) -> list[Step]:
    """Return the steps of a chain; *most* is the longest time limit that one may ask for. Raises InvalidChainError for
    anything but a list of steps, and InvalidLimitsError for a longer limit."""
    chain = read_chain_steps(steps)
    for step in chain:
        if step.timeout:
            refuse_above("timeout", step.timeout, most, tool_id=step.tool_id)
    return chain


def check_ways(on_error: OnError, *, dry_run: bool) -> None:
    """Raise InvalidChainError for another way to run a chain than there is."""
    if on_error not in _ON_ERROR:
        raise InvalidChainError(f"on_error of a chain must be one of {', '.join(_ON_ERROR)}, not {on_error!r}")
    if dry_run is not False and dry_run is not True:
        raise InvalidChainError(f"dry_run of a chain must be true or false, not {dry_run!r}")


def asked_chain(chain: Sequence[Step], origin: Origin) -> RunRequest:
    """Return a chain as the gate decides on it; see `refuse_excess` for arguments that nothing must walk."""
    steps = [{"tool": step.tool_id, "args": bounded(step.args or {}, step.tool_id)} for step in chain]
    return RunRequest(kind="chain", origin=origin, details={"steps": len(chain)}, args={"steps": steps})


def _check_trial(index: Index, step: Step, number: int) -> None:
    """Raise InvalidChainError for a step that a dry run cannot try."""
    try:
        tried_by(index, step.tool_id)
    except InvalidChainError as error:
        raise reworded(error, f"step {number}: {error}") from None
