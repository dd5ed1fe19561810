"""`toolexec stubs`: what code that calls tools can rely on, as a file that editors and models read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolexec.cli.exit_codes import OK
from toolexec.cli.finding import connect, connect_for, mention, unavailable, unavailable_data
from toolexec.cli.session import Session
from toolexec.cli.text_files import write_text
from toolexec.discovery.index import get_tool
from toolexec.discovery.view import browsable
from toolexec.errors import ConfigurationError
from toolexec.model.visible import visible_line

if TYPE_CHECKING:
    from toolexec.model import Tool


async def stubs(
    session: Session,
    tool_ids: Sequence[str],
    namespaces: Sequence[str],
    file: Path | None,
    *,
    awaitable: bool,
    language: str,
) -> int:
    """Print the stubs of these tools and namespaces (of all tools when none are named) for programs in *language*
    (empty: the one of programs that name none), or write them to *file*.

    Raises ConfigurationError for a namespace without tools and a file that cannot be written, and what `get_tool`
    raises for a tool that is not there; nothing is written then.
    """
    from toolexec.code.names import ToolNames
    from toolexec.code.stubs import stubs_in

    tools = await _chosen(session, tool_ids, namespaces)
    if (learned := session.ex.learned) is not None:
        tools = [learned.with_output(tool) for tool in tools]
    down = unavailable(session) if namespaces or not tool_ids else []
    names, language = ToolNames(session.ex.index), language or session.ex.options.default_language
    text = stubs_in(language, tools, names=names, awaitable=awaitable)
    screen = session.screen
    if file is not None:
        write_text(file, text)
    if screen.as_json:
        data = {"tools": [tool.id for tool in tools], **({"file": str(file)} if file else {"stubs": text})}
        screen.document(data | unavailable_data(down))
        return OK
    if file is None:
        screen.exact(text)
    else:
        screen.note(f"stubs of {len(tools)} tool{'' if len(tools) == 1 else 's'} are in {file}")
    mention(session, down)
    return OK


async def _chosen(session: Session, tool_ids: Sequence[str], namespaces: Sequence[str]) -> list[Tool]:
    index = session.ex.index
    for tool_id in tool_ids:
        await connect_for(session, tool_id)
    if namespaces or not tool_ids:
        await connect(session)
    found = [get_tool(index, tool_id).tool for tool_id in tool_ids]
    if not tool_ids and not namespaces:
        found = [entry.tool for entry in index.tools()]
    known = browsable(index).namespaces()
    for namespace in namespaces:
        if namespace not in known:
            names = ", ".join(visible_line(name) for name in known if name)
            raise ConfigurationError(f"no tools in the namespace {namespace!r}; namespaces: {names or 'none'}")
    found += [entry.tool for entry in index.tools() if entry.tool.namespace in namespaces] if namespaces else []
    return list({tool.id: tool for tool in found}.values())
