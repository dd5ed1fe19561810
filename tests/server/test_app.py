"""The server as official clients of both eras see it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import anyio
import jsonschema
import pytest
from mcp.shared.exceptions import MCPError
from tests.server.harness import ERAS, connect, serving
from tests.waiting import until

from toolexec import Exec, Tool, ToolContext, ToolReply
from toolexec.errors import ConfigurationError, InvalidCursorError, RateLimitedError
from toolexec.integrations.toolset import Toolset
from toolexec.model.content import image, text
from toolexec.model.origin import current_origin
from toolexec.run.gate import Gate
from toolexec.run.layers.budget import Budget
from toolexec.run.results import ResultStore
from toolexec.server.app import ToolServer
from toolexec.server.settings import ServeSettings
from toolexec.server.tools.base import MetaCall, MetaReply, MetaTool
from toolexec.server.tools.catalogue import meta_tools

both = pytest.mark.parametrize("era", ERAS)
OPEN = {"type": "object"}


def make(handle: Any, name: str = "own", **fields: Any) -> MetaTool:
    given = {"title": "Own", "description": "One.", "input_schema": OPEN, "output_schema": OPEN, **fields}
    return MetaTool(name=name, handle=handle, **given)


def calculator() -> Exec:
    ex = Exec()

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    ex.add(add, "math:add")
    ex.add(lambda n: 1 // n, "math:divide")
    return ex


@both
async def test_every_tool_of_the_server_is_listed_with_schemas(era: str) -> None:
    """The list has the server's own tools, each with a legal schema of its arguments; there is no schema of what they
    answer, as a model would pay for it, and clients would insist on structured content of long replies, too."""
    async with serving(calculator()) as server, connect(server, era) as client:
        tools = (await client.list_tools()).tools
        names = [tool.name for tool in tools]
        assert names == ["search_tools", "describe_tool", "run_tool", "execute_code", "read_result"]
        for tool in tools:
            jsonschema.Draft202012Validator.check_schema(tool.input_schema)
            assert tool.output_schema is None


@both
async def test_find_read_run_chain_and_code(era: str) -> None:
    """A model finds a tool, reads about it, runs it, chains it, and runs code that calls it; every reply fits its
    tool's schema, and its text is no less than its value."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search_tools", {"query": "add numbers", "as_json": True}),
        ("describe_tool", {"tool_id": "math:add", "detail_level": "full", "as_json": True}),
        ("run_tool", {"tool_id": "math:add", "args": {"a": 2, "b": 3}}),
        ("run_tool", {"tool_id": "math:divide", "args": {"n": 0}}),
        ("run_tool", {"tool_id": "math:nothing"}),
        ("run_chain", {"steps": [{"tool_id": "math:add", "args": {"a": 1, "b": 1}}]}),
        ("execute_code", {"language": "python", "code": "tools.math.add(a=20, b=22)"}),
        ("list_backends", {}),
    ]
    async with serving(calculator()) as server, connect(server, era) as client:
        schemas = {tool.name: dict(tool.output_schema) for tool in meta_tools("meta", code_enabled=True, list_all=True)}
        replies = []
        for name, args in calls:
            reply = await client.call_tool(name, args)
            replies.append(reply)
            assert reply.content
            jsonschema.Draft202012Validator(schemas[name]).validate(reply.structured_content)
        found, _, ran, failed, unknown, chained, coded, _ = replies
        assert found.structured_content["tools"][0]["id"] == "math:add"
        assert ran.structured_content["structured"] == 5
        assert failed.is_error
        assert failed.structured_content["error"]["code"] == "handler_failed"
        assert unknown.is_error
        assert unknown.structured_content["error"]["code"] == "tool_not_found"
        assert chained.structured_content["final"] == 2
        assert coded.structured_content["value"] == 42


async def test_all_are_listed_on_demand() -> None:
    """The rare ones too, and arguments that hardly a model needs; they can be called in any case."""
    async with serving(calculator(), list_all=True) as server, connect(server, "auto") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "include_structured" in tools["run_tool"].input_schema["properties"]
        assert {"run_workflow", "list_backends"} <= tools.keys()
        assert "Not listed, but" not in (server.lowlevel.create_initialization_options().instructions or "")
    async with serving(calculator()) as server, connect(server, "auto") as client:
        assert "list_backends" in (server.lowlevel.create_initialization_options().instructions or "")
        reply = await client.call_tool("list_namespaces", {})
        assert reply.structured_content["namespaces"] == ["math"]


FILE = "".join(f"line {number}\tof 'a' \"file\"\\n\n" for number in range(4000))


@both
@pytest.mark.parametrize("call", ["run_tool", "structured", "chain", "code", "page"])
async def test_a_long_text_is_sent_once(era: str, call: str) -> None:
    """A long string is in a reply once, on whatever path: a model would pay for it twice."""
    ex = Exec()
    reply = ToolReply(content=[text(FILE)], structured={"content": FILE}, has_structured=True)
    ex.add(lambda: FILE, "files:read")
    ex.add(lambda: reply, "files:structured")
    size = len(json.dumps(FILE))
    async with serving(ex, max_result_bytes=2 * size) as server, connect(server, era) as client:
        if call == "chain":
            answer = await client.call_tool("run_chain", {"steps": [{"tool_id": "files:read"}]})
        elif call == "code":
            answer = await client.call_tool("execute_code", {"code": "return tools.files.read()"})
        elif call == "page":
            cut = await client.call_tool("run_tool", {"tool_id": "files:read", "max_bytes": 1000})
            answer = await client.call_tool("read_result", {"handle": cut.structured_content["handle"]})
        else:
            answer = await client.call_tool("run_tool", {"tool_id": f"files:{call.replace('run_tool', 'read')}"})
        assert not answer.is_error
        assert len(FILE) > 100_000
        assert size <= len(answer.model_dump_json(by_alias=True, exclude_none=True)) <= 1.1 * size


@both
@pytest.mark.parametrize("expose", ["meta", "direct"])
async def test_a_handle_of_the_execs_own_budget_is_read(era: str, expose: Any) -> None:
    """A client reads the whole of what the budget of a served Exec has cut, by the handle that it was given."""
    ex = Exec(gate=Gate(budget=Budget(ResultStore(2000))))
    ex.add(lambda: [{"id": number} for number in range(3000)], "stock:all")
    async with serving(ex, expose=expose) as server, connect(server, era) as client:
        name, args = ("run_tool", {"tool_id": "stock:all"}) if expose == "meta" else ("stock__all", {})
        cut = await client.call_tool(name, args)
        [handle] = {*re.findall("r-[A-Za-z0-9_-]{16}", "".join(part.text for part in cut.content))}
        page = await client.call_tool("read_result", {"handle": handle, "path": "[2999].id"})
        assert not page.is_error
        assert json.loads(page.content[0].text)["value"] == 2999


@pytest.mark.parametrize("over", [ToolServer, Toolset])
def test_a_blocking_twin_in_place_of_an_exec_is_refused(over: Callable[[Any], object]) -> None:
    """A server or a toolset over `Exec().sync` is an error that says what it must be over."""
    with pytest.raises(ConfigurationError, match="ex must be an Exec, not a SyncExec"):
        over(Exec().sync)


def test_two_limits_of_a_result_are_refused() -> None:
    """A server cannot cut results by a setting, and its Exec by a budget."""
    ex = Exec(gate=Gate(budget=Budget(ResultStore(2000))))
    with pytest.raises(ConfigurationError, match="max_result_bytes and the budget"):
        ToolServer(ex, ServeSettings(max_result_bytes=5000))


@both
async def test_structured_content_on_request(era: str) -> None:
    """A short reply has it, a long one has it for a program that asks for it."""
    ex = Exec()
    ex.add(lambda n: ["x" * 10] * n, "rows")
    async with serving(ex) as server, connect(server, era) as client:
        short = await client.call_tool("run_tool", {"tool_id": "rows", "args": {"n": 3}})
        assert short.structured_content["structured"] == ["x" * 10] * 3
        args = {"tool_id": "rows", "args": {"n": 500}}
        assert (await client.call_tool("run_tool", args)).structured_content is None
        whole = await client.call_tool("run_tool", args | {"include_structured": True})
        assert whole.structured_content["structured"] == ["x" * 10] * 500


@both
async def test_wrong_arguments_are_a_result_with_every_violation(era: str) -> None:
    """Arguments that do not fit come back as a result that the model reads, with all that is wrong."""
    async with serving(calculator()) as server, connect(server, era) as client:
        reply = await client.call_tool("run_tool", {"tool_id": 5, "never": 1})
        assert reply.is_error
        error = reply.structured_content["error"]
        assert error["code"] == "validation_input"
        assert len(error["details"]["violations"]) == 2


@both
async def test_an_unknown_tool_is_a_protocol_error(era: str) -> None:
    """A tool that the server does not have is an error of the request; its name is shown without escapes."""
    async with serving(calculator()) as server, connect(server, era) as client:
        with pytest.raises(MCPError, match=r"Unknown tool: no\\x1b\[31mRED") as caught:
            await client.call_tool("no\x1b[31mRED", {})
        assert caught.value.error.code == -32602
        assert (await client.call_tool("run_tool", {"tool_id": "math:add", "args": {"a": 1, "b": 1}})).is_error is False


@both
async def test_pages_of_the_list(era: str) -> None:
    """The list comes in pages; a cursor that was not made for it is refused."""
    async with serving(calculator(), page_size=3, list_all=True) as server, connect(server, era) as client:
        names, cursor, pages = [], None, 0
        while True:
            page = await client.list_tools(cursor=cursor)
            names += [tool.name for tool in page.tools]
            pages += 1
            if (cursor := page.next_cursor) is None:
                break
        assert pages == 4
        assert len(set(names)) == len(names) == 12
        for forged in ("garbage", "AAAA", ""):
            with pytest.raises(MCPError, match="invalid cursor") as caught:
                await client.list_tools(cursor=forged)
            assert caught.value.error.code == -32602


@both
async def test_a_bad_cursor_of_a_tool_is_a_protocol_error(era: str) -> None:
    """A forged cursor given to a tool of the server is an error of the request, too."""

    async def handle(call: MetaCall) -> MetaReply:
        raise InvalidCursorError("damaged")

    async with serving(Exec(), tools=[make(handle)]) as server, connect(server, era) as client:
        with pytest.raises(MCPError, match="invalid cursor") as caught:
            await client.call_tool("own", {})
        assert caught.value.error.code == -32602


@both
async def test_failures_of_the_servers_own_tools(era: str) -> None:
    """An error with a code keeps it; an unforeseen one is `internal`, without a word of its message."""

    async def limited(call: MetaCall) -> MetaReply:
        raise RateLimitedError("too many", details={"retry_after": 1})

    async def broken(call: MetaCall) -> MetaReply:
        raise RuntimeError("the password is hunter22")

    closed = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tools = [make(limited, "limited"), make(broken, "broken"), make(limited, "closed", output_schema=closed)]
    async with serving(Exec(), tools=tools) as server, connect(server, era) as client:
        reply = await client.call_tool("limited", {})
        assert reply.structured_content["error"] | {"op": ""} == {
            "code": "rate_limited", "message": "too many", "retryable": True, "details": {"retry_after": 1}, "op": "",
        }  # fmt: skip
        reply = await client.call_tool("broken", {})
        assert reply.structured_content["error"]["code"] == "internal"
        assert "hunter22" not in reply.model_dump_json()
        reply = await client.call_tool("closed", {})
        assert reply.is_error
        assert reply.structured_content is None
        assert "rate_limited" in reply.content[0].text


@both
async def test_images_come_through(era: str) -> None:
    """A tool's image is a part of the reply of run_tool, byte for byte."""
    ex = Exec()
    ex.add(Tool(name="picture", input_schema=OPEN), handler=lambda args: ToolReply(content=[image(b"\x89PNG")]))
    async with serving(ex) as server, connect(server, era) as client:
        reply = await client.call_tool("run_tool", {"tool_id": "picture"})
        assert [part.data for part in reply.content if part.type == "image"] == [image(b"\x89PNG")["data"]]


@both
async def test_cancelling_a_request_stops_the_tool(era: str) -> None:
    """When a client gives a request up, the tool that runs for it is really cancelled, also where it could have been
    asked for approval."""
    started, stopped = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()
        return "late"

    async def never(context: Any, params: Any) -> Any:
        raise AssertionError

    ex = Exec()
    ex.add(slow, "t:slow")
    for options in ({}, {"elicitation_callback": never}):
        started.clear()
        stopped.clear()
        async with serving(ex) as server, connect(server, era, **options) as client:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "run_tool", {"tool_id": "t:slow"})
                with anyio.fail_after(5):
                    await started.wait()
                tasks.cancel_scope.cancel()
            with anyio.fail_after(5):
                await stopped.wait()
        ex = Exec()
        ex.add(slow, "t:slow")


@pytest.mark.full
@both
async def test_progress_rises_and_only_with_a_token(era: str) -> None:
    """A client that asks hears rising progress up to the last step, before the reply; others hear nothing."""
    ex = Exec()

    async def work(context: ToolContext) -> str:
        for done in (1, 2, 2, 1, 3, 4, 5):
            context.report(done, 5, f"step\x1b[31m {done}")
            await asyncio.sleep(0.03)
        return "done"

    ex.add(work, "t:work")
    received: list[tuple[float, float | None, str | None]] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        received.append((done, total, message))

    async with serving(ex) as server, connect(server, era) as client:
        await client.call_tool("run_tool", {"tool_id": "t:work"}, progress_callback=hear)
        await until(lambda: received and received[-1][0] == 5)
        numbers = [done for done, _, _ in received]
        assert numbers == sorted(set(numbers))
        assert len(numbers) >= 5
        assert r"step\x1b[31m 3" in [message for _, _, message in received]
        count = len(received)
        await client.call_tool("run_tool", {"tool_id": "t:work"})
        assert len(received) == count


@both
async def test_a_flood_of_progress_is_thinned(era: str) -> None:
    """Progress that comes faster than 50 times a second is thinned, and its last word is kept."""
    ex = Exec()

    async def flood(context: ToolContext) -> str:
        for done in range(1, 1001):
            context.report(done, 1000)
        return "done"

    ex.add(flood, "t:flood")
    received: list[float] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        received.append(done)

    async with serving(ex) as server, connect(server, era) as client:
        await client.call_tool("run_tool", {"tool_id": "t:flood"}, progress_callback=hear)
        await until(lambda: 1000 in received)
        assert len(received) < 20


@both
async def test_where_calls_come_from(era: str) -> None:
    """A call's origin names the client, without escapes, and one conversation has one session."""
    origins = []

    async def handle(call: MetaCall) -> MetaReply:
        origins.append((call.origin, current_origin()))
        return MetaReply(value={})

    from mcp_types import Implementation

    info = Implementation(name="evil\x1b[31m\nname" + "x" * 200, version="1")
    async with serving(Exec(), tools=[make(handle)]) as server, connect(server, era, client_info=info) as client:
        await client.call_tool("own", {})
        await client.call_tool("own", {})
    (first, around), (second, _) = origins
    assert first is around
    assert first.client.startswith("evil\\x1b[31m name")
    assert len(first.client) <= 64
    assert first.session == second.session != ""
    assert first.ask is None
    assert first.caller.id == ""


async def test_two_connections_are_two_sessions() -> None:
    """In the handshake era each connection is a session of its own."""
    sessions = []

    async def handle(call: MetaCall) -> MetaReply:
        sessions.append(call.origin.session)
        return MetaReply(value={})

    async with serving(Exec(), tools=[make(handle)]) as server:
        for _ in range(2):
            async with connect(server, "legacy") as client:
                await client.call_tool("own", {})
    assert len(set(sessions)) == 2


@both
async def test_what_the_server_says_of_itself(era: str) -> None:
    """Name, version and instructions are the real ones; they count the tools."""
    async with serving(calculator(), name="mine", version="1.2.3") as server, connect(server, era) as client:
        assert (client.server_info.name, client.server_info.version) == ("mine", "1.2.3")
        assert "2 tools" in (client.instructions or "")
    async with serving(Exec(), instructions="Just so.") as server, connect(server, era) as client:
        assert client.instructions == "Just so."


async def test_a_dead_backend_holds_up_nothing(tmp_path: Any) -> None:
    """The first answer comes while backends are still starting, and closing does not wait for them."""
    ex = calculator()
    ex.add_mcp("dead", command=["sleep", "60"], connect_timeout=30)
    async with serving(ex) as server, connect(server, "auto") as client:
        with anyio.fail_after(5):
            await client.list_tools()
            reply = await client.call_tool("run_tool", {"tool_id": "math:add", "args": {"a": 1, "b": 1}})
        assert json.loads(reply.content[0].text) == 2


async def test_start_again_and_failing_start() -> None:
    """Starting twice starts once; an Exec that cannot start does not take the server down."""
    ex = calculator()
    server = ToolServer(ex)
    await server.start()
    await server.start()
    await server.aclose()
    again = ToolServer(ex, ServeSettings(list_changed=False))
    async with again, connect(again, "legacy") as client:
        assert (await client.list_tools()).tools


def test_code_without_code_is_refused() -> None:
    """A server that exposes code needs code."""
    with pytest.raises(ConfigurationError):
        ToolServer(Exec(enable_code_execution=False), ServeSettings(expose="code"))


@both
async def test_expose_code(era: str) -> None:
    """A server for code shows what finds tools and what executes code."""
    async with serving(calculator(), expose="code") as server, connect(server, era) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"find", "execute"}
