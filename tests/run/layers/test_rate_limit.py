"""RateLimit: how rates are read, which limits concern a call, and what a refused one is told."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from tests.run.conftest import Workshop

from toolexec.errors import ConfigurationError, RateLimitedError, ToolNotFoundError
from toolexec.model import ProviderBinding, Tool, ToolCall
from toolexec.model.origin import Caller, Origin
from toolexec.run import Resolver, Runner
from toolexec.run.layers.rate_limit import Rate, RateLimit
from toolexec.run.runner import ThreadRunner

ANY = {"type": "object"}


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Limits:
    """Tools behind limits, on a clock."""

    def __init__(self, shop: Workshop, **limits: Any) -> None:
        self.clock = Clock()
        self.limit = RateLimit(clock=self.clock, **limits)
        for tool_id in ("math:add", "math:sub", "text:cut"):
            shop.add(lambda: 1, tool_id)
        for name in ("push", "pull"):
            tool = Tool(name=name, namespace="git", input_schema=ANY)
            shop.index.register(tool, ProviderBinding("hub", name))
        self._shop = shop
        self.find = Resolver(shop.index, shop.backends).resolve
        self.runner: Runner = self.limit.wrap(shop.runner(), self.find)

    def allows(self, tool_id: str = "math:add", caller: str = "", tenant: str = "") -> bool:
        """Return whether a call passes."""
        try:
            self.take(tool_id, caller, tenant)
        except RateLimitedError:
            return False
        return True

    def take(self, tool_id: str = "math:add", caller: str = "", tenant: str = "") -> None:
        """Count a call."""
        origin = Origin(caller=Caller(id=caller, tenant=tenant))
        self.limit.take(self.find(tool_id), ToolCall(tool_id, origin=origin))

    def count(self, **call: Any) -> int:
        """Return how many calls pass at once, now."""
        passed = 0
        while passed < 1000 and self.allows(**call):
            passed += 1
        return passed


@pytest.mark.parametrize(
    ("text", "per_second", "burst"),
    [
        ("10/s", 10, 10),
        ("100/min", 100 / 60, 100),
        ("100 / minute burst 20", 100 / 60, 20),
        ("1000 per hour, burst 50", 1000 / 3600, 50),
        ("0.5/s", 0.5, 1),
        ("2.5/sec", 2.5, 3),
        ("5/D", 5 / 86_400, 5),
    ],
)
def test_rates_are_read(text: str, per_second: float, burst: int) -> None:
    """A number of calls in a unit of time, and perhaps a burst."""
    assert Rate.parse(text) == Rate(per_second=per_second, burst=burst)


@pytest.mark.parametrize(
    "text", ["", "10", "ten/s", "10/fortnight", "10/s burst", "-1/s", "0/s", "10/s burst 0", "1e3/s"]
)
def test_strings_that_are_no_rate(text: str) -> None:
    """Refuses strings that are not a rate."""
    with pytest.raises(ConfigurationError):
        Rate.parse(text)


@pytest.mark.parametrize(
    "limits",
    [
        {"overall": 0},
        {"overall": -1.0},
        {"overall": float("nan")},
        {"overall": float("inf")},
        {"overall": True},
        {"overall": ["10/s"]},
        {"burst": 5},
        {"rate": 1.0, "overall": 1.0},
        {"rate": 1.0, "burst": 0},
        {"rate": 1.0, "burst": 1.5},
        {"rules": {"math:*": "fast"}},
    ],
)
def test_settings_that_make_no_sense(limits: Mapping[str, Any]) -> None:
    """Refuses invalid settings when the limit is made."""
    with pytest.raises(ConfigurationError):
        RateLimit(**limits)


class TestBuckets:
    """How many calls pass."""

    def test_a_burst_and_then_the_rate(self, workshop: Workshop) -> None:
        """At once as many as the burst; then one more for each that the rate gives back."""
        limits = Limits(workshop, overall="10/s burst 5")
        assert limits.count() == 5
        limits.clock.now += 0.1
        assert limits.count() == 1
        limits.clock.now += 0.35
        assert limits.count() == 3
        limits.clock.now += 3600
        assert limits.count() == 5

    @pytest.mark.parametrize("rate", [{"overall": 4.0}, {"rate": 4.0}, {"rate": 4.0, "burst": 4}, {"overall": "4/s"}])
    def test_several_ways_to_say_it(self, workshop: Workshop, rate: Any) -> None:
        """A number, a text, or rate and burst."""
        assert Limits(workshop, **rate).count() == 4

    def test_never_more_than_promised(self, workshop: Workshop) -> None:
        """Over any stretch of time there are at most the burst and what the rate gives."""
        limits = Limits(workshop, overall=Rate(per_second=3, burst=7))
        chance = random.Random(11)
        passed, began = 0, limits.clock.now
        for _ in range(5000):
            limits.clock.now += chance.choice([0, 0.001, 0.2, 1 / 3])
            passed += limits.allows()
            assert passed <= 7 + 3 * (limits.clock.now - began) + 1e-3
        assert passed >= 3 * (limits.clock.now - began) * 0.8

    def test_what_is_limited_apart(self, workshop: Workshop) -> None:
        """Callers of one tenant, tools and backends each have buckets of their own."""
        limits = Limits(workshop, per_caller=2)
        assert limits.count(caller="ann") == 2
        assert limits.count(caller="ann", tool_id="git:push") == 0
        assert limits.count(caller="ann", tenant="other") == 2
        assert limits.count() == 2

    def test_per_tool(self, workshop: Workshop) -> None:
        """All callers of one tool together."""
        limits = Limits(workshop, per_tool=2)
        assert limits.count(caller="ann") == 2
        assert limits.count(caller="bob") == 0
        assert limits.count(tool_id="math:sub") == 2

    def test_per_backend(self, workshop: Workshop) -> None:
        """All tools of one backend together."""
        limits = Limits(workshop, per_backend=2)
        assert limits.count(tool_id="git:push") == 2
        assert limits.count(tool_id="git:pull") == 0
        assert limits.count() == 2

    def test_rules(self, workshop: Workshop) -> None:
        """A pattern's limit holds for all the tools that match, together."""
        limits = Limits(workshop, rules={"math:*": "3/min", "*:sub": "1/min"})
        assert limits.count(tool_id="math:sub") == 1
        assert limits.count(tool_id="math:add") == 2
        assert limits.count(tool_id="text:cut") == 1000

    def test_a_refused_call_uses_up_nothing(self, workshop: Workshop) -> None:
        """Where one limit says no, the others are left as they were."""
        limits = Limits(workshop, overall=10, per_tool=2)
        assert limits.count(tool_id="math:add") == 2
        assert [limits.allows("math:add") for _ in range(50)] == [False] * 50
        assert limits.count(tool_id="math:sub") == 2
        assert limits.count(tool_id="text:cut") == 2

    def test_many_callers(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only so many are kept; the one that was seen least recently is forgotten first."""
        monkeypatch.setattr("toolexec.run.layers.rate_limit._MAX_BUCKETS", 3)
        limits = Limits(workshop, per_caller="1/min")
        for caller in "abc":
            assert limits.allows(caller=caller)
        assert not limits.allows(caller="a")
        assert limits.allows(caller="d")
        assert not limits.allows(caller="c")
        assert limits.limit._per_caller is not None
        assert len(limits.limit._per_caller.full_at) == 3

    def test_many_tools(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        """The state of tools that come and go stays small, and their limits hold."""
        monkeypatch.setattr("toolexec.run.layers.rate_limit._MAX_TOOLS", 2)
        limits = Limits(workshop, overall=7)
        tools = ["math:add", "math:sub", "text:cut", "git:push"] * 2
        assert [limits.allows(tool) for tool in tools] == [True] * 7 + [False]
        assert len(limits.limit._tools) <= 2

    def test_a_clock_that_jumps_back(self, workshop: Workshop) -> None:
        """No call is given away and no caller is locked out."""
        limits = Limits(workshop, overall="2/s")
        assert limits.count() == 2
        limits.clock.now -= 86_400
        assert limits.count() == 0
        limits.clock.now += 1
        assert limits.count() == 2


class TestRefusals:
    """What a refused call is told."""

    @pytest.mark.parametrize(
        ("rate", "wait", "expected"),
        [("1/min", 0.0, 60), ("1/min", 58.5, 2), ("10/s burst 1", 0.0, 1), ("1/h", 0.5, 3600)],
    )
    def test_when_to_try_again(self, workshop: Workshop, rate: str, wait: float, expected: int) -> None:
        """In whole seconds, rounded up; then it works."""
        limits = Limits(workshop, overall=rate)
        assert limits.count() == 1
        limits.clock.now += wait
        with pytest.raises(RateLimitedError) as caught:
            limits.take()
        error = caught.value
        assert error.details == {"retry_after": expected, "limit": "in total"}
        assert (error.retryable, error.tool_id, error.op) == (True, "math:add", "rate_limit")
        assert f"again in {expected} s" in str(error)
        limits.clock.now += expected
        assert limits.allows()

    def test_of_several_limits_the_longest_counts(self, workshop: Workshop) -> None:
        """The reported wait is over when all limits have capacity."""
        limits = Limits(workshop, overall="1/s", per_caller="1/min")
        limits.take(caller="ann")
        with pytest.raises(RateLimitedError) as caught:
            limits.take(caller="ann")
        assert caught.value.details == {"retry_after": 60, "limit": "for one caller"}


class TestCalls:
    """The layer."""

    async def test_calls_and_streams(self, workshop: Workshop) -> None:
        """Both count, by the tool that the ID leads to; a refused one does not run."""
        limits = Limits(workshop, per_tool="2/min")
        assert (await limits.runner.run(ToolCall("math:add"))).value == 1
        events = [event async for event in limits.runner.stream(ToolCall("math:add", fallback=True))]
        assert events[-1].data == 1
        with pytest.raises(RateLimitedError):
            await limits.runner.run(ToolCall("math:add"))
        with pytest.raises(RateLimitedError):
            await anext(limits.runner.stream(ToolCall("math:add", fallback=True)))
        with pytest.raises(ToolNotFoundError):
            await limits.runner.run(ToolCall("math:nothing"))

    def test_calls_in_the_callers_thread(self, workshop: Workshop) -> None:
        """Such calls count once, and not at all where the event loop makes them."""
        limits = Limits(workshop, overall="2/min")
        runner = limits.runner
        assert isinstance(runner, ThreadRunner)

        def wait(work: Any) -> Any:
            raise AssertionError

        assert runner.run_in_thread(ToolCall("git:push"), wait, 1) is None
        assert runner.runs_in_thread(ToolCall("math:add"), 1)
        assert runner.run_in_thread(ToolCall("math:add"), wait, 1) is not None
        assert limits.count() == 1
        with pytest.raises(RateLimitedError):
            runner.run_in_thread(ToolCall("math:add"), wait, 1)

    def test_many_threads(self, workshop: Workshop) -> None:
        """Together they get exactly what there is."""
        limits = Limits(workshop, overall="500/min")
        passed: list[int] = []
        threads = [
            threading.Thread(target=lambda: passed.append(sum(limits.allows() for _ in range(200)))) for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(passed) == 500
