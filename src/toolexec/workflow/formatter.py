"""Write a workflow in its one canonical style, with its comments at their places."""

from __future__ import annotations

import bisect
from collections.abc import Generator, Sequence
from typing import Final, TypeAlias, TypeVar

from toolexec.workflow import nodes
from toolexec.workflow.one_line import (
    INSERT,
    POSTFIX,
    WIDTH,
    OneLine,
    head_of_entry,
    is_tall,
    level_of,
    level_of_operand,
    pieces_of,
    type_text,
)
from toolexec.workflow.parse_expressions import COMPARISONS, LEVELS
from toolexec.workflow.parser import parse
from toolexec.workflow.strings import cook, dedent, escape

__all__ = ["WIDTH", "format_tree", "format_workflow"]

_T = TypeVar("_T")
_INDENT: Final = 4
_RESERVE: Final = 2  # for what follows a value on its line: `,`, `)` or ` {`


def format_workflow(source: str) -> str:
    """Return the workflow in its canonical style; raises WorkflowSyntaxError. Formatting it again changes nothing.

    >>> print(format_workflow("x:=f( 1,2 ) # why"), end="")
    x := f(1, 2)  # why
    """
    return format_tree(parse(source))


def format_tree(workflow: nodes.Workflow) -> str:
    """Return the source of a tree; one that was not parsed may lack positions."""
    return _Printer(workflow).text()


_Steps: TypeAlias = "Generator[_Steps, None, object]"
"""Writes a node, and yields what writes each node inside of it, as these may be nested deeper than Python's calls."""


def _finish(steps: Generator[_Steps, None, _T]) -> _T:
    """Write a node with all that is inside of it; return what *steps* returns."""
    outer: list[_Steps] = []
    while True:
        try:
            inner = next(outer[-1] if outer else steps)
        except StopIteration as end:
            if not outer:
                return end.value
            outer.pop()
        else:
            outer.append(inner)


class _Printer:
    def __init__(self, workflow: nodes.Workflow) -> None:
        self._workflow = workflow
        self._comments = workflow.comments
        self._starts = [(at.line, at.column) for at, _ in workflow.comments]
        self._next = 0  # the first comment that is not written yet
        self._lines: list[str] = []
        self._line: list[str] = []
        self._column = 0
        self._indent = 0
        self._one_line = OneLine()

    def text(self) -> str:
        """Return the whole workflow."""
        workflow = self._workflow
        if workflow.front_matter is not None:
            inner = workflow.front_matter.text
            self._lines += ["+++", *([inner] if inner else []), "+++", ""]
        _finish(self._items(workflow.inputs, None))
        if workflow.inputs and (workflow.statements or self._next < len(self._comments)):
            self._blank()
        last_line = _finish(self._items(workflow.statements, None, fresh=True))
        self._own_comments((1 << 60, 0), last_line)
        text = "\n".join(self._lines).rstrip("\n")
        return f"{text}\n" if text else ""

    # -- lines --------------------------------------------------------------------------------------------------

    def _put(self, text: str) -> None:
        if not self._line:
            self._line.append(" " * self._indent)
            self._column = self._indent
        self._line.append(text)
        self._column += len(text)

    def _end(self) -> None:
        """End the line, if it has anything."""
        if self._line:
            self._lines.append("".join(self._line))
            self._line = []
            self._column = 0

    def _blank(self) -> None:
        if self._lines and self._lines[-1]:
            self._lines.append("")

    # -- comments -----------------------------------------------------------------------------------------------

    def _own_comments(self, before: tuple[int, int], last_line: int = 0) -> int:
        """Write the comments before a place, each on its own line; return the line of the last."""
        while self._next < len(self._comments) and self._starts[self._next] < before:
            at, text = self._comments[self._next]
            self._next += 1
            if last_line and at.line > last_line + 1:
                self._blank()
            self._put(text)
            self._end()
            last_line = at.line
        return last_line

    def _same_line_comment(self, line: int, before: tuple[int, int]) -> None:
        """Write the comment that ends *line*, if there is one."""
        if self._next < len(self._comments) and self._starts[self._next] < before:
            at, text = self._comments[self._next]
            if at.line == line and self._line:
                self._put(f"  {text}")
                self._next += 1

    def _has_comment(self, at: nodes.Position) -> bool:
        """Return whether a comment stands inside of a node."""
        index = bisect.bisect_left(self._starts, (at.line, at.column))
        return index < len(self._starts) and self._starts[index] < (at.end_line, at.end_column)

    # -- what stands on lines of its own ------------------------------------------------------------------------

    def _items(
        self, items: Sequence[nodes.Node], around: nodes.Position | None, *, fresh: bool = False, comma: str = ""
    ) -> Generator[_Steps, None, int]:
        """Write nodes one to a line, and the comments between them; return the line of the last."""
        end = (around.end_line, around.end_column - 1) if around is not None else (1 << 60, 0)
        last_line = 0 if fresh or around is None else around.line
        first = True
        for index, node in enumerate(items):
            at = node.at
            begin = len(self._lines)
            last_line = self._own_comments((at.line, at.column), 0 if first and not last_line else last_line)
            if around is not None:
                last_line = max(last_line, around.line)  # a comment may have come from before
            if last_line and at.line > last_line + 1 and not (first and begin == len(self._lines)):
                self._blank()
            first = False
            begin = len(self._lines)
            yield self._item(node)
            self._put(comma)
            self._moved_comments(at, begin)
            following = items[index + 1].at if index + 1 < len(items) else None
            limit = (following.line, following.column) if following is not None else end
            self._same_line_comment(at.end_line, limit)
            self._end()
            last_line = at.end_line
        if around is not None:
            self._own_comments(end, last_line)
        return last_line

    def _moved_comments(self, at: nodes.Position, begin: int) -> None:
        """Write the comments inside of a node that found no place there above it."""
        moved: list[str] = []
        while self._next < len(self._comments) and self._starts[self._next] < (at.end_line, at.end_column):
            moved.append(" " * self._indent + self._comments[self._next][1])
            self._next += 1
        self._lines[begin:begin] = moved

    def _item(self, node: nodes.Node) -> _Steps:
        match node:
            case nodes.Bind(name, value):
                self._put(f"{name} := ")
                yield self._value(value)
            case nodes.Assign(target, value):
                yield self._emit(target)
                self._put(" = ")
                yield self._value(value)
            case nodes.ExpressionStatement(value):
                yield self._value(value)
            case nodes.Print(values):
                yield self._call("print", values, node.at)
            case nodes.Return(value):
                self._put("return")
                if value is not None:
                    self._put(" ")
                    yield self._value(value)
            case nodes.Fail(message):
                yield self._head("fail", message)
            case nodes.Break():
                self._put("break")
            case nodes.Continue():
                self._put("continue")
            case nodes.Branch(name, value, binds):
                if name is not None:
                    self._put(f"{name} := " if binds else f"{name}: ")
                yield self._value(value)
            case nodes.Input():
                yield self._input(node)
            case nodes.Entry():
                head, is_all = head_of_entry(node)
                self._put(head)
                if not is_all:
                    yield self._emit(node.value)
            case nodes.Spread(value):
                self._put("...")
                yield self._emit(value)
            case _:
                yield self._emit(node)  # pyright: ignore[reportArgumentType]

    def _input(self, node: nodes.Input) -> _Steps:
        self._put(f"input {node.name}: {type_text(node.type)}")
        if node.default is not None:
            self._put(" = ")
            yield self._emit(node.default)
        if node.description:
            self._put(f' "{escape(node.description)}"')

    # -- blocks -------------------------------------------------------------------------------------------------

    def _value(self, node: nodes.Value) -> _Steps:
        """Write a value: an expression, or a block expression."""
        match node:
            case nodes.Do(body):
                self._put("do")
                yield self._block(body, short=True)
            case nodes.If():
                yield self._if(node)
            case nodes.For(names, values, body, where):
                yield self._head(f"for {', '.join(names)} in", values)
                yield self._head("where", where)
                yield self._block(body)
            case nodes.Collect(names, values, body, where):
                yield self._head(f"collect {', '.join(names)} in", values)
                yield self._head("where", where)
                yield self._block(body, short=True)
            case nodes.While(condition, body, limit):
                yield self._head("while", condition)
                yield self._head("limit", limit)
                yield self._block(body)
            case nodes.Parallel(branches, limit):
                self._put("parallel")
                yield self._head("limit", limit)
                yield self._braces(branches, node.at)
            case nodes.ParallelFor(names, values, body, where, limit):
                yield self._head(f"parallel for {', '.join(names)} in", values)
                yield self._head("where", where)
                yield self._head("limit", limit)
                yield self._block(body, short=True)
            case nodes.Retry(attempts, body, delay, backoff):
                yield self._head("retry", attempts)
                yield self._head("delay", delay)
                yield self._head("backoff", backoff)
                yield self._block(body)
            case nodes.Try(body, name, handler):
                self._put("try")
                yield self._block(body)
                self._put(" catch" if name is None else f" catch {name}")
                yield self._block(handler)
            case _:
                yield self._emit(node)

    def _head(self, word: str, value: nodes.Expression | None) -> _Steps:
        """Write a word and its value, after a space if anything is before."""
        if value is not None:
            self._put(f" {word} " if self._line and not self._line[-1].endswith(" ") else f"{word} ")
            yield self._emit(value)

    def _if(self, node: nodes.If) -> _Steps:
        yield self._head("if", node.condition)
        yield self._block(node.then)
        otherwise = node.otherwise
        while isinstance(otherwise, nodes.If):
            self._put(" else if ")
            yield self._emit(otherwise.condition)
            yield self._block(otherwise.then)
            otherwise = otherwise.otherwise
        if otherwise is not None:
            self._put(" else")
            yield self._block(otherwise)

    def _block(self, block: nodes.Block, *, short: bool = False) -> _Steps:
        """Write a block; a *short* one may stand on the line if it has one expression."""
        if short and len(block.statements) == 1 and not self._has_comment(block.at):
            only = block.statements[0]
            text = None
            if isinstance(only, nodes.ExpressionStatement) and not isinstance(only.value, nodes.BlockExpression):
                text = self._one_line.short(only.value)
            if text is not None and self._column + len(text) + 5 <= WIDTH:
                self._put(f" {{ {text} }}")
                return
        yield self._braces(block.statements, block.at)

    def _braces(self, items: Sequence[nodes.Node], at: nodes.Position) -> _Steps:
        if not items and not self._has_comment(at):
            self._put(" {}")
            return
        self._put(" {")
        yield self._broken(items, at)
        self._put("}")

    def _broken(self, items: Sequence[nodes.Node], at: nodes.Position, comma: str = "") -> _Steps:
        """Write nodes on lines of their own, one step further in, up to the closing bracket."""
        first = items[0].at if items else at
        begin = (first.line, first.column) if items else (at.end_line, at.end_column - 1)
        opening = self._comments[self._next][0].line if self._next < len(self._comments) else 0
        if opening and opening < first.line:  # a comment after the bracket stays there
            self._same_line_comment(self._opening_line(at, opening), begin)
        self._end()
        self._indent += _INDENT
        yield self._items(items, at, comma=comma)
        self._indent -= _INDENT
        self._end()

    def _opening_line(self, at: nodes.Position, comment_line: int) -> int:
        return comment_line if comment_line == at.line else 0

    # -- expressions --------------------------------------------------------------------------------------------

    def _emit(self, node: nodes.Expression, level: int = 0) -> _Steps:
        """Write an expression, broken over lines only if it must be; in parentheses if it binds less than *level*."""
        text = self._one_line.short(node)
        wrapped = level_of(node) < level
        if text is not None and self._fits(node, text, wrapped):
            self._put(f"({text})" if wrapped else text)
            return
        if wrapped:
            self._put("(")
        yield self._emit_broken(node, text)
        if wrapped:
            self._put(")")

    def _fits(self, node: nodes.Expression, text: str, wrapped: bool) -> bool:
        room = WIDTH - _RESERVE - (self._column if self._line else self._indent) - 2 * wrapped
        return len(text) <= room and not self._has_comment(node.at)

    def _emit_links(self, node: nodes.Binary) -> _Steps:
        """Write `a + b + c` from its left end, without a call for each link."""
        links = [node]
        left = node.left
        while isinstance(left, nodes.Binary) and level_of(left) >= _left_level(links[-1]):
            text = self._one_line.short(left)
            if text is not None and self._fits(left, text, False):
                break
            links.append(left)
            left = left.left
        yield self._emit(left, _left_level(links[-1]))
        for link in reversed(links):
            self._put(f" {link.operator} ")
            yield self._emit(link.right, LEVELS[link.operator] + 1)

    def _emit_broken(self, node: nodes.Expression, text: str | None) -> _Steps:
        match node:
            case nodes.ListLiteral(items) if items or self._has_comment(node.at):
                self._put("[")
                yield self._broken(items, node.at, ",")
                self._put("]")
            case nodes.ObjectLiteral(entries) if entries or self._has_comment(node.at):
                self._put("{")
                yield self._broken(entries, node.at, ",")
                self._put("}")
            case nodes.Call(function, arguments):
                yield self._call(function, arguments, node.at)
            case nodes.ToolRun(tool, arguments, timeout):
                yield self._call("run", (tool,) if arguments is None else (tool, arguments), node.at)
                if timeout is not None:
                    self._put(" timeout ")
                    yield self._emit(timeout, POSTFIX)
            case nodes.Binary():
                yield self._emit_links(node)
            case nodes.Conditional(condition, then, otherwise):
                yield self._emit(condition, 1)
                self._put(" ? ")
                yield self._emit(then)
                self._put(" : ")
                yield self._emit(otherwise)
            case nodes.Unary(operator, value):
                self._put("not " if operator == "not" else "-")
                yield self._emit(value, level_of_operand(node))
            case nodes.Member(value, name, safe):
                yield self._emit(value, POSTFIX)
                self._put(f"?.{name}" if safe else f".{name}")
            case nodes.Index(value, index, safe):
                yield self._emit(value, POSTFIX)
                self._put("?[" if safe else "[")
                yield self._emit(index)
                self._put("]")
            case nodes.Slice(value, start, stop):
                yield self._emit(value, POSTFIX)
                self._put("[")
                if start is not None:
                    yield self._emit(start, 1)
                self._put(":")
                if stop is not None:
                    yield self._emit(stop, 1)
                self._put("]")
            case nodes.Constant(value) if isinstance(value, str):
                self._string([value], [])
            case nodes.Interpolation(parts):
                self._string(*pieces_of(parts))
            case _:
                self._put(self._one_line.whole(node))

    def _call(self, function: str, arguments: Sequence[nodes.Expression], at: nodes.Position) -> _Steps:
        """Write a call; an object or a list as its last argument begins on the same line."""
        flat = [self._one_line.short(argument) for argument in arguments]
        width = sum(len(text) + 2 for text in flat if text is not None) + len(function) + 3
        start = self._column if self._line else self._indent
        if None not in flat and start + width <= WIDTH and not self._has_comment(at):
            self._put(f"{function}({', '.join(text for text in flat if text is not None)})")
            return
        *first, last = arguments or (None,)
        if isinstance(last, nodes.ObjectLiteral | nodes.ListLiteral) and self._hugs(
            function, flat[:-1], first, last, at
        ):
            self._put("".join([f"{function}(", *(f"{text}, " for text in flat[:-1])]))
            yield self._emit(last)
            self._put(")")
            return
        self._put(f"{function}(")
        yield self._broken(arguments, at, ",")
        self._put(")")

    def _hugs(
        self,
        function: str,
        flat: list[str | None],
        first: Sequence[nodes.Node | None],
        last: nodes.Node,
        at: nodes.Position,
    ) -> bool:
        """Return whether the last argument may begin on the line of the call."""
        if None in flat or sum(len(text or "") + 2 for text in flat) + len(function) + self._column > WIDTH - 5:
            return False
        before = nodes.Position(at.line, at.column, last.at.line, last.at.column)
        after = nodes.Position(last.at.end_line, last.at.end_column, at.end_line, at.end_column)
        return not self._has_comment(before) and not self._has_comment(after)

    # -- strings ------------------------------------------------------------------------------------------------

    def _string(self, strings: list[str], inserts: list[nodes.Expression]) -> None:
        """Write a string over several lines if it has some and that is exact, else on one line."""
        shown = [self._one_line.whole(insert) for insert in inserts]
        indent = " " * (self._indent + _INDENT)
        raw = INSERT.join([_escape_lines(text) for text in strings])
        if is_tall(strings):
            body = "\n" + "\n".join([indent + line if line else "" for line in raw.split("\n")])
            if raw.endswith("\n"):
                body += indent
            elif raw.endswith('"'):
                body = f'{body[:-1]}\\"'
            if [cook(text) for text in dedent(body.split(INSERT))] == strings:
                pieces = body.split(INSERT)
                whole = pieces[0] + "".join(
                    f"${{{insert}}}{text}" for insert, text in zip(shown, pieces[1:], strict=True)
                )
                *lines, last = f'"""{whole}"""'.split("\n")
                self._put(lines[0])
                self._end()
                self._lines += lines[1:]
                self._line = [last]
                self._column = len(last)
                return
        pieces = [escape(text) for text in strings]
        self._put(f'"{pieces[0]}' + "".join(f"${{{a}}}{b}" for a, b in zip(shown, pieces[1:], strict=True)) + '"')


def _left_level(node: nodes.Binary) -> int:
    """Return how tightly the left side must bind to stand there without parentheses."""
    own = LEVELS[node.operator]
    return own + (own == COMPARISONS)


def _escape_lines(text: str) -> str:
    r"""Return *text* as it stands in a `\"\"\"` string."""
    lines = [escape(line).replace('\\"', '"') for line in text.split("\n")]
    return "\n".join(lines).replace('"""', '\\"\\"\\"')
