"""Compile a workflow into flat instructions for a machine with a stack.

Expressions are as deep as their author likes, `1 + 1 + 1 ...`, so they are compiled without recursion: each method
yields the expressions that it needs first. Blocks are nested to a bound that `resolve_names` checks.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final, TypeAlias

from toolexec.model.json_value import JSONValue
from toolexec.workflow import nodes
from toolexec.workflow.findings import check_error
from toolexec.workflow.inputs import input_schema
from toolexec.workflow.names import OUT, Scopes, resolve_names
from toolexec.workflow.program import Instruction, Program

_Steps: TypeAlias = Generator[nodes.Expression, None, None]
_Loop: TypeAlias = tuple[int, list[int], list[int]]
"""How many blocks are open when its body begins, and the jumps of its `break` and `continue` that need a target."""

_JUMPS: Final = {"and": "and", "or": "or", "??": "coalesce"}


def compile_workflow(workflow: nodes.Workflow) -> Program:
    """Return the program of a workflow; raises WorkflowCheckError for names and words that make no sense where they
    are."""
    findings = resolve_names(workflow).findings
    if findings:
        raise check_error(findings)
    return Program(_Compiler().compile(workflow), input_schema(workflow.inputs))


class _Compiler:
    def __init__(self) -> None:
        self._code: list[list[JSONValue]] = []
        self._scopes = Scopes()
        self._loops: list[_Loop] = []
        self._open = 0  # blocks that the machine keeps: loops, try, retry

    def compile(self, workflow: nodes.Workflow) -> tuple[Instruction, ...]:
        for given in workflow.inputs:
            self._input(given)
        self._statements(workflow.statements, workflow, want=True)
        self._emit("finish", None, workflow)
        return tuple((op, arg, line, column) for op, arg, line, column in self._code)

    # -- code ---------------------------------------------------------------------------------------------------

    def _emit(self, op: str, arg: JSONValue, node: nodes.Node) -> int:
        self._code.append([op, arg, node.at.line, node.at.column])
        return len(self._code) - 1

    def _land(self, *jumps: int) -> None:
        """Let jumps go to what comes next."""
        for jump in jumps:
            arg = self._code[jump][1]
            if isinstance(arg, list):
                arg[0] = len(self._code)
            else:
                self._code[jump][1] = len(self._code)

    # -- statements ---------------------------------------------------------------------------------------------

    def _input(self, given: nodes.Input) -> None:
        jump = self._emit("input", [0, given.name], given)
        if given.default is not None:
            self._expression(given.default)
            self._emit("bind", given.name, given)
        self._land(jump)
        self._scopes.bind(given.name, given.at, "input")

    def _statements(self, statements: Iterable[nodes.Statement], node: nodes.Node, *, want: bool) -> None:
        """Compile statements; with *want* they leave the value of the last one on the stack."""
        rest = [*statements]
        last = rest.pop() if want and rest else None
        for statement in rest:
            self._statement(statement)
        if isinstance(last, nodes.ExpressionStatement):
            self._value(last.value)
            return
        if last is not None:
            self._statement(last)
        if want:
            self._emit("const", None, node)

    def _statement(self, statement: nodes.Statement) -> None:
        match statement:
            case nodes.Bind(name=name, value=value):
                self._value(value)
                if name == OUT:
                    self._emit("bind", OUT, statement)
                else:
                    self._emit("bind", name, statement)
                    self._scopes.bind(name, statement.at)
            case nodes.Assign():
                self._assign(statement)
            case nodes.ExpressionStatement(value=value):
                self._value(value, want=False)
            case nodes.Print(values=values):
                for value in values:
                    self._expression(value)
                self._emit("print", len(values), statement)
            case nodes.Return(value=value):
                if value is None:
                    self._emit("const", None, statement)
                else:
                    self._value(value)
                self._emit("return", None, statement)
            case nodes.Fail(message=message):
                self._expression(message)
                self._emit("fail", None, statement)
            case nodes.Break() | nodes.Continue():
                self._leave(statement)

    def _assign(self, statement: nodes.Assign) -> None:
        path: list[nodes.Member | nodes.Index] = []
        root: nodes.Expression = statement.target
        while isinstance(root, nodes.Member | nodes.Index):
            path.append(root)
            root = root.value
        assert isinstance(root, nodes.Name)
        for step in reversed(path):
            if isinstance(step, nodes.Index):
                self._expression(step.index)
            else:
                self._emit("const", step.name, step)
        self._value(statement.value)
        if path:
            self._emit("store_part", [root.name, len(path)], statement)
        else:
            self._emit("bind", root.name, statement)

    def _leave(self, statement: nodes.Break | nodes.Continue) -> None:
        if not self._loops:  # the round of a parallel for
            self._emit("skip", None, statement)
            return
        blocks, breaks, continues = self._loops[-1]
        jump = self._emit("leave" if isinstance(statement, nodes.Break) else "again", [0, blocks], statement)
        (breaks if isinstance(statement, nodes.Break) else continues).append(jump)

    # -- values -------------------------------------------------------------------------------------------------

    def _value(self, value: nodes.Value, *, want: bool = True) -> None:
        match value:
            case nodes.Do(body=body):
                self._block(body, want=want)
                return
            case nodes.If():
                self._if(value, want)
                return
            case nodes.Try():
                self._try(value, want)
                return
            case nodes.Retry():
                self._retry(value, want)
                return
            case nodes.For() | nodes.Collect():
                self._for(value)
            case nodes.While():
                self._while(value)
            case nodes.Parallel():
                self._parallel(value)
            case nodes.ParallelFor():
                self._parallel_for(value)
            case _:
                self._expression(value)
        if not want:
            self._emit("pop", None, value)

    def _block(self, block: nodes.Block, *, want: bool) -> None:
        with self._scopes.block():
            self._statements(block.statements, block, want=want)

    def _if(self, value: nodes.If, want: bool) -> None:
        ends: list[int] = []
        branch: nodes.If | nodes.Block | None = value
        while isinstance(branch, nodes.If):
            self._expression(branch.condition)
            skip = self._emit("jump_if_false", 0, branch)
            self._block(branch.then, want=want)
            if want or branch.otherwise is not None:
                ends.append(self._emit("jump", 0, branch))
            self._land(skip)
            branch = branch.otherwise
        if branch is not None:
            self._block(branch, want=want)
        elif want:
            self._emit("const", None, value)
        self._land(*ends)

    def _try(self, value: nodes.Try, want: bool) -> None:
        begin = self._emit("try", 0, value)
        self._open += 1
        self._block(value.body, want=want)
        self._open -= 1
        self._emit("end_block", None, value)
        end = self._emit("jump", 0, value)
        self._land(begin)
        with self._scopes.block():
            if value.name is None:
                self._emit("pop", None, value)
            else:
                self._emit("bind", value.name, value)
                self._scopes.bind(value.name, value.at, "catch")
            self._block(value.handler, want=want)
        self._land(end)

    def _retry(self, value: nodes.Retry, want: bool) -> None:
        self._expression(value.attempts)
        for option, usual in ((value.delay, 0.1), (value.backoff, 2)):
            if option is None:
                self._emit("const", usual, value)
            else:
                self._expression(option)
        self._emit("retry", None, value)
        self._open += 1
        self._block(value.body, want=want)
        self._open -= 1
        self._emit("end_block", None, value)

    def _for(self, value: nodes.For | nodes.Collect) -> None:
        collects = isinstance(value, nodes.Collect)
        self._loop_values(value.values)
        self._emit("for", collects, value)
        start = len(self._code)
        end = self._emit("next", [0, [*value.names]], value)
        with self._scopes.block():
            self._bind_all(value)
            if value.where is not None:
                self._expression(value.where)
                self._code[self._emit("jump_if_false", 0, value.where)][1] = start
            self._body(value.body, value, start, want=collects)
        self._land(end)

    def _body(self, body: nodes.Block, node: nodes.Node, start: int, *, want: bool) -> None:
        """Compile the body of a loop, and go back to its start."""
        self._open += 1
        loop: _Loop = (self._open, [], [])
        self._loops.append(loop)
        self._block(body, want=want)
        self._loops.pop()
        self._open -= 1
        if want:
            self._emit("collected", None, node)
        self._emit("jump", start, node)
        self._land(*loop[1])
        for jump in loop[2]:
            self._code[jump][1][0] = start

    def _bind_all(self, loop: nodes.For | nodes.Collect | nodes.ParallelFor) -> None:
        for name in loop.names:
            self._scopes.bind(name, loop.at, "loop")

    def _while(self, value: nodes.While) -> None:
        if value.limit is None:
            self._emit("const", None, value)
        else:
            self._expression(value.limit)
        self._emit("while", None, value)
        start = len(self._code)
        self._expression(value.condition)
        end = self._emit("round", 0, value)
        self._body(value.body, value, start, want=False)
        self._land(end)

    def _loop_values(self, values: nodes.Expression) -> None:
        """Compile what a loop goes over; a call of `range` without a list of all its numbers."""
        if isinstance(values, nodes.Call) and values.function == "range" and 1 <= len(values.arguments) <= 3:
            for argument in values.arguments:
                self._expression(argument)
            self._emit("range", len(values.arguments), values)
        else:
            self._expression(values)

    # -- parallel -----------------------------------------------------------------------------------------------

    def _parallel(self, value: nodes.Parallel) -> None:
        self._limit(value.limit, value)
        names = [branch.name for branch in value.branches]
        starts: list[int] = []
        fork = self._emit("fork", [0, starts, names if any(names) else None], value)
        loops, self._loops = self._loops, []
        blocks, self._open = self._open, 0
        for branch in value.branches:
            starts.append(len(self._code))
            with self._scopes.branch():
                self._value(branch.value)
            self._emit("end", None, branch)
        self._loops, self._open = loops, blocks
        self._land(fork)
        for branch in value.branches:
            if branch.binds and branch.name is not None:
                self._emit("dup", None, branch)
                self._emit("member", [branch.name, False], branch)
                self._emit("bind", branch.name, branch)
                self._scopes.bind(branch.name, branch.at, "branch")

    def _limit(self, limit: nodes.Expression | None, node: nodes.Node) -> None:
        if limit is None:
            self._emit("const", None, node)
        else:
            self._expression(limit)

    def _parallel_for(self, value: nodes.ParallelFor) -> None:
        self._loop_values(value.values)
        if value.where is not None:
            self._chosen(value, value.where)
        self._limit(value.limit, value)
        pairs = value.where is not None and len(value.names) == 2
        fork = self._emit("fork_each", [0, [*value.names], pairs], value)
        loops, self._loops = self._loops, []
        blocks, self._open = self._open, 0
        with self._scopes.branch():
            self._bind_all(value)
            self._block(value.body, want=True)
        self._emit("end", None, value)
        self._loops, self._open = loops, blocks
        self._land(fork)

    def _chosen(self, value: nodes.ParallelFor, where: nodes.Expression) -> None:
        """Compile the choice of the values that `where` is true of; with two names as pairs."""
        self._emit("for", True, value)
        start = len(self._code)
        end = self._emit("next", [0, [*value.names]], value)
        with self._scopes.block():
            self._bind_all(value)
            self._expression(where)
            self._code[self._emit("jump_if_false", 0, where)][1] = start
            for name in value.names:
                self._emit("load", [name, 0], value)
        if len(value.names) == 2:
            self._emit("list", [False, False], value)
        self._emit("collected", None, value)
        self._emit("jump", start, value)
        self._land(end)

    # -- expressions --------------------------------------------------------------------------------------------

    def _expression(self, node: nodes.Expression) -> None:
        """Compile an expression, and all in it, without recursion."""
        work = [self._steps(node)]
        while work:
            part = next(work[-1], None)
            if part is None:
                work.pop()
            else:
                work.append(self._steps(part))

    def _steps(self, node: nodes.Expression) -> _Steps:
        """Compile one expression; yields those that are to be compiled at that point."""
        match node:
            case nodes.Constant(value=value):
                self._emit("const", value, node)
            case nodes.Duration(seconds=seconds):
                self._emit("const", seconds, node)
            case nodes.Name(name=name):
                self._name(name, node)
            case nodes.Member(value=value, name=name, safe=safe):
                yield value
                self._emit("member", [name, safe], node)
            case nodes.Index(value=value, index=index, safe=safe):
                yield value
                yield index
                self._emit("index", safe, node)
            case nodes.Unary(operator=operator, value=value):
                yield value
                self._emit("not" if operator == "not" else "negative", None, node)
            case nodes.Binary():
                yield from self._binary(node)
            case nodes.Conditional(condition=condition, then=then, otherwise=otherwise):
                yield condition
                skip = self._emit("jump_if_false", 0, node)
                yield then
                end = self._emit("jump", 0, node)
                self._land(skip)
                yield otherwise
                self._land(end)
            case _:
                yield from self._made(node)

    def _made(
        self,
        node: nodes.Slice | nodes.Interpolation | nodes.ListLiteral | nodes.ObjectLiteral | nodes.Call | nodes.ToolRun,
    ) -> _Steps:
        match node:
            case nodes.Slice(value=value, start=start, stop=stop):
                yield value
                for bound in (start, stop):
                    if bound is None:
                        self._emit("const", None, node)
                    else:
                        yield bound
                self._emit("slice", None, node)
            case nodes.Interpolation(parts=parts):
                yield from (part for part in parts if not isinstance(part, str))
                self._emit("text", [part if isinstance(part, str) else None for part in parts], node)
            case nodes.ListLiteral(items=items):
                yield from (item.value if isinstance(item, nodes.Spread) else item for item in items)
                self._emit("list", [isinstance(item, nodes.Spread) for item in items], node)
            case nodes.ObjectLiteral(entries=entries):
                yield from (entry.value for entry in entries)
                self._emit("object", [entry.key if isinstance(entry, nodes.Entry) else None for entry in entries], node)
            case nodes.Call(function=function, arguments=arguments):
                yield from arguments
                self._emit("call", [function, len(arguments)], node)
            case nodes.ToolRun(tool=tool, arguments=arguments, timeout=timeout):
                yield tool
                for option in (arguments, timeout):
                    if option is None:
                        self._emit("const", None, node)
                    else:
                        yield option
                self._emit("tool", None, node)

    def _name(self, name: str, node: nodes.Name) -> None:
        if name == OUT:
            self._emit("load_out", self._scopes.level, node)
            return
        binding = self._scopes.find(name)
        assert binding is not None, name
        self._emit("load", [name, self._scopes.level - binding.level], node)

    def _binary(self, node: nodes.Binary) -> _Steps:
        yield node.left
        if node.operator in _JUMPS:
            jump = self._emit(_JUMPS[node.operator], 0, node)
            yield node.right
            self._land(jump)
            return
        yield node.right
        if node.operator in ("==", "!=", "in", "not in"):
            self._emit("compare", node.operator, node)
        else:
            self._emit("operate", node.operator, node)
