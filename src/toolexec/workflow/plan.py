"""Plan a run of a workflow: the calls that it would make, with what can be known of them before it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, cast

from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.workflow import nodes
from toolexec.workflow.compiler import compile_workflow
from toolexec.workflow.machine import Finished, Machine

__all__ = ["PlannedCall", "plan"]

_STEPS: Final = 10_000
_CLOCK: Final = frozenset({"now", "today"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A call that a run would make, to the extent that it is known before the run.

    `args` are the arguments whose values are known, `later` the expressions of the others, by name (`*` stands for all
    arguments). `under` are the conditions and loops around the call, the outermost first. `line` is where it is
    written.
    """

    tool_id: str
    line: int
    args: JSONObject = field(default_factory=JSONDict)
    later: Mapping[str, str] = field(default_factory=dict[str, str])
    under: tuple[str, ...] = ()

    def to_dict(self) -> JSONDict:
        """Return the call as JSON-able data."""
        return {
            "tool": self.tool_id,
            "line": self.line,
            "args": dict(self.args),
            "later": dict(self.later),
            "under": list(self.under),
        }


def plan(workflow: nodes.Workflow, source: str, inputs: JSONObject | None = None) -> list[PlannedCall]:
    """Return the calls that a run with these inputs would make, in the order of the source; nothing is called.

    What follows from the inputs is computed: arguments, and conditions, so that a branch that will not be taken is left
    out. *source* is the text of the workflow. Raises InputValidationError for inputs that do not fit, and
    WorkflowCheckError.
    """
    machine = Machine(compile_workflow(workflow), inputs, now=0)
    return list(_Planner(workflow, source, machine.given).calls(workflow, ()))


class _UnknownError(Exception):
    """A value that only a run has."""


class _Planner:
    """Walks through a workflow with the values that are known before it runs."""

    def __init__(self, workflow: nodes.Workflow, source: str, given: JSONObject) -> None:
        self._lines = source.splitlines()
        self._known = dict(given)
        self._changing = {_root(node.target) for node in nodes.walk(workflow) if isinstance(node, nodes.Assign)}
        for declared in workflow.inputs:
            if declared.name not in given and declared.default is not None:
                self._learn(declared.name, declared.default)
        for name in self._changing:
            self._known.pop(name, None)

    def calls(self, node: nodes.Node, under: tuple[str, ...]) -> Iterator[PlannedCall]:
        """Yield the calls in *node*, which are made *under* these conditions."""
        if isinstance(node, nodes.If | nodes.Conditional):
            yield from self._choice(node, under)
            return
        for name in _bound_by(node):
            self._known.pop(name, None)
        for part in nodes.children(node):
            if isinstance(node, nodes.Try) and part is node.handler:
                yield from self.calls(part, (*under, "after a failure"))
            else:
                yield from self.calls(part, (*under, *self._around(node)) if isinstance(part, nodes.Block) else under)
        if isinstance(node, nodes.ToolRun):
            yield self._call(node, under)
        elif isinstance(node, nodes.Bind) or (isinstance(node, nodes.Branch) and node.binds):
            self._learn(str(node.name), node.value)

    def _choice(self, node: nodes.If | nodes.Conditional, under: tuple[str, ...]) -> Iterator[PlannedCall]:
        yield from self.calls(node.condition, under)
        text = self._text(node.condition)
        try:
            parts = [(node.then if self._value(node.condition) else node.otherwise, under)]
        except _UnknownError:
            parts = [(node.then, (*under, f"if {text}")), (node.otherwise, (*under, f"if not ({text})"))]
        for part, condition in parts:
            if part is not None:
                yield from self.calls(part, condition)

    def _around(self, node: nodes.Node) -> list[str]:
        """Return what the block of *node* is under, in words."""
        if isinstance(node, nodes.For | nodes.Collect | nodes.ParallelFor):
            where = f" where {self._text(node.where)}" if node.where is not None else ""
            return [f"for each {', '.join(node.names)} in {self._text(node.values)}{where}"]
        if isinstance(node, nodes.While):
            return [f"while {self._text(node.condition)}"]
        if isinstance(node, nodes.Retry):
            return [f"in up to {self._text(node.attempts)} attempts"]
        return []

    def _call(self, node: nodes.ToolRun, under: tuple[str, ...]) -> PlannedCall:
        try:
            tool = str(self._value(node.tool))
        except _UnknownError:
            tool = self._text(node.tool)
        args, later = self._arguments(node.arguments)
        return PlannedCall(tool_id=tool, line=node.at.line, args=args, later=later, under=under)

    def _arguments(self, given: nodes.Expression | None) -> tuple[JSONDict, dict[str, str]]:
        """Return the arguments that are known, and the expressions of the others."""
        args: JSONDict = {}
        later: dict[str, str] = {}
        if isinstance(given, nodes.ObjectLiteral) and all(isinstance(each, nodes.Entry) for each in given.entries):
            for entry in given.entries:
                try:
                    args[cast("nodes.Entry", entry).key] = self._value(entry.value)
                except _UnknownError:
                    later[cast("nodes.Entry", entry).key] = self._text(entry.value)
        elif given is not None:
            try:
                args = dict(self._value(given))
            except (_UnknownError, TypeError, ValueError):
                later = {"*": self._text(given)}
        return args, later

    def _learn(self, name: str, value: nodes.Node) -> None:
        """Keep what a name stands for, if it is known and stays the same."""
        self._known.pop(name, None)
        if name not in self._changing:
            with suppress(_UnknownError):
                self._known[name] = self._value(value)

    def _value(self, node: nodes.Node) -> JSONValue:
        """Return the value of an expression of known names; raises _UnknownError."""
        parts = [*nodes.walk(node)]
        names = {part.name for part in parts if isinstance(part, nodes.Name)}
        unknown = any(
            isinstance(part, nodes.ToolRun | nodes.Block | nodes.Branch) or _reads_clock(part) for part in parts
        )
        if unknown or not names <= self._known.keys():
            raise _UnknownError
        inputs = tuple(nodes.Input(name=name, type=nodes.TypeName(name="any")) for name in sorted(names))
        small = nodes.Workflow(inputs=inputs, statements=(nodes.Return(value=cast("nodes.Expression", node)),))
        machine = Machine(compile_workflow(small), {name: self._known[name] for name in names}, now=0)
        outcome = machine.advance(_STEPS)
        if not isinstance(outcome, Finished) or outcome.error is not None:
            raise _UnknownError
        return outcome.value

    def _text(self, node: nodes.Node) -> str:
        """Return how an expression is written, in one line."""
        at = node.at
        lines = self._lines[at.line - 1 : at.end_line]
        if not lines:
            return ""
        lines[-1] = lines[-1][: at.end_column - 1]
        lines[0] = lines[0][at.column - 1 :]
        return " ".join(line.strip() for line in lines)


def _reads_clock(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Call) and node.function in _CLOCK


def _bound_by(node: nodes.Node) -> tuple[str, ...]:
    """Return the names that a loop or a handler binds."""
    if isinstance(node, nodes.For | nodes.Collect | nodes.ParallelFor):
        return node.names
    return (node.name,) if isinstance(node, nodes.Try) and node.name is not None else ()


def _root(target: nodes.Name | nodes.Member | nodes.Index) -> str:
    """Return the name that an assignment changes."""
    node: nodes.Node = target
    while isinstance(node, nodes.Member | nodes.Index):
        node = node.value
    return node.name if isinstance(node, nodes.Name) else ""
