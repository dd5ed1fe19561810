"""What workflows mean: values, blocks, loops, failures, branches."""

from __future__ import annotations

from typing import Any

import pytest
from tests.workflow.running import program_of, run, step

from toolexec.errors import (
    ClosedError,
    CodeError,
    InputValidationError,
    LimitExceededError,
    ToolExecError,
    WorkflowCheckError,
)
from toolexec.run.large import Budget
from toolexec.workflow.compiler import compile_workflow
from toolexec.workflow.functions import FUNCTIONS
from toolexec.workflow.machine import Finished, Machine
from toolexec.workflow.nodes import Binary, Constant, Expression, ExpressionStatement, Workflow

VALUES: list[tuple[str, Any]] = [
    ("1 + 2 * 3 - -4", 11),
    ("(1 + 2) * 3", 9),
    ("7 / 2 + 4 / 2", 5.5),
    ('"a" == "a" and not (1 > 2)', True),
    ("null or 0 or [] or 5", 5),
    ("1 and 0 and 1 / 0", 0),
    ("null ?? false ?? 1", False),
    ("1 in [1, 2] and 3 not in [1, 2]", True),
    ("0 ? 1 : 2", 2),
    ("1500ms + 1m", 61.5),
    ('{a: 1, "b c": 2, ...{a: 3, d: 4}}', {"a": 3, "b c": 2, "d": 4}),
    ("[1, ...[2, 3], 4]", [1, 2, 3, 4]),
    ("x := {a: [1, 2, 3]}\n[x.a[-1], x.a[1:], x?.b, x.a?[9], null?.c]", [3, [2, 3], None, None, None]),
    ('n := 2\n"${n} and ${[n, null]} ${"in"}"', "2 and [2,null] in"),
    ("title := 1\n{title}", {"title": 1}),
    ("x := [1]\ny := x\ny[0] = 2\n[x, y]", [[1], [2]]),
    ("x := {a: {b: [0]}}\nx.a.b[0] = 7\nx.c = 1\nx", {"a": {"b": [7]}, "c": 1}),
]
BLOCKS: list[tuple[str, Any]] = [
    ("do { x := 1\n x + 1 }", 2),
    ("x := do { y := 1 }\nx", None),
    ("if 0 { 1 } else if 1 { 2 } else { 3 }", 2),
    ("x := if 0 { 1 }\nx", None),
    ("for x in [1] { x }", None),
    ("collect x in [1, 2, 3] where x != 2 { x * 10 }", [10, 30]),
    ("collect i, x in ['a', 'b'] { [i, x] }", [[0, "a"], [1, "b"]]),
    ("collect k, v in {a: 1} { [k, v] }", [["a", 1]]),
    ("collect k in {a: 1, b: 2} { k }", ["a", "b"]),
    ("collect x in range(5) { if x == 1 { continue }\n if x == 3 { break }\n x }", [0, 2]),
    ("n := 0\nwhile n < 3 limit 5 { n = n + 1 }\nn", 3),
    ("n := 0\nwhile true limit 5 { n = n + 1\n if n == 2 { break } }\nn", 2),
    ("n := 0\nfor x in range(3) { for y in range(3) { if y > x { break }\n n = n + 1 } }\nn", 6),
    ("parallel { a: 1\n b: 2 }", {"a": 1, "b": 2}),
    ("parallel { 1\n do { x := 2\n x } }", [1, 2]),
    ("parallel { a := 1\n b := 2 }\na + b", 3),
    ("parallel limit 1 { }", []),
    ("parallel for x in [3, 1, 2] { x + 1 }", [4, 2, 3]),
    ("n := 10\nparallel for i, x in [1, 2, 3] where x != 2 limit 1 { [i, x, n] }", [[0, 1, 10], [2, 3, 10]]),
    ("parallel for k, v in {a: 1} { {k, v} }", [{"k": "a", "v": 1}]),
    ("parallel for x in [1, 2, 3] { if x == 2 { continue }\n x }", [1, 3]),
    ("parallel for x in [] { x }", []),
    ("parallel for x in [1, 2] { ys := parallel for y in [1, 2] { x * y }\n sum(ys) }", [3, 6]),
    ("try { 1 } catch { 2 }", 1),
    ("try { 1 / 0 } catch { 2 }", 2),
    ("try { [1][5] } catch err { [err.code, err.details.kind] }", ["code_error", "missing"]),
    ("try { fail 'no' } catch err { err.message }", "no"),
    ("try { try { fail 'a' } catch e { fail 'b' } } catch f { f.message }", "b"),
    ("for x in [1, 2] { try { if x == 1 { continue }\n __out = x } catch { 0 } }", 2),
    ('try { parallel for x in [1, 2] { fail "no ${x}" } } catch err { err.message }', "no 1"),
    ("retry 2 { 5 }", 5),
    ("collect x in [1, 2] { retry 2 { if x == 1 { continue }\n x } }", [2]),
]


def failure(source: str) -> ToolExecError:
    error = step(source).error
    assert error is not None
    return error


@pytest.mark.parametrize(("source", "value"), VALUES)
def test_values(source: str, value: Any) -> None:
    """Expressions have the values that the language says."""
    found = run(source)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(("source", "value"), BLOCKS)
def test_blocks(source: str, value: Any) -> None:
    """Each block expression has the value that the language says."""
    assert run(source) == value


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("return 1\n2", 1),
        ("__out = 3\n4", 3),
        ("__out = 3\nreturn 4", 4),
        ("__out = 1\n__out = [__out]", [1]),
        ("5", 5),
        ("x := 5", None),
        ("", None),
        ("for x in [1, 2] { if x == 2 { return x } }", 2),
        ("return parallel for x in [1] { x }", [1]),
    ],
)
def test_the_value_of_a_workflow(source: str, value: Any) -> None:
    """`return` counts, else `__out`, else the last expression, else null."""
    assert run(source) == value


def test_inputs() -> None:
    """Inputs come from outside, or from their defaults, which may use earlier ones."""
    source = "input n: integer\ninput m: integer = n + 1\n[n, m]"
    assert run(source, n=1) == [1, 2]
    assert run(source, n=1, m=5) == [1, 5]
    for wrong in ({}, {"n": "1"}, {"n": 1, "o": 2}):
        with pytest.raises(InputValidationError):
            run(source, **wrong)


def test_print_keeps_its_order() -> None:
    """Strings are printed as they are, other values as JSON."""
    assert step('print("a", 1, null, ["b"])\nprint()').printed == 'a 1 null ["b"]\n\n'
    assert step("parallel for x in [1, 2, 3] limit 2 { print(x) }").printed == "1\n2\n3\n"


@pytest.mark.parametrize(
    ("source", "line", "column", "message"),
    [
        ("x := {a: 1}\n\n  y := x.b", 3, 8, "no member b"),
        ("x := 1 +\n  'a'", 1, 6, r"string\(x\)"),
        ("for x in 5 { x }", 1, 1, "goes over a list or an object"),
        ("while 1 limit 2 { 0 }", 1, 1, "limit of 2 rounds"),
        ('if 1 {\n  fail "stop ${1}"\n}', 2, 3, "stop 1"),
        ("x := sort([1, 'a'])", 1, 6, "numbers only, or strings only"),
        ("x := 'a'.b", 1, 6, "no members"),
        ("retry 50 { 1 }", 1, 1, "from 1 to 20"),
        ("run(5)", 1, 1, "takes the ID of a tool"),
        ("run('a', [1])", 1, 1, "arguments as an object"),
        ("run('a') timeout 0", 1, 1, "a duration such as 5s"),
        ("x := 1\nx.a = 2", 2, 1, "only parts of a list or an object"),
        ("[...1]", 1, 1, "takes a list"),
        ("{...1}", 1, 1, "takes an object"),
    ],
)
def test_failures_point_at_their_place(source: str, line: int, column: int, message: str) -> None:
    """A failure that nothing catches is a CodeError with the line and column of what failed."""
    error = failure(source)
    assert isinstance(error, CodeError)
    assert (error.line, error.column) == (line, column)
    with pytest.raises(CodeError, match=message):
        raise error


def test_a_failure_of_a_tool_is_the_cause() -> None:
    """An uncaught tool error points at the call, and has the error of the tool as its cause."""
    error = failure("x := 1\ny := run('bad', {x})")
    assert isinstance(error, CodeError)
    assert (error.line, error.column, error.tool_id, error.kind) == (2, 6, "bad", "handler_failed")
    assert isinstance(error.__cause__, ToolExecError)
    assert error.__cause__.code == "handler_failed"


def test_catch_gets_what_is_known_of_a_tool_error() -> None:
    """`err` has code, message, tool, place and details."""
    assert run("try { run('bad') } catch err { err }") == {
        "code": "handler_failed",
        "message": "bad is down",
        "tool": "bad",
        "retryable": False,
        "line": 1,
        "column": 7,
        "details": {},
    }


def test_retry_repeats_what_may_be_repeated() -> None:
    """A retryable failure of a tool that may be called again is repeated, with growing pauses."""
    ran = step("retry 5 delay 1s backoff 3 { run('flaky', {a: 1}) }")
    assert (ran.value, len(ran.calls), ran.pauses) == ({"a": 1}, 3, [1, 3])
    assert step("retry 2 { run('flaky') }").error is not None
    assert step("n := 0\nretry 3 { n = n + 1\n if n < 3 { fail 'again' }\n n }").value == 3


@pytest.mark.parametrize(
    "body",
    ["run('bad')", "run('unsafe')", "run('write')\nrun('flaky')", "x := 1 / 0", "parallel { run('write') }\nfail 'x'"],
)
def test_retry_repeats_nothing_else(body: str) -> None:
    """Failures that would come again, and blocks that have changed something, end at the first attempt."""
    ran = step(f"retry 5 {{ {body} }}")
    assert ran.error is not None
    assert ran.pauses == []


def test_a_call_that_was_stopped_by_closing_ends_the_run_with_that() -> None:
    """No limit is exceeded where what makes a call is closed, and nothing catches it."""
    machine = Machine(program_of("\ntry { run('a') } catch { run('b') }"), now=0)
    [call] = machine.advance().calls
    machine.fail(call.key, ClosedError("it was closed"))
    ended = machine.advance()
    assert isinstance(ended, Finished)
    assert isinstance(ended.error, ClosedError)
    assert ended.error.details == {"line": 2, "column": 7}


def test_the_first_failure_cancels_the_others() -> None:
    """When a branch fails, the requests of the others are cancelled, and the workflow goes on after catch."""
    machine = Machine(program_of("try { parallel { run('a')\n run('b') } } catch { run('c') }"), now=0)
    first = machine.advance()
    assert [call.key for call in first.calls] == ["0.1/0.1", "0.1/1.1"]
    machine.fail("0.1/1.1", ToolExecError("no"))
    second = machine.advance()
    assert second.cancelled == ("0.1/0.1",)
    assert [(call.key, call.tool_id) for call in second.calls] == [("0.2", "c")]
    machine.answer("0.1/0.1", "too late")
    machine.answer("0.2", 3)
    last = machine.advance()
    assert isinstance(last, Finished)
    assert last.value == 3


def test_branches_begin_within_their_limit() -> None:
    """No more branches are under way than the limit says."""
    machine = Machine(program_of("parallel for x in range(5) limit 2 { run('a', {x}) }"), now=0)
    assert [call.args["x"] for call in machine.advance().calls] == [0, 1]
    machine.answer("0.1/1.1", "b")
    assert [call.args["x"] for call in machine.advance().calls] == [2]
    assert len(machine.requests().calls) == 2


def test_answers_may_come_in_any_order() -> None:
    """The value is the same, whichever answer comes first."""
    source = "parallel for x in range(4) { a := run('echo', {x})\n b := run('echo', {y: a.x * 2})\n b.y }"
    assert step(source).value == step(source, last_first=True).value == [0, 2, 4, 6]


def test_steps_are_limited() -> None:
    """A loop without an end stops at the budget, and no catch sees that."""
    source = "for x in range(1000000) { try { y := x } catch { 0 } }"
    error = step(source, steps=10_000).error
    assert isinstance(error, LimitExceededError)
    assert error.resource == "steps"


@pytest.mark.parametrize(
    "source",
    [
        "x := 2\nfor i in range(20) { x = x * x }",
        "x := 'aaaaaaaa'\nfor i in range(30) { x = x + x }",
        "x := [1]\nfor i in range(30) { x = x + x }",
        "x := []\nfor i in range(300) { x = [x] }",
        "x := {}\nfor i in range(300) { x = {x: x} }",
        "x := []\nfor i in range(300) { x = append([], x) }",
        "x := [1]\nfor i in range(60) { x = [x, x] }\nx",
        "x := [1]\nfor i in range(60) { x = [x, x] }\nstring(x)",
        'x := "a"\nfor i in range(60) { x = "${x}${x}" }',
    ],
)
def test_bombs(source: str) -> None:
    """A value that grows beyond the bounds ends the workflow, and is not caught."""
    machine = Machine(program_of(f"try {{ {source} }} catch {{ 1 }}"), now=0)
    outcome = machine.advance(1_000_000, budget=Budget(steps=1_000_000))
    assert isinstance(outcome, Finished)
    assert isinstance(outcome.error, LimitExceededError)


def test_what_cannot_be_compiled_is_found_at_once() -> None:
    """Undefined names and misplaced words are refused together, before anything runs."""
    with pytest.raises(WorkflowCheckError) as caught:
        program_of("print(x)\nbreak")
    assert [finding["kind"] for finding in caught.value.details["findings"]] == ["undefined-name", "misplaced"]


def test_long_chains_need_no_recursion() -> None:
    """Thousands of operators in a row are compiled and run."""
    one: Expression = Constant(1)
    for _ in range(5000):
        one = Binary("+", one, Constant(1))
    machine = Machine(compile_workflow(Workflow((), (ExpressionStatement(one),))), now=0)
    outcome = machine.advance(20_000)
    assert isinstance(outcome, Finished)
    assert outcome.value == 5001


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_examples_of_functions(name: str) -> None:
    """The example of each function gives what its documentation says."""
    function = FUNCTIONS[name]
    assert run(function.example) == function.gives
