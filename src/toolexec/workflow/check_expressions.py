"""Check expressions: members that are not there, operators and functions that cannot take what they are given."""

from __future__ import annotations

from typing import Final

from toolexec.errors.hints import did_you_mean
from toolexec.workflow import nodes
from toolexec.workflow.check_calls import ToolChecks
from toolexec.workflow.check_functions import check_function
from toolexec.workflow.inputs import NotLiteralError, literal_value
from toolexec.workflow.report import Report, shown
from toolexec.workflow.shapes import (
    ANY,
    BOOLEAN,
    NULL,
    NUMBER,
    STRING,
    Kind,
    ObjectShape,
    Shape,
    kinds_text,
    list_of,
    of_kinds,
    of_value,
    union,
)
from toolexec.workflow.values import OperationError, member

MAX_DEPTH: Final = 100
"""How deep expressions and blocks are looked into; what is deeper is taken as it is."""

_ADDED: Final[tuple[Kind, ...]] = ("number", "string", "list")
_ORDERED: Final[tuple[Kind, ...]] = ("number", "string")
_MAX_CHOICES: Final = 50  # as many are looked through for what was meant
_SAMPLES: Final[dict[Kind, object]] = {"list": [], "string": "", "number": 0, "boolean": True}


class _Unknown:
    """Stands for a value that is not a constant."""


UNKNOWN: Final = _Unknown()


def constant_of(node: nodes.Expression) -> object:
    """Return the value of an expression that has no names in it, else UNKNOWN."""
    if isinstance(node, nodes.Unary) and node.operator == "not" and isinstance(node.value, nodes.Constant):
        return not node.value.value
    try:
        return literal_value(node)
    except NotLiteralError:
        return UNKNOWN


def truth_of(node: nodes.Expression) -> bool | None:
    """Return whether a condition is always true or always false; None where that depends on something."""
    value = constant_of(node)
    if value is not UNKNOWN:
        return bool(value)
    if (
        isinstance(node, nodes.Binary)
        and isinstance(node.left, nodes.Constant)
        and isinstance(node.right, nodes.Constant)
    ):
        left, right = node.left.value, node.right.value
        if node.operator in ("==", "!="):
            same = isinstance(left, bool) is isinstance(right, bool) and left == right
            return same if node.operator == "==" else not same
    return None


class Expressions:
    """Finds the shapes of expressions, and reports what cannot work in them."""

    def __init__(self, report: Report, tools: ToolChecks) -> None:
        self._report = report
        self._tools = tools
        self._known: dict[int, Shape] = {}
        self._depth = 0
        self.names: list[dict[str, Shape]] = [{}]
        """The names that are visible, by block, the innermost last."""
        self.retries: int = 0
        """How many blocks of `retry` are around this place."""
        self.catches: int = 0
        """How many blocks of `try` are around this place."""

    def of(self, node: nodes.Expression) -> Shape:
        """Return the shape of an expression, which is checked once."""
        known = self._known.get(id(node))
        if known is not None:
            return known
        if self._depth > MAX_DEPTH:
            return ANY
        self._depth += 1
        shape = self._known[id(node)] = self._of(node)
        self._depth -= 1
        return shape

    def _of(self, node: nodes.Expression) -> Shape:
        match node:
            case nodes.Constant(value=value):
                return of_value(value)
            case nodes.Duration():
                return NUMBER
            case nodes.Interpolation(parts=parts):
                for part in parts:
                    if not isinstance(part, str):
                        self.of(part)
                return STRING
            case nodes.Name(name=name):
                return next((block[name] for block in reversed(self.names) if name in block), ANY)
            case nodes.Member():
                return self._member(self.of(node.value), node.name, _end_of(node.at, len(node.name)), safe=node.safe)
            case nodes.Index():
                return self._index(node)
            case nodes.Slice():
                return self._slice(node)
            case nodes.Unary():
                return self._unary(node)
            case nodes.Binary():
                return self._binary(node)
            case nodes.Conditional(condition=condition, then=then, otherwise=otherwise):
                self.condition(condition)
                return union([self.of(then), self.of(otherwise)])
            case nodes.ListLiteral():
                return self._list(node)
            case nodes.ObjectLiteral():
                return self._object(node)
            case nodes.Call():
                shapes = [self.of(argument) for argument in node.arguments]
                return check_function(self._report, node, shapes)
            case nodes.ToolRun():
                return self._tool_run(node)

    def condition(self, node: nodes.Expression, *, may_be_constant: bool = False) -> None:
        """Check a condition: one that is always the same was hardly meant."""
        self.of(node)
        truth = truth_of(node)
        if truth is not None and not may_be_constant:
            self._report.warning(
                "constant-condition", node.at, f"this condition is always {'true' if truth else 'false'}"
            )

    def need(self, node: nodes.Expression, what: str, *kinds: Kind) -> Shape:
        """Check that an expression may be of one of these kinds; *what* says what it is."""
        shape = self.of(node)
        if not shape.may_be(*kinds):
            expected = kinds_text(frozenset(kinds))
            self._report.error("wrong-type", node.at, f"{what} is {expected}, not {kinds_text(shape.kinds)}")
        return shape

    # -- parts of values ------------------------------------------------------------------------------------------

    def _member(self, shape: Shape, name: str, place: nodes.Position, *, safe: bool) -> Shape:
        if not shape.may_be("object"):
            if shape.is_only("null") and safe:
                return NULL
            message = f"{kinds_text(shape.kinds)} has no members, so no {shown(name)}"
            self._report.error("unknown-field", place, message, _instead(shape, name))
            return ANY
        found = shape.member(name)
        if found.state != "there":
            report = self._report.warning if safe or found.state == "undeclared" else self._report.error
            names = [shown(each, 60) for each in shape.names()]
            hint = did_you_mean(name, names)
            message = f"there is no field {shown(name)}"
            report("unknown-field", place, message, hint if names else "the object has no fields")
        return union([found.shape, NULL]) if safe else found.shape

    def _index(self, node: nodes.Index) -> Shape:
        shape, at = self.of(node.value), self.of(node.index)
        key = constant_of(node.index)
        if node.safe and shape.is_only("null"):
            return NULL
        if not shape.may_be("list", "string", "object"):
            message = f"{kinds_text(shape.kinds)} has no parts, so no [ ]"
            self._report.error("wrong-type", node.at, message)
            return ANY
        if not shape.may_be("object") and not at.may_be("number"):
            message = f"{kinds_text(shape.kinds)} takes a number in [ ], not {kinds_text(at.kinds)}"
            self._report.error("wrong-type", node.index.at, message)
        elif shape.is_only("object") and not at.may_be("string"):
            message = f"an object takes a string in [ ], not {kinds_text(at.kinds)}"
            self._report.error("wrong-type", node.index.at, message)
        elif isinstance(key, str) and shape.kinds <= {"object", "null"}:
            return self._member(shape, key, node.index.at, safe=node.safe)
        parts = [STRING] if shape.may_be("string") else []
        parts += [shape.item()] if shape.may_be("list") else []
        parts += [ANY] if shape.may_be("object") else []
        return union([*parts, NULL] if node.safe else parts)

    def _slice(self, node: nodes.Slice) -> Shape:
        shape = self.need(node.value, "what [a:b] takes a part of", "list", "string")
        for bound in (node.start, node.stop):
            if bound is not None:
                self.need(bound, "a bound of [a:b]", "number", "null")
        return shape if shape.kinds <= {"list", "string"} else of_kinds("list", "string")

    def _list(self, node: nodes.ListLiteral) -> Shape:
        items: list[Shape] = []
        for item in node.items:
            if isinstance(item, nodes.Spread):
                spread = self.need(item.value, "what ... in a list takes", "list")
                items.append(spread.item())
            else:
                items.append(self.of(item))
        return list_of(union(items))

    def _object(self, node: nodes.ObjectLiteral) -> Shape:
        members: dict[str, Shape] = {}
        is_open = False
        for entry in node.entries:
            if isinstance(entry, nodes.Entry):
                members[entry.key] = self.of(entry.value)
                continue
            spread = self.need(entry.value, "what ... in an object takes", "object")
            if isinstance(spread, ObjectShape):
                members.update(spread.members)
                is_open = is_open or spread.is_open
            else:
                members, is_open = {}, True
        return ObjectShape(members, is_open=is_open)

    # -- operators --------------------------------------------------------------------------------------------------

    def _unary(self, node: nodes.Unary) -> Shape:
        if node.operator == "not":
            self.of(node.value)
            return BOOLEAN
        self.need(node.value, "what - changes the sign of", "number")
        return NUMBER

    def _binary(self, node: nodes.Binary) -> Shape:
        """Check `a + b + c` from its left end, without a call for each link."""
        links = [node]
        while isinstance(links[-1].left, nodes.Binary) and id(links[-1].left) not in self._known:
            links.append(links[-1].left)
        shape = self.of(links[-1].left)
        for link in reversed(links):
            shape = self._known[id(link)] = self._operator(link, shape, self.of(link.right))
        return shape

    def _operator(self, node: nodes.Binary, left: Shape, right: Shape) -> Shape:
        match node.operator:
            case "or" | "and":
                return union([left, right])
            case "??":
                kinds = left.kinds - {"null"}
                return union([left, right]) if left.may_be("null") and kinds else left if kinds else right
            case "==" | "!=":
                self._comparable(node, left, right)
                return BOOLEAN
            case "<" | "<=" | ">" | ">=":
                self._both(node, left, right, _ORDERED)
                return BOOLEAN
            case "in" | "not in":
                if not right.may_be("list", "object", "string"):
                    message = f"{node.operator} takes a list, an object or a string on its right"
                    self._report.error("wrong-type", node.right.at, f"{message}, not {kinds_text(right.kinds)}")
                self._among(node, left, right)
                return BOOLEAN
            case "+":
                return self._both(node, left, right, _ADDED)
            case _:
                return self._both(node, left, right, ("number",))

    def _both(self, node: nodes.Binary, left: Shape, right: Shape, kinds: tuple[Kind, ...]) -> Shape:
        """Check that both sides may be of the same one of *kinds*, and return the shape of that."""
        fitting: list[Kind] = [kind for kind in kinds if left.may_be(kind) and right.may_be(kind)]
        if fitting:
            return union([left, right]) if fitting == ["list"] else of_kinds(*fitting)
        hint = ""
        if node.operator == "+":
            if left.may_be("string") or right.may_be("string"):
                hint = 'write "${a} ${b}", or string(x), to make a string of any value'
            elif left.may_be("list") or right.may_be("list"):
                hint = "write append(xs, item) to add one item"
            elif left.may_be("object") and right.may_be("object"):
                hint = "write {...a, ...b}"
        wanted = {"number": "two numbers"}.get(kinds[0] if len(kinds) == 1 else "") or (
            "two numbers or two strings" if kinds == _ORDERED else "two numbers, two strings or two lists"
        )
        sides = f"{kinds_text(left.kinds)} and {kinds_text(right.kinds)}"
        self._report.error("wrong-type", node.at, f"{node.operator} takes {wanted}, not {sides}", hint)
        return ANY

    def _comparable(self, node: nodes.Binary, left: Shape, right: Shape) -> None:
        kinds = (left.kinds, right.kinds)
        if all(kinds) and left.kinds.isdisjoint(right.kinds) and not any("null" in each for each in kinds):
            answer = "false" if node.operator == "==" else "true"
            sides = f"{kinds_text(left.kinds)} and {kinds_text(right.kinds)}"
            self._report.warning("constant-condition", node.at, f"this is always {answer}: it compares {sides}")
        answer = "false" if node.operator == "==" else "true"
        for shape, other in ((left, node.right), (right, node.left)):
            if _is_impossible(shape, other):
                self._impossible(node.at, f"this is always {answer}: the value is never", shape, other)

    def _among(self, node: nodes.Binary, left: Shape, right: Shape) -> None:
        """Check `x in [...]` where *x* has few values, and `"x" in xs` where the items of *xs* have."""
        answer = "false" if node.operator == "in" else "true"
        if right.is_only("list") and _is_impossible(right.item(), node.left):
            self._impossible(node.at, f"this is always {answer}: an item is never", right.item(), node.left)
        if not isinstance(node.right, nodes.ListLiteral):
            return
        items = [item for item in node.right.items if not isinstance(item, nodes.Spread)]
        wrong = [item for item in items if _is_impossible(left, item)]
        is_all = len(wrong) == len(node.right.items)
        for item in wrong:
            what = f"this is always {answer}: the value is never" if is_all else "the value is never"
            self._impossible(item.at, what, left, item)

    def _impossible(self, at: nodes.Position, message: str, shape: Shape, other: nodes.Expression) -> None:
        choices, value = shape.choices() or [], str(constant_of(other))
        names = [shown(str(each)) for each in choices[:_MAX_CHOICES]]
        hint = did_you_mean(value, names, otherwise=f"it is one of {', '.join(names)}")
        self._report.warning("constant-condition", at, f"{message} {shown(value)}", hint)

    # -- calls ------------------------------------------------------------------------------------------------------

    def _tool_run(self, node: nodes.ToolRun) -> Shape:
        self.of(node.tool)
        if node.arguments is not None:
            self.of(node.arguments)
        if node.timeout is not None:
            self.need(node.timeout, "a timeout", "number")
            seconds = constant_of(node.timeout)
            if isinstance(seconds, int | float) and not seconds > 0:
                self._report.error("wrong-value", node.timeout.at, "a timeout is above 0 seconds")
        return self._tools.check(node, self.of, is_repeated=self.retries > 0, is_caught=self.catches > 0)


def _is_impossible(shape: Shape, other: nodes.Expression) -> bool:
    """Return whether *other* is a string that a value of this shape never is."""
    choices, value = shape.choices(), constant_of(other)
    return choices is not None and isinstance(value, str) and value not in choices


def _end_of(at: nodes.Position, length: int) -> nodes.Position:
    return nodes.Position(at.end_line, max(1, at.end_column - length), at.end_line, at.end_column)


def _instead(shape: Shape, name: str) -> str:
    """Return what to write in place of a method or a property that other languages have."""
    if len(shape.kinds) != 1:
        return ""
    sample = _SAMPLES.get(next(iter(shape.kinds)))
    if sample is None:
        return "write ?. where the value may be null" if shape.is_only("null") else ""
    try:
        member(sample, name)
    except OperationError as error:
        return error.message.partition("; ")[2]
    return ""
