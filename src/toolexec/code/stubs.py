"""Typed stubs made from tools' schemas, in Python or TypeScript: what a model reads to write code that calls tools."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from toolexec.code.names import ToolNames, ToolPath, attribute_path, paths_of, preferred, python_name
from toolexec.code.stub_book import FROM_TYPING, TypeBook, comment_of, unshadowed
from toolexec.code.stub_dialects import PYTHON, is_javascript
from toolexec.code.stub_signature import about, signature_of
from toolexec.code.stub_text import (
    docstring,
    harmless_comment,
    is_plain_name,
    joined_words,
    one_line,
    quoted,
)
from toolexec.code.stub_types import Definition, Field
from toolexec.code.stub_typescript import typescript_stub_of, typescript_stubs
from toolexec.model.tool import Tool

__all__ = ["python_stubs", "stub_of", "stubs_in", "typescript_stubs"]

_ANY: Final = PYTHON.any
_WIDTH: Final = 100
_MAX_CALL: Final = 200
_HEADER: Final = '''"""What code can call; `tools` and `ToolError` are there without an import.

Arguments are passed by name. A call waits and gives the value: value = tools.namespace.name(x=1).
In a program with `await`, calls are awaited: value = await tools.namespace.name(x=1); asyncio.gather runs many at once.
A tool that fails raises ToolError.
"""'''
_TOOL_ERROR: Final = '''class ToolError(Exception):
    """A call failed: the tool said no, or could not be run."""

    code: str  # stable, such as "validation_input" or "tool_not_found"
    message: str
    tool_id: str | None
    retryable: bool
    details: dict[str, Any]'''
_ARGS: Final = "dict[str, Any] | None"
_FOUND: Final = "list[dict[str, Any]]"
_METHODS: Final = (
    ("run", ("tool_id: str", f"args: {_ARGS} = ..."), _ANY, "Call any tool by its ID."),
    (
        "run_chain",
        (f"steps: {_FOUND}",),
        _ANY,
        'Run steps such as {"tool": "ns:name", "args": {}, "use_previous": True} one after the other.',
    ),
    ("search", ("query: str", "limit: int = ..."), _FOUND, "Find tools by words, best first."),
    ("describe", ("tool_id: str", "level: str = ..."), "dict[str, Any]", "What a tool takes and gives."),
    ("list_namespaces", (), "list[str]", "What tools there are, by the first part of their IDs."),
    ("examples", ("tool_id: str", "limit: int | None = ..."), _FOUND, "Example calls of a tool."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Signature:
    """A tool as a function: arguments that code can name, those that it cannot (`odd`), the type of any others."""

    tool: Tool
    fields: tuple[Field, ...]
    odd: tuple[Field, ...]
    rest: str
    returns: str
    definitions: tuple[Definition, ...]
    cut: bool = False

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]


def python_stubs(tools: Iterable[Tool], *, names: ToolNames | None = None, awaitable: bool = False) -> str:
    """Return the text of one Python module (`.pyi`) that declares *tools* as attributes of `tools`, and the types they
    need.

    It is the same for the same tools, in whatever order they come. When *tools* are only some of an index, pass its
    *names*: they know which attributes lead to a tool there. With *awaitable*, every call is declared as `async`, for
    programs that use `await`; without, as one that waits. A schema that is too large or cannot be expressed becomes
    `Any`. Of several versions of a tool the one without a version is declared, else the highest.
    """
    every = sorted({tool.id: tool for tool in tools}.values(), key=lambda tool: tool.id)
    chosen = dict(sorted(preferred(every).items()))
    paths = paths_of(chosen) if names is None else {key: names.path_of(tool) for key, tool in chosen.items()}
    layout = _Layout(awaitable=awaitable)
    attributes = {name for key in chosen for name in attribute_path(*key)}
    book = TypeBook(attributes)
    homes = {attribute_path(*key)[0]: "" for key in chosen if key[0]}
    for first in homes:
        homes[first] = book.claim(joined_words(first) or "N", f"{joined_words(first)}Tools")
    bodies: dict[str, list[_Member]] = {first: [] for first in ("", *homes)}
    numbers = itertools.count()
    for key, tool in chosen.items():
        path = paths[key]
        signature = _signature(tool, numbers)
        book.add(signature.definitions, tool.namespace)
        first = attribute_path(*key)[0]
        home = first if key[0] or first in homes else ""
        bodies[home].append(_Member(signature, path, "__call__" if home and not key[0] else attribute_path(*key)[-1]))
    for tool in every:
        if chosen[tool.namespace, tool.name] is not tool:
            bodies[attribute_path(tool.namespace, tool.name)[0]].append(_Member(_bare(tool), None, ""))
    blocks = [["\n".join(layout.namespace(homes[first], bodies[first], book))] for first in homes]
    blocks.append(layout.tools(homes, bodies[""], book))
    blocks.append(["tools: Tools"])
    return _module([_TOOL_ERROR, *("\n".join(block) for block in (*book.blocks, *blocks))])


def stubs_in(language: str, tools: Iterable[Tool], *, names: ToolNames | None = None, awaitable: bool = False) -> str:
    """Return the stubs of *tools* for programs in *language*: `typescript_stubs` for JavaScript and TypeScript, in any
    spelling, else `python_stubs`."""
    if is_javascript(language):
        return typescript_stubs(tools, names=names)
    return python_stubs(tools, names=names, awaitable=awaitable)


def stub_of(tool: Tool, *, names: ToolNames | None = None, awaitable: bool = False, language: str = "python") -> str:
    """Return the stub of one tool: how to call it, the types it needs, and its `def`; for JavaScript and TypeScript as
    *language*, in any spelling, what `typescript_stub_of` returns.

    With *names*, those of the index that the tool is in, the stub says so when only the tool's ID leads to it. For
    *awaitable* see `python_stubs`; calls of JavaScript always are.
    """
    if is_javascript(language):
        return typescript_stub_of(tool, names=names)
    path = names.path_of(tool) if names is not None else attribute_path(tool.namespace, tool.name)
    name = path[-1] if path is not None else python_name(tool.name)
    signature = _signature(tool, itertools.count())
    book = TypeBook([name])
    book.add(signature.definitions, tool.namespace)
    function = _Layout(awaitable=awaitable).function(signature, name, book, hidden=[name])
    blocks = [_call(signature, path, awaitable=awaitable), *("\n".join(block) for block in book.blocks)]
    return "\n\n".join([*blocks, "\n".join(function)]) + "\n"


@dataclass(frozen=True, slots=True)
class _Member:
    """A tool in a class: *path* is None when only its ID leads to it, *name* is empty when only the ID is shown."""

    signature: _Signature
    path: ToolPath | None
    name: str


class _Layout:
    """How functions and classes are written."""

    def __init__(self, *, awaitable: bool) -> None:
        self._awaitable = awaitable
        self._def = "async def" if awaitable else "def"

    def namespace(self, name: str, members: Sequence[_Member], book: TypeBook) -> list[str]:
        """Return the class for a namespace."""
        hidden = [member.name for member in members if member.path is not None]
        body = [line for member in members for line in self._member(member, book, hidden)]
        return [f"class {name}:", *(body if any(hidden) else ["    ...", *body])]

    def tools(self, homes: dict[str, str], members: Sequence[_Member], book: TypeBook) -> list[str]:
        """Return the class of `tools` itself: its namespaces, the tools without one, and what it can do besides."""
        hidden = [*homes, *(member.name for member in members if member.path is not None)]
        lines = ["class Tools:", *(f"    {first}: {name}" for first, name in homes.items())]
        for member in members:
            lines += self._member(member, book, hidden)
        for name, parameters, returns, told in _METHODS:
            parts = ["self", *(_typed(parameter, hidden) for parameter in parameters)]
            lines.append(f"    {self._def} {name}({', '.join(parts)}) -> {unshadowed(returns, hidden)}:")
            lines += docstring([told], "        ")
        lines += [f"    def println(self, *values: {unshadowed('object', hidden)}) -> None: ..."]
        return [*lines, "    run_tool = run", "    search_tools = search"]

    def _member(self, member: _Member, book: TypeBook, hidden: Sequence[str]) -> list[str]:
        tool = member.signature.tool
        if not member.name:
            return [f"    # another version: tools.run({quoted(tool.id)}, {{...}})"]
        lines = self.function(member.signature, member.name, book, hidden=hidden, indent="    ", receiver=True)
        if member.path is not None:
            return lines
        told = f"# only by its ID, for the name is another tool's or shared: tools.run({quoted(tool.id)}, {{...}})"
        return [f"    {told}", *(_commented(line) for line in lines)]

    def function(
        self,
        signature: _Signature,
        name: str,
        book: TypeBook,
        *,
        hidden: Sequence[str] = (),
        indent: str = "",
        receiver: bool = False,
    ) -> list[str]:
        """Return the lines of a `def`; *hidden* are names that mean something else where it stands."""

        def shown(type: str) -> str:
            return unshadowed(book.resolve(type), hidden)

        plain = ["self"] * receiver
        plain += ["/"] * (receiver and any(field.name == "self" for field in signature.odd))
        plain += ["*"] * bool(signature.fields)
        rows = [(part, "") for part in plain]
        for field in signature.fields:
            default = "" if field.required else " = ..."
            rows.append((f"{field.name}: {shown(field.type)}{default}", comment_of(field, described=False)))
        if signature.rest:
            rows.append((f"**{_free('others', signature.names)}: {shown(signature.rest)}", ""))
        head, tail = f"{indent}{self._def} {name}(", f") -> {shown(signature.returns)}:"
        line = f"{head}{', '.join(text for text, _ in rows)}{tail}"
        lines = [line]
        if (len(line) > _WIDTH and len(rows) > len(plain)) or any(comment for _, comment in rows):
            lead = ", ".join(plain)
            listed = [f"{indent}    {lead},"] * bool(lead)
            listed += [f"{indent}    {text},{comment}" for text, comment in rows[len(plain) :]]
            lines = [head, *listed, f"{indent}{tail}"]
        told = _told(signature)
        return [*lines, *docstring(told, f"{indent}    ")] if told else [*lines[:-1], f"{lines[-1]} ..."]


def _signature(tool: Tool, numbers: Iterator[int]) -> _Signature:
    whole = signature_of(tool, numbers, PYTHON)
    odd = tuple(field for field in whole.fields if not is_plain_name(field.name) or field.name == "self")
    rest, definitions = whole.rest, whole.definitions
    if odd and not rest:
        token = f"\x00{next(numbers)}\x00"
        definitions = (*definitions, Definition(token=token, words=(tool.name, "others"), fields=odd))
        rest = f"Unpack[{token}]"
    return _Signature(
        tool=tool,
        fields=tuple(field for field in whole.fields if field not in odd),
        odd=odd,
        rest=rest,
        returns=whole.returns,
        definitions=definitions,
        cut=whole.cut,
    )


def _bare(tool: Tool) -> _Signature:
    return _Signature(tool=tool, fields=(), odd=(), rest="", returns=_ANY, definitions=())


def _told(signature: _Signature) -> list[str]:
    """Return what the docstring says: what the tool is and does, and its arguments."""
    lines = about(signature.tool, cut=signature.cut)
    arguments = [f"    {field.name}: {field.description}" for field in signature.fields if field.description]
    for field in signature.odd:
        need = ", required" if field.required else ""
        told = f" {field.description}" if field.description else ""
        key = one_line(quoted(field.name), _WIDTH)
        arguments.append(f"    {key}: (pass it in **{{{key}: ...}}{need}){told}")
    return [*lines, "", "Args:", *arguments] if arguments else lines


def _call(signature: _Signature, path: ToolPath | None, *, awaitable: bool) -> str:
    """Return a comment with the call that has all that is required."""
    names = [field.name for field in signature.fields if field.required]
    odd = [quoted(field.name) for field in signature.odd if field.required]
    word = "await " if awaitable else ""
    if path is None:
        keys = ", ".join(f"{key}: ..." for key in (*map(quoted, names), *odd))
        call = f"tools.run({quoted(signature.tool.id)}, {{{keys}}})"
    else:
        parts = [f"{name}=..." for name in names]
        parts += [f"**{{{', '.join(f'{key}: ...' for key in odd)}}}"] if odd else []
        call = f"tools.{'.'.join(path)}({', '.join(parts)})"
    return f"# {harmless_comment(one_line(word + call, _MAX_CALL))}"


def _commented(line: str) -> str:
    text = line.lstrip()
    return f"    # {' ' * (len(line) - len(text) - 4)}{harmless_comment(text)}".rstrip()


def _typed(parameter: str, hidden: Sequence[str]) -> str:
    name, _, rest = parameter.partition(": ")
    type, equals, default = rest.partition(" = ")
    return f"{name}: {unshadowed(type, hidden)}{equals}{default}"


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name = f"{name}_"
    return name


def _module(blocks: Sequence[str]) -> str:
    text = "\n\n".join(blocks)
    words = set(re.findall(r"\w+", text))
    imports = [f"import {home}" for home in ("builtins", "typing") if home in words]
    imports.append(f"from typing import {', '.join(sorted(FROM_TYPING & words))}")
    return "\n\n".join([_HEADER, "\n".join(imports), text]) + "\n"
