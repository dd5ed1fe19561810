"""Exceptions of Python tools: which of them lead to another call, by every way of trying again, counted."""

from __future__ import annotations

import asyncio
import socket
import urllib.error
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
import httpx
import pytest
import requests
import urllib3.exceptions
from tests.run.layers.resilience import Clock

from toolexec import Exec, Step, Tool, ToolAnnotations
from toolexec.errors import (
    ConnectionLostError,
    ExecutionError,
    HandlerError,
    Outcome,
    PolicyError,
    RateLimitedError,
    ToolExecError,
    ToolTimeoutError,
)
from toolexec.run import Gate
from toolexec.run.layers.retry import Retry

ATTEMPTS = 3
HINTS = {
    "read_only": ToolAnnotations(read_only=True),
    "idempotent": ToolAnnotations(idempotent=True),
    "unmarked": ToolAnnotations(),
    "destructive": ToolAnnotations(idempotent=True, destructive=True),
}


@dataclass(frozen=True)
class Case:
    """What a tool raises, what became of its call by that, and whether another call may help."""

    raises: Callable[[], BaseException]
    outcome: Outcome
    passes: bool


CASES = {
    "ConnectionError": Case(partial(ConnectionResetError, "reset"), Outcome.UNKNOWN, True),
    "ConnectionRefusedError": Case(partial(ConnectionRefusedError, "refused"), Outcome.UNKNOWN, True),
    "TimeoutError": Case(TimeoutError, Outcome.UNKNOWN, True),
    "OSError": Case(partial(OSError, 5, "I/O error"), Outcome.UNKNOWN, True),
    "gaierror": Case(partial(socket.gaierror, -2, "no such host"), Outcome.UNKNOWN, True),
    "httpx.ConnectError": Case(partial(httpx.ConnectError, "gone"), Outcome.UNKNOWN, True),
    "httpx.ReadTimeout": Case(partial(httpx.ReadTimeout, "late"), Outcome.UNKNOWN, True),
    "requests.ConnectionError": Case(partial(requests.ConnectionError, "gone"), Outcome.UNKNOWN, True),
    "requests.HTTPError": Case(partial(requests.HTTPError, "404"), Outcome.REFUSED, False),
    "aiohttp.ClientConnectionError": Case(partial(aiohttp.ClientConnectionError, "gone"), Outcome.UNKNOWN, True),
    "urllib3.ProtocolError": Case(partial(urllib3.exceptions.ProtocolError, "gone"), Outcome.UNKNOWN, True),
    "urllib.URLError": Case(partial(urllib.error.URLError, "gone"), Outcome.UNKNOWN, True),
    "RateLimitedError": Case(partial(RateLimitedError, "slower"), Outcome.REFUSED, True),
    "ToolTimeoutError": Case(partial(ToolTimeoutError, "late"), Outcome.UNKNOWN, True),
    "ConnectionLostError": Case(partial(ConnectionLostError, "gone"), Outcome.UNKNOWN, True),
    "a call never sent": Case(partial(ToolTimeoutError, "x", outcome=Outcome.NOT_SENT), Outcome.UNKNOWN, True),
    "ExecutionError": Case(partial(ExecutionError, "no"), Outcome.REFUSED, False),
    "ExecutionError, stated": Case(partial(ExecutionError, "?", outcome=Outcome.UNKNOWN), Outcome.UNKNOWN, False),
    "PolicyError": Case(partial(PolicyError, "not allowed"), Outcome.REFUSED, False),
    "FileNotFoundError": Case(partial(FileNotFoundError, 2, "no such file"), Outcome.REFUSED, False),
    "ValueError": Case(partial(ValueError, "no"), Outcome.REFUSED, False),
    "SystemExit": Case(partial(SystemExit, 1), Outcome.UNKNOWN, False),
    "KeyboardInterrupt": Case(KeyboardInterrupt, Outcome.UNKNOWN, False),
    "CancelledError": Case(asyncio.CancelledError, Outcome.UNKNOWN, False),
}


class Bench:
    """A tool of each kind, all of which raise the configured exception and count their calls."""

    def __init__(self, *, is_async: bool, **parts: Any) -> None:
        self.ex = Exec(gate=Gate(**parts) if parts else None)
        self.count = 0
        self.raises: Callable[[], BaseException] = ValueError
        for name, hints in HINTS.items():
            tool = Tool(name=name, namespace="t", input_schema={"type": "object"}, annotations=hints)
            self.ex.add(tool, handler=self._later if is_async else self._now)

    def _now(self, _: object) -> None:
        self.count += 1
        raise self.raises()

    async def _later(self, _: object) -> None:
        self._now(None)


async def by_retry(bench: Bench, tool_id: str) -> None:
    """Call a tool behind the layer of retries."""
    await bench.ex.run_tool(tool_id)


async def by_chain(bench: Bench, tool_id: str) -> None:
    """Call a tool as a step that is tried again; one of a tool that may not be is refused before it runs."""
    with suppress(ToolExecError):
        await bench.ex.run_chain([Step(tool_id, retries=ATTEMPTS - 1, retry_pause=0)])


async def by_workflow(bench: Bench, tool_id: str) -> None:
    """Call a tool in `retry`; one that is destructive is refused by the check."""
    await bench.ex.run_workflow(f'retry {ATTEMPTS} delay 0s {{ run("{tool_id}") }}')


WAYS = {"retry": by_retry, "chain": by_chain, "workflow": by_workflow}
ASKED = {"retry": 1, "chain": 0, "workflow": 1}
"""How often a tool is called that is not repeatable: a chain refuses to try such a tool again at all."""


@pytest.fixture(params=[False, True], ids=["sync", "async"])
async def benches(request: pytest.FixtureRequest) -> AsyncIterator[dict[str, Bench]]:
    """A bench for each way of trying again."""
    clock = Clock()
    retry = Retry(attempts=ATTEMPTS, pause=0, burst=1000, sleep=clock.sleep, clock=clock)
    made = {way: Bench(is_async=request.param, **({"retry": retry} if way == "retry" else {})) for way in WAYS}
    yield made
    for bench in made.values():
        await bench.ex.aclose()


@pytest.mark.parametrize("name", CASES)
async def test_calls_are_made_again_only_where_that_is_safe(benches: dict[str, Bench], name: str) -> None:
    """A transient failure is retried for tools that are read-only or idempotent, and for no other tool."""
    case = CASES[name]
    for way, call in WAYS.items():
        bench = benches[way]
        bench.raises = case.raises
        for hints in HINTS:
            bench.count = 0
            await call(bench, f"t:{hints}")
            safe = hints in ("read_only", "idempotent")
            expected = (ATTEMPTS if case.passes else 1) if safe else ASKED[way]
            if way == "workflow" and hints == "destructive":
                expected = 0
            assert bench.count == expected, (way, hints)


@pytest.mark.parametrize("name", CASES)
async def test_what_became_of_the_call(benches: dict[str, Bench], name: str) -> None:
    """Each exception says what became of the call: nothing was done, or that is unknown."""
    case, bench = CASES[name], benches["chain"]
    bench.raises = case.raises
    error = (await bench.ex.run_tool("t:unmarked")).error
    assert error is not None
    assert (error.outcome, error.retryable) == (case.outcome, case.passes)


async def test_the_time_to_wait_is_kept() -> None:
    """A handler passes on the time that a service asks it to wait, and the next attempt waits that long."""
    clock = Clock()
    bench = Bench(is_async=True, retry=Retry(attempts=2, pause=0, sleep=clock.sleep, clock=clock))
    bench.raises = partial(RateLimitedError, "slower", details={"retry_after": 7})
    error = (await bench.ex.run_tool("t:read_only")).error
    assert isinstance(error, HandlerError)
    assert error.details["retry_after"] == 7
    assert clock.slept == [7]
    await bench.ex.aclose()
