"""The contract suite for runners against the pipeline, each layer and stacks of layers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from toolexec.backend.registry import BackendRegistry
from toolexec.discovery.index import Index
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.run import DefaultRunner, Gate, GatePart, Resolver, Result, Runner, Timeout, Trace, TraceEvent
from toolexec.run.layers.breaker import Breaker
from toolexec.run.layers.bulkhead import Bulkhead
from toolexec.run.layers.cache import Cache
from toolexec.run.layers.fallback import Fallback
from toolexec.run.layers.ledger import Ledger
from toolexec.run.layers.retry import Retry
from toolexec.testing.runner_suite import RUNNER_CHECKS, MakeRunner, check_runner, run_runner_check


def _ignore(event: TraceEvent) -> None:
    pass


def _broken_hook(event: TraceEvent) -> None:
    raise RuntimeError("this hook always fails")


RUNNERS: dict[str, MakeRunner] = {
    "pipeline": DefaultRunner,
    "timeout none": lambda index, backends: Timeout(DefaultRunner(index, backends), None),
    "timeout 30": lambda index, backends: Timeout(DefaultRunner(index, backends), 30),
    "timeout twice": lambda index, backends: Timeout(Timeout(DefaultRunner(index, backends), 30), 60),
    "trace": lambda index, backends: Trace(DefaultRunner(index, backends), _ignore),
    "trace with a broken hook": lambda index, backends: Trace(DefaultRunner(index, backends), _broken_hook),
    "trace, timeout": lambda index, backends: Trace(Timeout(DefaultRunner(index, backends), 30), _ignore),
    "timeout, trace": lambda index, backends: Timeout(Trace(DefaultRunner(index, backends), _ignore), 30),
}


@pytest.mark.parametrize("check", RUNNER_CHECKS)
@pytest.mark.parametrize("runner", RUNNERS)
async def test_every_runner_keeps_the_contract(runner: str, check: str) -> None:
    """Each runner passes each check of the suite."""
    await run_runner_check(RUNNERS[runner], check)


PARTS: dict[str, Callable[[Path], GatePart]] = {
    "cache": lambda path: Cache(rules={"suite:*": 60.0}, path=path / "cache.db"),
    "ledger": lambda path: Ledger(path / "effects.db"),
    "fallback": lambda path: Fallback({"suite:*": "gone:*"}),
    "bulkhead": lambda path: Bulkhead(30, limits={"local": 30}),
    "breaker": lambda path: Breaker(),
    "retry": lambda path: Retry(pause=0.001),
}


@pytest.mark.parametrize("check", RUNNER_CHECKS)
@pytest.mark.parametrize("names", [[name] for name in PARTS] + [[*PARTS]], ids=",".join)
async def test_every_part_of_a_gate_keeps_the_contract(names: list[str], check: str, tmp_path: Path) -> None:
    """Each part around the pipeline passes each check, and so do all of them together."""
    parts = {name: PARTS[name](tmp_path) for name in names}

    def make(index: Index, backends: BackendRegistry) -> Runner:
        resolver = Resolver(index, backends)
        inner = Timeout(DefaultRunner(index, backends, resolver=resolver), 30)
        return Gate(**parts).wrap(inner, resolver.resolve)

    await run_runner_check(make, check)
    for part in parts.values():
        if isinstance(part, Cache | Ledger):
            part.close()


class _Forgetful:
    """A layer that loses the arguments and swallows what is raised: a bad example."""

    def __init__(self, inner: Runner) -> None:
        self.inner = inner

    async def run(self, call: ToolCall) -> Result:
        try:
            return await self.inner.run(replace(call, args=None))
        except Exception as error:
            return Result(call.tool_id, str(error))

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        return self.inner.stream(call)


def _make_forgetful(index: Index, backends: BackendRegistry) -> Runner:
    return _Forgetful(DefaultRunner(index, backends))


GAPS = [
    "a_result_passes_through",
    "an_unknown_tool_raises",
    "a_malformed_id_raises",
    "wrong_arguments_raise",
    "a_raised_error_arrives_as_it_is",
    "a_runner_survives_failures",
    "arguments_stay_untouched",
    "progress_reaches_the_caller",
    "concurrent_calls_are_independent",
]


async def test_the_suite_passes_as_a_whole() -> None:
    """`check_runner` takes every check at once."""
    await check_runner(DefaultRunner)


async def test_the_suite_reports_every_breach_by_name() -> None:
    """A layer that breaks the contract gets one failure for each check, with the check's name as a note."""
    with pytest.raises(ExceptionGroup) as caught:
        await check_runner(_make_forgetful)
    notes = [note for error in caught.value.exceptions for note in error.__notes__]
    assert notes == [f"runner check: {name}" for name in GAPS]


async def test_known_gaps_are_excused() -> None:
    """Gaps that are listed by name do not fail the suite."""
    await check_runner(_make_forgetful, known_gaps=GAPS)


async def test_a_gap_that_was_closed_is_news() -> None:
    """A listed gap that passes fails the suite, so that the list stays true."""
    with pytest.raises(ExceptionGroup) as caught:
        await check_runner(DefaultRunner, known_gaps=["a_result_passes_through"])
    assert "listed as a known gap, but it passes" in str(caught.value.exceptions[0])


async def test_an_unknown_gap_is_refused() -> None:
    """A misspelt gap raises ValueError, with the names there are."""
    with pytest.raises(ValueError, match="a_result_passes_through"):
        await check_runner(DefaultRunner, known_gaps=["a_resutl"])
