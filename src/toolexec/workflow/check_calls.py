"""Check the calls of tools: which tool it is, its arguments against the input schema, whether it may be repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from toolexec.discovery.index import Index, Registered
from toolexec.errors import ToolExecError, Violation
from toolexec.errors.hints import did_you_mean
from toolexec.model.arguments import without_nulls
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, pointer
from toolexec.model.tool import Tool
from toolexec.workflow import nodes
from toolexec.workflow.report import Report, shown
from toolexec.workflow.shapes import ANY, Kind, ObjectShape, SchemaDocument, Shape, kinds_text, of_value

_MAX_COMPARED: Final = 2000
_MAX_HINTS: Final = 20
_MAX_DEPTH: Final = 60
_OF_DURABLE_RUNS: Final = frozenset({"run:sleep", "run:signal", "run:input"})
_BY_NAMES: Final = frozenset({"type", "required", "additionalProperties", "maxProperties", "minItems", "maxItems"})
"""Keywords that hold or not whatever the members and items of a value are."""
_NEED_ALL_NAMES: Final = frozenset({"required", "minProperties", "dependentRequired"})
_CONDITIONS: Final = ('"if"', '"dependen', '"unevaluated', "\\u")
"""What a schema text has when one part of a value may decide what holds for another."""
_CONVERSIONS: Final[dict[tuple[Kind, Kind], str]] = {
    ("string", "number"): "number(...) makes a number of it",
    ("number", "string"): "string(...) makes a string of it",
    ("boolean", "string"): "string(...) makes a string of it",
    ("object", "string"): "json(...) makes a string of it",
    ("list", "string"): "json(...) makes a string of it",
    ("string", "list"): "put it in brackets: [...]",
    ("number", "list"): "put it in brackets: [...]",
    ("object", "list"): "put it in brackets: [...]",
}


def conversion(shape: Shape, wanted: Shape) -> str:
    """Return how a value of *shape* becomes what is wanted; empty where there is no certain way."""
    if len(shape.kinds) != 1:
        return ""
    found = [text for kind in wanted.kinds if (text := _CONVERSIONS.get((next(iter(shape.kinds)), kind)))]
    return found[0] if len(found) == 1 else ""


class ToolChecks:
    """Checks calls against an index; without one, only what the call itself shows."""

    def __init__(
        self,
        report: Report,
        index: Index | None,
        allowed: Callable[[str], bool] | None,
        untested: Callable[[nodes.Expression], bool],
    ) -> None:
        self._report = report
        self._untested = untested
        self._index = index
        self._allowed = allowed
        self._hints = 0
        self._documents: dict[tuple[str, str], SchemaDocument] = {}
        self._small_index: list[str] | None = None

    def check(
        self, call: nodes.ToolRun, shape_of: Callable[[nodes.Expression], Shape], *, is_repeated: bool, is_caught: bool
    ) -> Shape:
        """Check one call, and return the shape of its result. What may fail is not reported where that is caught."""
        if not isinstance(call.tool, nodes.Constant):
            self._check_dynamic(call.tool, shape_of(call.tool))
            self._check_is_object(call, shape_of)
            return ANY
        entry = self._find(call.tool)
        if entry is None:
            self._check_is_object(call, shape_of)
            return ANY
        if is_repeated:
            self._check_repeated(call, entry.tool)
        if self._check_is_object(call, shape_of):
            document = self._document(entry.tool, "input")
            untested = None if is_caught else self._untested
            _Arguments(self._report, entry.tool, document, shape_of, untested).check(call)
        return self._document(entry.tool, "output").shape if entry.tool.output_schema is not None else ANY

    def _check_dynamic(self, tool: nodes.Expression, shape: Shape) -> None:
        if shape.may_be("string"):
            self._report.warning(
                "dynamic-tool",
                tool.at,
                "which tool this calls is known only when it runs",
                'write the ID as a string, such as "github:get_issue", so that the call can be checked',
            )
        else:
            self._report.error("wrong-type", tool.at, f"the ID of a tool is a string, not {kinds_text(shape.kinds)}")

    def _check_is_object(self, call: nodes.ToolRun, shape_of: Callable[[nodes.Expression], Shape]) -> bool:
        if call.arguments is None:
            return True
        shape = shape_of(call.arguments)
        if shape.may_be("object", "null"):
            return True
        self._report.error(
            "wrong-type",
            call.arguments.at,
            f"the arguments of a tool are an object, not {kinds_text(shape.kinds)}",
            "write {name: value}",
        )
        return False

    # -- which tool ---------------------------------------------------------------------------------------------

    def _find(self, node: nodes.Constant) -> Registered | None:
        tool_id = node.value
        if not isinstance(tool_id, str):
            self._report.error("wrong-type", node.at, "the ID of a tool is a string", 'write run("namespace:name", {})')
            return None
        if self._index is None:
            return None
        entry = self._index.find(tool_id)
        if entry is None:
            self._report.error("unknown-tool", node.at, f"there is no tool {shown(tool_id)}", self._hint(tool_id))
        elif not self._allows(tool_id):
            self._report.error("tool-not-allowed", node.at, f"this run may not call {shown(tool_id)}")
            return None
        return entry

    def _allows(self, tool_id: str) -> bool:
        return self._allowed is None or self._allowed(tool_id)

    def _hint(self, tool_id: str) -> str:
        """Return what may have been meant, among the tools that the run may call."""
        index = self._index
        if index is None or self._hints >= _MAX_HINTS:
            return ""
        self._hints += 1
        wanted = tool_id[:200]
        respelled = wanted.replace(".", ":").replace("/", ":").replace("__", ":")
        name = respelled.rsplit(":", 1)[-1]
        close = [found.id for found in index.search(name.replace("_", " ").replace("-", " "), 20)]
        known = [each for each in dict.fromkeys([*close, *self._all_ids(index)]) if self._allows(each)]
        if respelled in known:
            return f"did you mean {shown(respelled)}?"
        same = [each for each in known if name in each.split(":")]
        if same:
            return f"did you mean {', '.join(shown(each) for each in same[:3])}?"
        otherwise = "search_tools or `toolexec list` shows what there is"
        if wanted in _OF_DURABLE_RUNS:
            return "only a durable run has it: give this one an ID, with durable= or --durable"
        return shown(did_you_mean(wanted, known, otherwise=otherwise), 200)

    def _all_ids(self, index: Index) -> list[str]:
        if self._small_index is None:
            self._small_index = [e.tool.id for e in index.tools()] if len(index) <= _MAX_COMPARED else []
        return self._small_index

    def _check_repeated(self, call: nodes.ToolRun, tool: Tool) -> None:
        hints = tool.annotations
        if hints.destructive is True and not hints.read_only:
            self._report.error(
                "destructive-retry",
                call.at,
                f"{shown(tool.id)} is destructive, and retry would repeat it",
                "call it outside of retry",
            )
        elif not (hints.read_only or hints.idempotent):
            self._report.warning(
                "destructive-retry",
                call.at,
                f"{shown(tool.id)} is not marked read-only or idempotent, so a failure of it ends the retry",
                "call it outside of retry",
            )

    def _document(self, tool: Tool, which: str) -> SchemaDocument:
        known = self._documents.get((tool.id, which))
        if known is None:
            schema = tool.input_schema if which == "input" or tool.output_schema is None else tool.output_schema
            known = self._documents[tool.id, which] = SchemaDocument(schema)
        return known


class _Arguments:
    """The arguments of one call beside the input schema of its tool.

    What is written as a literal is given to the schema's own validator, with null in place of each value that is known
    only when the workflow runs (a hole); whatever it finds that could depend on a hole is left alone.
    """

    def __init__(
        self,
        report: Report,
        tool: Tool,
        document: SchemaDocument,
        shape_of: Callable[[nodes.Expression], Shape],
        untested: Callable[[nodes.Expression], bool] | None,
    ) -> None:
        self._report = report
        self._untested = untested
        self._nullable: dict[str, tuple[nodes.Expression, Shape]] = {}
        self._tool = tool
        self._document = document
        self._shape_of = shape_of
        self._places: dict[str, nodes.Position] = {}
        self._holes: list[str] = []
        self._open: set[str] = set()
        self._reported: set[str] = set()
        self._extra: dict[str, list[str]] = {}
        """The names that are too many, by the path of their object, as hints: `did you mean title?`."""

    def check(self, call: nodes.ToolRun) -> None:
        expected = self._document.shape
        if call.arguments is None or self._shape_of(call.arguments).is_only("null"):
            value: JSONValue = {}
            self._places[""] = call.at
        elif isinstance(call.arguments, nodes.ObjectLiteral):
            value = self._literal(call.arguments, expected, "", 0)
            self._places[""] = call.at
        else:
            value = self._of_shape(self._shape_of(call.arguments), call.arguments.at, expected)
        text = self._document.schema.text
        if (self._holes or self._open) and any(word in text for word in _CONDITIONS):
            return
        try:
            violations = self._document.schema.violations(value)
        except (ToolExecError, RecursionError):  # such a tool cannot be called, and the call will say so
            return
        for violation in violations:
            if self._is_certain(violation):
                self._report_violation(violation)
        if self._nullable and isinstance(value, dict):
            self._report_nulls(without_nulls(value, self._document.schema, violations), {v.path for v in violations})

    def _report_nulls(self, sent: JSONObject, wrong: set[str]) -> None:
        """Report what may be null where that is not left out, as an optional argument is, and cannot be sent."""
        for path, (node, shape) in self._nullable.items():
            is_sent = any(path == f"/{pointer(name)}" for name in sent)
            if path in wrong and is_sent and self._untested is not None and self._untested(node):
                kinds = kinds_text(shape.kinds - {"null"})
                self._report.warning(
                    "wrong-type",
                    node.at,
                    f"{self._named(path)} takes no null, and this is {kinds} or null",
                    "write value ?? something, or test it with if",
                )

    # -- the value, where it is known -------------------------------------------------------------------------------

    def _literal(self, node: nodes.Expression, expected: Shape, path: str, depth: int) -> JSONValue:
        self._places[path] = node.at
        if isinstance(node, nodes.Constant | nodes.Duration):
            self._fits(
                of_value(node.value if isinstance(node, nodes.Constant) else node.seconds), node.at, expected, path
            )
            return node.value if isinstance(node, nodes.Constant) else node.seconds
        if isinstance(node, nodes.Unary) and node.operator == "-" and isinstance(node.value, nodes.Constant):
            number = node.value.value
            if isinstance(number, int | float) and not isinstance(number, bool):
                return -number
        if isinstance(node, nodes.ObjectLiteral) and depth < _MAX_DEPTH:
            return self._object(node, expected, path, depth)
        if isinstance(node, nodes.ListLiteral) and depth < _MAX_DEPTH:
            return self._list(node, expected, path, depth)
        shape = self._shape_of(node)
        if depth == 1 and shape.is_nullable and path not in self._nullable:
            self._nullable[path] = (node, shape)
        return self._hole(shape, node.at, expected, path)

    def _object(self, node: nodes.ObjectLiteral, expected: Shape, path: str, depth: int) -> JSONDict:
        value: JSONDict = {}
        last_spread = max((i for i, entry in enumerate(node.entries) if isinstance(entry, nodes.Spread)), default=-1)
        if last_spread >= 0:
            self._open.add(path)
        for position, entry in enumerate(node.entries):
            if not isinstance(entry, nodes.Entry):
                continue
            inner = f"{path}/{pointer(entry.key)}"
            member = self._member(expected, entry.key, path, entry.at)
            if position < last_spread:  # it may be overwritten
                value[entry.key] = self._hole(ANY, entry.at, ANY, inner)
            else:
                value[entry.key] = self._literal(entry.value, member, inner, depth + 1)
        return value

    def _list(self, node: nodes.ListLiteral, expected: Shape, path: str, depth: int) -> JSONValue:
        if any(isinstance(item, nodes.Spread) for item in node.items):
            return self._hole(self._shape_of(node), node.at, expected, path)
        item = expected.item()
        return [
            self._literal(cast("nodes.Expression", each), item, f"{path}/{number}", depth + 1)
            for number, each in enumerate(node.items)
        ]

    def _of_shape(self, shape: Shape, at: nodes.Position, expected: Shape) -> JSONValue:
        """Return what is known of arguments that are not written in the call itself."""
        self._places[""] = at
        if not isinstance(shape, ObjectShape) or shape.is_open:
            return self._hole(shape, at, expected, "")
        value: JSONDict = {}
        for name, member in shape.members.items():
            path = f"/{pointer(name)}"
            value[name] = self._hole(member, at, self._member(expected, name, "", at), path)
        return value

    def _hole(self, shape: Shape, at: nodes.Position, expected: Shape, path: str) -> None:
        self._places[path] = at
        self._holes.append(path)
        self._fits(shape, at, expected, path)

    def _fits(self, shape: Shape, at: nodes.Position, expected: Shape, path: str) -> None:
        """Report a value that is certainly of another kind than what is expected."""
        if shape.kinds and shape.kinds.isdisjoint(expected.kinds):
            self._reported.add(path)
            self._report.error(
                "wrong-type",
                at,
                f"{self._named(path)} is {kinds_text(expected.kinds)}, and this is {kinds_text(shape.kinds)}",
                conversion(shape, expected),
            )

    def _member(self, expected: Shape, name: str, path: str, at: nodes.Position) -> Shape:
        """Return what is expected of a member, and report one that is not."""
        if not expected.may_be("object"):
            return ANY
        found = expected.member(name)
        if found.state == "there":
            return found.shape
        names = [shown(each, 60) for each in expected.names()]
        hint = did_you_mean(name, names) or "leave it out"
        report = self._report.error if found.state == "absent" else self._report.warning
        report("extra-argument", _key(at, name), f"{self._named(path)} has no {shown(name)}", hint)
        self._extra.setdefault(path, []).append(hint)
        return found.shape

    # -- what the validator finds -----------------------------------------------------------------------------------

    def _is_certain(self, violation: Violation) -> bool:
        path, keyword = violation.path, violation.keyword
        if path in self._holes or path in self._reported or (path in self._open and keyword in _NEED_ALL_NAMES):
            return False
        below = f"{path}/"
        is_whole = not any(each.startswith(below) for each in self._holes) and not any(
            each == path or each.startswith(below) for each in self._open
        )
        return is_whole or keyword in _BY_NAMES

    def _report_violation(self, violation: Violation) -> None:
        path, keyword = violation.path, violation.keyword
        at = self._places.get(path) or self._places[""]
        if keyword == "required":
            name = shown(violation.expected)
            if f"did you mean {name}?" not in self._extra.get(path, ()):
                self._report.error("missing-argument", at, f"{self._named(path)} needs {name}", self._how(path, name))
        elif keyword == "additionalProperties":
            if path not in self._extra:
                self._report.error("extra-argument", at, f"{self._named(path)}: {shown(violation.message, 300)}")
        else:
            kind = "wrong-type" if keyword in ("type", "anyOf", "oneOf", "oneOfNotValid") else "wrong-value"
            message = shown(violation.message, 300)
            self._report.error(kind, at, f"{self._named(path)} is not valid: {message}")

    def _how(self, path: str, name: str) -> str:
        shape = self._document.shape
        for step in [step for step in path.split("/") if step][:_MAX_DEPTH]:
            shape = shape.item() if step.isdecimal() else shape.member(step).shape
        kinds = shape.member(name).shape.kinds
        return f"add {name}: ..., {kinds_text(kinds)}" if len(kinds) < 4 else f"add {name}: ..."

    def _named(self, path: str) -> str:
        """Return a part of the arguments in words: `labels.0 of github:create_issue`."""
        tool = shown(self._tool.id)
        if not path:
            return tool
        steps = path[1:].replace("/", ".").replace("~1", "/").replace("~0", "~")
        return f"{shown(steps)} of {tool}"


def _key(at: nodes.Position, name: str) -> nodes.Position:
    """Return the place of an entry's key, where *at* is that of the whole entry."""
    if at.line != at.end_line:
        return nodes.Position(at.line, at.column, at.line, at.column + len(name))
    return nodes.Position(at.line, at.column, at.line, min(at.column + len(name), at.end_column))
