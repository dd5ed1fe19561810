"""Check a workflow before it runs: all that is certainly wrong with it, and what was probably not meant.

What is not known is never an error: a value of a tool without an output schema may be anything, and what holds an
unknown part is left alone there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from toolexec.discovery.index import Index
from toolexec.discovery.learned import LearnedIndex, LearnedOutputs
from toolexec.errors.hints import did_you_mean
from toolexec.model.schema import Schema
from toolexec.workflow import nodes
from toolexec.workflow.check_calls import ToolChecks
from toolexec.workflow.check_expressions import MAX_DEPTH, UNKNOWN, Expressions, constant_of, truth_of
from toolexec.workflow.check_nulls import Nulls
from toolexec.workflow.findings import Finding
from toolexec.workflow.inputs import type_schema
from toolexec.workflow.names import OUT, Binding, resolve_names
from toolexec.workflow.report import Report, in_order, shown
from toolexec.workflow.shapes import (
    ANY,
    BOOLEAN,
    NULL,
    NUMBER,
    STRING,
    ObjectShape,
    SchemaDocument,
    Shape,
    kinds_text,
    list_of,
    of_kinds,
    union,
)
from toolexec.workflow.values import is_number, whole

__all__ = ["Finding", "check"]

_ERROR: Final = ObjectShape(
    {
        "code": STRING,
        "message": STRING,
        "tool": of_kinds("string", "null"),
        "retryable": BOOLEAN,
        "line": NUMBER,
        "column": NUMBER,
        "details": ANY,
    }
)
_MAX_ATTEMPTS: Final = 20
_START: Final = nodes.Position(1, 1, 1, 1)


def check(
    workflow: nodes.Workflow,
    index: Index | None = None,
    *,
    inputs: Mapping[str, object] | None = None,
    allowed: Callable[[str], bool] | None = None,
    learned: LearnedOutputs | None = None,
) -> list[Finding]:
    """Return everything that is wrong with a workflow, in the order of the source; nothing is run.

    Calls are checked against the tools of *index*, of which the run may call those that *allowed* accepts (None: all);
    without an index they are not. *inputs* are those of a run, to be checked too; None leaves them open. A finding
    with the severity `error` keeps the workflow from being run. *learned* are output schemas of tools that declare
    none: what is wrong by these alone is a `warning`, for another answer may differ.
    """
    found = _Checker(workflow, index, allowed).check(inputs)
    if index is None or learned is None:
        return found
    more = _Checker(workflow, LearnedIndex(index, learned), allowed).check(inputs)
    known = {(each.kind, each.at) for each in found}
    return in_order(
        [*found, *(replace(each, severity="warning") for each in more if (each.kind, each.at) not in known)]
    )


class _Checker:
    """Walks through a workflow once. The rules for names are those of `resolve_names`."""

    def __init__(self, workflow: nodes.Workflow, index: Index | None, allowed: Callable[[str], bool] | None) -> None:
        self._workflow = workflow
        self._report = Report()
        self._nulls: Nulls | None = None
        self._given_names: list[str] = []
        self._values = Expressions(self._report, ToolChecks(self._report, index, allowed, self._untested))
        self._assigned = _assigned(workflow)
        self._depth = 0

    def check(self, inputs: Mapping[str, object] | None) -> list[Finding]:
        names = resolve_names(self._workflow)
        for given in self._workflow.inputs:
            self._input(given)
        if inputs is not None:
            self._given(inputs)
            self._given_names = [name for name, value in inputs.items() if value is not None]
        self._statements(self._workflow.statements)
        for binding in names.bindings:
            self._used(binding)
        return in_order([*names.findings, *self._report.findings])

    def _untested(self, node: nodes.Expression) -> bool:
        if self._nulls is None:
            self._nulls = Nulls(self._workflow, self._given_names)
        return self._nulls.untested(node)

    def _used(self, binding: Binding) -> None:
        if binding.used or binding.name.startswith("_") or binding.kind in ("loop", "catch"):
            return
        hints = {
            "input": "leave it out, or use it",
            "bind": "write the value by itself where only its effect is wanted",
            "branch": f"write {binding.name}: ... in place of {binding.name} := ...",
        }
        at = binding.at if binding.kind == "input" else _of_length(binding.at, len(binding.name))
        hint = "its values are never read" if binding.name in self._assigned else hints[binding.kind]
        self._report.warning("unused-name", at, f"{binding.name} is never used", hint)

    # -- inputs -------------------------------------------------------------------------------------------------

    def _input(self, given: nodes.Input) -> None:
        schema = Schema.of(type_schema(given.type))
        wanted = SchemaDocument(schema).shape
        self._bind(given.name, wanted)
        if given.default is None:
            return
        shape, value = self._values.of(given.default), constant_of(given.default)
        if value is not UNKNOWN:
            self._conforms(schema, value, f"the default of {given.name}", given.default.at)
        elif shape.kinds and shape.kinds.isdisjoint(wanted.kinds):
            message = f"the default of {given.name} is {kinds_text(shape.kinds)}, not {kinds_text(wanted.kinds)}"
            self._report.error("wrong-type", given.default.at, message)

    def _conforms(self, schema: Schema, value: object, what: str, at: nodes.Position) -> None:
        for violation in schema.violations(value)[:1]:
            where = f", at {shown(violation.path)}" if violation.path else ""
            self._report.error("wrong-type", at, f"{what} is not valid{where}: {violation.message}")

    def _given(self, inputs: Mapping[str, object]) -> None:
        known = {given.name: given for given in self._workflow.inputs}
        for name, given in known.items():
            if name in inputs:
                self._conforms(Schema.of(type_schema(given.type)), inputs[name], f"the given {name}", given.at)
            elif given.default is None:
                self._report.error("missing-input", given.at, f"the input {name} is required, and is not given")
        for name in inputs:
            if name not in known:
                hint = did_you_mean(name, known, otherwise="" if known else "the workflow has no inputs")
                at = self._workflow.inputs[0].at if self._workflow.inputs else _START
                self._report.error("unknown-input", at, f"there is no input {shown(name)}", hint)

    # -- statements ---------------------------------------------------------------------------------------------

    def _statements(self, statements: Sequence[nodes.Statement]) -> Shape:
        """Check statements one after the other, and return the shape of their value."""
        value, has_ended, is_reported = NULL, False, False
        for statement in statements:
            if has_ended and not is_reported:
                is_reported = True
                self._report.warning(
                    "unreachable", statement.at, "this is never reached", "what is before it ends here"
                )
            value = self._statement(statement)
            has_ended = has_ended or _ends(statement)
        return value

    def _statement(self, statement: nodes.Statement) -> Shape:
        match statement:
            case nodes.Bind(name=name, value=value):
                self._bind(name, self._value(value))
            case nodes.Assign(target=target, value=value):
                self._value(value)
                self._target(target)
            case nodes.ExpressionStatement(value=value):
                return self._value(value)
            case nodes.Print(values=values):
                for each in values:
                    self._values.of(each)
            case nodes.Return(value=value):
                if value is not None:
                    self._value(value)
            case nodes.Fail(message=message):
                self._values.of(message)
            case nodes.Break() | nodes.Continue():
                pass
        return NULL

    def _target(self, target: nodes.Name | nodes.Member | nodes.Index) -> None:
        node: nodes.Expression = target
        while isinstance(node, nodes.Member | nodes.Index):
            if isinstance(node, nodes.Index):
                self._values.of(node.index)
            node = node.value

    def _bind(self, name: str, shape: Shape) -> None:
        self._values.names[-1][name] = ANY if name in self._assigned or name == OUT else shape

    # -- values -------------------------------------------------------------------------------------------------

    def _value(self, value: nodes.Value) -> Shape:
        match value:
            case nodes.Do(body=body):
                return self._block(body)
            case nodes.If():
                return self._if(value)
            case nodes.For():
                self._loop(value)
                return NULL
            case nodes.Collect():
                return list_of(self._loop(value))
            case nodes.ParallelFor():
                self._limit(value.limit, "the limit of parallel for")
                return list_of(self._loop(value))
            case nodes.While():
                return self._while(value)
            case nodes.Parallel():
                return self._parallel(value)
            case nodes.Retry():
                return self._retry(value)
            case nodes.Try():
                with self._names({} if value.name is None else {value.name: _ERROR}):
                    handler = self._block(value.handler)
                self._values.catches += 1
                body = self._block(value.body)
                self._values.catches -= 1
                return union([body, handler])
            case _:
                return self._values.of(value)

    def _block(self, block: nodes.Block) -> Shape:
        if self._depth > MAX_DEPTH:
            return ANY
        self._depth += 1
        with self._names({}):
            value = self._statements(block.statements)
        self._depth -= 1
        return value

    def _if(self, value: nodes.If) -> Shape:
        shapes: list[Shape] = []
        branch: nodes.If | nodes.Block | None = value
        while isinstance(branch, nodes.If):
            self._values.condition(branch.condition)
            shape = self._block(branch.then)
            if not _block_ends(branch.then):
                shapes.append(shape)
            branch = branch.otherwise
        if branch is None:
            return union([*shapes, NULL])
        last = self._block(branch)
        return union(shapes if _block_ends(branch) else [*shapes, last])

    def _loop(self, loop: nodes.For | nodes.Collect | nodes.ParallelFor) -> Shape:
        """Check a loop, and return the shape of what a round gives."""
        values = self._values.need(loop.values, "what a loop goes over", "list", "object")
        item = values.item() if values.is_only("list") else ANY
        first = NUMBER if values.is_only("list") else STRING if values.is_only("object") else ANY
        shapes = [first, item] if len(loop.names) > 1 else [STRING if values.is_only("object") else item]
        names = {
            name: ANY if name in self._assigned else shape for name, shape in zip(loop.names, shapes, strict=False)
        }
        with self._names(names):
            if loop.where is not None:
                self._values.condition(loop.where)
            return self._block(loop.body)

    def _while(self, value: nodes.While) -> Shape:
        leaves = _leaves(value.body)
        if value.limit is None:
            self._report.error(
                "unbounded-loop",
                _of_length(value.at, len("while")),
                "while needs a limit on its rounds",
                "write while condition limit 100 { ... }",
            )
        elif truth_of(value.condition) is True and not leaves:
            self._report.error(
                "unbounded-loop",
                value.condition.at,
                "this loop never ends by itself: its condition is always true, and there is no break or return in it",
            )
        self._limit(value.limit, "the limit of while")
        is_always = truth_of(value.condition) is True
        self._values.condition(value.condition, may_be_constant=is_always)
        self._block(value.body)
        return NULL

    def _limit(self, node: nodes.Expression | None, what: str) -> None:
        if node is None:
            return
        self._values.need(node, what, "number", "null")
        value = constant_of(node)
        if is_number(value) and (whole(value) or 0) < 1:
            self._report.error("wrong-value", node.at, f"{what} is an integer above 0, not {value}")

    def _parallel(self, value: nodes.Parallel) -> Shape:
        self._limit(value.limit, "the limit of parallel")
        shapes: list[Shape] = []
        for branch in value.branches:
            with self._names({}):
                shapes.append(self._value(branch.value))
        for branch, shape in zip(value.branches, shapes, strict=True):
            if branch.binds and branch.name is not None:
                self._bind(branch.name, shape)
        if any(branch.name is not None for branch in value.branches):
            named = zip(value.branches, shapes, strict=True)
            return ObjectShape({branch.name: shape for branch, shape in named if branch.name is not None})
        return list_of(union(shapes))

    def _retry(self, value: nodes.Retry) -> Shape:
        self._values.need(value.attempts, "the number of attempts", "number")
        attempts = constant_of(value.attempts)
        if isinstance(attempts, int | float) and not 1 <= attempts <= _MAX_ATTEMPTS:
            message = f"retry makes 1 to {_MAX_ATTEMPTS} attempts in all, not {attempts}"
            self._report.error("wrong-value", value.attempts.at, message)
        if value.delay is not None:
            self._values.need(value.delay, "the delay of retry", "number")
            delay = constant_of(value.delay)
            if isinstance(delay, int | float) and delay < 0:
                self._report.error("wrong-value", value.delay.at, f"the delay of retry is 0 or more, not {delay}")
        if value.backoff is not None:
            self._values.need(value.backoff, "the backoff of retry", "number")
        self._values.retries += 1
        shape = self._block(value.body)
        self._values.retries -= 1
        return shape

    @contextmanager
    def _names(self, names: dict[str, Shape]) -> Generator[None]:
        self._values.names.append(names)
        yield
        self._values.names.pop()


# -- ends of blocks ---------------------------------------------------------------------------------------------


def _ends(statement: nodes.Statement) -> bool:
    """Return whether nothing after the statement is ever reached."""
    if isinstance(statement, nodes.Return | nodes.Fail | nodes.Break | nodes.Continue):
        return True
    return isinstance(statement, nodes.Bind | nodes.Assign | nodes.ExpressionStatement) and _value_ends(statement.value)


def _value_ends(value: nodes.Value) -> bool:
    match value:
        case nodes.Do(body=body) | nodes.Retry(body=body):
            return _block_ends(body)
        case nodes.If():
            branch: nodes.If | nodes.Block | None = value
            while isinstance(branch, nodes.If):
                if not _block_ends(branch.then):
                    return False
                branch = branch.otherwise
            return branch is not None and _block_ends(branch)
        case nodes.Try(body=body, handler=handler):
            return _block_ends(body) and _block_ends(handler)
        case _:
            return False


def _block_ends(block: nodes.Block) -> bool:
    return any(_ends(statement) for statement in block.statements)


def _leaves(block: nodes.Block) -> bool:
    """Return whether anything in a loop's body can end the loop."""
    return any(isinstance(node, nodes.Break | nodes.Return | nodes.Fail) for node in nodes.walk(block))


def _assigned(workflow: nodes.Workflow) -> set[str]:
    """Return the names that are given other values later; nothing is known about these."""
    found: set[str] = set()
    for node in nodes.walk(workflow):
        if isinstance(node, nodes.Assign):
            root: nodes.Node = node.target
            while isinstance(root, nodes.Member | nodes.Index):
                root = root.value
            if isinstance(root, nodes.Name):
                found.add(root.name)
    return found


def _of_length(at: nodes.Position, length: int) -> nodes.Position:
    return nodes.Position(at.line, at.column, at.line, at.column + length)
