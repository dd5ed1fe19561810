"""Plans: the calls that a workflow would make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from toolexec.errors import InputValidationError
from toolexec.workflow.parser import parse
from toolexec.workflow.plan import PlannedCall, plan


def planned(source: str, inputs: Mapping[str, Any] | None = None) -> list[PlannedCall]:
    """Return the plan of a workflow."""
    return plan(parse(source), source, inputs)


def test_what_follows_from_the_inputs_is_known() -> None:
    """Values, names bound to them, and IDs of tools; a result is not."""
    source = """input repo: string
input count: integer = 2
path := "/${repo}"
log := run("git:" + "log", {path: path, count: count * 2, at: {x: [path]}})
run("git:show", {path: path, hash: log[0].hash, day: today()})
"""
    first, second = planned(source, {"repo": "code"})
    assert first == PlannedCall(tool_id="git:log", line=4, args={"path": "/code", "count": 4, "at": {"x": ["/code"]}})
    assert second == PlannedCall(
        tool_id="git:show", line=5, args={"path": "/code"}, later={"hash": "log[0].hash", "day": "today()"}
    )


def test_branches_that_are_known_are_chosen() -> None:
    """Others are both there, each with its condition."""
    source = """input dry: boolean
if dry { run("a:look") } else { run("a:do") }
x := run("a:state")
if x.open { run("a:close") } else if dry { run("a:note") } else { run("a:open") }
y := dry ? run("a:yes") : run("a:no")
"""
    assert [(call.tool_id, call.under) for call in planned(source, {"dry": True})] == [
        ("a:look", ()),
        ("a:state", ()),
        ("a:close", ("if x.open",)),
        ("a:note", ("if not (x.open)",)),
        ("a:yes", ()),
    ]


def test_loops_and_handlers_are_said() -> None:
    """A call is listed once, with what it is under."""
    source = """input xs: list
for x in xs where x > 1 { retry 3 { run("a:b", {x: x}) } }
ys := parallel for i, y in run("a:list") { run("a:c", {y: y, more: {...y}}) }
try { run("a:d", ys[0]) } catch err { run("a:e", {why: err.message}) }
while run("a:busy") limit 3 { run("a:wait", {...ys}) }
"""
    assert [(call.tool_id, dict(call.later), call.under) for call in planned(source, {"xs": [1, 2]})] == [
        ("a:b", {"x": "x"}, ("for each x in xs where x > 1", "in up to 3 attempts")),
        ("a:list", {}, ()),
        ("a:c", {"y": "y", "more": "{...y}"}, ('for each i, y in run("a:list")',)),
        ("a:d", {"*": "ys[0]"}, ()),
        ("a:e", {"why": "err.message"}, ("after a failure",)),
        ("a:busy", {}, ()),
        ("a:wait", {"*": "{...ys}"}, ('while run("a:busy")',)),
    ]


def test_a_name_that_changes_or_comes_back_is_not_known() -> None:
    """Neither the value before a loop nor that of another block is taken for the one of the call."""
    source = """n := 1
for i in range(3) { n = n + 1 }
run("a:b", {n: n})
if true { x := 5 }
for x in [1, 2] { run("a:c", {x: x}) }
parallel { z := 4 }
run("a:d", {z: z})
"""
    first, second, third = planned(source)
    assert (first.args, first.later) == ({}, {"n": "n"})
    assert (second.args, second.later) == ({}, {"x": "x"})
    assert third.to_dict() == {"tool": "a:d", "line": 7, "args": {"z": 4}, "later": {}, "under": []}


def test_what_fails_is_left_for_the_run() -> None:
    """A plan does not fail where the run might; wrong inputs are refused."""
    (call,) = planned('run("a:b", {x: 1 / 0, y: [1][4]})')
    assert call.later == {"x": "1 / 0", "y": "[1][4]"}
    with pytest.raises(InputValidationError):
        planned("input n: integer\nreturn n", {"n": "x"})
