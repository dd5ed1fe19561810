"""The MCP backend on a scripted server: listing, calling, streaming, and everything a server may answer."""

from __future__ import annotations

import asyncio
import sys
import threading

import mcp_types as types
import pytest

from toolexec import Exec, InMemoryIndex, Tool
from toolexec.backend import BackendRegistry
from toolexec.backend.catalog import AT_ONCE
from toolexec.backend.mcp import MCPBackend, MCPServer
from toolexec.backend.mcp import backend as backend_module
from toolexec.backend.mcp import transport as transport_module
from toolexec.backend.mcp.listing import Listing
from toolexec.errors import (
    BackendDisabledError,
    BackendUnavailableError,
    InputValidationError,
    InvalidResultError,
    RemoteToolError,
    ToolTimeoutError,
)
from toolexec.model import MCPBinding
from toolexec.model.call import ToolCall
from toolexec.run import DefaultRunner, Timeout
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool, Trouble


async def call(backend, name="echo", args=None, **settings):
    return await backend.call(name, ToolCall(f"s:{name}", args, **settings))


def replies(name, **result):
    return ScriptedTool(name, reply={"content": [], **result})


CONTENT = [
    {"type": "text", "text": "hello", "annotations": {"audience": ["user"]}},
    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "file:///a.txt", "name": "a"},
    {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "inside"}},
]


async def test_every_content_part_is_kept(connect):
    """Each kind of content comes as it was sent, with structured value and meta beside it."""
    tool = ScriptedTool("t", reply={"content": CONTENT, "structuredContent": {"n": None}, "_meta": {"m": 1}})
    reply = await call(connect(ScriptedServer(tools=[tool])), "t")
    assert reply.content == CONTENT
    assert (reply.structured, reply.has_structured, reply.meta) == ({"n": None}, True, {"m": 1})


async def test_a_reply_without_structure(connect):
    """No structured content is not the same as a null one."""
    reply = await call(connect(ScriptedServer(tools=[replies("t")])), "t")
    assert not reply.has_structured
    assert not reply.is_error


async def test_a_reported_error_is_a_reply(connect):
    """isError comes with its content; the runner makes it the call's error."""
    tool = ScriptedTool("t", reply={"content": CONTENT[:1], "isError": True})
    backend = connect(ScriptedServer(tools=[tool]))
    assert (await call(backend, "t")).is_error
    async with Exec() as ex:
        ex.add_backends(backend)
        result = await ex.run_tool("s:t")
        assert str(result.error) == "s:t failed: hello"


async def test_a_protocol_error_has_code_and_data(connect):
    """An error of the server itself keeps what it says."""
    tool = ScriptedTool("t", error={"code": -32050, "message": "quota exceeded", "data": {"left": 0}})
    with pytest.raises(RemoteToolError, match="s:t: quota exceeded") as caught:
        await call(connect(ScriptedServer(tools=[tool])), "t")
    assert caught.value.details == {"code": -32050, "data": {"left": 0}}
    assert caught.value.backend == "s"


async def test_an_error_with_the_sdks_code_for_closing_is_not_a_lost_connection(connect):
    """Servers use -32000 for anything; only the SDK's own message means that the connection is gone."""
    backend = connect(ScriptedServer(tools=[ScriptedTool("t", error={"code": -32000, "message": "busy"})]))
    with pytest.raises(RemoteToolError, match="busy"):
        await call(backend, "t")
    assert backend.status().available


@pytest.mark.parametrize(
    "result", [{"content": 5}, {"content": [{"type": "video"}]}, {"content": [], "isError": "maybe"}], ids=str
)
async def test_a_reply_that_breaks_mcp_fails_its_call(connect, result):
    """The call fails with the place of the fault, and the connection stays."""
    backend = connect(ScriptedServer(tools=[ScriptedTool("t", reply=result), ScriptedTool("echo")]))
    with pytest.raises(RemoteToolError, match="does not follow MCP"):
        await call(backend, "t")
    assert (await call(backend, args={"a": 1})).structured == {"a": 1}


async def test_a_server_that_lies_about_its_schema(connect):
    """The value is kept, and the breach is a warning of the result."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = ScriptedTool("t", output_schema=schema, reply={"content": [], "structuredContent": {"n": "x"}})
    async with Exec() as ex:
        ex.add_backends(connect(ScriptedServer(tools=[tool])))
        result = await ex.run_tool("s:t")
        assert result.ok
        assert result.value == {"n": "x"}
        assert [warning.path for warning in result.warnings] == ["/n"]


async def test_a_server_that_forgets_its_structure(connect):
    """An output schema without structured content is a breach too, not a lost reply."""
    tool = ScriptedTool("t", output_schema={"type": "object"}, reply={"content": [{"type": "text", "text": "hi"}]})
    async with Exec() as ex:
        ex.add_backends(connect(ScriptedServer(tools=[tool])))
        result = await ex.run_tool("s:t")
        assert result.value == "hi"
        assert result.warnings


async def test_a_reply_with_nan_is_no_json(connect):
    """NaN in a reply is that call's error."""
    raw = '{"jsonrpc": "2.0", "id": $ID, "result": {"content": [], "structuredContent": {"n": NaN}}}'
    async with Exec() as ex:
        ex.add_backends(connect(ScriptedServer(tools=[ScriptedTool("t", raw=raw)])))
        result = await ex.run_tool("s:t")
        assert isinstance(result.error, InvalidResultError)
        assert "/n" in str(result.error)


@pytest.mark.parametrize("bad", [float("nan"), "\ud800", 1j, object()], ids=["nan", "surrogate", "complex", "object"])
async def test_arguments_that_are_no_json_are_not_sent(connect, bad):
    """Refuses them before they could cost the connection, even without another check."""
    backend = connect(ScriptedServer())
    await backend.start()
    with pytest.raises(InputValidationError):
        await call(backend, args={"a": bad})
    assert (await call(backend, args={"a": 10**30, "b": "ü"})).structured == {"a": 10**30, "b": "ü"}


async def test_progress_arrives_in_order(connect):
    """Each notification reaches the callback before the call returns."""
    seen = []
    backend = connect(ScriptedServer(tools=[ScriptedTool("t", progress=3)]))
    await call(backend, "t", on_progress=seen.append)
    assert [(p.done, p.total, p.message) for p in seen] == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


async def test_streaming_is_progress_and_the_reply(connect):
    """The stream of a call has its progress and then the reply."""
    backend = connect(ScriptedServer(tools=[ScriptedTool("t", progress=2)]))
    events = [event async for event in backend.stream("t", ToolCall("s:t", {"a": 1}))]
    assert [event.kind for event in events] == ["progress", "progress", "done"]
    assert events[0].data == {"progress": 1, "total": 2, "message": "step 1"}
    assert events[-1].data.structured == {"a": 1}


async def test_a_stream_that_fails_raises(connect):
    """The error of the call is the error of the stream."""
    backend = connect(ScriptedServer(tools=[ScriptedTool("t", error={"code": 1, "message": "no"})]))
    with pytest.raises(RemoteToolError, match="no"):
        [event async for event in backend.stream("t", ToolCall("s:t"))]


async def test_closing_a_stream_cancels_the_call(connect, tmp_path, until):
    """Closing the stream stops the tool."""
    server = ScriptedServer(tools=[ScriptedTool("t", progress=2, delay=120)], record=str(tmp_path / "events"))
    backend = connect(server)
    stream = backend.stream("t", ToolCall("s:t"))
    first = asyncio.ensure_future(anext(stream))
    await until(lambda: server.events("call"))
    first.cancel()
    await asyncio.wait([first])
    await stream.aclose()
    await until(lambda: server.events("cancelled"))


async def test_cancelling_reaches_the_server(connect, tmp_path, until):
    """The server is notified which request has no waiting caller any more."""
    server = ScriptedServer(tools=[ScriptedTool("slow", delay=60)], record=str(tmp_path / "events"))
    backend = connect(server)
    task = asyncio.create_task(call(backend, "slow"))
    (begun,) = await until(lambda: server.events("call"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (cancelled,) = await until(lambda: server.events("cancelled"))
    assert cancelled["id"] == begun["id"]


async def test_a_reply_to_a_cancelled_call_is_dropped(connect, tmp_path, until):
    """A late reply of a server that ignores cancellation disturbs no other call."""
    tools = [ScriptedTool("slow", delay=0.3), ScriptedTool("echo")]
    server = ScriptedServer(tools=tools, ignore_cancel=True, record=str(tmp_path / "events"))
    backend = connect(server)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await backend.start()
            await call(backend, "slow")
    await asyncio.sleep(0.4)
    assert (await call(backend, args={"a": 1})).structured == {"a": 1}


async def test_a_changed_list_updates_the_index(connect, until):
    """New tools come, gone ones go, changed ones change, in each index of the backend."""
    before = [ScriptedTool("change", changes_tools=True), ScriptedTool("old"), ScriptedTool("same", "before")]
    after = [ScriptedTool("new"), ScriptedTool("same", "after")]
    async with Exec() as ex:
        await ex.add_backends(connect(ScriptedServer(tools=before, later_tools=after)))
        await ex.run_tool("s:change")
        await until(lambda: ex.index.find("s:new"))
        assert ex.index.find("s:old") is None
        assert ex.index.find("s:same").tool.description == "after"
        assert (await ex.run_tool("s:new", {"a": 1})).value == {"a": 1}


@pytest.mark.full
async def test_a_server_that_announces_at_every_listing_is_not_asked_all_the_time(connect, tmp_path):
    """Listing, announcing, listing: the pauses grow."""
    server = ScriptedServer(announce_always=True, record=str(tmp_path / "events"))
    backend = connect(server)
    await backend.start()
    await asyncio.sleep(1)
    assert len(server.events("list")) <= 7


async def test_a_listener_that_fails_does_not_disturb(connect, caplog):
    """Listeners are notified of the tools until they stop listening; what one raises is logged."""
    backend = connect(ScriptedServer(tools=[ScriptedTool("crash", trouble=Trouble(exit=1)), ScriptedTool("echo")]))
    received = []

    def fail(tools):
        raise RuntimeError("listener")

    backend.on_tools(fail)
    stop = backend.on_tools(received.append)
    await backend.start()
    assert [tool.name for tool in received[0]] == ["crash", "echo"]
    assert "a tools listener of MCP server s failed" in caplog.text
    stop()
    stop()
    with pytest.raises(Exception, match="went away"):
        await call(backend, "crash")
    await call(backend)
    assert len(received) == 1


async def test_many_tools_are_converted_outside_of_the_loop(connect, monkeypatch):
    """A long list is checked and converted in a thread, and all of it is there after the start."""
    threads = {}

    def noted(module, name):
        function = getattr(module, name)

        def called(*args):
            threads.setdefault(name, set()).add(threading.current_thread())
            return function(*args)

        monkeypatch.setattr(module, name, called)

    noted(backend_module, "convert_tools")
    noted(transport_module, "screen_tools")
    async with Exec() as ex:
        await ex.add_backends(connect(ScriptedServer(tools=[ScriptedTool(f"t{n}") for n in range(2 * AT_ONCE)])))
        assert len(ex.index) == 2 * AT_ONCE
    assert set(threads) == {"convert_tools", "screen_tools"}
    assert threading.main_thread() not in set.union(*threads.values())


async def test_a_list_that_is_overtaken_counts_no_more(monkeypatch):
    """The tools that were asked for later, and are there sooner, stay."""
    asked = {name: asyncio.Event() for name in ("older", "newer")}

    async def listing(name):
        await asked[name].wait()
        return Listing(tools=[types.Tool(name=name, input_schema={"type": "object"})])

    monkeypatch.setattr(backend_module, "read_listing", listing)
    backend = MCPBackend(MCPServer(name="s", command="/nonexistent"))
    readings = [asyncio.create_task(backend._read_tools(name)) for name in asked]
    for name, reading in (("newer", readings[1]), ("older", readings[0])):
        asked[name].set()
        await reading
    assert [tool.name for tool in await backend.list_tools()] == ["newer"]


async def test_a_disabled_server_is_not_started():
    """A server that is switched off has no tools and takes no calls."""
    backend = MCPBackend(MCPServer(name="s", command="/nonexistent", enabled=False))
    await backend.start()
    assert await backend.list_tools() == []
    assert backend.status().reason == "switched off"
    with pytest.raises(BackendDisabledError):
        await call(backend)
    await backend.aclose()


async def test_listing_an_unreachable_server_raises(connect):
    """Without tools from before, there is nothing to list."""
    with pytest.raises(BackendUnavailableError, match="not found"):
        await connect(["/nonexistent"]).list_tools()


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_call_that_waits_for_the_connection_never_began(connect, streamed):
    """A server that does not come up has certainly done nothing: making the call again is safe."""
    tool = Tool(name="echo", namespace="s", input_schema={"type": "object"})
    index, backends = InMemoryIndex(), BackendRegistry()
    backend = connect([sys.executable, "-c", "import sys; sys.stdin.read()"])
    index.register(tool, MCPBinding(backend.name, "echo"))
    backends.register(backend)
    runner = Timeout(DefaultRunner(index, backends), seconds=0.05)
    if streamed:
        *_, last = [event async for event in runner.stream(ToolCall(tool.id))]
        details = last.data["details"]
        assert last.data["outcome"] == "not_sent"
    else:
        error = (await runner.run(ToolCall(tool.id))).error
        assert error.outcome == "not_sent"
        details = error.details
    assert details["waited_for"] == f"a connection to the MCP server {backend.name}"
    await backend.aclose()


async def test_tools_stay_known_while_the_server_is_away(connect):
    """A server that went away keeps its tools in the list; they show as unavailable, with the reason."""
    server = ScriptedServer(tools=[ScriptedTool("crash", trouble=Trouble(exit=4))])
    async with Exec() as ex:
        await ex.add_backends(connect(server, max_restarts=0))
        await ex.run_tool("s:crash")
        (found,) = await ex.search_tools("crash")
        assert "exited with 4" in found.unavailable


async def test_a_server_without_tools(connect):
    """A server of prompts or resources only is available, with no tools."""
    program = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"prompts": {}}, "serverInfo": {"name": "p", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    elif "id" in message:
        error = {"code": -32601, "message": "unknown"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"""
    backend = connect([sys.executable, "-c", program])
    assert await backend.list_tools() == []
    assert backend.status().available


async def test_secrets_never_show(connect):
    """A server that prints its environment does not put it into our reasons and errors."""
    program = "import os, sys; sys.exit('key is ' + os.environ['API_KEY'])"
    backend = connect([sys.executable, "-c", program], env={"API_KEY": "topsecret-123"}, max_restarts=0)
    with pytest.raises(BackendUnavailableError) as caught:
        await call(backend)
    shown = str(caught.value) + str(backend.status().to_dict()) + repr(backend.server) + repr(caught.value.to_dict())
    assert "topsecret" not in shown
    assert "key is ***" in shown


async def test_a_namespace_of_ones_own(connect):
    """Tools are under the namespace that the configuration gives."""
    backend = connect(ScriptedServer(), namespace="other")
    assert [tool.id for tool in await backend.list_tools()] == ["other:echo"]


async def test_a_timeout_of_the_server_is_a_timeout(connect):
    """The protocol's own code for a request that took too long is understood."""
    backend = connect(ScriptedServer(tools=[ScriptedTool("t", error={"code": -32001, "message": "timed out"})]))
    with pytest.raises(ToolTimeoutError, match="s:t did not answer in time"):
        await call(backend, "t")


async def test_a_refusal_of_the_sdk_is_the_calls_error(connect, monkeypatch):
    """An unexpected reply that the SDK refuses does not take down the connection."""
    backend = connect(ScriptedServer())
    await backend.start()

    async def refuse(*args, **settings):
        raise RuntimeError("an unexpected kind of result")

    with monkeypatch.context() as patch:
        patch.setattr("mcp.Client.call_tool", refuse)
        with pytest.raises(RemoteToolError, match="an unexpected kind of result"):
            await call(backend, on_progress=lambda _: None)
    assert (await call(backend, args={"a": 1})).structured == {"a": 1}
    assert "restarts" not in backend.status().info


@pytest.mark.full
async def test_changed_tools_that_cannot_be_read(connect, caplog, until):
    """When reading the changed tools fails, those from before stay, and the log has the reason."""
    server = ScriptedServer(
        tools=[ScriptedTool("change", changes_tools=True)], trouble={"list": Trouble(hang=True, after=1)}
    )
    backend = connect(server, connect_timeout=1)
    await call(backend, "change")
    await until(lambda: "cannot read its changed tools" in caplog.text)
    assert [tool.name for tool in await backend.list_tools()] == ["change"]
