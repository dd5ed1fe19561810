"""An Exec that was closed does nothing more, whichever way it is asked."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from toolexec import Exec, LocalBackend, Step, tool
from toolexec.errors import ConfigurationError
from toolexec.model.resources import Prompt

Ask: TypeAlias = Callable[[Exec], Awaitable[Any]]
SKILL = """+++
name = "nothing"
description = "Does nothing."
+++
return 1
"""


@tool("t:read", read_only=True)
def read() -> int:
    """Reads."""
    return 1


async def _all_of(events: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in events]


async def _now(ask: Callable[[], Any]) -> Any:
    """Ask what does not wait."""
    return ask()


async def _entered(ex: Exec) -> None:
    async with ex.session():
        pass


WAYS: dict[str, Ask] = {
    "add": lambda ex: _now(lambda: ex.add(read, "t:again")),
    "add_backends": lambda ex: _now(lambda: ex.add_backends(LocalBackend("more"))),
    "add_commands": lambda ex: _now(lambda: ex.add_commands("sys", tools={"say": {"argv": ["true"]}})),
    "add_http": lambda ex: _now(lambda: ex.add_http("web", "https://example.com", tools={"get": {"path": "/"}})),
    "add_mcp": lambda ex: _now(lambda: ex.add_mcp("time", command="true")),
    "add_openapi": lambda ex: _now(lambda: ex.add_openapi("api", {"openapi": "3.1.0", "paths": {}})),
    "add_python": lambda ex: _now(lambda: ex.add_python("text", "textwrap:dedent")),
    "add_resource_tools": lambda ex: _now(ex.add_resource_tools),
    "add_skill": lambda ex: _now(lambda: ex.add_skill(SKILL)),
    "approved": lambda ex: _now(lambda: ex.approved("t:read")),
    "backend_statuses": lambda ex: _now(ex.backend_statuses),
    "links_ready": lambda ex: ex.links_ready(),
    "needs_approval": lambda ex: _now(lambda: ex.needs_approval("t:read")),
    "needs_approval of code": lambda ex: _now(lambda: ex.needs_approval("execute_code", {"code": "1"})),
    "suggest_chain": lambda ex: ex.suggest_chain("t:read"),
    "read_resource": lambda ex: ex.read_resource("file:///a"),
    "run_tool": lambda ex: ex.run_tool("t:read"),
    "run_tool with progress": lambda ex: ex.run_tool("t:read", on_progress=lambda _: None),
    "run_chain": lambda ex: ex.run_chain([Step(tool_id="t:read")]),
    "durable chain": lambda ex: ex.run_chain([Step(tool_id="t:read")], durable="a"),
    "stream_tool": lambda ex: _all_of(ex.stream_tool("t:read")),
    "execute_code": lambda ex: ex.execute_code("tools.t.read()"),
    "stream_code": lambda ex: _all_of(ex.stream_code("tools.t.read()")),
    "run_workflow": lambda ex: ex.run_workflow("return 1"),
    "session": lambda ex: _entered(ex),
    "worker": lambda ex: _now(ex.worker),
    "complete": lambda ex: ex.complete(Prompt(id="a", name="a", own_name="a", backend="b"), "c", "d"),
    "get_prompt": lambda ex: ex.get_prompt("a"),
    "list_prompts": lambda ex: ex.list_prompts(),
    "list_resource_templates": lambda ex: ex.list_resource_templates(),
    "handle_anthropic_tool_use": lambda ex: ex.handle_anthropic_tool_use([]),
    "handle_gemini_function_calls": lambda ex: ex.handle_gemini_function_calls([]),
    "handle_openai_tool_calls": lambda ex: ex.handle_openai_tool_calls([]),
    "prepare_tools": lambda ex: _now(lambda: ex.prepare_tools({})),
    "workflow": lambda ex: ex.execute_code("return t:read()", language="workflow"),
    "search_tools": lambda ex: ex.search_tools("reads"),
    "tool_facets": lambda ex: ex.tool_facets(),
    "get_tool_doc": lambda ex: ex.get_tool_doc("t:read"),
    "export_tools": lambda ex: ex.export_tools("openai"),
    "list_resources": lambda ex: ex.list_resources(),
    "runs": lambda ex: ex.runs.list(),
    "refresh": lambda ex: ex.refresh(),
    "start": lambda ex: ex.start(),
    "reconfigure": lambda ex: _now(lambda: ex.reconfigure(default_timeout=5)),
    "sync": lambda ex: asyncio.to_thread(ex.sync.run_tool, "t:read"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_closed_exec_says_so_in_every_way(way: str, tmp_path: Path) -> None:
    """Every way to run, search or start raises the same error once the Exec is closed."""
    ex = Exec(journal=tmp_path / "runs.db")
    ex.add(read)
    assert (await ex.run_tool("t:read")).value == 1
    await ex.aclose()
    try:
        with pytest.raises(ConfigurationError, match="this Exec is closed; make a new one"):
            await WAYS[way](ex)
    finally:
        await asyncio.to_thread(ex.sync.close)


OTHERS = {
    "aclose": "may be called again",
    "remove": "closes what is closed",
    "retire": "hands out a backend that is closed",
    "visible": "hands out an object, as `index` does",
    "context": "reports what was",
    "add_config": "reads a file first",
    "add_grpc": "needs its package first",
}
"""Methods that answer on a closed Exec, or refuse something else first."""


def test_every_method_of_an_exec_is_asked() -> None:
    """A method that is added is one of the ways, or says why it is none."""
    methods = {name for name in dir(Exec) if not name.startswith("_") and inspect.isroutine(getattr(Exec, name))}
    assert methods - {way.split()[0] for way in WAYS} == OTHERS.keys()
