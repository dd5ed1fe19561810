"""The machine beside a small model in plain Python: any program gives the same value, failure and output in both."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.depth import examples
from tests.workflow.running import finish

from toolexec.workflow.compiler import compile_workflow
from toolexec.workflow.machine import Machine, restore
from toolexec.workflow.nodes import (
    Assign,
    Binary,
    Bind,
    Block,
    Break,
    Collect,
    Conditional,
    Constant,
    Continue,
    Do,
    Entry,
    Expression,
    ExpressionStatement,
    Fail,
    For,
    If,
    ListLiteral,
    Member,
    Name,
    ObjectLiteral,
    Parallel,
    ParallelFor,
    Print,
    Return,
    Statement,
    ToolRun,
    Try,
    Unary,
    Value,
    Workflow,
)
from toolexec.workflow.nodes import Branch as ParallelBranch

NAMES = ("a", "b", "c")


class FailedError(Exception):
    """The program fails."""


class ReturnedError(Exception):
    """The program returns a value."""


class LeftError(Exception):
    """The round of a loop ends, or (`all`) the loop."""


# -- programs ---------------------------------------------------------------------------------------------------

constants = st.sampled_from([None, True, False, 0, 1, 2, -3, 2.5, "", "x", "yz"]).map(Constant)
operators = st.sampled_from(["+", "-", "*", "==", "!=", "<", ">=", "and", "or", "??", "in"])


@cache
def expressions(names: tuple[str, ...]) -> st.SearchStrategy[Expression]:
    leaves = constants | st.sampled_from(names).map(Name)

    def more(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        return (
            st.builds(Binary, operators, inner, inner)
            | st.builds(Unary, st.sampled_from(["not", "-"]), inner)
            | st.builds(Conditional, inner, inner, inner)
            | st.builds(lambda items: ListLiteral(tuple(items)), st.lists(inner, max_size=3))
        )

    return st.recursive(leaves, more, max_leaves=3)


@st.composite
def blocks(draw: st.DrawFn, names: tuple[str, ...], own: tuple[str, ...], loop: str, depth: int) -> Block:
    """Statements that read *names* and assign to *own*, inside of a *loop* or not."""
    count = draw(st.integers(0, 3))
    return Block(tuple(draw(statements(names, own, loop, depth)) for _ in range(count)))


@st.composite
def statements(draw: st.DrawFn, names: tuple[str, ...], own: tuple[str, ...], loop: str, depth: int) -> Statement:
    kinds = [
        "value",
        "print",
        "fail",
        *(["assign"] if own else []),
        *([] if loop.startswith("parallel") else ["call"]),
        *([] if loop.startswith("parallel") else ["return"]),
    ]
    kinds += ["block"] * 4 if depth else []
    kinds += ["break", "continue"] if loop.endswith("loop") else []
    kind = draw(st.sampled_from(kinds))
    if kind == "block":
        return ExpressionStatement(draw(nested(names, own, loop, depth - 1)))
    if kind in ("break", "continue"):
        return Break() if kind == "break" else Continue()
    expression = draw(expressions(names))
    if kind == "assign":
        value: Value = draw(nested(names, own, loop, depth - 1)) if depth and draw(st.booleans()) else expression
        return Assign(Name(draw(st.sampled_from(own))), value)
    if kind == "call":
        tool = Constant(draw(st.sampled_from(["echo", "echo", "bad"])))
        value = Member(ToolRun(tool, ObjectLiteral((Entry("v", expression),))), "v")
        return Assign(Name(draw(st.sampled_from(own))), value) if own else ExpressionStatement(value)
    if kind == "print":
        return Print((expression,))
    if kind == "return" and draw(st.integers(0, 3)) == 0:
        return Return(expression)
    return Fail(expression) if kind == "fail" and draw(st.booleans()) else ExpressionStatement(expression)


@st.composite
def nested(draw: st.DrawFn, names: tuple[str, ...], own: tuple[str, ...], loop: str, depth: int) -> Value:
    kind = draw(st.sampled_from(["do", "if", "for", "collect", "try", "parallel", "parallel for"]))
    body = blocks(names, own, loop, depth)
    if kind == "do":
        return Do(draw(body))
    if kind == "if":
        return If(draw(expressions(names)), draw(body), draw(st.none() | body))
    if kind == "try":
        return Try(draw(body), None, draw(body))
    if kind == "parallel":
        branches = draw(st.lists(blocks(names, (), "parallel", depth), min_size=1, max_size=3))
        return Parallel(tuple(ParallelBranch(None, Do(branch)) for branch in branches))
    name = f"i{depth}"
    values = draw(st.lists(st.integers(0, 3), max_size=4).map(lambda xs: ListLiteral(tuple(map(Constant, xs)))))
    where = draw(st.none() | expressions((*names, name)))
    if kind == "parallel for":
        limit = Constant(draw(st.integers(1, 3)))
        return ParallelFor((name,), values, draw(blocks((*names, name), (name,), "parallel", depth)), where, limit)
    inside = "parallel loop" if loop.startswith("parallel") else "loop"
    inner = draw(blocks((*names, name), (*own, name), inside, depth))
    return (For if kind == "for" else Collect)((name,), values, inner, where)


@st.composite
def programs(draw: st.DrawFn) -> Workflow:
    first: list[Statement] = [Bind(name, draw(constants)) for name in NAMES]
    rest = [draw(statements(NAMES, NAMES, "", 2)) for _ in range(draw(st.integers(1, 4)))]
    return Workflow((), (*first, *rest))


# -- the model --------------------------------------------------------------------------------------------------


class Model:
    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.printed = ""

    def run(self, workflow: Workflow) -> tuple[Any, bool]:
        try:
            return self.block(workflow.statements), True
        except ReturnedError as error:
            return error.args[0], True
        except FailedError:
            return None, False

    def block(self, statements: tuple[Statement, ...]) -> Any:
        value: Any = None
        for statement in statements:
            value = self.statement(statement)
        return value

    def statement(self, statement: Statement) -> Any:
        match statement:
            case Bind(name=name, value=value):
                self.names[name] = self.value(value)
            case Assign(target=Name(name=name), value=value):
                self.names[name] = self.value(value)
            case ExpressionStatement(value=value):
                return self.value(value)
            case Print(values=(value,)):
                found = self.value(value)
                self.printed += (found if isinstance(found, str) else written(found)) + "\n"
            case Return(value=value):
                raise ReturnedError(self.value(value) if value is not None else None)
            case Fail(message=message):
                self.value(message)
                raise FailedError
            case _:
                raise LeftError(isinstance(statement, Break))
        return None

    def value(self, node: Any) -> Any:
        match node:
            case Do(body=body):
                return self.block(body.statements)
            case If(condition=condition, then=then, otherwise=otherwise):
                chosen = then if self.value(condition) else otherwise
                return self.block(chosen.statements) if isinstance(chosen, Block) else None
            case Try(body=body, handler=handler):
                try:
                    return self.block(body.statements)
                except FailedError:
                    return self.block(handler.statements)
            case Parallel(branches=branches):
                return [self.value(branch.value) for branch in branches]
            case ParallelFor(names=(name,)):
                chosen = [item for item in self.value(node.values) if self.accepts(node, name, item)]
                return [self.round(node, name, item) for item in chosen]
            case For(names=(name,)) | Collect(names=(name,)):
                return self.loop(node, name)
            case _:
                return self.expression(node)

    def accepts(self, node: Any, name: str, item: Any) -> bool:
        self.names[name] = item
        return node.where is None or bool(self.value(node.where))

    def round(self, node: Any, name: str, item: Any) -> Any:
        self.names[name] = item
        return self.block(node.body.statements)

    def loop(self, node: Any, name: str) -> Any:
        out: list[Any] = []
        for item in self.value(node.values):
            if not self.accepts(node, name, item):
                continue
            try:
                out.append(self.block(node.body.statements))
            except LeftError as error:
                if error.args[0]:
                    break
        return out if isinstance(node, Collect) else None

    def expression(self, node: Any) -> Any:
        match node:
            case Constant(value=value):
                return value
            case Name(name=name):
                return self.names[name]
            case ListLiteral(items=items):
                return [self.expression(item) for item in items]
            case Conditional(condition=condition, then=then, otherwise=otherwise):
                return self.expression(then if self.expression(condition) else otherwise)
            case Member(value=ToolRun(tool=Constant(value=tool), arguments=ObjectLiteral(entries=(entry,)))):
                found = self.expression(entry.value)
                return fails() if tool == "bad" else found
            case Unary(operator="not", value=value):
                return not self.expression(value)
            case Unary(value=value):
                found = self.expression(value)
                return -found if is_number(found) else fails()
            case Binary(operator="and", left=left, right=right):
                return self.expression(left) and self.expression(right)
            case Binary(operator="or", left=left, right=right):
                return self.expression(left) or self.expression(right)
            case Binary(operator="??", left=left, right=right):
                found = self.expression(left)
                return self.expression(right) if found is None else found
            case Binary(operator=operator, left=left, right=right):
                return of_two(operator, self.expression(left), self.expression(right))
            case _:
                raise AssertionError(node)


def written(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def fails() -> Any:
    raise FailedError


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def marked(value: Any) -> Any:
    """The value with its booleans marked, so that Python does not take them for numbers."""
    if isinstance(value, list):
        return [marked(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return ("boolean", value) if isinstance(value, bool) else value


def of_two(operator: str, left: Any, right: Any) -> Any:
    if operator in ("==", "!="):
        return (marked(left) == marked(right)) is (operator == "==")
    if operator == "in":
        if isinstance(right, list):
            return marked(left) in marked(right)
        return left in right if isinstance(left, str) and isinstance(right, str) else fails()
    numbers = is_number(left) and is_number(right)
    alike = numbers or (isinstance(left, str) and isinstance(right, str))
    if operator == "+" and (alike or (isinstance(left, list) and isinstance(right, list))):
        return left + right
    if operator in ("<", ">=") and alike:
        return left < right if operator == "<" else left >= right
    if operator in ("-", "*") and numbers:
        return left - right if operator == "-" else left * right
    return fails()


@settings(max_examples=examples(60), deadline=None)
@given(programs())
def test_the_machine_does_what_the_model_does(workflow: Workflow) -> None:
    """Value, failure and output are those of a recursive interpreter of thirty lines."""
    model = Model()
    value, ok = model.run(workflow)
    ran = finish(Machine(compile_workflow(workflow), now=0), {})
    assert (ran.error is None) is ok, ran.error
    assert marked(ran.value) == marked(value)
    if ok:
        assert ran.printed == model.printed


@settings(max_examples=examples(20), deadline=None)
@given(programs(), st.integers(0, 60))
def test_a_restart_changes_nothing(workflow: Workflow, step: int) -> None:
    """A run that goes on from its JSON after any step gives the same."""
    program = compile_workflow(workflow)
    whole = finish(Machine(program, now=0), {})
    machine = Machine(program, now=0)
    printed = "".join(machine.advance(step).printed) if step else ""
    rest = finish(restore(program, json.loads(json.dumps(machine.state()))), {})
    assert (rest.value, printed + rest.printed) == (whole.value, whole.printed)
    assert (rest.error is None) is (whole.error is None)
