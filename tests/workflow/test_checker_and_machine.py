"""The checker against the machine: what it calls an error fails there."""

from collections.abc import Iterator

from toolexec.workflow.checker import check
from toolexec.workflow.compiler import compile_workflow
from toolexec.workflow.functions import FUNCTIONS
from toolexec.workflow.machine import Finished, Machine
from toolexec.workflow.parser import parse

VALUES = ["1", "1.5", '"a"', "null", "true", "[1, 2]", "{a: 1}"]
PAIRS = [
    *(f"x {operator} y" for operator in ("or", "??", "==", "<", ">=", "in", "not in", "+", "-", "/")),
    "x[y]",
    "x?[y]",
    "x[y:]",
    "[...x, ...y]",
    "{...x, ...y}",
]
SINGLE = [
    "x.a",
    "x?.a",
    "-x",
    "not x",
    '"${x}"',
    "x ? 1 : 2",
    "for i in x { i }",
    "collect i, j in x { j }",
    "parallel for i in x { i }",
    "parallel for i in [1] limit x { i }",
    "parallel limit x { 1 }",
    "retry x { 1 }",
    "retry 2 delay x { 1 }",
    "retry 2 backoff x { 1 }",
    "n := 0\nwhile n < 1 limit x { n = n + 1 }",
]


def sources() -> Iterator[str]:
    """Yield small workflows with values of all kinds in all places."""
    for one in VALUES:
        for other in VALUES:
            yield from (f"x := {one}\ny := {other}\n{pair}" for pair in PAIRS)
        yield from (f"x := {one}\n{single}" for single in SINGLE)
        yield from (f"x := {one}\n{name}(x)" for name in FUNCTIONS)
    yield from (function.example for function in FUNCTIONS.values())


def fails(source: str) -> bool:
    """Return whether a workflow without calls fails."""
    outcome = Machine(compile_workflow(parse(source)), {}, now=0.0).advance(100_000)
    return not isinstance(outcome, Finished) or outcome.error is not None


def test_what_the_checker_calls_an_error_fails() -> None:
    """No workflow that the machine runs to its end has an error, whatever kinds of values are in it."""
    refused = [source for source in sources() if any(found.severity == "error" for found in check(parse(source)))]
    assert len(refused) > 300
    assert [source for source in refused if not fails(source)] == []
