"""The registry: local tools and MCP servers that are found, run, started, stopped and served."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from mcp import Client
from tests.servers import server_environment
from tests.waiting import until

from toolexec import Options, Tool, ToolAnnotations
from toolexec.backend.mcp import MCPServer
from toolexec.discovery import Filters, Toolset
from toolexec.errors import (
    BackendError,
    BackendNotFoundError,
    BackendUnavailableError,
    ConfigurationError,
    HandlerError,
    InputValidationError,
    InvalidToolError,
    ToolConflictError,
    ToolNotFoundError,
)
from toolexec.server.auth import AuthSettings
from toolexec.server.http import HttpSettings
from toolexec.server.registry import RegistryStats, ToolRegistry
from toolexec.server.settings import ServeSettings
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool, Trouble

OPEN = {"type": "object"}


def scripted(name: str, *tools: str, **settings: Any) -> MCPServer:
    program, *args = ScriptedServer(tools=[ScriptedTool(tool) for tool in tools], **settings).command()
    return MCPServer(name=name, command=program, args=args)


def dead(name: str = "dead") -> MCPServer:
    return MCPServer(name=name, command="no-such-command-anywhere")


def echoing(*options: Any) -> ToolRegistry:
    registry = ToolRegistry(*options)
    registry.register_function("echo", lambda args: args, description="Says it again.", namespace="talk", tags=["Say"])
    return registry


# -- local tools -------------------------------------------------------------------------------------------------------


async def test_local_tools() -> None:
    """Local tools are there at once, found, read and run; and gone once they are taken out."""
    async with echoing() as registry:
        shout = Tool(name="shout", namespace="talk", version="2.0.0", input_schema=OPEN)
        registry.register_local(shout, lambda args: str(args["text"]).upper())
        assert await registry.execute("talk:echo", {"text": "a"}) == {"text": "a"}
        assert await registry.execute("talk:shout", {"text": "a"}) == "A"
        assert (await registry.search("say it again")).ids()[0] == "talk:echo"
        assert (await registry.search("", filters=Filters(tags=("say",)))).ids() == ["talk:echo"]
        assert registry.get("talk:echo").tags == ("say",)
        assert registry.get("talk:echo").input_schema.to_json() == OPEN
        assert [tool.id for tool in registry.list_all()] == ["talk:echo", "talk:shout:2.0.0"]
        assert registry.namespaces() == ["talk"]
        before = registry.stats()
        assert before == RegistryStats(
            total_tools=2, local_tools=2, mcp_tools=0, provider_tools=0, backends=0, index_version=2
        )
        assert registry.refresh() == 3
        registry.unregister_local("talk:shout:2.0.0")
        assert [tool.id for tool in registry.list_all()] == ["talk:echo"]
        for ask in (registry.get, registry.unregister_local):
            with pytest.raises(ToolNotFoundError):
                ask("talk:shout")


async def test_local_tools_that_make_no_sense() -> None:
    """Refuses invalid local tools with nothing added."""
    async with echoing() as registry:
        with pytest.raises(InvalidToolError):
            registry.register_function("a b", lambda args: args)
        with pytest.raises(ConfigurationError):
            registry.register_local(Tool(name="x", input_schema=OPEN), None)  # type: ignore[arg-type]
        with pytest.raises(ToolConflictError):
            registry.register_function("echo", lambda args: args, namespace="talk", description="Another.")
        assert len(registry.list_all()) == 1


async def test_failures_of_runs() -> None:
    """Arguments are checked, a handler's failure is raised with its cause, an unknown tool is not found."""
    async with echoing() as registry:
        strict = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        registry.register_function("invert", lambda args: 1 / args["n"], input_schema=strict)
        with pytest.raises(InputValidationError):
            await registry.execute("invert", {"n": "one"})
        with pytest.raises(HandlerError) as caught:
            await registry.execute("invert", {"n": 0})
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        with pytest.raises(ToolNotFoundError):
            await registry.execute("nothing")


# -- MCP servers -------------------------------------------------------------------------------------------------------


async def test_servers_come_and_go() -> None:
    """Their tools have their names as namespaces, so that equal names do not clash; stop takes them out, start brings
    them back; all pages are read."""
    registry = echoing()
    one = scripted("one", *(f"tool{n}" for n in range(12)), page_size=5)
    assert await registry.register_mcp(one) is None
    two = scripted("two", "tool1")
    await registry.register_mcp("two", command=two.command, args=two.args)
    with pytest.raises(ConfigurationError):
        registry.health_check()
    assert len(registry.list_all()) == 1
    for _ in range(2):
        statuses = await registry.start()
        assert [(status.name, status.available) for status in statuses] == [("one", True), ("two", True)]
        with pytest.raises(ConfigurationError):
            await registry.start()
        assert [status.name for status in registry.health_check()] == ["one", "two"]
        assert await registry.execute("one:tool11", {"a": 1}) == {"a": 1}
        assert await registry.execute("two:tool1", {"a": 2}) == {"a": 2}
        stats = registry.stats()
        assert (stats.total_tools, stats.local_tools, stats.mcp_tools, stats.backends) == (14, 1, 13, 2)
        await registry.stop()
        await registry.stop()
        assert [tool.id for tool in registry.list_all()] == ["talk:echo"]
        with pytest.raises(ConfigurationError):
            registry.health_check()
    await registry.aclose()
    with pytest.raises(ConfigurationError):
        await registry.start()


async def test_a_server_that_is_added_later() -> None:
    """Such a server is connected at once; taken out again, its tools and its name are free."""
    async with echoing() as registry:
        for _ in range(2):
            status = await registry.register_mcp(scripted("one", "tool"))
            assert status is not None
            assert status.available
            assert await registry.execute("one:tool", {"a": 1}) == {"a": 1}
            with pytest.raises(BackendError):
                await registry.register_mcp(scripted("one", "tool"))
            with pytest.raises(BackendNotFoundError, match="is not a local tool"):
                registry.unregister_local("one:tool")
            await registry.unregister_mcp("one")
            assert registry.namespaces() == ["talk"]
            with pytest.raises(BackendNotFoundError, match="there are none"):
                await registry.unregister_mcp("one")


async def test_a_server_that_cannot_be_reached_later() -> None:
    """Adding it raises with the reason and forgets it: health is good, and the name is free."""
    async with echoing() as registry:
        with pytest.raises(BackendUnavailableError, match="no-such-command-anywhere"):
            await registry.register_mcp(dead("one"))
        assert registry.health_check() == []
        assert registry.stats().backends == 0
        await registry.register_mcp(scripted("one", "tool"))
        assert await registry.execute("one:tool", {}) == {}


async def test_a_dead_server_holds_nothing_up() -> None:
    """Start goes on without it; its status and the health check say why."""
    registry = echoing()
    await registry.register_mcp(dead())
    await registry.register_mcp(scripted("one", "tool"))
    statuses = {status.name: status for status in await registry.start()}
    assert statuses["one"].available
    assert not statuses["dead"].available
    assert await registry.execute("one:tool", {}) == {}
    with pytest.raises(BackendUnavailableError) as caught:
        registry.health_check()
    assert set(caught.value.details["backends"]) == {"dead"}
    await registry.unregister_mcp("dead")
    assert [status.name for status in registry.health_check()] == ["one"]
    await registry.aclose()


async def test_all_or_nothing() -> None:
    """A strict start that fails leaves no tool and no connection behind, and works once the cause is gone."""
    registry = echoing()
    await registry.register_mcp(scripted("one", "tool"))
    await registry.register_mcp(dead())
    for _ in range(2):
        with pytest.raises(BackendUnavailableError, match="dead:"):
            await registry.start(strict=True)
        assert [tool.id for tool in registry.list_all()] == ["talk:echo"]
        assert registry.ex.backends.names() == ["local"]
        with pytest.raises(ConfigurationError):
            registry.health_check()
    await registry.unregister_mcp("dead")
    await registry.start(strict=True)
    assert await registry.execute("one:tool", {}) == {}
    await registry.aclose()


async def test_a_start_that_is_cancelled() -> None:
    """A cancelled start can be repeated."""
    registry = echoing(Options(start_timeout=60))
    await registry.register_mcp(scripted("slow", "tool", trouble={"list": Trouble(delay=30)}))
    task = asyncio.create_task(registry.start())
    await until(lambda: registry.ex.backends.get("slow"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert registry.ex.backends.names() == ["local"]
    await registry.unregister_mcp("slow")
    assert await registry.start() == []
    await registry.aclose()


async def test_what_cannot_be_stopped_in_good_order() -> None:
    """All others are disconnected all the same, and the failures are told together."""
    registry = echoing()
    for name in ("one", "two"):
        await registry.register_mcp(scripted(name, "tool"))
    await registry.start()
    backend: Any = registry.ex.backends.get("one")
    close = backend.aclose

    async def fail() -> None:
        await close()
        raise OSError("stuck")

    backend.aclose = fail
    with pytest.raises(ExceptionGroup) as caught:
        await registry.stop()
    assert [str(error) for error in caught.value.exceptions] == ["stuck"]
    assert registry.namespaces() == ["talk"]
    assert registry.ex.backends.names() == ["local"]
    await registry.start()
    assert registry.stats().mcp_tools == 2
    await registry.aclose()


@pytest.mark.parametrize("settings", [{}, {"url": "ftp://x"}, {"command": "a", "url": "http://x"}])
async def test_servers_that_make_no_sense(settings: Mapping[str, Any]) -> None:
    """Refuses invalid servers, with nothing recorded."""
    async with echoing() as registry:
        for name in ("ok", ""):
            with pytest.raises(ConfigurationError):
                await registry.register_mcp(name, **settings)
        with pytest.raises(ConfigurationError, match="has its own"):
            await registry.register_mcp(dead(), cwd="/")
        with pytest.raises(BackendError):
            await registry.register_mcp(dead("local"))
        assert registry.stats().backends == 0


# -- serving -----------------------------------------------------------------------------------------------------------


async def test_over_http() -> None:
    """A client of the protocol sees and calls every tool; the server stops when it is told to."""
    registry = echoing()
    await registry.register_mcp(scripted("one", "tool"))
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        registry.serve_http(HttpSettings(port=0), AuthSettings(), ready=address.set_result, stop=stop)
    )
    try:
        async with Client(await address) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"talk__echo", "one__tool"} <= names
            for name in ("talk__echo", "one__tool"):
                assert (await client.call_tool(name, {"a": 1})).structured_content == {"a": 1}
    finally:
        stop.set()
        await serving
    with pytest.raises(ConfigurationError):
        await registry.register_mcp(scripted("two", "tool"))


PROGRAM = """
import asyncio
from toolexec.server.registry import ToolRegistry

async def main():
    registry = ToolRegistry()
    registry.register_function("echo", lambda args: args)
    await registry.serve_stdio()

asyncio.run(main())
"""


@pytest.mark.full
def test_over_stdio() -> None:
    """A process that serves a registry answers on stdout and ends with its client."""
    lines = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    lines += '"clientInfo":{"name":"t","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    lines += '{"jsonrpc":"2.0","id":2,"method":"ping"}\nnot json\n'
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=server_environment(PATH=os.environ["PATH"]),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines)
        process.stdin.flush()
        answers = [process.stdout.readline() for _ in range(3)]
        process.stdin.close()
        assert process.wait(30) == 0
    assert '"protocolVersion":"2025-11-25"' in answers[0].replace(" ", "")
    assert {"-32700" in answer for answer in answers} == {True, False}


async def test_the_settings_hold() -> None:
    """Name, version and what is exposed are those of the settings; a toolset is the whole world."""
    settings = ServeSettings(name="mine", version="9.1", expose="meta")
    options = Options(toolset=Toolset(read_only=True))
    async with ToolRegistry(options, settings) as registry:
        for name, hints in (("reads", ToolAnnotations(read_only=True)), ("writes", None)):
            tool = Tool(name=name, annotations=hints or ToolAnnotations(), input_schema=OPEN)
            registry.register_local(tool, lambda args: args)
        assert [tool.id for tool in registry.list_all()] == ["reads"]
        assert registry.stats().total_tools == 1
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answer = await registry.handle_request({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        assert answer is not None
        assert {"name": "mine", "version": "9.1"}.items() <= answer["result"]["serverInfo"].items()
        listed = await registry.handle_request({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
        assert listed is not None
        tools = listed["result"]["tools"]
        assert "run_tool" in {tool["name"] for tool in tools}
        for tool in tools:
            jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
