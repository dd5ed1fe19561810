"""What the tools that run programs say where programs that name no language are JavaScript."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from toolexec.code.stub_dialects import is_javascript
from toolexec.server.tools.base import MetaTool
from toolexec.server.tools.schemas import text

_CALLS: Final = (
    "Run a program that calls tools; only its answer comes back. JavaScript or TypeScript: await tools.a.b({x: 1}), "
    "arguments in one object; await tools.run(id, {...}) takes any id"
)
_REST: Final = (
    " In parallel: await Promise.all([...]). A failed tool throws ToolError (.code, .message). Answer by a top-level "
    "return, in JSON. No modules, no network, no host files."
)
_WORDS: Final = {
    "execute": (
        f"{_CALLS}.{_REST} handle, in place of code, reads a result that was cut: path (items[0].name), offset or grep."
    ),
    "execute_code": (f'{_CALLS}; tools.search("words"), tools.describe(id).{_REST} Know a tool\'s arguments first.'),
}


def worded_for(language: str, tools: Iterable[MetaTool]) -> list[MetaTool]:
    """Return *tools* as they are where *language* is that of programs that name none: for JavaScript and TypeScript,
    those that run programs explain these in place of Python."""
    if not is_javascript(language):
        return list(tools)
    return [_in_javascript(tool) if tool.name in _WORDS else tool for tool in tools]


def _in_javascript(tool: MetaTool) -> MetaTool:
    properties = {**tool.input_schema["properties"], "language": text("default javascript")}
    return replace(tool, description=_WORDS[tool.name], input_schema={**tool.input_schema, "properties": properties})
