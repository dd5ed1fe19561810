"""What `dir` and `help` in a program say of tools: their names, signatures and descriptions."""

from __future__ import annotations

from typing import Final

from toolexec.code.names import attribute_path, python_name, tool_at
from toolexec.code.stub_text import one_line
from toolexec.code.stubs import stub_of
from toolexec.code.tools import Tools
from toolexec.errors import ToolExecError

__all__ = ["MAX_NAMES", "help_text", "names_at"]

MAX_NAMES: Final = 1_000
"""The most names that are listed."""
_METHODS: Final = ("describe", "examples", "list_namespaces", "println", "run", "run_chain", "search")
_ABOUT: Final = """tools: call a tool with tools.namespace.name(key=value), or with tools.run("namespace:name", {...}).

tools.search("words") finds tools, help(tools.namespace.name) shows one."""


async def names_at(tools: Tools, path: str) -> list[str]:
    """Return the attributes of `tools` (for the *path* ""), or of the namespace at a path of Python names, in
    order: the first 1,000. A path that leads to a tool, or to nothing, has none."""
    if path:
        return sorted({name for name, _ in await _members(tools, path)})[:MAX_NAMES]
    spaces = {attribute_path(space, "x")[0] for space in await tools.list_namespaces() if space}
    alone = {attribute_path("", each.name)[0] for each in await tools.list_tools("")}
    return sorted({*_METHODS, *sorted(spaces | alone)[:MAX_NAMES]})


async def help_text(tools: Tools, path: str) -> str:
    """Return what there is to know of what *path* leads to: the stub of a tool, the tools of a namespace, or for ""
    the namespaces. Raises ToolNotFoundError for a path that leads to nothing."""
    if not path:
        names = [name for name in await names_at(tools, "") if name not in _METHODS]
        return "\n".join([_ABOUT, "", *(f"    tools.{name}" for name in names)])
    try:
        tool_id = tool_at(tools.index, path.split(":"), allowed=tools.allows)
    except ToolExecError:
        members = await _members(tools, path)
        if not members:
            raise
    else:
        found = tools.index.find(tool_id)
        return stub_of(found.tool) if found is not None else f"{tool_id} has just been removed"
    lines = [f"    tools.{path}.{name}: {one_line(about, 120)}" for name, about in members[:MAX_NAMES]]
    return "\n".join([f"tools.{path}:", "", *lines])


async def _members(tools: Tools, path: str) -> list[tuple[str, str]]:
    """The Python names and descriptions of the tools in a namespace."""
    spaces = [space for space in await tools.list_namespaces() if space and attribute_path(space, "x")[0] == path]
    found = [
        (python_name(each.name), each.short_description) for space in spaces for each in await tools.list_tools(space)
    ]
    return sorted(found)
