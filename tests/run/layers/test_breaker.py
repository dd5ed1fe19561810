"""Breaker: when a circuit opens and closes, what counts, and whom it concerns."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Any

import pytest
from tests.run.conftest import Workshop
from tests.run.layers.resilience import Clock, Service, behind, busy, events_of, in_thread, raised
from tests.waiting import until

from toolexec import Exec, Step
from toolexec.errors import (
    BackendUnavailableError,
    ConfigurationError,
    ConnectionLostError,
    ExecutionError,
    InputValidationError,
    RateLimitedError,
    ToolTimeoutError,
)
from toolexec.model import Tool, ToolCall
from toolexec.model.binding import ProviderBinding
from toolexec.run import Gate, Runner
from toolexec.run.layers.breaker import Breaker
from toolexec.run.layers.retry import Retry


class Circuit:
    """A service behind a breaker on a clock."""

    def __init__(self, shop: Workshop, **rules: Any) -> None:
        self.clock = Clock()
        self.service = Service(shop)
        self.breaker = Breaker(clock=self.clock, **{"failures": 3, "reset": 30.0, **rules})
        self.runner: Runner = behind(shop, breaker=self.breaker)
        self._index = shop.index

    async def fail(self, times: int = 1, failure: BaseException | None = None) -> None:
        """Have calls reach the service, and fail."""
        for _ in range(times):
            self.service.fail(failure or busy())
            await self.call()

    async def call(self) -> bool:
        """Make a call; return whether it reached the service."""
        before = self.service.count
        with suppress(BackendUnavailableError):
            await self.runner.run(ToolCall("hub:read"))
        return self.service.count > before

    @property
    def state(self) -> str:
        """The state of the service's circuit."""
        found = self._index.find("hub:read")
        assert found is not None
        return self.breaker.state(found)


async def test_a_circuit_opens_after_failures_in_a_row(workshop: Workshop) -> None:
    """As long as it is open, calls are refused without reaching the backend, and say when to try again."""
    circuit = Circuit(workshop)
    await circuit.fail(2)
    assert circuit.state == "closed"
    await circuit.fail(1)
    assert circuit.state == "open"
    circuit.clock.now += 12.5
    error = await raised(circuit.runner, ToolCall("hub:post"))
    assert isinstance(error, BackendUnavailableError)
    assert (error.code, error.retryable, error.outcome == "not_sent") == ("circuit_open", True, True)
    assert error.details == {"retry_after": 18, "failures": 3}
    assert (error.tool_id, error.backend, error.op) == ("hub:post", "hub", "breaker")
    assert error.public() is error
    assert circuit.service.count == 3


async def test_an_answer_resets_the_count(workshop: Workshop) -> None:
    """Failures count only in a row."""
    circuit = Circuit(workshop)
    for _ in range(3):
        await circuit.fail(2)
        assert await circuit.call()
    assert circuit.state == "closed"


async def test_after_the_pause_one_call_tries(workshop: Workshop) -> None:
    """A half-open circuit lets one call through: an answer closes it, a failure opens it again."""
    circuit = Circuit(workshop)
    await circuit.fail(3)
    circuit.clock.now += 30
    assert circuit.state == "half_open"
    await circuit.fail(1)
    assert circuit.state == "open"
    assert not await circuit.call()
    circuit.clock.now += 30
    assert await circuit.call()
    assert circuit.state == "closed"
    assert await circuit.call()


async def test_others_wait_for_the_probe(workshop: Workshop) -> None:
    """As long as the probe is under way, other calls are refused."""
    circuit = Circuit(workshop)
    await circuit.fail(3)
    circuit.clock.now += 30
    release = asyncio.Event()
    circuit.service.next = [release.wait]
    probe = asyncio.create_task(circuit.runner.run(ToolCall("hub:read")))
    await until(lambda: circuit.service.count >= 4, 0)
    assert not await circuit.call()
    release.set()
    assert (await probe).ok
    assert await circuit.call()


async def test_a_cancelled_probe_leaves_its_place(workshop: Workshop) -> None:
    """A probe whose caller leaves says nothing, and the next call is one."""
    circuit = Circuit(workshop)
    await circuit.fail(3)
    circuit.clock.now += 30
    circuit.service.next = [asyncio.Event().wait]
    probe = asyncio.create_task(circuit.runner.run(ToolCall("hub:read")))
    await until(lambda: circuit.service.count >= 4, 0)
    probe.cancel()
    await asyncio.wait([probe])
    assert circuit.state == "half_open"
    assert await circuit.call()
    assert circuit.state == "closed"


@pytest.mark.parametrize(
    ("failure", "counts"),
    [
        (ConnectionLostError("gone"), True),
        (ToolTimeoutError("late"), True),
        (busy(), True),
        (BackendUnavailableError("down"), True),
        (ExecutionError("no such city"), False),
        (ValueError("a bug of the tool"), False),
        (InputValidationError([]), None),
        (RateLimitedError("slower"), None),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_counts(workshop: Workshop, failure: BaseException, counts: bool | None) -> None:
    """A backend that does not answer counts; one that says no has answered; what never reached it says nothing."""
    circuit = Circuit(workshop)
    await circuit.fail(2)
    if isinstance(failure, BackendUnavailableError | InputValidationError | RateLimitedError):
        circuit.service.down = failure
        assert await raised(circuit.runner, ToolCall("hub:read")) is failure
        circuit.service.down = None
    else:
        await circuit.fail(1, failure)
    assert (circuit.state == "open") is (counts is True)
    if not counts:
        await circuit.fail(1)
        assert (circuit.state == "open") is (counts is None)


async def test_other_backends_are_not_affected(workshop: Workshop) -> None:
    """Each backend has a circuit of its own, and so has each local tool."""
    circuit = Circuit(workshop)
    Service(workshop, "other")

    def broken() -> None:
        raise busy()

    workshop.add(broken, "math:broken")
    workshop.add(lambda: 1, "math:fine")
    await circuit.fail(3)
    for _ in range(3):
        await circuit.runner.run(ToolCall("math:broken"))
    assert (await raised(circuit.runner, ToolCall("math:broken"))).code == "circuit_open"
    for tool_id in ("other:read", "math:fine"):
        assert (await circuit.runner.run(ToolCall(tool_id))).ok


async def test_tools_of_one_backend_share_its_circuit(workshop: Workshop) -> None:
    """Failures of one tool close the way to its neighbours."""
    circuit = Circuit(workshop)
    workshop.index.register(
        Tool(name="more", namespace="hub", input_schema={"type": "object"}), ProviderBinding("hub", "more")
    )
    await circuit.fail(3)
    assert (await raised(circuit.runner, ToolCall("hub:more"))).code == "circuit_open"


async def test_streams_and_threads_count(workshop: Workshop) -> None:
    """A stream that ends with an error counts, as does a call in a thread; a stream that is left early does not."""
    circuit = Circuit(workshop, failures=2)
    service = circuit.service
    service.fail(busy(), busy())
    for _ in range(2):
        assert [e.kind for e in await events_of(circuit.runner, ToolCall("hub:read", fallback=True))] == ["error"]
    assert circuit.state == "open"

    async def pages() -> Any:
        for number in range(3):
            yield number

    def read() -> None:
        raise busy()

    workshop.add(pages, "doc:pages")
    workshop.add(read, "doc:read")
    async with aclosing(circuit.runner.stream(ToolCall("doc:pages"))) as stream:
        await anext(stream)
    assert circuit.breaker.state(workshop.index.find("doc:pages")) == "closed"  # type: ignore[arg-type]
    for _ in range(2):
        assert (await in_thread(circuit.runner, ToolCall("doc:read"))) is not None
    assert circuit.breaker.state(workshop.index.find("doc:read")) == "open"  # type: ignore[arg-type]


async def test_the_breaker_sees_the_outcome_of_all_attempts(workshop: Workshop) -> None:
    """A call that succeeds at a later attempt is an answer."""
    clock = Clock()
    service = Service(workshop)
    breaker = Breaker(failures=2, clock=clock)
    runner = behind(workshop, breaker=breaker, retry=Retry(pause=0, sleep=clock.sleep))
    service.fail(busy(), busy())
    assert (await runner.run(ToolCall("hub:read"))).attempts == 3
    assert breaker.state(workshop.index.find("hub:read")) == "closed"  # type: ignore[arg-type]


async def test_chains_and_code_are_no_calls() -> None:
    """A run that makes calls is not a call of a backend; its calls are."""
    breaker = Breaker(failures=1, clock=Clock())

    def fail() -> None:
        raise busy()

    async with Exec(gate=Gate(breaker=breaker)) as ex:
        ex.add(fail, "math:fail")
        result = await ex.run_chain([Step("math:fail", stop_on_error=False), Step("math:fail")])
    assert [step.error.code if step.error else "" for step in result.steps] == ["execution_failed", "circuit_open"]


@pytest.mark.parametrize("rules", [{"failures": 0}, {"reset": 0}, {"probes": 0}], ids=str)
def test_rules_that_make_no_sense_are_refused(rules: dict[str, Any]) -> None:
    """Numbers out of range raise at once."""
    with pytest.raises(ConfigurationError):
        Breaker(**rules)
