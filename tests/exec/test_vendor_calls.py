"""Calls of models, in the words of their vendors, and the answers to them."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from toolexec import Exec, Filters, Tool, ToolReply
from toolexec.adapter import META_KEY, NameMap
from toolexec.adapter.export import tool_search_tool
from toolexec.backend import ProviderBackend
from toolexec.errors import ConfigurationError
from toolexec.model.content import audio, image, resource_link, text
from toolexec.run.gate import Gate
from toolexec.run.policy import Policy, Rule

PIXEL = "eHh4"


def pdf() -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": "f.pdf", "mimeType": "application/pdf", "blob": "JVBERi0="}}


def shop(**settings: Any) -> Exec:
    """Some tools of many kinds."""
    ex = Exec(**settings)

    def price(item: str, amount: int = 1) -> dict[str, Any]:
        return {"item": item, "euros": 3 * amount}

    async def slow(ms: int) -> int:
        await asyncio.sleep(ms / 1000)
        return ms

    def fail() -> None:
        raise ValueError("no")

    parts = [text("look"), image(b"xxx"), audio(b"yyy"), pdf(), resource_link("https://x", "doc")]
    parts.append({"type": "resource", "resource": {"uri": "note", "text": "read me"}})
    ex.add(price, "shop:price")
    ex.add(slow, "shop:slow")
    ex.add(fail, "shop:fail")
    ex.add(lambda: ToolReply(content=parts), "shop:parts")
    ex.add(lambda size: "x" * size, "shop:long")
    schema = {"type": "object", "properties": {"$filter": {"type": "string"}}, "required": ["$filter"]}
    ex.add(Tool(name="odata", namespace="shop", input_schema=schema), handler=lambda args: args["$filter"])
    return ex


def chat(name: str, arguments: Any = "{}", call_id: str = "c") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def use(name: str, args: Any = None, call_id: str = "t", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": args or {}, **more}


def error_of(answer: dict[str, Any]) -> dict[str, Any]:
    return json.loads(answer["content"])["error"]


class TestExport:
    """The list for a request."""

    @pytest.mark.parametrize("format", ["openai", "openai-responses", "anthropic", "gemini", "mcp", "a2a"])
    async def test_every_form(self, format: Any) -> None:
        """All tools by ID, each name once, and what is lost."""
        async with shop() as ex:
            done = await ex.export_tools(format)
        assert list(done.converted) == sorted(done.converted)
        assert len(done.converted) == 6
        assert len(done.tools) == (1 if format == "gemini" else 6)
        assert json.loads(json.dumps(done.tools)) == done.tools
        assert done.skipped == {}
        assert {w.to_adapter for w in done.warnings} <= {format}

    async def test_some_of_them(self) -> None:
        """Those that pass the filters, and those that the caller may know of."""
        hidden = Policy([Rule("deny", tools="shop:fail")])
        async with shop(gate=Gate(policy=hidden)) as ex:
            ex.add(lambda: 1, "other:one")
            assert "shop:fail" not in (await ex.export_tools("openai")).names
            found = await ex.export_tools("openai", filters=Filters(namespace="other"))
            assert [tool["function"]["name"] for tool in found.tools] == ["other__one"]

    async def test_tools_of_backends_that_have_not_started(self) -> None:
        """Starts them first, for the list as for a call."""
        for calls in (True, False):
            ex = Exec()
            tool = Tool(name="one", input_schema={"type": "object"})
            ex.add_backends(ProviderBackend("far", lambda name, args: "done", tools=[tool]))
            if calls:
                (answer,) = await ex.handle_openai_tool_calls(chat("far__one"))
                assert answer["content"] == "done"
            else:
                assert list((await ex.export_tools("openai")).names) == ["far:one"]
            await ex.aclose()

    async def test_tools_that_a_form_cannot_hold(self) -> None:
        """Leaves such tools out, with the reason; the others are there."""
        ex = Exec()
        ex.add(Tool(name="odd", input_schema={"type": "string"}), handler=print)
        ex.add(lambda: 1, "fine")
        done = await ex.export_tools("anthropic")
        assert [tool["name"] for tool in done.tools] == ["fine"]
        assert "arguments are an object" in str(done.skipped["odd"])
        await ex.aclose()

    async def test_strict(self) -> None:
        """As many as a request of Anthropic's may have; OpenAI has no such bound."""
        ex = Exec()
        for number in range(25):
            schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
            ex.add(Tool(name=f"t{number:02}", input_schema=schema), handler=print)
        done = await ex.export_tools("anthropic", strict=True)
        assert sum(tool.get("strict", False) for tool in done.tools) == 20
        assert [w.tool_id for w in done.warnings if w.feature == "strict"] == ["t20", "t21", "t22", "t23", "t24"]
        done = await ex.export_tools("openai", strict=True)
        assert all(tool["function"]["strict"] for tool in done.tools)
        await ex.aclose()

    async def test_too_many(self) -> None:
        """A request to OpenAI takes 128."""
        ex = Exec()
        for number in range(129):
            ex.add(lambda: 1, f"t{number}")
        done = await ex.export_tools("openai")
        assert "129 of them" in str(done.warnings[-1])
        await ex.aclose()

    async def test_words(self) -> None:
        """Parts that a schema cannot hold are in the description, unless that is switched off."""
        ex = Exec()
        schema = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 5}}}
        ex.add(Tool(name="t", input_schema=schema), handler=print)
        for describe in (True, False):
            done = await ex.export_tools("gemini", describe=describe)
            node = done.tools[0]["functionDeclarations"][0]["parameters"]["properties"]["n"]
            assert ("description" in node) is describe
        await ex.aclose()

    async def test_search(self) -> None:
        """The model sees what is always there, and a way to find the rest."""
        async with shop() as ex:
            done = await ex.export_tools("anthropic", search="server", always=["shop:price"])
            assert done.tools[0] == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
            deferred = {tool["name"]: tool.get("defer_loading", False) for tool in done.tools[1:]}
            assert [name for name, is_deferred in deferred.items() if not is_deferred] == ["shop__price"]
            done = await ex.export_tools("openai-responses", search="client", always=["shop:price"])
            assert [tool.get("name", tool["type"]) for tool in done.tools] == ["tool_search", "shop__price"]
            done = await ex.export_tools("openai-responses", search="server")
            assert done.tools[0] == {"type": "tool_search"}
            [space] = done.tools[1:]
            assert (space["type"], space["name"]) == ("namespace", "shop")
            assert all(tool["defer_loading"] for tool in space["tools"])
            assert "price" in space["description"]
            assert [form.get("name") for form in done.at_first()] == [None, "shop"]
            assert "tools" not in done.at_first()[1]
            call = {"type": "function_call", "call_id": "r", "namespace": "shop", "name": "shop__slow"}
            [answer] = await ex.handle_openai_tool_calls([{**call, "arguments": '{"ms": 1}'}], done)
            assert answer == {"type": "function_call_output", "call_id": "r", "output": "1"}

    async def test_callers(self) -> None:
        """Code may call a tool only if it says so; such tools are not strict."""
        async with shop() as ex:
            done = await ex.export_tools("anthropic", allowed_callers=["code_execution_20260120"], strict=True)
            assert done.tools[0]["allowed_callers"] == ["code_execution_20260120"]
            assert not any(tool.get("strict") for tool in done.tools)
            assert META_KEY not in ex.index.get("shop:price").tool.meta

    @pytest.mark.parametrize(
        ("format", "options"),
        [
            ("xml", {}),
            ("openai", {"search": "client"}),
            ("gemini", {"allowed_callers": ["direct"]}),
            ("openai-responses", {"search": "regex"}),
            ("anthropic", {"search": "psychic"}),
        ],
    )
    async def test_what_does_not_exist(self, format: Any, options: dict[str, Any]) -> None:
        """The error says what does."""
        with pytest.raises(ConfigurationError, match=r"anthropic|use openai|must be one of"):
            await Exec().export_tools(format, **options)

    def test_search_tools_on_their_own(self) -> None:
        """For those who make the list themselves; what is given is theirs."""
        first = tool_search_tool()
        first["input_schema"]["properties"]["query"]["type"] = "x"
        assert tool_search_tool()["input_schema"]["properties"]["query"]["type"] == "string"
        assert tool_search_tool("anthropic", "regex")["type"] == "tool_search_tool_regex_20251119"


class TestOpenAI:
    """Chat Completions and Responses."""

    async def test_calls_are_answered_in_order(self) -> None:
        """Every one, whatever is wrong with it, and the right tool is run."""
        calls = [
            chat("shop__price", '{"item": "tea", "amount": null}', "1"),
            chat("shop__pric", "{}", "2"),
            chat("shop__price", '{"item"', "3"),
            chat("shop__price", "[1]", "4"),
            chat("shop__price", '{"item": 5}', "5"),
            chat("shop__fail", "", "6"),
            chat("shop__price", '{"item": NaN}', "7"),
            {"id": "8", "type": "custom", "custom": {"name": "shop__price", "input": "tea"}},
            chat("shop__price", "[" * 100_000, "9"),
            chat("shop__price", {"item": "already parsed"}, "10"),
            chat("shop:price", '{"item": "by its ID"}', "11"),
        ]
        async with shop() as ex:
            answers = await ex.handle_openai_tool_calls({"role": "assistant", "content": None, "tool_calls": calls})
        assert [answer["tool_call_id"] for answer in answers] == [str(n) for n in range(1, 12)]
        assert all(answer["role"] == "tool" and isinstance(answer["content"], str) for answer in answers)
        assert json.loads(answers[0]["content"]) == {"item": "tea", "euros": 3}
        codes = [error_of(answer)["code"] for answer in answers[1:9]]
        wrong = "validation_input"
        assert codes == ["tool_not_found", wrong, wrong, wrong, "handler_failed", wrong, wrong, wrong]
        assert "did you mean shop__price" in error_of(answers[1])["message"]
        assert "not valid JSON" in error_of(answers[2])["message"]
        assert "an array; write one JSON object" in error_of(answers[3])["message"]
        assert error_of(answers[4])["details"]["violations"][0]["path"] == "/item"
        assert json.loads(answers[9]["content"])["item"] == "already parsed"
        assert json.loads(answers[10]["content"])["item"] == "by its ID"

    @pytest.mark.parametrize(
        "wrap", [lambda calls: {"choices": [{"message": {"tool_calls": calls}}]}, list, lambda calls: calls[0], iter]
    )
    async def test_wherever_the_calls_are(self, wrap: Any) -> None:
        """In a completion, in a list, or on their own."""
        async with shop() as ex:
            (answer,) = await ex.handle_openai_tool_calls(wrap([chat("shop__slow", '{"ms": 0}')]))
        assert answer == {"role": "tool", "tool_call_id": "c", "content": "0"}

    @pytest.mark.parametrize(
        "message",
        [
            None,
            {},
            [],
            "text",
            5,
            {"choices": []},
            {"role": "assistant", "content": "hi", "tool_calls": None},
            {"output": []},
            [{"type": "message"}],
        ],
    )
    async def test_no_calls(self, message: Any) -> None:
        """No answers."""
        async with shop() as ex:
            assert await ex.handle_openai_tool_calls(message) == []

    async def test_objects_of_the_package(self) -> None:
        """A completion and a response as the SDK has them."""
        types, responses = pytest.importorskip("openai.types.chat"), pytest.importorskip("openai.types.responses")
        message = {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "tool_calls": [chat("shop__slow", '{"ms": 0}')],
        }
        choice = {"index": 0, "finish_reason": "tool_calls", "logprobs": None, "message": message}
        data = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        completion = types.ChatCompletion.model_validate(data)
        call = responses.ResponseFunctionToolCall(
            type="function_call",
            call_id="r",
            name="shop__slow",
            arguments='{"ms": 1}',
            caller={"type": "program", "caller_id": "p"},
        )
        async with shop() as ex:
            assert await ex.handle_openai_tool_calls(completion) == [
                {"role": "tool", "tool_call_id": "c", "content": "0"}
            ]
            assert await ex.handle_openai_tool_calls(SimpleNamespace(output=[call])) == [
                {
                    "type": "function_call_output",
                    "call_id": "r",
                    "output": "1",
                    "caller": {"type": "program", "caller_id": "p"},
                }
            ]

    async def test_pictures_and_files(self) -> None:
        """Responses takes them; chat, and programs, get a note."""
        call = {"type": "function_call", "call_id": "r", "name": "shop__parts", "arguments": "{}"}
        async with shop() as ex:
            (answer,) = await ex.handle_openai_tool_calls([{"type": "reasoning"}, call])
            words, picture, sound, file = answer["output"]
            assert words["text"].startswith("look\n[doc: https://x]\n[note]\nread me")
            assert picture == {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
            assert "audio/wav" in sound["text"]
            assert file["file_data"] == "data:application/pdf;base64,JVBERi0="
            (answer,) = await ex.handle_openai_tool_calls([{**call, "caller": {"type": "program", "caller_id": "p"}}])
            assert "[image/png of 3 bytes: not shown here]" in answer["output"]
            (answer,) = await ex.handle_openai_tool_calls(chat("shop__parts"), max_media_bytes=3)
            assert "[image/png of 4 bytes in base64: too large to be shown]" in answer["content"]
            (answer,) = await ex.handle_openai_tool_calls(
                {"type": "custom_tool_call", "call_id": "k", "name": "x", "input": ""}
            )
            assert answer["type"] == "custom_tool_call_output"
            assert "free text" in answer["output"]

    async def test_a_search_of_responses(self) -> None:
        """A search is answered with the definitions of the results."""
        search = {
            "type": "tool_search_call",
            "call_id": "s",
            "execution": "client",
            "arguments": {"query": "price", "limit": 1},
        }
        async with shop() as ex:
            tools = await ex.export_tools("openai-responses", search="client", filters=Filters(namespace="shop"))
            broken = {**search, "arguments": {"limit": 1}}
            found, nothing = await ex.handle_openai_tool_calls([search, broken], tools)
        assert (found["type"], found["call_id"], found["execution"]) == ("tool_search_output", "s", "client")
        assert [tool["name"] for tool in found["tools"]] == ["shop__price"]
        assert nothing["tools"] == []

    async def test_long_answers_are_cut(self) -> None:
        """Long answers are cut, and marked as cut."""
        async with shop() as ex:
            (answer,) = await ex.handle_openai_tool_calls(chat("shop__long", '{"size": 50000}'), max_bytes=2000)
            assert len(answer["content"]) <= 2000
            assert "of 50,000 characters are cut here" in answer["content"]
            with pytest.raises(ConfigurationError, match="at least 1000"):
                await ex.handle_openai_tool_calls([], max_bytes=10)

    async def test_only_exported_tools_are_called(self) -> None:
        """Only exported tools are called; with a map of names, only those in it."""
        async with shop() as ex:
            tools = await ex.export_tools("openai", filters=Filters(namespace="none"))
            (answer,) = await ex.handle_openai_tool_calls(chat("shop__price", '{"item": "tea"}'), tools)
            assert error_of(answer)["code"] == "tool_not_found"
            (answer,) = await ex.handle_openai_tool_calls(
                chat("shop__price", '{"item": "tea"}'), NameMap(["shop:price"])
            )
            assert "tea" in answer["content"]

    async def test_the_gate_holds(self) -> None:
        """A call that a rule forbids is answered with that."""
        policy = Policy([Rule("deny", tools="shop:price", when={"item": "tea"}, reason="closed")])
        async with shop(gate=Gate(policy=policy)) as ex:
            (answer,) = await ex.handle_openai_tool_calls(chat("shop__price", '{"item": "tea"}'))
        assert error_of(answer)["code"] == "policy_denied"

    async def test_others_may_answer(self) -> None:
        """With `skip`, calls of tools that are not here are left out."""
        async with shop() as ex:
            answers = await ex.handle_openai_tool_calls(
                [chat("theirs"), chat("shop__slow", '{"ms": 0}')], unknown="skip"
            )
        assert [answer["content"] for answer in answers] == ["0"]

    async def test_renamed_arguments(self) -> None:
        """The tool gets them by its own names."""
        async with shop() as ex:
            tools = await ex.export_tools("anthropic")
            (answer,) = await ex.handle_anthropic_tool_use(use("shop__odata", {"_filter": "x eq 1"}), tools)
            assert answer["content"] == "x eq 1"

    async def test_too_many_calls(self) -> None:
        """From the 257th on they are refused, each by itself."""
        async with shop() as ex:
            answers = await ex.handle_openai_tool_calls([chat("shop__slow", '{"ms": 0}', str(n)) for n in range(258)])
        assert [answer["content"] for answer in answers[:256]] == ["0"] * 256
        assert [error_of(answer)["code"] for answer in answers[256:]] == ["configuration"] * 2

    async def test_what_nobody_expected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Is an answer too, without its inner life."""
        async with shop() as ex:
            monkeypatch.setattr(ex._parts.calls, "run", lambda *args: 1 / 0)
            (answer,) = await ex.handle_openai_tool_calls(chat("shop__slow", '{"ms": 0}'))
        assert error_of(answer)["message"] == "the call could not be made: ZeroDivisionError"

    async def test_at_the_same_time_and_cancelled(self) -> None:
        """The calls of a message wait for each other; who stops waiting stops them."""
        both = asyncio.Barrier(2)
        began = asyncio.Event()
        ended: list[str] = []
        ex = Exec()

        async def meet() -> str:
            await both.wait()
            return "met"

        async def forever() -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("stopped")

        ex.add(meet, "meet")
        ex.add(forever, "forever")
        answers = await ex.handle_openai_tool_calls([chat("meet"), chat("meet")])
        assert [answer["content"] for answer in answers] == ["met", "met"]
        task = asyncio.create_task(ex.handle_openai_tool_calls([chat("forever")]))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["stopped"]
        await ex.aclose()
