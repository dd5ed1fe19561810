"""The tools of the catalogue as tools of the server."""

from __future__ import annotations

import re
from typing import Any

import anyio
import jsonschema
import pytest
from mcp.shared.exceptions import MCPError
from tests.server.harness import ERAS, connect, serving

from toolexec import Exec, Tool, ToolAnnotations, ToolReply
from toolexec.discovery.index import Registered
from toolexec.model.call import ToolCall
from toolexec.model.content import audio, image, resource_link, text
from toolexec.model.origin import Origin
from toolexec.model.schema import Schema
from toolexec.run.gate import Gate
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner
from toolexec.run.types import Result
from toolexec.server.direct import MAX_NAME, DirectTools

both = pytest.mark.parametrize("era", ERAS)
OPEN = {"type": "object"}
TREE = {
    "type": "array",
    "items": {"$ref": "#/$defs/node"},
    "$defs": {"node": {"type": "object", "properties": {"kids": {"$ref": "#"}}, "required": ["kids"]}},
}


def values() -> Exec:
    """Tools that answer with every kind of value, each with and without an output schema."""
    ex = Exec()
    given: dict[str, tuple[Any, Any]] = {
        "number": (7, {"type": "integer"}),
        "word": ("seven", {"type": "string", "enum": ["seven"]}),
        "list": ([1, 2], {"type": "array", "items": {"type": "integer"}}),
        "object": ({"a": 1}, {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
        "nothing": (None, {"type": "null"}),
        "maybe": (None, {"type": ["integer", "null"]}),
        "tree": ([{"kids": [{"kids": []}]}], TREE),
        "anything": ({"b": 2}, True),
    }
    for name, (value, schema) in given.items():
        tool = Tool(name=name, namespace="typed", input_schema=OPEN, output_schema=schema)
        ex.add(tool, handler=lambda args, value=value: value)
        ex.add(Tool(name=name, namespace="bare", input_schema=OPEN), handler=lambda args, value=value: value)
    return ex


@both
async def test_every_value_fits_its_published_schema(era: str) -> None:
    """Whatever a tool answers, the structured content fits the schema that this client was given, and the text is
    there."""
    async with serving(values(), expose="direct") as server, connect(server, era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name, tool in tools.items():
            if name == "read_result":
                continue
            reply = await client.call_tool(name, {})
            assert not reply.is_error, (name, reply)
            assert reply.content[0].text
            if era == "legacy":
                assert reply.structured_content is None or isinstance(reply.structured_content, dict)
                assert tool.output_schema is None or tool.output_schema["type"] == "object"
            if name.startswith("typed"):
                jsonschema.Draft202012Validator(tool.output_schema).validate(reply.structured_content)
        number = (await client.call_tool("bare__number", {})).structured_content
        assert number == ({"result": 7} if era == "legacy" else 7)
        assert (await client.call_tool("bare__word", {})).content[0].text == "seven"


@both
async def test_text_is_sent_once(era: str) -> None:
    """A tool that gives text has no output schema, which would only have the text sent twice; one that promises more
    than text keeps its schema, and its value."""
    page = "words " * 500
    ex = Exec()

    def read() -> str:
        """Read a page."""
        return page

    ex.add(read, "t:read")
    ex.add(Tool(name="bare", namespace="t", input_schema=OPEN), handler=lambda args: page)
    both_ways = ToolReply(content=[text(page)], structured=page, has_structured=True)
    ex.add(Tool(name="reply", namespace="t", input_schema=OPEN), handler=lambda args: both_ways)
    word = {"type": "string", "enum": [page]}
    ex.add(Tool(name="word", namespace="t", input_schema=OPEN, output_schema=word), handler=lambda args: page)
    async with serving(ex, expose="direct") as server, connect(server, era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name, times in (("t__read", 1), ("t__bare", 1), ("t__reply", 1), ("t__word", 2)):
            reply = await client.call_tool(name, {})
            assert reply.content[0].text == page
            assert reply.model_dump_json().count(page) == times, name
            assert (tools[name].output_schema is not None) is (times == 2)


@both
async def test_parts_come_through(era: str) -> None:
    """Images, sounds, links, resources and annotations of a reply arrive as they were; parts that MCP does not know are
    told of in words."""
    parts = [
        {**text("hello"), "annotations": {"audience": ["user"]}},
        image(b"i"),
        audio(b"a"),
        resource_link("file:///x", "x"),
        {"type": "resource", "resource": {"uri": "test://r", "text": "inside", "mimeType": "text/plain"}},
        {"type": "hologram", "data": "x" * 10_000, "shape": "\x1b[31mcube"},
    ]
    ex = Exec()
    ex.add(Tool(name="parts", input_schema=OPEN), handler=lambda args: ToolReply(content=parts))
    reply_with_both = ToolReply(content=[text("short")], structured={"n": 1}, has_structured=True)
    ex.add(Tool(name="both", input_schema=OPEN), handler=lambda args: reply_with_both)
    async with serving(ex, expose="direct") as server, connect(server, era) as client:
        reply = await client.call_tool("parts", {})
        kinds = [part.type for part in reply.content]
        assert kinds == ["text", "image", "audio", "resource_link", "resource", "text"]
        assert reply.content[0].annotations.audience == ["user"]
        assert reply.content[1].data == image(b"i")["data"]
        assert "hologram" in reply.content[5].text
        assert "xxxx" not in reply.content[5].text
        assert "\x1b" not in reply.content[5].text
        assert reply.structured_content is None
        reply = await client.call_tool("both", {})
        assert reply.content[0].text == "short"
        assert reply.structured_content == {"n": 1}


@both
async def test_errors_of_tools(era: str) -> None:
    """A failing tool gives an error result: its own parts where it has some, with an error object where no schema
    forbids it; arguments that do not fit list every violation, and nothing runs."""
    ex = Exec()
    ran: list[int] = []

    def strict(n: int) -> int:
        ran.append(n)
        return 1 // n

    ex.add(strict, "t:strict")
    own = ToolReply(content=[text("no such thing"), image(b"why")], is_error=True)
    ex.add(Tool(name="own", namespace="t", input_schema=OPEN), handler=lambda args: own)
    async with serving(ex, expose="direct") as server, connect(server, era) as client:
        await client.list_tools()
        reply = await client.call_tool("t__strict", {"n": "x", "m": 1})
        assert reply.is_error
        assert "validation_input" in reply.content[0].text
        assert reply.structured_content is None
        assert ran == []
        reply = await client.call_tool("t__strict", {"n": 0})
        assert reply.is_error
        reply = await client.call_tool("t__own", {})
        assert [part.type for part in reply.content] == ["text", "image"]
        assert (
            reply.structured_content["error"]["code"] == "remote_error" or reply.structured_content["error"]["message"]
        )
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("t:strict", {})


class Cutting:
    """A gate part that cuts every result, as a byte budget does."""

    def wrap(self, inner: Runner, find: Find) -> Runner:
        return _Cut(inner)


class _Cut:
    def __init__(self, inner: Runner) -> None:
        self._inner = inner
        self.stream = inner.stream

    async def run(self, call: ToolCall) -> Result:
        result = await self._inner.run(call)
        result.value, result.handle = {"outline": "…"}, "r-1"
        return result


@both
async def test_results_that_are_cut(era: str) -> None:
    """A cut result names its handle; where a schema was published it is an error that can be read."""
    ex = Exec(gate=Gate(budget=Cutting()))
    ex.add(Tool(name="big", input_schema=OPEN), handler=lambda args: "x" * 100)
    ex.add(Tool(name="typed", input_schema=OPEN, output_schema={"type": "string"}), handler=lambda args: "x")
    async with serving(ex, expose="direct") as server, connect(server, era) as client:
        await client.list_tools()
        reply = await client.call_tool("big", {})
        assert "r-1" in reply.content[0].text
        assert not reply.is_error
        reply = await client.call_tool("typed", {})
        assert reply.is_error
        assert "r-1" in reply.content[0].text
        assert "read_result" in [tool.name for tool in (await client.list_tools()).tools]


@both
async def test_a_result_that_breaks_its_schema(era: str) -> None:
    """A result that is not what was published is an error that says so, also where the tool's host lets it pass."""
    ex = Exec(validate_output="warn")
    tool = Tool(name="liar", input_schema=OPEN, output_schema={"type": "object", "required": ["a"]})
    ex.add(tool, handler=lambda args: {"b": 1})
    async with serving(ex, expose="direct") as server, connect(server, era) as client:
        await client.list_tools()
        reply = await client.call_tool("liar", {})
        assert reply.is_error
        assert "validation_output" in reply.content[0].text


class Hiding:
    """A gate part that hides `secret` tools and counts what it lets through."""

    def __init__(self) -> None:
        self.calls = 0

    def shows(self, entry: Registered, origin: Origin) -> bool:
        return entry.tool.namespace != "secret"

    def wrap(self, inner: Runner, find: Find) -> Runner:
        return _Counting(self, inner)


class _Counting:
    def __init__(self, part: Hiding, inner: Runner) -> None:
        self._part = part
        self._inner = inner
        self.stream = inner.stream

    async def run(self, call: ToolCall) -> Result:
        assert call.origin.path == "direct"
        self._part.calls += 1
        return await self._inner.run(call)


@both
async def test_the_gate_is_on_the_direct_road(era: str) -> None:
    """Calls go through the gate; a hidden tool is neither listed nor callable, and looks as if it did not exist."""
    part = Hiding()
    ex = Exec(gate=Gate(policy=part))
    ex.add(lambda: 1, "open:one")
    ex.add(lambda: 2, "secret:two")
    async with serving(ex, expose="direct") as server, connect(server, era) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert "open__one" in names
        assert "secret__two" not in names
        await client.call_tool("open__one", {})
        assert part.calls == 1
        with pytest.raises(MCPError, match="Unknown tool: secret__two"):
            await client.call_tool("secret__two", {})
        assert part.calls == 1


@both
async def test_what_is_listed(era: str) -> None:
    """Title, description, schemas and annotations are the tool's own, and show what hides in them; the list follows the index, and
    a cursor of an earlier state is refused."""
    ex = Exec()
    tool = Tool(
        name="wipe",
        namespace="fs",
        title="Wipe\x1b[31m",
        description="Deletes \x1b]0;x\x07all.",
        input_schema={"type": "object", "properties": {"p": {"type": "string", "description": "a\u202eb"}}},
        annotations=ToolAnnotations(title="W\x07ipe", destructive=True),
    )
    ex.add(tool, handler=lambda args: None)
    ex.add(lambda: 1, "fs:one")
    async with serving(ex, expose="direct", page_size=1) as server, connect(server, era) as client:
        page = await client.list_tools()
        second = await client.list_tools(cursor=page.next_cursor)
        listed = second.tools[0]
        assert (listed.name, listed.title, listed.description) == (
            "fs__wipe",
            "Wipe\\x1b[31m",
            "Deletes \\x1b]0;x\\x07all.",
        )
        assert listed.annotations.destructive_hint is True
        assert listed.annotations.title == "W\\x07ipe"
        assert listed.input_schema["properties"]["p"]["description"] == "a\\u202eb"
        ex.add(lambda: 2, "fs:two")
        with pytest.raises(MCPError, match="invalid cursor"):
            await client.list_tools(cursor=page.next_cursor)


def slow_server(tools: int) -> list[str]:
    """The command of an MCP server that takes more than a second to start."""
    from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool

    script = ScriptedServer(tools=[ScriptedTool(f"echo{number}", "echo") for number in range(tools)]).command()
    return ["sh", "-c", 'sleep 1.2; exec "$@"', "sh", *script]


@pytest.mark.full
@both
async def test_the_first_list_has_all_tools(era: str) -> None:
    """By default it waits until the backends have listed theirs: many clients ask once and never again."""
    ex = Exec()
    ex.add_mcp("slow", command=slow_server(51))
    ex.add_mcp("gone", command=["/no/such/program"])
    async with serving(ex, expose="direct") as server, connect(server, era) as client:
        page = await client.list_tools()
        tools = [*page.tools, *(await client.list_tools(cursor=page.next_cursor)).tools]
    assert len([tool for tool in tools if tool.name.startswith("slow__")]) == 51


@pytest.mark.full
async def test_a_call_before_the_first_list() -> None:
    """A client may call what it saw the last time, as soon as it is connected."""
    ex = Exec()
    ex.add_mcp("slow", command=slow_server(1))
    async with serving(ex, expose="direct") as server, connect(server, "auto") as client:
        assert not (await client.call_tool("slow__echo0", {"text": "x"})).is_error


async def test_a_backend_that_does_not_start_holds_up_the_list_no_longer_than_set() -> None:
    """The time counts from the start of the server, for all who ask."""
    ex = Exec()
    ex.add_mcp("dead", command=["sleep", "60"], connect_timeout=30)
    async with serving(ex, expose="direct", direct_wait=0.05) as server, connect(server, "auto") as client:
        with anyio.fail_after(5):
            assert [tool.name for tool in (await client.list_tools()).tools] == ["read_result"]


def names_of(*ids: str, taken: tuple[str, ...] = ()) -> dict[str, str]:
    ex = Exec()
    for tool_id in ids:
        *namespace, name = tool_id.split(":") if tool_id.count(":") < 2 else (tool_id.split(":")[0], "")
        version = tool_id.split(":")[2] if tool_id.count(":") == 2 else ""
        name = tool_id.split(":")[1] if version else name
        tool = Tool(name=name, namespace=namespace[0] if namespace else "", version=version, input_schema=OPEN)
        ex.add(tool, handler=lambda args: None)
    return {tool.id: name for name, tool in DirectTools(ex, taken).visible()}


def test_names() -> None:
    """Names are legal, short and unique; one that is shared, too long or taken ends in a hash of its ID, and does not
    depend on the other tools."""
    long = "n" * 60
    names = names_of(
        "a:b", "bare", "a.b:c", "a_b:c", f"long:{long}", "v:t:1.0.0", "read_result", taken=("read_result",)
    )
    assert names["a:b"] == "a__b"
    assert names["bare"] == "bare"
    assert names["v:t:1.0.0"] == "v__t__1_0_0"
    assert names["a.b:c"] != names["a_b:c"]
    assert all(name.startswith("a_b__c_") for name in (names["a.b:c"], names["a_b:c"]))
    assert names["read_result"].startswith("read_result_")
    assert len(names[f"long:{long}"]) == MAX_NAME
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names.values())
    assert len(set(names.values())) == len(names)
    assert names_of(f"long:{long}")[f"long:{long}"] == names[f"long:{long}"]


async def test_schemas_for_headers() -> None:
    """The transport finds the schema of a tool by its name if that names a header, also in escaped form, and no
    other."""
    named = {"type": "object", "properties": {"q": {"type": "string", "x-mcp-header": "Q"}}}
    escaped = '{"type": "object", "properties": {"q": {"type": "string", "x-mcp-h\\u0065ader": "Q"}}}'
    ex = Exec()
    ex.add(Tool(name="x", input_schema=named), handler=lambda args: None)
    ex.add(Tool(name="e", input_schema=Schema.of(escaped)), handler=lambda args: None)
    ex.add(Tool(name="plain", input_schema={"type": "object", "title": "X"}), handler=lambda args: None)
    async with serving(ex, expose="direct") as server:
        schema_of = server.lowlevel.get_tool_input_schema
        assert schema_of is not None
        assert schema_of("x") == named
        assert schema_of("e") == named
        assert [schema_of(name) for name in ("plain", "read_result", "y")] == [None, None, None]
    async with serving(ex) as server:
        schema_of = server.lowlevel.get_tool_input_schema
        assert schema_of is not None
        assert schema_of("x") is None
