"""Undo and dry run of workflows: as those of chains, for whatever calls were made, in the order in which they ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.exec.test_undo import Trip

from toolexec import Exec, Gate, Policy, Rule, Step, Tool, tool
from toolexec.code.types import CodeResult
from toolexec.errors import ConfigurationError, InvalidChainError
from toolexec.model.binding import ProviderBinding
from toolexec.model.tool import DRY_RUN
from toolexec.run.types import UndoneStep
from toolexec.run.undo import UNDO

BOOK = 'run("trip:flight", {to: "Bern"})\nrun("trip:look")\nrun("trip:hotel", {nights: 2})\n'

ANY: dict[str, Any] = {"type": "object"}


def reported(undone: list[UndoneStep]) -> list[tuple[str, str, bool]]:
    return [(each.tool_id, each.undo_id, each.ok) for each in undone]


@pytest.fixture
async def trip() -> AsyncIterator[Trip]:
    """A trip with a taxi that can be tried."""
    made = Trip()

    @tool("trip:taxi", meta={DRY_RUN: "trip:price", UNDO: "trip:cancel_taxi"})
    async def taxi(km: int) -> int:
        await asyncio.sleep(0.001 * (10 - km))
        made.done.append(f"taxi {km}")
        return km

    @tool("trip:cancel_taxi")
    def cancel_taxi(km: int) -> None:
        made.done.append(f"cancel taxi {km}")

    @tool("trip:price", read_only=True)
    def price(km: int) -> str:
        return f"would cost {3 * km}"

    @tool("trip:wait", read_only=True)
    async def wait() -> None:
        await asyncio.sleep(3600)

    for each in (taxi, cancel_taxi, price, wait):
        made.ex.add(each)
    yield made
    await made.ex.aclose()


async def run(trip: Trip, source: str, **settings: Any) -> CodeResult:
    """Run a workflow that is undone when it fails."""
    return await trip.ex.run_workflow(source, on_error="undo", **settings)


async def test_calls_are_undone_in_reverse(trip: Trip) -> None:
    """A workflow that fails has its effects undone, the last one first, and says so."""
    result = await run(trip, BOOK + 'run("trip:fail")')
    assert trip.done == ["flight Bern", "hotel 2", "cancel hotel 9", "cancel flight 7 Bern"]
    assert reported(result.undone) == [
        ("trip:hotel", "trip:cancel", True),
        ("trip:flight", "trip:cancel_flight", True),
    ]
    assert [each.index for each in result.undone] == [2, 0]
    assert result.error is not None
    assert result.to_dict()["undone"][1]["value"] == "cancelled"
    assert [call.tool_id for call in result.tool_calls][-1] == "trip:fail"


async def test_a_success_and_a_failure_that_only_stops_are_left_alone(trip: Trip) -> None:
    """Undoing has to be asked for, and needs a failure that ends the workflow."""
    caught = await run(trip, BOOK + 'try { run("trip:fail") } catch error { }\nreturn 1')
    assert (caught.value, caught.undone) == (1, [])
    stopped = await trip.ex.run_workflow(BOOK + 'run("trip:fail")')
    assert stopped.undone == []
    assert "undone" not in stopped.to_dict()
    assert not any(each.startswith("cancel") for each in trip.done)


async def test_branches_are_undone_in_the_order_of_their_effects(trip: Trip) -> None:
    """The call that ended last is undone first, whichever was begun first."""
    await run(trip, 'parallel for km in [1, 9, 5] limit 3 { run("trip:taxi", {km}) }\nfail "enough"')
    assert trip.done[:3] == ["taxi 9", "taxi 5", "taxi 1"]
    assert trip.done[3:] == ["cancel taxi 1", "cancel taxi 5", "cancel taxi 9"]


async def test_what_cannot_be_undone_is_reported(trip: Trip) -> None:
    """A tool that names none, a failure of unknown outcome, and a call that the end of the run has stopped."""

    @tool("trip:slow", meta={UNDO: "trip:cancel"})
    async def slow() -> None:
        await asyncio.sleep(3600)

    trip.ex.add(slow)
    result = await run(trip, 'run("trip:mail")\nrun("trip:fail", {lost: true})')
    assert [(each.tool_id, each.ok) for each in result.undone] == [("trip:fail", False), ("trip:mail", False)]
    assert "is unknown" in result.undone[0].reason
    assert "does not name a tool" in result.undone[1].reason
    late = await run(trip, 'run("trip:flight", {to: "Bern"})\nrun("trip:slow")', timeout=0.2)
    assert late.error is not None
    assert late.error.code == "code_timeout"
    assert [(each.tool_id, each.ok) for each in late.undone] == [("trip:slow", False), ("trip:flight", True)]
    assert "is unknown" in late.undone[0].reason


async def test_the_deadline_does_not_stop_undoing(trip: Trip) -> None:
    """A run that is over time, or over its cap of calls, is undone all the same; tools that undo need not be allowed."""
    await run(trip, BOOK + 'run("trip:wait")', timeout=0.2)
    assert trip.done[2:] == ["cancel hotel 9", "cancel flight 7 Bern"]
    capped = await run(trip, BOOK + BOOK, max_tool_calls=3, allowed_tools=["trip:flight", "trip:look", "trip:hotel"])
    assert capped.error is not None
    assert capped.error.code == "tool_call_limit"
    assert trip.done[6:] == ["cancel hotel 9", "cancel flight 7 Bern"]


async def test_values_that_were_not_kept_are_reported(trip: Trip, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what the step was called with, nothing is guessed."""
    monkeypatch.setattr("toolexec.code.tools.MAX_TRACE_BYTES", 150)
    result = await run(trip, f'run("trip:flight", {{to: "{"x" * 200}"}})\nfail "no"')
    assert [(each.ok, each.reason) for each in result.undone] == [
        (False, "its arguments or its value were too large to be kept")
    ]
    assert len(trip.done) == 1


async def test_a_policy_decides_on_undoing() -> None:
    """A tool that the caller may not call does not undo anything for it."""
    trip = Trip(Gate(policy=Policy([Rule("deny", tools="trip:cancel_flight")])))
    result = await trip.ex.run_workflow(BOOK + 'run("trip:fail")', on_error="undo")
    assert [(each.ok, each.error.code if each.error else "") for each in result.undone] == [
        (True, ""),
        (False, "policy_denied"),
    ]
    await trip.ex.aclose()


async def test_a_workflow_can_be_tried(trip: Trip) -> None:
    """In place of a tool that changes something the one is called that says what it would do."""
    source = 'input km: integer = 4\nrun("trip:look")\nreturn run("trip:taxi", {km})'
    result = await trip.ex.run_workflow(source, dry_run=True, on_error="undo")
    assert result.value == "would cost 12"
    assert [call.tool_id for call in result.tool_calls] == ["trip:look", "trip:price"]
    code = await trip.ex.execute_code(source, language="workflow", dry_run=True)
    assert code.value == "would cost 12"
    assert trip.done == []


async def test_a_workflow_with_a_tool_that_cannot_be_tried_does_not_begin(trip: Trip) -> None:
    """The check says where it is; a computed ID is refused when it is called, and can change nothing either."""
    result = await trip.ex.run_workflow('run("trip:taxi", {km: 1})\nrun("trip:mail")', dry_run=True)
    assert result.error is not None
    assert result.error.code == "workflow_check"
    assert "2:1: trip:mail cannot be tried" in str(result.error)
    assert result.tool_calls == []
    computed = await trip.ex.run_workflow('name := "mail"\nrun("trip:${name}")', dry_run=True)
    assert computed.error is not None
    assert "trip:mail cannot be tried" in str(computed.error)
    assert trip.done == []


async def test_only_for_workflows(trip: Trip) -> None:
    """Code of other languages is refused, and so is a misspelt word."""
    with pytest.raises(ConfigurationError, match="for workflows, not for python"):
        await trip.ex.execute_code("return 1", on_error="undo")
    with pytest.raises(ConfigurationError, match="for workflows, not for python"):
        await trip.ex.execute_code("return 1", dry_run=True)
    with pytest.raises(ConfigurationError, match="on_error"):
        await trip.ex.run_workflow("return 1", on_error="rollback")  # type: ignore[arg-type]


HEAD = '+++\nname = "book"\ndescription = "Books"\n{}+++\n'


async def test_calls_that_were_not_recorded_are_reported(trip: Trip, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their effects are not known."""
    monkeypatch.setattr("toolexec.code.tools._MAX_RECORDS", 2)
    result = await run(trip, BOOK + 'fail "no"')
    assert [(each.index, each.ok, each.reason) for each in result.undone] == [
        (1, False, "1 calls after it were not recorded"),
        (0, True, ""),
    ]


class TestSkills:
    """Skills say it in their front matter."""

    async def test_one_that_undoes_itself(self, trip: Trip) -> None:
        """The skill fails as a whole, on each path, and its error says what became of its calls."""
        trip.ex.add_skill(HEAD.format('on_error = "undo"\n') + BOOK + 'run("trip:fail")')
        result = await trip.ex.run_tool("skill:book")
        assert result.error is not None
        assert [each["ok"] for each in result.error.details["undone"]] == [True, True]
        assert trip.done[2:] == ["cancel hotel 9", "cancel flight 7 Bern"]

    async def test_a_part_of_a_run_that_undoes(self, trip: Trip) -> None:
        """A skill that fails is undone where the workflow that it is a part of would be."""
        trip.ex.add_skill(HEAD.format("") + BOOK + 'run("trip:fail")')
        result = await run(trip, 'try { run("skill:book") } catch error { }\nreturn 1')
        assert result.value == 1
        assert trip.done[2:] == ["cancel hotel 9", "cancel flight 7 Bern"]

    async def test_one_that_is_undone_as_a_whole(self, trip: Trip) -> None:
        """The front matter names what undoes it and what tries it, as any tool may."""
        front = 'undo = {tool = "trip:cancel", args = {kind = "trip", id = 1}}\ndry_run = "trip:look"\n'
        trip.ex.add_skill(HEAD.format(front) + BOOK)
        result = await run(trip, 'run("skill:book")\nrun("trip:fail")')
        assert reported(result.undone) == [("skill:book", "trip:cancel", True)]
        assert trip.done[2:] == ["cancel trip 1"]
        assert (await trip.ex.run_workflow('return run("skill:book")', dry_run=True)).value == "sunny"

    async def test_one_that_says_it_is_read_only_is_tried_as_well(self, trip: Trip) -> None:
        """A hint that is wrong does not let a dry run change anything."""
        trip.ex.add_skill(HEAD.format("read_only = true\n") + BOOK)
        result = await trip.ex.run_workflow('run("skill:book")', dry_run=True)
        assert result.error is not None
        assert "trip:flight cannot be tried" in str(result.error)
        assert trip.done == []

    def test_a_misspelt_word_is_refused(self) -> None:
        """As any other setting of the front matter."""
        with pytest.raises(ConfigurationError, match="on_error"):
            Exec().add_skill(HEAD.format('on_error = "undoo"\n') + BOOK)


@pytest.mark.parametrize("owner", ["shop", "bank"])
async def test_a_remote_tool_names_only_tools_of_its_own_backend(owner: str) -> None:
    """A server that speaks of undoing and trying does not lead to tools that it has no say about."""
    called: list[str] = []
    async with Exec(provider_executor=lambda provider, name, args: called.append(f"{provider} {name}")) as ex:
        meta = {UNDO: "bank:take", DRY_RUN: "bank:take"}
        ex.add(Tool(name="buy", namespace="shop", input_schema=ANY, meta=meta), binding=ProviderBinding("shop", "buy"))
        ex.add(Tool(name="take", namespace="bank", input_schema=ANY), binding=ProviderBinding(owner, "take"))
        ex.add(Tool(name="fail", namespace="bank", input_schema=ANY), handler=lambda args: 1 / 0)
        result = await ex.run_chain([Step("shop:buy"), Step("bank:fail")], on_error="undo")
        assert called == ["shop buy", *(["shop take"] if owner == "shop" else [])]
        assert [each.reason for each in result.undone] == [
            "" if owner == "shop" else "bank:take, which shop:buy names, is not of the same backend"
        ]
        called.clear()
        if owner == "shop":
            assert (await ex.run_workflow('run("shop:buy")', dry_run=True)).ok
        else:
            with pytest.raises(InvalidChainError, match="not of the same backend"):
                await ex.run_chain([Step("shop:buy")], dry_run=True)
        assert called == (["shop take"] if owner == "shop" else [])


async def test_a_tool_that_only_a_resolver_knows_is_not_tried() -> None:
    """The tool itself would be called."""
    known = Tool(name="t", namespace="far", input_schema=ANY)
    async with Exec(tool_resolver=lambda _: known) as ex:
        with pytest.raises(InvalidChainError, match="step 0: far:t cannot be tried: the index does not have it"):
            await ex.run_chain([Step("far:t")], dry_run=True)
