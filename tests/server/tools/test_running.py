"""run_tool."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Tool, ToolReply
from toolexec.backend import ProviderBackend
from toolexec.errors import PolicyError
from toolexec.model import ProviderBinding
from toolexec.model.call import ToolCall
from toolexec.model.content import audio, image, text
from toolexec.run.gate import Gate
from toolexec.run.layers.budget import Budget
from toolexec.run.resolve import Find
from toolexec.run.runner import Runner
from toolexec.run.types import Result
from toolexec.server.tools.base import MetaReply
from toolexec.server.tools.chaining import RUN_CHAIN
from toolexec.server.tools.running import RUN_TOOL

from .conftest import Counter, refuses

ANY = {"type": "object"}


def parts_of(reply: MetaReply) -> list[dict[str, Any]]:
    """The content of a reply."""
    assert reply.parts is not None
    return reply.parts


class NoShop:
    """Forbids the namespace shop."""

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """A runner that refuses."""
        return _Refusing(inner)


class _Refusing:
    def __init__(self, inner: Runner) -> None:
        self._inner = inner
        self.stream = inner.stream

    async def run(self, call: ToolCall) -> Result:
        if call.tool_id.startswith("shop:"):
            raise PolicyError("not for you", tool_id=call.tool_id, op="policy")
        return await self._inner.run(call)


class TestValues:
    """What comes back from tools that work."""

    async def test_nested_arguments(self, counter: Counter) -> None:
        """Nested arguments arrive as they are, and the value is the structured content and the text."""
        args = {"item": "tea", "options": {"sizes": [1, 2]}}
        reply = await counter.ask(RUN_TOOL, tool_id="shop:order", args=args)
        assert reply.value["structured"] == {"item": "tea", "count": 1, "options": {"sizes": [1, 2]}}
        assert reply.value.keys() == {"structured", "durationMs"}
        assert reply.value["durationMs"] > 0
        assert reply.parts == [text('{"item":"tea","count":1,"options":{"sizes":[1,2]}}')]

    async def test_null(self, counter: Counter) -> None:
        """A tool that gives nothing gives a structured null."""
        reply = await counter.ask(RUN_TOOL, tool_id="shop:nothing")
        assert reply.value["structured"] is None
        assert reply.parts == [text("null")]

    @pytest.mark.parametrize("value", [None, False, 0, 1 << 80, 1.5, "", "ü", [], {}, [[]], {"structured": None}])
    async def test_any_json(self, counter: Counter, value: Any) -> None:
        """Every kind of JSON value fits the output schema."""
        reply = await counter.value(RUN_TOOL, tool_id="anything", args={"v": value})
        assert reply["structured"] == {"v": value}

    async def test_text_is_read_as_it_is(self, counter: Counter) -> None:
        """A text is not put into quotes."""
        reply = await counter.ask(RUN_TOOL, tool_id="shop:greet", args={"name": "Ann"})
        assert reply.parts == [text("hello Ann")]

    async def test_parts_come_along(self, counter: Counter) -> None:
        """Text, images, audio and links are parts of the reply, and the text is its value."""
        reply = await counter.ask(RUN_TOOL, tool_id="media:draw")
        assert [part["type"] for part in parts_of(reply)] == ["text", "image", "audio", "resource_link"]
        assert parts_of(reply)[0]["text"] == reply.value["structured"] == "a dot"

    @pytest.mark.parametrize("structured", [None, {"n": 1}, {"text": "before", "n": 1}])
    async def test_parts_stay_as_the_tool_gave_them(self, counter: Counter, structured: Any) -> None:
        """Order, annotations and metadata are kept, whatever kinds of parts there are."""
        marks: dict[str, Any] = {"annotations": {"audience": ["user"], "priority": 0.5}, "_meta": {"k": 1}}
        link = {"type": "resource_link", "uri": "file:///a", "name": "a", **marks}
        blob = {"type": "resource", "resource": {"uri": "file:///b", "blob": "eHh4"}, **marks}
        given = [image(b"x") | marks, text("between") | marks, audio(b"y"), link, text("after"), blob, {"type": "odd"}]
        counter.ex.add(
            lambda: ToolReply(content=given, structured=structured, has_structured=bool(structured)), "mixed"
        )
        parts = parts_of(await counter.ask(RUN_TOOL, tool_id="mixed"))
        assert [part for part in parts if part in given] == given
        assert len(parts) == len(given) + bool(structured)

    async def test_words_beside_a_structured_value(self, counter: Counter) -> None:
        """Other content comes along, unless it only repeats the value."""
        reply = await counter.ask(RUN_TOOL, tool_id="media:both", args={"words": "one found"})
        assert reply.value["structured"] == {"n": 1}
        assert reply.parts == [text('{"n":1}'), text("one found")]
        again = await counter.ask(RUN_TOOL, tool_id="media:both", args={"words": "", "same": True})
        assert again.parts == [text('{"n": 1}')]

    @pytest.mark.parametrize(
        ("structured", "said"),
        [
            ({"content": "words"}, ["words"]),
            ({"content": "words", "size": 5}, ['{"content":"words","size":5}']),
            ({"files": [{"text": "words"}]}, ['{"files":[{"text":"words"}]}']),
            ("words", ["words"]),
            ({"n": 1}, ['{"n":1}', "words"]),
        ],
    )
    async def test_words_that_are_in_the_value(self, counter: Counter, structured: Any, said: list[str]) -> None:
        """A model reads them once: in the value, or in their place where they are all of it."""
        counter.ex.add(lambda: ToolReply(content=[text("words")], structured=structured, has_structured=True), "file")
        reply = await counter.ask(RUN_TOOL, tool_id="file")
        assert [part["text"] for part in parts_of(reply)] == said

    async def test_what_is_asked_for(self, counter: Counter) -> None:
        """Each flag adds exactly its field."""
        base = {"tool_id": "media:both", "args": {"words": "w"}}
        for flag, field in (
            ("include_tool", "tool"),
            ("include_backend", "backend"),
            ("include_mcp_result", "mcpResult"),
        ):
            value = await counter.value(RUN_TOOL, base, **{flag: True})
            assert value.keys() == {"structured", "durationMs", field}
        assert value["mcpResult"] == {"content": [text("w")], "structuredContent": {"n": 1}}
        assert (await counter.value(RUN_TOOL, base, include_tool=True))["tool"]["name"] == "both"
        backend = (await counter.value(RUN_TOOL, base, include_backend=True))["backend"]
        assert backend == {"kind": "local", "name": "local"}
        plain = await counter.value(RUN_TOOL, tool_id="shop:nothing", include_mcp_result=True)
        assert plain["mcpResult"] == {"content": [], "structuredContent": None}

    async def test_warnings_are_visible(self, counter: Counter) -> None:
        """Where a remote tool breaks its own output schema, the value comes with a warning."""
        counter.ex.add_backends(ProviderBackend("far", lambda name, args: 5))
        tool = Tool(name="far", input_schema=ANY, output_schema={"type": "string"})
        counter.ex.add(tool, binding=ProviderBinding("far", "far"))
        value = await counter.value(RUN_TOOL, tool_id="far")
        assert value["structured"] == 5
        assert value["warnings"][0]["path"] == ""
        reply = await counter.ask(RUN_TOOL, tool_id="far")
        assert [part["text"].partition(":")[0] for part in parts_of(reply)] == ["5", '{"warnings"']


class TestLargeValues:
    """Values that are too large to be read at once."""

    @pytest.mark.parametrize("count", [5, 20_000])
    async def test_large_ones_are_written_off_the_event_loop(
        self, counter: Counter, count: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All callers share the loop; a value that takes long to encode is encoded in another thread, piece by piece."""
        threads: list[int] = []
        show = counter.results.show

        def watched(*args: Any) -> Any:
            threads.append(threading.get_ident())
            return show(*args)

        monkeypatch.setattr(counter.results, "show", watched)
        await counter.ask(RUN_TOOL, tool_id="shop:many", args={"count": count})
        await counter.ask(RUN_CHAIN, steps=[{"tool_id": "shop:many", "args": {"count": count}}])
        assert len(threads) == 3
        assert {ident == threading.get_ident() for ident in threads} == {count == 5}

    async def test_an_outline(self, counter: Counter) -> None:
        """An outline is marked as one, and its handle leads to the whole."""
        reply = await counter.ask(RUN_TOOL, tool_id="shop:many", args={"count": 5000})
        assert reply.value["cut"] is True
        assert reply.value["structured"]["kind"] == "array"
        page = counter.results.read(reply.value["handle"], counter.origin, path="[4999].title")
        assert page.value == "row 4999"
        assert sum(len(part["text"]) for part in parts_of(reply)) <= counter.results.max_bytes

    async def test_a_smaller_budget(self, counter: Counter) -> None:
        """`max_bytes` cuts earlier; what fits is whole."""
        args = {"count": 100}
        assert "cut" not in await counter.value(RUN_TOOL, tool_id="shop:many", args=args)
        assert (await counter.value(RUN_TOOL, tool_id="shop:many", args=args, max_bytes=1000))["cut"]
        assert refuses(RUN_TOOL, tool_id="a", max_bytes=999)

    async def test_one_that_the_gate_has_cut(self) -> None:
        """Such a value stays cut, with the same handle."""
        counter = Counter()
        await counter.ex.aclose()
        budgeted = Counter(gate=Gate(budget=Budget(counter.results, 2000)))
        budgeted.results = counter.results
        budgeted.ex.add(lambda: "x" * 10_000, "long")
        value = await budgeted.value(RUN_TOOL, tool_id="long")
        assert value["cut"] is True
        assert value["handle"] == value["structured"]["handle"]
        assert budgeted.results.read(value["handle"], budgeted.origin, offset=9_999).value == "x"
        await budgeted.ex.aclose()

    async def test_one_that_cannot_even_be_kept(self, counter: Counter) -> None:
        """Such a value is cut, and there is no handle."""
        counter.results = type(counter.results)(max_kept_bytes=100)
        value = await counter.value(RUN_TOOL, tool_id="shop:many", args={"count": 5000})
        assert value["cut"] is True
        assert "handle" not in value

    async def test_words_of_a_cut_value(self, counter: Counter) -> None:
        """Beside an outline only short words are kept."""
        big = {"rows": ["x" * 100] * 2000}
        parts = [text("2000 rows"), text("y" * 700)]
        counter.ex.add(lambda: ToolReply(content=parts, structured=big, has_structured=True), "big")
        words, outline = parts_of(await counter.ask(RUN_TOOL, tool_id="big"))
        assert words == text("2000 rows")
        assert '"kind":"object"' in outline["text"]


class TestFailures:
    """What comes back from calls that fail: the same codes as everywhere."""

    @pytest.mark.parametrize(
        ("args", "code"),
        [
            ({"tool_id": "shop:none"}, "tool_not_found"),
            ({"tool_id": "a b"}, "invalid_tool_id"),
            ({"tool_id": "shop:order", "args": {"count": "x"}}, "validation_input"),
            ({"tool_id": "shop:fail"}, "handler_failed"),
            ({"tool_id": "media:broken"}, "remote_tool_failed"),
            ({"tool_id": "shop:slow", "timeout_seconds": 0.01}, "timeout"),
            ({"tool_id": "unbound"}, "backend_not_found"),
        ],
    )
    async def test_each_has_its_code(self, counter: Counter, args: Any, code: str) -> None:
        """Each failure has a code, a message, whether it may be tried again, and where it happened."""
        counter.ex.add(Tool(name="unbound", input_schema=ANY), binding=ProviderBinding("nobody", "x"))
        error = await counter.error(RUN_TOOL, args)
        assert error["code"] == code
        assert error["message"]
        assert error["op"]
        assert error["retryable"] is (code == "timeout")

    async def test_every_violation_is_told(self, counter: Counter) -> None:
        """With path, keyword, expected and got."""
        error = await counter.error(RUN_TOOL, tool_id="shop:order", args={"count": "x"})
        assert {violation["keyword"] for violation in error["details"]["violations"]} == {"required", "type"}

    async def test_a_refusal_of_the_gate(self) -> None:
        """A refusal of the gate is the reply's error."""
        counter = Counter(gate=Gate(policy=NoShop()))
        counter.ex.add(lambda: 1, "shop:x")
        assert (await counter.error(RUN_TOOL, tool_id="shop:x"))["code"] == "policy_denied"
        await counter.ex.aclose()

    async def test_pictures_of_a_failure(self, counter: Counter) -> None:
        """Pictures come along, the text blocks are the message."""
        reply = await counter.ask(RUN_TOOL, tool_id="media:broken", include_backend=True)
        assert [part["type"] for part in reply.content] == ["image"]
        assert "no ink" in reply.value["error"]["message"]
        assert "details" not in reply.value["error"]
        assert reply.value["backend"]["kind"] == "local"

    async def test_a_caller_cannot_raise_the_time_limit(self) -> None:
        """The operator's ceiling is named; without one it is ten minutes, or a longer default."""
        counter = Counter(default_timeout=0.02, max_timeout=5)
        counter.ex.add(lambda: asyncio.sleep(30), "sleep")
        error = await counter.error(RUN_TOOL, tool_id="sleep", timeout_seconds=60)
        assert error["code"] == "invalid_limits"
        assert "above the ceiling of 5 s" in error["message"]
        error = await counter.error(RUN_TOOL, tool_id="sleep", timeout_seconds=0.05)
        assert error["details"]["timeout"] == 0.05
        await counter.ex.aclose()
        counter = Counter(default_timeout=0.02)
        counter.ex.add(lambda: asyncio.sleep(30), "sleep")
        error = await counter.error(RUN_TOOL, tool_id="sleep", timeout_seconds=601)
        assert "above the ceiling of 600 s" in error["message"]
        assert refuses(RUN_TOOL, tool_id="a", timeout_seconds=0)
        await counter.ex.aclose()

    async def test_cancelling_stops_the_tool(self, counter: Counter) -> None:
        """The cancellation goes through, and the end is told."""
        task = asyncio.ensure_future(counter.ask(RUN_TOOL, tool_id="shop:slow"))
        await until(lambda: counter.progress, 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert counter.progress[-1].message == "error"

    def test_unknown_arguments_are_refused(self) -> None:
        """Refuses arguments that other servers know and this one does not, too."""
        assert refuses(RUN_TOOL, tool_id="a", stream=True)
        assert refuses(RUN_TOOL, tool_id="a", args=[])
        assert refuses(RUN_TOOL, args={})


class TestProgress:
    """Progress while a tool runs."""

    async def test_the_tools_own_is_passed_on(self, counter: Counter) -> None:
        """The progress begins at 0, grows with each notice, and ends."""
        await counter.value(RUN_TOOL, tool_id="shop:steps", args={"count": 3})
        assert [(p.done, p.message) for p in counter.progress] == [
            (0, "started"),
            (1, "step 1"),
            (2, "step 2"),
            (3, "step 3"),
        ]

    async def test_start_and_end_of_a_silent_tool(self, counter: Counter) -> None:
        """Both are told, of a failure too."""
        await counter.value(RUN_TOOL, tool_id="shop:nothing")
        await counter.error(RUN_TOOL, tool_id="shop:fail")
        assert [(p.done, p.total, p.message) for p in counter.progress] == [
            (0, None, "started"),
            (1, 1, "completed"),
            (0, None, "started"),
            (1, 1, "error"),
        ]


async def test_a_real_mcp_server() -> None:
    """Its tools are run, their errors are errors, and its parts and structure come through."""
    counter = Counter(start_timeout=30.0)
    counter.ex.add_mcp("time", command=[sys.executable, "-m", "mcp_server_time"])
    value = await counter.value(
        RUN_TOOL,
        tool_id="time:get_current_time",
        args={"timezone": "UTC"},
        include_backend=True,
        include_mcp_result=True,
    )
    assert value["structured"]["timezone"] == "UTC"
    assert value["backend"] == {"kind": "mcp", "name": "time"}
    assert value["mcpResult"]["content"][0]["type"] == "text"
    error = await counter.error(RUN_TOOL, tool_id="time:get_current_time", args={"timezone": "Nowhere"})
    assert error["code"] == "remote_tool_failed"
    await counter.ex.aclose()


async def test_a_value_that_breaks_its_schema(counter: Counter) -> None:
    """The reply says that the tool ran, and has its value beside the error; so has that of a chain."""

    def lie() -> int:
        return {"lines": [1, 2]}  # type: ignore[return-value]

    counter.ex.add(lie, "t:lie")
    reply = await counter.ask(RUN_TOOL, tool_id="t:lie")
    assert reply.is_error
    assert reply.value["structured"] == {"lines": [1, 2]}
    assert "the tool ran" in reply.value["error"]["message"]
    chain = await counter.ask(RUN_CHAIN, steps=[{"tool_id": "t:lie"}])
    assert chain.is_error
    assert chain.value["results"][0]["structured"] == {"lines": [1, 2]}
    assert chain.value["results"][0]["error"]["code"] == "validation_output"
