"""The corpus of the checker: wrong workflows with one mistake each, and right ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolexec import InMemoryIndex, LocalBinding, Tool, ToolAnnotations

MARK: Final = "▶"
_HEAD: Final = re.compile(r"^=== (.+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """A workflow of the corpus; the kind, line and column of its one finding, where there is one."""

    name: str
    source: str
    kind: str = ""
    line: int = 0
    column: int = 0


def read_corpus(name: str) -> list[Case]:
    """Return the cases of `wrong.txt` or `right.txt`."""
    parts = _HEAD.split((Path(__file__).parent / name).read_text())[1:]
    return [_case(head, source) for head, source in zip(parts[::2], parts[1::2], strict=True)]


def _case(head: str, source: str) -> Case:
    before, mark, _ = source.partition(MARK)
    if not mark:
        return Case(head, source)
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return Case(head, source.replace(MARK, ""), head.split(":")[0], line, column)


_READ = ToolAnnotations(read_only=True)
_DEFS: dict[str, Any] = {
    "user": {
        "type": "object",
        "properties": {"login": {"type": "string"}, "manager": {"$ref": "#/$defs/user"}},
        "additionalProperties": False,
    }
}
_ISSUE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "number": {"type": "integer"},
        "title": {"type": "string"},
        "body": {"type": ["string", "null"]},
        "labels": {"type": "array", "items": {"type": "string"}},
        "user": {"$ref": "#/$defs/user"},
        "extra": {"type": "object"},
    },
    "required": ["number", "title", "user"],
    "additionalProperties": False,
}


def _schema(required: str = "", *, is_open: bool = False, **properties: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required.split()}
    return schema if is_open else {**schema, "additionalProperties": False}


_STRING = {"type": "string"}
_TOOLS = [
    Tool(
        name="list_issues",
        namespace="github",
        input_schema=_schema(
            "repo",
            repo=_STRING,
            state={"enum": ["open", "closed", "all"]},
            labels={"type": "array", "items": _STRING},
            limit={"type": "integer", "minimum": 1, "maximum": 100},
        ),
        output_schema={"type": "array", "items": {"$ref": "#/$defs/issue"}, "$defs": {**_DEFS, "issue": _ISSUE}},
        annotations=_READ,
    ),
    Tool(
        name="get_issue",
        namespace="github",
        input_schema=_schema("number", number={"type": "integer"}),
        output_schema={**_ISSUE, "$defs": _DEFS},
        annotations=_READ,
    ),
    Tool(
        name="create_issue",
        namespace="github",
        input_schema=_schema(
            "title",
            title=_STRING,
            body=_STRING,
            labels={"type": "array", "items": _STRING},
            assignee=_schema("login", login=_STRING, team={"enum": ["core", "web"]}),
        ),
        output_schema={"type": "object", "properties": {"number": {"type": "integer"}, "url": _STRING}},
    ),
    Tool(
        name="delete_issue",
        namespace="github",
        input_schema=_schema("number", number={"type": "integer"}),
        annotations=ToolAnnotations(destructive=True),
    ),
    Tool(name="search", namespace="github", input_schema=_schema("query", query=_STRING), annotations=_READ),
    Tool(
        name="send",
        namespace="slack",
        input_schema={
            **_schema(
                "channel text",
                channel=_STRING,
                text=_STRING,
                blocks={"type": "array", "items": {"$ref": "#/$defs/block"}},
            ),
            "$defs": {"block": _schema("kind", kind={"enum": ["text", "image"]}, value=_STRING)},
        },
        output_schema={"type": "object", "properties": {"ok": {"type": "boolean"}}, "additionalProperties": True},
    ),
    Tool(
        name="read",
        namespace="files",
        input_schema=_schema("path", path=_STRING, encoding=_STRING),
        output_schema=_STRING,
        annotations=_READ,
    ),
    Tool(
        name="write",
        namespace="files",
        input_schema=_schema("path content", path=_STRING, content=_STRING),
        annotations=ToolAnnotations(idempotent=True, destructive=False),
    ),
    Tool(
        name="create",
        namespace="jira",
        input_schema={
            "type": "object",
            "properties": {"kind": {"enum": ["bug", "task"]}, "steps": _STRING, "points": {"type": "number"}},
            "required": ["kind"],
            "if": {"properties": {"kind": {"const": "bug"}}},
            "then": {"required": ["steps"]},
        },
    ),
    Tool(
        name="find",
        namespace="jira",
        input_schema={
            "type": "object",
            "oneOf": [_schema("key", key=_STRING), _schema("text", text=_STRING, limit={"type": "integer"})],
        },
        output_schema={
            "oneOf": [
                _schema("status issue", status={"const": "found"}, issue=_schema(key=_STRING)),
                _schema("status", status={"const": "missing"}),
            ]
        },
        annotations=_READ,
    ),
    Tool(name="read", namespace="secret", input_schema={"type": "object"}),
    Tool(name="now", namespace="time", input_schema={"type": "object"}, output_schema=_STRING, annotations=_READ),
]


def corpus_index() -> InMemoryIndex:
    """Return an index with the tools of the corpus."""
    index = InMemoryIndex()
    for tool in _TOOLS:
        index.register(tool, LocalBinding(tool.id))
    return index
