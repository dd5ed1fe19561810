"""Fallback: when a call goes elsewhere, where to, and what decides on it there."""

from __future__ import annotations

from typing import Any

import pytest
from tests.run.conftest import Workshop
from tests.run.layers.resilience import (
    DESTRUCTIVE,
    READING,
    UNMARKED,
    Clock,
    Service,
    behind,
    busy,
    counting,
    events_of,
    in_thread,
    raised,
)

from toolexec.errors import BackendDisabledError, BackendUnavailableError, ConfigurationError, ExecutionError
from toolexec.model import ProviderBinding, ToolAnnotations, ToolCall
from toolexec.run.layers.breaker import Breaker
from toolexec.run.layers.fallback import Fallback
from toolexec.run.layers.retry import Retry
from toolexec.run.policy import Policy, Rule

OTHERS = {"hub:*": ["other:*"]}


class Pair:
    """Two services with the same tools."""

    def __init__(self, shop: Workshop, rules: Fallback | None = None, **parts: Any) -> None:
        self.hub = Service(shop)
        self.other = Service(shop, "other")
        self.runner = behind(shop, fallback=rules or Fallback(OTHERS), **parts)

    async def answered_by(self, tool_id: str, **call: Any) -> str:
        """Make a call; return the ID of the tool that answered it."""
        return (await self.runner.run(ToolCall(tool_id, **call))).raise_for_error().tool_id


async def test_a_backend_that_is_there_answers(workshop: Workshop) -> None:
    """Nothing goes elsewhere without need, not even a failure of the tool itself."""
    pair = Pair(workshop)
    assert await pair.answered_by("hub:read") == "hub:read"
    pair.hub.fail(ExecutionError("no such city"))
    result = await pair.runner.run(ToolCall("hub:read"))
    assert result.error is not None
    assert pair.other.count == 0


@pytest.mark.parametrize(("name", "goes"), [("read", True), ("put", True), ("post", True), ("delete", False)])
async def test_what_never_began_goes_elsewhere(workshop: Workshop, name: str, goes: bool) -> None:
    """A backend that is down has done nothing, so that the call can be made elsewhere, with the same arguments."""
    pair = Pair(workshop)
    for pair.hub.down in (BackendUnavailableError("down"), BackendDisabledError("off")):
        if goes:
            assert await pair.answered_by(f"hub:{name}", args={"a": 1}) == f"other:{name}"
        else:
            assert await raised(pair.runner, ToolCall(f"hub:{name}")) is pair.hub.down
    assert pair.other.calls == [(name, {"a": 1})] * (2 if goes else 0)


@pytest.mark.parametrize(("name", "goes"), [("read", True), ("put", True), ("post", False), ("delete", False)])
async def test_what_may_have_begun_goes_elsewhere_where_that_is_safe(workshop: Workshop, name: str, goes: bool) -> None:
    """A failure in the middle is met elsewhere only for tools that may run twice."""
    pair = Pair(workshop)
    pair.hub.fail(busy())
    result = await pair.runner.run(ToolCall(f"hub:{name}"))
    assert (result.ok, pair.other.count) == (goes, int(goes))


async def test_other_bindings_of_the_tool_come_first(workshop: Workshop) -> None:
    """A tool that lives in two places is called in the other one; retries stay there."""
    hub, mirror, clock = Service(workshop), Service(workshop, "mirror"), Clock()
    workshop.index.register(hub.add("again", READING), ProviderBinding("mirror", "again"))
    hub.down = BackendUnavailableError("down")
    mirror.fail(busy())
    rules: dict[str, Any] = {
        "fallback": Fallback(),
        "retry": Retry(attempts=2, pause=0, clock=clock, sleep=clock.sleep),
    }
    result = await behind(workshop, **rules).run(ToolCall("hub:again"))
    assert result.raise_for_error().binding == ProviderBinding("mirror", "again")
    assert (mirror.count, result.attempts) == (2, 2)
    error = await raised(behind(workshop, fallback=Fallback(bindings=False)), ToolCall("hub:again"))
    assert error is hub.down


async def test_an_open_circuit_sends_calls_elsewhere(workshop: Workshop) -> None:
    """Once a backend is left alone, calls do not even try it."""
    pair = Pair(workshop, breaker=Breaker(failures=2, clock=Clock()))
    pair.hub.fail(busy(), busy())
    for _ in range(4):
        assert await pair.answered_by("hub:read") == "other:read"
    assert pair.hub.count == 2


async def test_the_first_failure_is_the_outcome(workshop: Workshop) -> None:
    """If none can be called, the caller sees why its own tool could not be."""
    pair = Pair(workshop, Fallback({"hub:*": ["gone:*", "other:*"]}))
    pair.hub.down, pair.other.down = BackendUnavailableError("one"), BackendUnavailableError("two")
    assert await raised(pair.runner, ToolCall("hub:read")) is pair.hub.down
    pair.hub.down, first = None, busy()
    pair.hub.fail(first)
    assert (await pair.runner.run(ToolCall("hub:read"))).error is first


async def test_a_policy_decides_on_the_other_tool(workshop: Workshop) -> None:
    """A fallback leads around no rule: what the caller may not call is not called for it."""
    pair = Pair(workshop, policy=Policy([Rule("deny", tools="other:*")], remote_destructive="allow"))
    pair.hub.down = BackendUnavailableError("down")
    assert await raised(pair.runner, ToolCall("hub:read")) is pair.hub.down
    assert pair.other.count == 0


async def test_all_share_the_calls_time(workshop: Workshop) -> None:
    """The call's limit is for all of them together; when it is over, nothing more is tried."""
    clock = Clock()
    pair = Pair(workshop, Fallback({"hub:*": ["other:read", "third:read"]}, clock=clock))
    third = Service(workshop, "third")

    async def late() -> None:
        clock.now += 3
        raise busy()

    pair.hub.next, pair.other.next = [late], [late]
    result = await pair.runner.run(ToolCall("hub:read", timeout=5))
    assert result.error is not None
    assert (pair.other.count, third.count) == (1, 0)


async def test_a_stream_goes_elsewhere_before_its_first_chunk(workshop: Workshop) -> None:
    """The consumer sees one stream; after a chunk the failure is the end."""
    begun, give = counting(lambda number: [1, 2])
    workshop.add(give, "other:pages", read_only=True)
    _, fail = counting(lambda number: [busy()])
    workshop.add(fail, "hub:pages", read_only=True)
    _, stop = counting(lambda number: [1, busy()])
    workshop.add(stop, "hub:half", read_only=True)
    pair = Pair(workshop, Fallback({"hub:pages": "other:pages", "hub:half": "other:pages", "hub:read": "gone:read"}))
    events = await events_of(pair.runner, ToolCall("hub:pages"))
    assert [(event.kind, event.data, event.tool_id) for event in events] == [
        ("chunk", 1, "other:pages"),
        ("chunk", 2, "other:pages"),
        ("done", [1, 2], "other:pages"),
    ]
    assert [event.kind for event in await events_of(pair.runner, ToolCall("hub:half"))] == ["chunk", "error"]
    assert len(begun) == 1
    pair.hub.fail(busy())
    assert [e.kind for e in await events_of(pair.runner, ToolCall("hub:read", fallback=True))] == ["error"]
    pair.hub.down = BackendUnavailableError("down")
    with pytest.raises(BackendUnavailableError):
        await events_of(pair.runner, ToolCall("hub:read", fallback=True))


async def test_a_call_in_a_thread_goes_elsewhere(workshop: Workshop) -> None:
    """A sync handler that runs in its caller's thread has the same way out."""

    def read() -> None:
        raise busy()

    workshop.add(read, "math:read", read_only=True)
    pair = Pair(workshop, Fallback({"math:read": "hub:read"}))
    result = await in_thread(pair.runner, ToolCall("math:read"))
    assert result is not None
    assert result.raise_for_error().tool_id == "hub:read"


def test_a_tool_does_not_stand_in_for_itself(workshop: Workshop) -> None:
    """A pattern that leads back to the tool is left out; `*` is the tool's name."""
    Service(workshop)
    entry = workshop.index.find("hub:read")
    assert entry is not None
    assert [*Fallback({"*:read": ["hub:*", "b:*", "c:get"], "hub:*": "d:x"}).ids(entry)] == ["b:read", "c:get", "d:x"]


@pytest.mark.parametrize("tools", [{"a:*": []}, {"a:*": ""}, {"a:*": ["b", ""]}], ids=str)
def test_rules_that_make_no_sense_are_refused(tools: Any) -> None:
    """A fallback that names no tool raises at once."""
    with pytest.raises(ConfigurationError):
        Fallback(tools)


@pytest.mark.parametrize("hints", [READING, UNMARKED, DESTRUCTIVE], ids=lambda hints: ",".join(hints.on()))
async def test_success_is_the_same_with_and_without(workshop: Workshop, hints: ToolAnnotations) -> None:
    """A call that works is not changed by the rule."""
    pair = Pair(workshop)
    pair.hub.add("any", hints)
    assert await pair.answered_by("hub:any") == "hub:any"
