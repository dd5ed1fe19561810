"""Draw a workflow: its calls, choices and loops as a graph, which is written as mermaid text or as SVG.

After a run the same graph shows how often each call was made, how long that took, and what failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from toolexec.workflow.nodes import (
    Block,
    Break,
    Collect,
    Constant,
    Continue,
    Do,
    Expression,
    ExpressionStatement,
    Fail,
    For,
    If,
    Node,
    Parallel,
    ParallelFor,
    Position,
    Print,
    Retry,
    Return,
    Statement,
    ToolRun,
    Try,
    Value,
    While,
    Workflow,
    children,
)
from toolexec.workflow.report import shown

__all__ = ["CallOutcome", "Graph", "GraphEdge", "GraphNode", "NodeKind", "graph_of", "to_mermaid"]

NodeKind: TypeAlias = Literal["start", "call", "choice", "loop", "end", "fail"]
"""The kinds of nodes of a workflow's graph."""
_Loose: TypeAlias = "list[tuple[str, str]]"
"""Where the next node is reached from: nodes, each with the label of its edge."""
_MAX_LABEL: Final = 48
_SHAPES: Final[dict[NodeKind, tuple[str, str]]] = {
    "start": ("([", "])"),
    "call": ("[", "]"),
    "choice": ("{", "}"),
    "loop": ("{{", "}}"),
    "end": ("([", "])"),
    "fail": ("([", "])"),
}
_ESCAPES: Final = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "\\": "#92;"}


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """One call as it was made: where it is written, its tool, how many seconds it took, the code of its error."""

    at: Position
    tool_id: str
    seconds: float
    error: str = ""


@dataclass(slots=True)
class GraphNode:
    """A node: its label, where it is written and, after a run, the calls that were made there."""

    id: str
    kind: NodeKind
    label: str
    at: Position
    calls: list[CallOutcome] = field(default_factory=list[CallOutcome])

    @property
    def note(self) -> str:
        """What became of its calls: `3 calls, 1.2 s, 1 failed: timeout`."""
        if not self.calls:
            return ""
        failed = [call.error for call in self.calls if call.error]
        count = f"{len(self.calls)} calls, " if len(self.calls) > 1 else ""
        how = f", {f'{len(failed)} ' if len(self.calls) > 1 else ''}failed: {shown(failed[-1], 30)}" if failed else ""
        return f"{count}{_seconds_text(sum(call.seconds for call in self.calls))}{how}"

    @property
    def state(self) -> Literal["", "ok", "failed"]:
        """Whether its last call succeeded; empty where none was made."""
        return "" if not self.calls else "failed" if self.calls[-1].error else "ok"


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """From one node to the next; `is_back` leads to an earlier one."""

    source: str
    target: str
    label: str = ""
    is_back: bool = False


@dataclass(slots=True)
class Graph:
    """The nodes of a workflow in the order of the source, and the edges between them."""

    nodes: list[GraphNode] = field(default_factory=list[GraphNode])
    edges: list[GraphEdge] = field(default_factory=list[GraphEdge])

    def add_calls(self, calls: Iterable[CallOutcome]) -> None:
        """Put the calls of a run to the nodes where they are written.

        One whose place is not known goes to the node of its tool, where there is only one.
        """
        by_place = {(node.at.line, node.at.column): node for node in self.nodes if node.kind == "call"}
        by_tool: dict[str, list[GraphNode]] = {}
        for node in by_place.values():
            by_tool.setdefault(node.label, []).append(node)
        for call in calls:
            node = by_place.get((call.at.line, call.at.column))
            same = by_tool.get(shown(call.tool_id, _MAX_LABEL), [])
            if node is None and len(same) == 1:
                node = same[0]
            if node is not None:
                node.calls.append(call)


def graph_of(workflow: Workflow, source: str) -> Graph:
    """Return the graph of a workflow; *source* is its text, from which labels are taken."""
    return _Builder(source).build(workflow)


def to_mermaid(graph: Graph) -> str:
    """Return the graph as a mermaid flowchart; all text in it is escaped."""
    lines = ["flowchart TD"]
    for node in graph.nodes:
        opening, closing = _SHAPES[node.kind]
        note = f"<br/>{_escaped(node.note)}" if node.note else ""
        state = f":::{node.state}" if node.state else ":::failed" if node.kind == "fail" else ""
        lines.append(f'    {node.id}{opening}"{_escaped(node.label)}{note}"{closing}{state}')
    for edge in graph.edges:
        arrow = "-.->" if edge.is_back else "-->"
        label = f'|"{_escaped(edge.label)}"|' if edge.label else ""
        lines.append(f"    {edge.source} {arrow}{label} {edge.target}")
    lines += ["    classDef ok stroke:#2a7f3f,stroke-width:2px", "    classDef failed stroke:#b3261e,stroke-width:2px"]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)


def _seconds_text(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


class _Builder:
    """Walks through a workflow and strings its nodes together; `_loose` are the ends that the next node goes on."""

    def __init__(self, source: str) -> None:
        self._lines = source.splitlines()
        self._graph = Graph()
        self._loose: _Loose = []
        self._ends: _Loose = []
        self._loops: list[tuple[str, _Loose]] = []
        """The loops around this place: their nodes, and the ends that leave each by `break`."""

    def build(self, workflow: Workflow) -> Graph:
        start = ", ".join(given.name for given in workflow.inputs)
        self._add("start", f"start: {start}" if start else "start", workflow.at)
        self._statements(workflow.statements)
        self._loose += self._ends
        if self._loose:
            self._add("end", "end", workflow.at)
        return self._graph

    def _add(self, kind: NodeKind, label: str, at: Position) -> GraphNode:
        node = GraphNode(f"n{len(self._graph.nodes)}", kind, shown(label, _MAX_LABEL), at)
        self._graph.nodes.append(node)
        self._graph.edges += [GraphEdge(source, node.id, label) for source, label in self._loose]
        self._loose = [(node.id, "")]
        return node

    def _back(self, target: str, label: str = "") -> None:
        """Lead all loose ends back to an earlier node."""
        edges = [GraphEdge(source, target, own or label, is_back=True) for source, own in self._loose]
        self._graph.edges += [edge for edge in edges if edge.source != target]
        self._loose = []

    def _text(self, node: Node) -> str:
        """Return what is written at a node, on one line."""
        at = node.at
        if not 0 < at.line <= len(self._lines):
            return ""
        lines = self._lines[at.line - 1 : at.end_line]
        lines[-1] = lines[-1][: at.end_column - 1]
        lines[0] = lines[0][at.column - 1 :]
        return " ".join(" ".join(lines).split())

    # -- statements ---------------------------------------------------------------------------------------------

    def _statements(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            if not self._loose:
                return  # what follows is never reached
            self._statement(statement)

    def _statement(self, statement: Statement) -> None:
        match statement:
            case Return(value=value):
                if value is not None:
                    self._value(value)
                self._ends += [(source, label or "return") for source, label in self._loose]
                self._loose = []
            case Fail(message=message):
                self._calls(message)
                self._add("fail", self._text(statement), statement.at)
                self._loose = []
            case Break() | Continue():
                if self._loops:
                    node, leaving = self._loops[-1]
                    if isinstance(statement, Break):
                        leaving += [(source, label or "break") for source, label in self._loose]
                        self._loose = []
                    else:
                        self._back(node)
            case Print(values=values):
                for value in values:
                    self._calls(value)
            case ExpressionStatement(value=value):
                self._value(value)
            case _:
                self._value(statement.value)

    def _value(self, value: Value) -> None:
        match value:
            case Do(body=body):
                self._block(body)
            case If():
                self._if(value)
            case For() | Collect() | ParallelFor():
                self._calls(value.values)
                kind = "for" if isinstance(value, For) else "collect" if isinstance(value, Collect) else "parallel for"
                where = f" where {self._text(value.where)}" if value.where is not None else ""
                head = f"{kind} {', '.join(value.names)} in {self._text(value.values)}{where}"
                self._loop(head, value.at, value.body, "each")
            case While(condition=condition):
                self._loop(f"while {self._text(condition)}", value.at, value.body, "yes", condition)
            case Parallel():
                self._parallel(value)
            case Retry(attempts=attempts):
                node = self._add("loop", f"retry {self._text(attempts)}", value.at)
                self._block(value.body)
                self._graph.edges += [
                    GraphEdge(source, node.id, "again", is_back=True) for source, _ in self._loose if source != node.id
                ]
            case Try():
                node = self._add("choice", "try", value.at)
                self._block(value.body)
                done = self._loose
                self._loose = [(node.id, "error")]
                self._block(value.handler)
                self._loose += done
            case _:
                self._calls(value)

    def _block(self, block: Block) -> None:
        self._statements(block.statements)

    def _if(self, value: If) -> None:
        done: _Loose = []
        branch: If | Block | None = value
        while isinstance(branch, If):
            self._calls(branch.condition)
            node = self._add("choice", self._text(branch.condition), branch.at)
            self._loose = [(node.id, "yes")]
            self._block(branch.then)
            done += self._loose
            self._loose = [(node.id, "no")]
            branch = branch.otherwise
        if branch is not None:
            self._block(branch)
        self._loose += done

    def _loop(self, head: str, at: Position, body: Block, label: str, condition: Expression | None = None) -> None:
        node = self._add("loop", head, at)
        self._loose = [(node.id, label)]
        if condition is not None:
            self._calls(condition)
        leaving: _Loose = []
        self._loops.append((node.id, leaving))
        self._block(body)
        self._loops.pop()
        self._back(node.id)
        self._loose = [(node.id, "done"), *leaving]

    def _parallel(self, value: Parallel) -> None:
        node = self._add("loop", "parallel", value.at)
        done: _Loose = []
        for branch in value.branches:
            self._loose = [(node.id, branch.name or "")]
            self._value(branch.value)
            done += self._loose
        self._loose = done or [(node.id, "")]

    def _calls(self, expression: Expression) -> None:
        """Add the calls of an expression, inner ones first, without recursion."""
        pending: list[tuple[Node, bool]] = [(expression, False)]
        while pending:
            node, is_ready = pending.pop()
            if not is_ready:
                pending.append((node, True))
                pending += [(child, False) for child in reversed([*children(node)])]
            elif isinstance(node, ToolRun):
                tool = node.tool.value if isinstance(node.tool, Constant) else None
                self._add("call", tool if isinstance(tool, str) else self._text(node.tool), node.at)
