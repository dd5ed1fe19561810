"""find gives stubs that are ready to call."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from tests.server.harness import ERAS, connect, serving

from toolexec import Tool
from toolexec.model.schema import Schema
from toolexec.server.instructions import instructions
from toolexec.server.tools.base import MetaTool
from toolexec.server.tools.catalogue import meta_tools
from toolexec.server.tools.coding import EXECUTE
from toolexec.server.tools.find import FIND
from toolexec.server.tools.finding import LIST_TOOLS, SEARCH_TOOLS
from toolexec.server.tools.reading import DESCRIBE_TOOL, STUBS

from .conftest import Counter


async def found(counter: Counter, **args: Any) -> str:
    """Return the text of an answer."""
    return (await counter.ask(FIND, **args)).text


async def test_several_queries_at_once(counter: Counter) -> None:
    """Each tool is there once, the best of each query first, on a line that can be called as it is."""
    lines = (await found(counter, queries=["say hello", "order something", "greet"])).splitlines()
    assert lines[0] == "tools.shop.greet(name: str) -> str  # Say hello."
    assert lines[1].startswith("tools.shop.order(item: str, count=1, options?: ")
    assert len(lines) == len({line.split("(")[0] for line in lines})


async def test_names_and_namespaces(counter: Counter) -> None:
    """A tool is named by its ID or as code writes it; one that is not there comes with similar ones."""
    text = await found(counter, names=["shop:greet", "tools.media.draw", "shop:gret"])
    first, second, note = text.splitlines()
    assert first.startswith("tools.shop.greet(")
    assert second.startswith("tools.media.draw(")
    assert note == "# there is not a tool shop:gret; did you mean shop:greet?"
    assert len((await found(counter, namespaces=["media"])).splitlines()) == 3


async def test_without_a_question(counter: Counter) -> None:
    """The answer names the namespaces, with their numbers of tools."""
    assert "media 3" in await found(counter)


async def test_nothing_found(counter: Counter) -> None:
    """The answer says what else there is to try."""
    text = await found(counter, queries=["zzzqqq"])
    assert text.startswith("# nothing found")
    assert "shop" in text
    assert "# nothing found for zzzqqq" in await found(counter, queries=["zzzqqq", "say hello"])


async def test_full_detail(counter: Counter) -> None:
    """All that is known of arguments is a question away."""
    text = await found(counter, names=["shop:order"], detail="full")
    assert "What to order." in text
    assert "def order(" in text


async def test_stubs_for_javascript(counter: Counter) -> None:
    """Stubs are in TypeScript when a caller asks for them, or when programs are JavaScript unless they say otherwise."""
    lines = (await found(counter, queries=["say hello"], names=["shop:gret"], language="typescript")).splitlines()
    assert "tools.shop.greet({name: string}) -> string  // Say hello." in lines
    assert lines[-1] == "// there is not a tool shop:gret; did you mean shop:greet?"
    other = Counter(default_language="javascript")
    other.ex.add(len_of, "text:len-of")
    assert (await found(other, names=["text:len-of"])) == "tools.text.len_of({text: string}) -> number"
    full = await found(other, names=["text:len-of"], detail="full")
    assert "    len_of(args: { text: string }): Promise<number>;" in full
    assert (await other.value(STUBS))["stubs"].startswith("// What a program can call")
    assert "def len_of(" in (await found(other, names=["text:len-of"], detail="full", language="python"))
    await other.ex.aclose()


def len_of(text: str) -> int:
    return len(text)


@pytest.mark.parametrize("expose", ["meta", "code"])
def test_what_runs_programs_speaks_their_language(expose: Any) -> None:
    """Where programs are JavaScript, the tools that run them explain that, in no more tokens than Python takes."""
    python, javascript = (
        {tool.name: tool for tool in meta_tools(expose, code_enabled=True, list_all=True, language=language)}
        for language in ("python", "javascript")
    )
    assert python.keys() == javascript.keys()
    changed = {name for name in python if python[name] != javascript[name]}
    assert changed == {"execute_code", "execute"} & python.keys()
    for name in changed:
        assert "await tools.a.b({x: 1})" in javascript[name].description
        assert javascript[name].input_schema["properties"]["language"]["description"] == "default javascript"
        assert len(str(javascript[name].to_mcp())) <= len(str(python[name].to_mcp()))


async def test_an_answer_has_a_bound() -> None:
    """Of very many tools there are as many as have room, and it says how many are left."""
    counter = Counter()
    for number in range(150):
        schema = {"type": "object", "properties": {f"argument_{n}": {"type": "string"} for n in range(30)}}
        counter.ex.add(Tool(name=f"t{number}", namespace="n", input_schema=schema), handler=dict)
    text = await found(counter, namespaces=["n"])
    assert len(text) < 26_000
    assert " more; ask for fewer, or by name: n:" in text
    await counter.ex.aclose()


@pytest.mark.parametrize("language", ["python", "typescript"])
async def test_ten_thousand_hits_with_hostile_words(language: str) -> None:
    """An answer over 10,000 tools that all match, some with 100 KB of description, 5,000 properties or loops, has its
    bound, each tool on a line of its own, and says what was left out."""
    counter = Counter()
    wide = {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(5_000)}}
    loop = {"type": "object", "properties": {"again": {"$ref": "#"}, "all": {"type": "array", "items": {"$ref": "#"}}}}
    counter.ex.add(Tool(name="a", namespace="n", description="send\n*/ # " * 10_000, input_schema=wide), handler=dict)
    counter.ex.add(Tool(name="b", namespace="n", input_schema=loop, output_schema=loop), handler=dict)
    for number in range(10_000):
        counter.ex.add(Tool(name=f"t{number}", namespace="n", description="Send it.", input_schema={}), handler=dict)
    for text in (
        await found(counter, namespaces=["n"], language=language),
        await found(counter, queries=["send"], limit=50, language=language),
    ):
        assert len(text) < 26_000
        assert all(line.startswith(("tools.n.", "// ", "# ")) for line in text.splitlines())
    text = await found(counter, namespaces=["n"], language=language)
    assert re.search(r", … 49\d\d more\}?\)", text.splitlines()[0])
    assert " 9902 more; ask for fewer, or by name: n:" in text
    full = await found(counter, names=["n:a", "n:b"], detail="full", language=language)
    assert len(full) < 40_000
    assert "Shortened: its schema is longer than a stub." in full
    await counter.ex.aclose()


async def test_a_result_that_is_not_what_its_type_says(counter: Counter) -> None:
    """A tool that gives something else than its stub says fails, in the program that relied on it, with a code."""
    counter.ex.add(lies, "n:lies")
    assert await found(counter, names=["n:lies"]) == "tools.n.lies() -> int"
    reply = await counter.ask(
        EXECUTE, code="try:\n    tools.n.lies()\nexcept ToolError as error:\n    return error.code"
    )
    assert reply.value["value"] == "validation_output"


def lies() -> int:
    return "not a number"  # type: ignore[return-value]


async def test_a_tool_that_only_its_id_leads_to(counter: Counter) -> None:
    """Where two tools share a path, the line begins with the ID, which tools.run takes."""
    for name in ("a-b", "a_b-", "a-b-"):
        counter.ex.add(Tool(name=name, namespace="odd", input_schema={"type": "object"}), handler=dict)
    assert "odd:a-b-(" in await found(counter, names=["odd:a-b-"])


@pytest.mark.parametrize("era", ERAS)
async def test_what_clients_see_of_a_server_for_code(counter: Counter, era: str) -> None:
    """Two tools; those that were there before can still be called."""
    async with serving(counter.ex, expose="code") as server, connect(server, era) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"find", "execute"}
        reply = await client.call_tool("find", {"queries": ["say hello"]})
        assert reply.structured_content is None
        assert reply.content[0].text.startswith("tools.shop.greet(")
        reply = await client.call_tool("execute", {"code": "return tools.shop.greet(name='you')"})
        assert json.loads(reply.content[0].text) == {"value": "hello you"}
        for name, args in (("search_tools", {"query": "hello"}), ("describe_tool", {"tool_id": "shop:greet"})):
            assert not (await client.call_tool(name, args)).is_error
        reply = await client.call_tool("execute_code", {"code": "return 1"})
        assert reply.structured_content["value"] == 1


async def test_a_long_result_is_read_by_its_handle(counter: Counter) -> None:
    """execute reads what it has cut, without another run."""
    reply = await counter.value(EXECUTE, code="return tools.shop.many(count=3000)", max_bytes=2000)
    assert reply["cut"] is True
    page = await counter.value(EXECUTE, handle=reply["handle"], path="[2999].title")
    assert page["value"] == "row 2999"


async def test_a_failed_call_is_named(counter: Counter) -> None:
    """Calls that went well are not listed; those that failed are."""
    code = "try:\n    tools.shop.fail()\nexcept ToolError:\n    pass\nreturn tools.shop.greet(name='x')"
    reply = await counter.value(EXECUTE, code=code)
    assert reply["value"] == "hello x"
    assert [one["tool"] for one in reply["failedCalls"]] == ["shop:fail"]
    assert "toolCalls" not in reply


async def test_nothing_to_execute(counter: Counter) -> None:
    """Without code and without a handle there is nothing to do."""
    assert (await counter.error(EXECUTE))["code"] == "validation_input"


def test_the_namespaces_are_named() -> None:
    """A model that knows them searches better."""
    text = instructions("code", tools=5, namespaces=["github", "jira"])
    assert "github, jira" in text
    assert "find" in text
    assert "search_tools" not in text


def test_queries_may_be_long() -> None:
    """A whole task of 2,000 characters is a query."""
    takes = Schema.of(dict(FIND.input_schema))
    assert takes.accepts({"queries": ["x" * 2000]})
    assert not takes.accepts({"queries": ["x" * 2001]})
    assert Schema.of(dict(SEARCH_TOOLS.input_schema)).accepts({"query": "x" * 2000})


async def test_an_empty_catalogue() -> None:
    """There is nothing, and the answer says so."""
    counter = Counter()
    assert "there are no tools" in await found(counter, queries=["anything"])
    await counter.ex.aclose()


@pytest.mark.parametrize(
    ("meta", "args"),
    [
        (FIND, {"namespaces": ["n"]}),
        (FIND, {"namespaces": ["n"], "detail": "full"}),
        (SEARCH_TOOLS, {"query": ""}),
        (LIST_TOOLS, {}),
        (DESCRIBE_TOOL, {"tool_id": "n:t"}),
        (DESCRIBE_TOOL, {"tool_id": "n:t", "path": "properties"}),
    ],
    ids=["find", "find in full", "search", "list", "describe", "describe a part"],
)
async def test_long_schemas_do_not_hold_the_event_loop(meta: MetaTool, args: dict[str, Any]) -> None:
    """Schemas of a MiB are read in a thread, while the loop turns; for short ones that would take longer."""

    async def turns(about: str) -> int:
        """Return how often the loop turned during a question about a tool with such a description of an argument."""
        count = 0

        async def turn() -> None:
            nonlocal count
            while True:
                count += 1
                await asyncio.sleep(0)

        counter = Counter()
        schema = Schema.of({"type": "object", "properties": {"a": {"type": "string", "description": about}}})
        counter.ex.add(Tool(name="t", namespace="n", input_schema=schema), handler=dict)
        await counter.ask(meta, args)  # what the index has to prepare is prepared now
        turning = asyncio.create_task(turn())
        reply = await counter.ask(meta, args)
        turning.cancel()
        assert "a" in str(reply.value or reply.text)
        await counter.ex.aclose()
        return count

    assert await turns("short") == 0
    assert await turns("x" * 1_000_000) > 0
