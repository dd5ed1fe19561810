"""The size of a value as a tree is known before anything walks it, on every path into a call."""

from __future__ import annotations

import enum
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Gate
from toolexec.errors import InputValidationError
from toolexec.model.arguments import bounded_args, own_parts
from toolexec.model.tree_size import MAX_REPEATED, Excess, excess_of, is_too_large
from toolexec.run.audit import AuditLog
from toolexec.run.layers.audit import Audit


class Color(enum.Enum):
    """A member of this is one object wherever it is."""

    RED = "red"


def doubled(times: int, value: Any = None) -> Any:
    for _ in range(times):
        value = [value, value]
    return value


def deep(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = [value]
    return value


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (doubled(40), Excess.MANY),
        (doubled(17), Excess.REPEATED),
        ([[*range(1000)]] * 1100, Excess.REPEATED),
        (deep(130, doubled(40)), Excess.DEEP),
        (cyclic(), Excess.DEEP),
        (doubled(15), None),
        (deep(119, 1), None),
        ([[] for _ in range(2 * MAX_REPEATED)], None),
        ([Color.RED] * 2 * MAX_REPEATED, None),
        ([Decimal(1)] * 2 * MAX_REPEATED, None),
        ("text", None),
    ],
)
def test_excess_is_distinguished_from_values_that_are_only_large(value: Any, expected: Excess | None) -> None:
    """Copies count where lists and objects are shared, never where different ones are many."""
    assert excess_of(value) is expected
    assert is_too_large(value) is (expected is Excess.MANY)


@pytest.mark.parametrize("value", [doubled(40), doubled(17), deep(130, doubled(40)), cyclic()])
def test_excessive_arguments_are_refused_by_every_reader(value: Any) -> None:
    """The error names the tool and the limit."""
    for look in (bounded_args, lambda args, tool_id: dict(own_parts(args, tool_id))):
        with pytest.raises(InputValidationError) as caught:
            look({"value": value}, "kit:take")
        assert caught.value.tool_id == "kit:take"
        assert str(caught.value.violations[0].expected).startswith("at most")


WIDE = [[number, {"a": [number]}] for number in range(300)]
SHARED = [WIDE[0]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (WIDE, None),
        ({"value": WIDE}, None),
        ([*WIDE, (1, 2)], None),
        ([*WIDE, *[SHARED] * 1000], None),
        ([*WIDE, doubled(40)], Excess.MANY),
        ([*WIDE, *[doubled(10)] * 100], Excess.REPEATED),
        ([*WIDE, cyclic()], Excess.DEEP),
        ([*WIDE, deep(118, 1)], None),
        ([*WIDE, deep(120, [1])], Excess.DEEP),
    ],
)
def test_wide_values_are_judged_as_others_are(value: Any, expected: Excess | None) -> None:
    """Values that are counted level by level, as there is much in them, have the same limits."""
    assert excess_of(value) is expected
    assert excess_of({"a": {"b": value}}) is expected


def test_arguments_that_are_no_json_go_on_to_the_runner() -> None:
    """Only their size is decided here."""
    given = {"value": [object()]}
    assert own_parts(given, "kit:take") is given


@pytest.mark.parametrize("value", [doubled(40), deep(130, doubled(40))])
async def test_a_gate_with_an_audit_log_never_walks_them(value: Any, tmp_path: Path) -> None:
    """Called directly, streamed, and in chains: each is refused with the same error and the tool is not called."""
    async with Exec(gate=Gate(audit=Audit(AuditLog.open(tmp_path / "audit.jsonl", args="redacted")))) as ex:
        ex.add(lambda value: pytest.fail("called"), "kit:take")
        with pytest.raises(InputValidationError):
            await ex.run_tool("kit:take", {"value": value})
        with pytest.raises(InputValidationError):
            [event async for event in ex.stream_tool("kit:take", {"value": value})]
        with pytest.raises(InputValidationError):
            await ex.run_chain([{"tool_id": "kit:take", "args": {"value": value}}])


async def test_a_workflow_may_share_lists_but_not_call_with_them(tmp_path: Path) -> None:
    """Its values are passed by reference, so that forty lines make a value of a trillion parts."""
    lines = ["a := [1]", *["a = [a, a]"] * 40, 'run("kit:take", {value: a})']
    async with Exec(gate=Gate(audit=Audit(AuditLog.open(tmp_path / "audit.jsonl")))) as ex:
        ex.add(lambda value: pytest.fail("called"), "kit:take")
        result = await ex.run_workflow("\n".join(lines))
        assert [call.args for call in result.tool_calls] == [None]
        assert "more than 10,000,000 values" in str(result.error)


async def test_a_result_whose_lists_are_shared_is_an_error() -> None:
    """Of a local tool, whose values are Python's own."""
    async with Exec() as ex:
        ex.add(lambda: doubled(22), "kit:give")
        result = await ex.run_tool("kit:give")
        assert result.error is not None
        assert "copies" in str(result.error)
