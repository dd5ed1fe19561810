"""TypeScript declarations made from tools' schemas: what a model reads to write JavaScript that calls tools."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from toolexec.code.names import ToolNames, ToolPath, attribute_path, paths_of, preferred
from toolexec.code.stub_dialects import TYPESCRIPT
from toolexec.code.stub_interfaces import InterfaceBook, block_comment, key_of, line_comment, object_lines
from toolexec.code.stub_signature import Signature, about, signature_of
from toolexec.model.tool import Tool
from toolexec.model.visible import visible_json

_MAX_ID: Final = 400
_HEADER: Final = """// What a program can call; `tools` and `ToolError` are there without an import.
// A call takes one object and gives a promise: const value = await tools.namespace.name({ x: 1 });
// await Promise.all([...]) runs many at once. A tool that fails throws a ToolError.
export {};"""
_OPEN: Final = TYPESCRIPT.mapping(TYPESCRIPT.any)
_METHODS: Final = (
    (f"run(id: string, args?: {_OPEN}): Promise<any>;", "Call any tool by its ID."),
    (
        f"runChain(steps: {TYPESCRIPT.array(_OPEN)}): Promise<any>;",
        'Run steps such as { tool: "ns:name", args: {}, use_previous: true } one after the other.',
    ),
    (
        f"search(query: string, limit?: number): Promise<{TYPESCRIPT.array(_OPEN)}>;",
        "Find tools by words, best first.",
    ),
    (f"describe(id: string, level?: string): Promise<{_OPEN}>;", "What a tool takes and gives."),
    ("listNamespaces(): Promise<string[]>;", "What tools there are, by the first part of their IDs."),
    (f"examples(id: string, limit?: number): Promise<{TYPESCRIPT.array(_OPEN)}>;", "Example calls of a tool."),
)
_TAKEN: Final = frozenset({"describeTool", "listNamespaces", "listToolExamples", "runChain", "runTool", "searchTools"})
"""What `tools` has in JavaScript besides what it has in Python: no tool is reached by such a name."""
_GLOBALS: Final = f"""declare global {{
  const tools: Tools;
  class ToolError extends Error {{
    code: string; // stable, such as "validation_input" or "tool_not_found"
    toolId: string | null;
    retryable: boolean;
    details: {_OPEN};
  }}
}}"""


@dataclass(frozen=True, slots=True)
class _Member:
    """A tool as a member of an object: *path* is None when only its ID leads to it, *name* is how code calls it."""

    signature: Signature
    path: ToolPath | None
    name: str


def typescript_stubs(tools: Iterable[Tool], *, names: ToolNames | None = None) -> str:
    """Return the text of one TypeScript module (`.d.ts`) that declares *tools* as members of `tools`, and the types
    they need.

    It is the same for the same tools, in whatever order they come. When *tools* are only some of an index, pass its
    *names*: they know which attributes lead to a tool there. A schema that is too large or cannot be expressed becomes
    `any`. Of several versions of a tool the one without a version is declared, else the highest.
    """
    every = sorted({tool.id: tool for tool in tools}.values(), key=lambda tool: tool.id)
    chosen = dict(sorted(preferred(every).items()))
    paths = paths_of(chosen) if names is None else {key: names.path_of(tool) for key, tool in chosen.items()}
    book, numbers = InterfaceBook(), itertools.count()
    homes: dict[str, list[_Member]] = {attribute_path(*key)[0]: [] for key in chosen if key[0]}
    top: list[_Member] = []
    for key, tool in chosen.items():
        signature = signature_of(tool, numbers, TYPESCRIPT)
        book.add(signature.definitions, tool.namespace)
        first, *rest = attribute_path(*key)
        path = paths[key] if first not in _TAKEN else None
        where = top if path is None or first not in homes else homes[first]
        where.append(_Member(signature, path, rest[0] if rest else "" if first in homes else first))
    lines = ["interface Tools {"]
    for first, members in homes.items():
        if members:
            lines += [f"  {key_of(first)}: {{", *_members(members, book, "    "), "  };"]
    lines += _members(top, book, "  ")
    for tool in every:
        if chosen[tool.namespace, tool.name] is not tool:
            lines.append(f"  // another version: tools.run({line_comment(visible_json(tool.id), _MAX_ID)}, {{ ... }})")
    for declared, said in _METHODS:
        lines += [*block_comment([said], "  "), f"  {declared}"]
    lines += ["  println(...values: any[]): void;", "}"]
    return "\n\n".join([_HEADER, *("\n".join(block) for block in (*book.blocks, lines)), _GLOBALS]) + "\n"


def typescript_stub_of(tool: Tool, *, names: ToolNames | None = None) -> str:
    """Return the declaration of one tool, and before it the types that it needs.

    With *names*, those of the index that the tool is in, it shows the call by ID when only that leads to the tool.
    """
    path = names.path_of(tool) if names is not None else attribute_path(tool.namespace, tool.name)
    path = None if path is not None and path[0] in _TAKEN else path
    signature = signature_of(tool, itertools.count(), TYPESCRIPT)
    book = InterfaceBook()
    book.add(signature.definitions, tool.namespace)
    spaces = path[:-1] if path is not None else ()
    indent = "  " * (len(spaces) + 1)
    lines = ["declare const tools: {", *(f"{'  ' * depth}{key_of(name)}: {{" for depth, name in enumerate(spaces, 1))]
    lines += _members([_Member(signature, path, path[-1] if path is not None else "")], book, indent)
    lines += [*(f"{'  ' * depth}}};" for depth in range(len(spaces), 0, -1)), "};"]
    return "\n\n".join("\n".join(block) for block in (*book.blocks, lines)) + "\n"


def _members(members: Sequence[_Member], book: InterfaceBook, indent: str) -> list[str]:
    """Return the lines that declare tools within an object, each with what is said of it."""
    lines: list[str] = []
    for member in members:
        signature = member.signature
        said = about(signature.tool, cut=signature.cut)
        if member.path is None:
            said.append("Only by its ID, for the name is another's or shared.")
        lines += [*block_comment(said, indent), *_method(member, book, indent)]
    return lines


def _method(member: _Member, book: InterfaceBook, indent: str) -> list[str]:
    """Return the lines of a method: one that takes all arguments as one object, or a call of `run` with the ID."""
    signature = member.signature
    head = f"{indent}{key_of(member.name) if member.name else ''}("
    if member.path is None:
        head = f"{indent}run(id: {visible_json(signature.tool.id)}, "
    tail = f"): Promise<{book.resolve(signature.returns)}>;"
    rest = book.resolve(signature.rest)
    if not signature.fields and not rest:
        return [f"{head.removesuffix(', ')}{tail}"]
    need = "" if any(field.required for field in signature.fields) else "?"
    note = "" if rest in {"", TYPESCRIPT.any} else f"others: {rest}"
    body = object_lines(signature.fields, book, indent, open=bool(rest), note=note, width=len(head) + len(tail))
    body[0] = f"{head}args{need}: {body[0]}"
    body[-1] += tail
    return body
