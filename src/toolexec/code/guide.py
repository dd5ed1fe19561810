"""What `help` and `dir` in a program say of tools: their names, signatures and descriptions."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import Final

from toolexec.code.names import attribute_path, tool_at
from toolexec.code.stub_text import one_line
from toolexec.code.stubs import stub_of
from toolexec.code.tools import Tools
from toolexec.discovery.index import Registered
from toolexec.discovery.preparing import off_loop_if_many
from toolexec.discovery.summary import summarize
from toolexec.errors import ToolExecError

MAX_NAMES: Final = 1_000
"""The most names that are listed."""
_ABOUT: Final = """tools: call a tool with tools.namespace.name(key=value), or with tools.run("namespace:name", {...}).

tools.search("words") finds tools, help(tools.namespace.name) shows one."""


async def names_at(tools: Tools, path: str) -> list[str]:
    """Return the namespaces and tools in `tools` (for the *path* ""), or the tools in the namespace at a path of
    Python names, in order: the first 1,000. A path that leads to a tool, or to nothing, has none."""
    return [*await off_loop_if_many(tools.index, partial(_members, tools, path))]


async def help_text(tools: Tools, path: str) -> str:
    """Return what there is to know of what *path* leads to: the stub of a tool, the tools of a namespace, or for ""
    the namespaces. Raises ToolNotFoundError for a path that leads to nothing."""
    return await off_loop_if_many(tools.index, partial(_help_text, tools, path))


def _help_text(tools: Tools, path: str) -> str:
    if not path:
        return "\n".join([_ABOUT, "", *(f"    tools.{name}" for name in _members(tools, ""))])
    try:
        tool_id = tool_at(tools.index, path.split(":"), allowed=tools.allows)
    except ToolExecError:
        members = _members(tools, path)
        if not members:
            raise
    else:
        found = tools.index.find(tool_id)
        return stub_of(found.tool) if found is not None else f"{tool_id} has just been removed"
    about = {
        name: one_line(summarize(entry.tool, entry.bindings).short_description, 120)
        for name, entry in members.items()
        if entry is not None
    }
    return "\n".join([f"tools.{path}:", "", *(f"    tools.{path}.{name}: {line}" for name, line in about.items())])


def _members(tools: Tools, path: str) -> dict[str, Registered | None]:
    """Return the first Python names in a namespace, in order, with their tools; for "" also the namespaces,
    with None.
    """
    shown = [entry for entry in tools.index.tools() if tools.allows(entry.tool.id)]
    names = {entry.tool.namespace for entry in shown}
    spaces = {name: attribute_path(name, "x")[0] if name else "" for name in names}
    within = [entry for entry in shown if spaces[entry.tool.namespace] == path]
    found: dict[str, Registered | None] = {attribute_path(path, entry.tool.name)[-1]: entry for entry in within}
    if not path:
        found |= dict.fromkeys(name for name in spaces.values() if name)
    return dict(sorted(found.items(), key=itemgetter(0))[:MAX_NAMES])
