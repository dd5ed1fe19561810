"""Which names a workflow may use where, and where `break`, `continue` and `return` may stand.

The checker reports what is found here, and the compiler refuses it: the rules are written once.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from toolexec.errors.hints import did_you_mean
from toolexec.workflow import nodes
from toolexec.workflow.findings import Finding
from toolexec.workflow.functions import FUNCTIONS

MAX_BLOCKS: Final = 100
"""How deep blocks may be inside of each other."""

_MAX_HINTS: Final = 20  # each looks through all names, and who has that many mistakes begins with the first

OUT: Final = "__out"
"""The name whose value is that of a workflow that does not return one."""

BindingKind: TypeAlias = Literal["input", "bind", "loop", "branch", "catch"]
_Loop: TypeAlias = Literal["", "loop", "parallel for"]


@dataclass(slots=True)
class Binding:
    """A name, where it is bound and how; `level` counts the branches of `parallel` around it, `used` its readers."""

    name: str
    at: nodes.Position
    kind: BindingKind
    level: int
    used: int = 0


@dataclass(slots=True)
class Names:
    """All names of a workflow in the order of their binding, and what is wrong with their use."""

    bindings: list[Binding] = field(default_factory=list[Binding])
    findings: list[Finding] = field(default_factory=list[Finding])


class Scopes:
    """The names that are visible at one place: blocks inside of each other, and branches that run at the same time."""

    def __init__(self) -> None:
        self.level: int = 0
        """How many branches of `parallel` are around this place."""
        self._blocks: list[dict[str, Binding]] = [{}]

    @contextmanager
    def block(self) -> Generator[None]:
        """Enter a block: its names end with it."""
        self._blocks.append({})
        try:
            yield
        finally:
            self._blocks.pop()

    @contextmanager
    def branch(self) -> Generator[None]:
        """Enter a block that runs beside others."""
        self.level += 1
        try:
            with self.block():
                yield
        finally:
            self.level -= 1

    def bind(self, name: str, at: nodes.Position, kind: BindingKind = "bind") -> Binding:
        """Bind a name in this block."""
        binding = self._blocks[-1][name] = Binding(name, at, kind, self.level)
        return binding

    def find(self, name: str) -> Binding | None:
        """Return what a name is bound to here; None where it is not visible."""
        for block in reversed(self._blocks):
            if name in block:
                return block[name]
        return None

    def visible(self) -> list[str]:
        """Return all names that may be used here, the nearest first."""
        return [name for block in reversed(self._blocks) for name in reversed(block)]


def resolve_names(workflow: nodes.Workflow) -> Names:
    """Return the names of a workflow, with findings of the kinds `undefined-name`, `already-bound`,
    `assign-in-parallel`, `misplaced` and `too-deep`, in the order of the source."""
    return _Resolver().resolve(workflow)


class _Resolver:
    """Walks through a workflow; it calls itself for blocks inside of blocks only, and these are bounded."""

    def __init__(self) -> None:
        self._names = Names()
        self._scopes = Scopes()
        self._loop: _Loop = ""
        self._depth = 0
        self._hints = 0

    def resolve(self, workflow: nodes.Workflow) -> Names:
        for given in workflow.inputs:
            if given.default is not None:
                self._read(given.default)
            self._bind(given.name, given.at, "input")
        for statement in workflow.statements:
            self._statement(statement)
        self._names.findings.sort(key=lambda finding: (finding.at.line, finding.at.column))
        return self._names

    # -- statements ---------------------------------------------------------------------------------------------

    def _statement(self, statement: nodes.Statement) -> None:
        match statement:
            case nodes.Bind(name=name, value=value):
                self._value(value)
                if name == OUT:
                    self._assign_out(statement)
                else:
                    self._bind(name, statement.at, "bind")
            case nodes.Assign():
                self._assign(statement)
            case nodes.ExpressionStatement(value=value):
                self._value(value)
            case nodes.Print(values=values):
                for value in values:
                    self._read(value)
            case nodes.Return(value=value):
                if value is not None:
                    self._value(value)
                if self._scopes.level:
                    self._report_return(statement)
            case nodes.Fail(message=message):
                self._read(message)
            case nodes.Break() | nodes.Continue():
                self._leave(statement)

    def _assign(self, statement: nodes.Assign) -> None:
        self._value(statement.value)
        root: nodes.Expression = statement.target
        while isinstance(root, nodes.Member | nodes.Index):
            if isinstance(root, nodes.Index):
                self._read(root.index)
            root = root.value
        if not isinstance(root, nodes.Name):
            self._report("misplaced", "only a name, or a part of what it is bound to, can be assigned to", root.at)
        elif root.name == OUT:
            self._assign_out(statement)
        elif (binding := self._scopes.find(root.name)) is None:
            hint = f"write {root.name} := ... to bind it"
            self._report("undefined-name", f"{root.name} is not defined", root.at, hint)
        elif binding.level < self._scopes.level:
            self._report_assign(root.name, statement.at)

    def _assign_out(self, statement: nodes.Bind | nodes.Assign) -> None:
        if self._scopes.level:
            self._report_assign(OUT, statement.at)

    def _leave(self, statement: nodes.Break | nodes.Continue) -> None:
        word = "break" if isinstance(statement, nodes.Break) else "continue"
        if self._loop == "loop" or (self._loop == "parallel for" and word == "continue"):
            return
        if self._loop:
            message = "break cannot end parallel for: its rounds run at the same time"
            self._report("misplaced", message, statement.at, "use for, or continue to leave out this round")
        else:
            self._report("misplaced", f"{word} stands outside of a loop", statement.at)

    def _report_return(self, statement: nodes.Return) -> None:
        message = "return cannot end the workflow from inside of parallel"
        hint = "the last expression of a branch is its value: leave out the word return"
        self._report("misplaced", message, statement.at, hint)

    def _report_assign(self, name: str, at: nodes.Position) -> None:
        message = f"{name} is bound outside of parallel, so it cannot be changed in here: branches run at the same time"
        self._report("assign-in-parallel", message, at, "let each branch end with a value, and use the values after it")

    # -- values -------------------------------------------------------------------------------------------------

    def _value(self, value: nodes.Value) -> None:
        match value:
            case nodes.Do(body=body):
                self._block(body)
            case nodes.If():
                self._if(value)
            case nodes.For() | nodes.Collect():
                self._read(value.values)
                with self._scopes.block():
                    self._loop_names(value)
                    self._block(value.body, "loop")
            case nodes.While(condition=condition, body=body, limit=limit):
                self._read(condition, limit)
                self._block(body, "loop")
            case nodes.Parallel():
                self._parallel(value)
            case nodes.ParallelFor():
                self._parallel_for(value)
            case nodes.Retry(attempts=attempts, body=body, delay=delay, backoff=backoff):
                self._read(attempts, delay, backoff)
                self._block(body)
            case nodes.Try(body=body, name=name, handler=handler):
                self._block(body)
                with self._scopes.block():
                    if name is not None:
                        self._bind(name, value.at, "catch")
                    self._block(handler)
            case _:
                self._read(value)

    def _block(self, block: nodes.Block, loop: _Loop | None = None) -> None:
        self._depth += 1
        before, self._loop = self._loop, self._loop if loop is None else loop
        with self._scopes.block():
            if self._depth > MAX_BLOCKS:
                self._report("too-deep", f"blocks may be nested {MAX_BLOCKS} deep", block.at)
            else:
                for statement in block.statements:
                    self._statement(statement)
        self._loop = before
        self._depth -= 1

    def _if(self, value: nodes.If) -> None:
        branch: nodes.If | nodes.Block | None = value
        while isinstance(branch, nodes.If):
            self._read(branch.condition)
            self._block(branch.then)
            branch = branch.otherwise
        if branch is not None:
            self._block(branch)

    def _loop_names(self, loop: nodes.For | nodes.Collect | nodes.ParallelFor) -> None:
        for name in loop.names:
            self._bind(name, loop.at, "loop")
        self._read(loop.where)

    def _parallel(self, value: nodes.Parallel) -> None:
        self._read(value.limit)
        before, self._loop = self._loop, ""
        named: dict[str, nodes.Branch] = {}
        for branch in value.branches:
            if branch.name is not None:
                first = named.setdefault(branch.name, branch)
                if first is not branch and not (first.binds and branch.binds):  # two that bind are found below
                    message = f"{branch.name} names a branch already, in line {first.at.line}"
                    self._report("already-bound", message, branch.at, "take another name: each branch has its own")
            with self._scopes.branch():
                self._value(branch.value)
        self._loop = before
        for branch in value.branches:
            if branch.binds and branch.name is not None:
                self._bind(branch.name, branch.at, "branch")

    def _parallel_for(self, value: nodes.ParallelFor) -> None:
        self._read(value.values, value.limit)
        with self._scopes.block():
            self._loop_names(value)
            with self._scopes.branch():
                for name in value.names:
                    binding = self._scopes.find(name)
                    if binding is not None and binding.at is value.at:
                        binding.level = self._scopes.level
                self._block(value.body, "parallel for")

    # -- names --------------------------------------------------------------------------------------------------

    def _bind(self, name: str, at: nodes.Position, kind: BindingKind) -> None:
        known = self._scopes.find(name)
        if known is not None:
            same = known.level == self._scopes.level and kind == "bind"
            hint = f"write {name} = ... to change it" if same else "take another name"
            self._report("already-bound", f"{name} is bound already, in line {known.at.line}", at, hint)
            return
        self._names.bindings.append(self._scopes.bind(name, at, kind))

    def _read(self, *values: nodes.Node | None) -> None:
        for value in values:
            if value is None:
                continue
            for node in nodes.walk(value):
                if isinstance(node, nodes.Name) and node.name != OUT:
                    self._read_name(node)

    def _read_name(self, node: nodes.Name) -> None:
        binding = self._scopes.find(node.name)
        if binding is None:
            self._report("undefined-name", f"{node.name} is not defined", node.at, self._instead(node.name))
        else:
            binding.used += 1

    def _instead(self, name: str) -> str:
        self._hints += 1
        if self._hints > _MAX_HINTS:
            return f"write {name} := ... to bind it before"
        ended = next((known for known in reversed(self._names.bindings) if known.name == name), None)
        if ended is not None:
            return f"it is bound in line {ended.at.line}, for its block only: bind it before that block"
        if name in FUNCTIONS:
            return f"it is a function: write {name}(...)"
        visible = self._scopes.visible()
        return did_you_mean(name, visible, otherwise="") or f"write {name} := ... to bind it before"

    def _report(self, kind: str, message: str, at: nodes.Position, suggestion: str = "") -> None:
        self._names.findings.append(Finding(kind, "error", message, at, suggestion))
