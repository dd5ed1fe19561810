"""Anthropic's blocks and Gemini's parts, and the blocking twins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from toolexec import Exec, ToolReply
from toolexec.model.content import image, text
from toolexec.run.gate import Gate
from toolexec.run.layers.budget import Budget
from toolexec.run.results import ResultStore

PIXEL = "eHh4"


def shop(**settings: Any) -> Exec:
    """A few tools."""
    ex = Exec(**settings)

    def price(item: str) -> dict[str, Any]:
        """Tells what an item costs."""
        return {"item": item, "euros": 3}

    def fail() -> None:
        raise ValueError("no")

    ex.add(price, "shop:price")
    ex.add(fail, "shop:fail")
    ex.add(lambda: ToolReply(content=[text("look"), image(b"xxx"), image(b"xxx", "image/tiff")]), "shop:picture")
    ex.add(lambda: ToolReply(content=[image(b"xxx")], structured="", has_structured=True), "shop:only-picture")
    ex.add(lambda: list(range(5000)), "shop:many")
    return ex


def use(name: str, args: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "t", "name": name, "input": args or {}, **more}


class TestAnthropic:
    """`tool_use` blocks."""

    async def test_a_message(self) -> None:
        """Only the blocks that are for this side; failures are marked."""
        message = {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                use("shop__price", {"item": "tea"}, id="1"),
                use("shop__fail", id="2"),
                use("nope", id="3", toolset_name="browser"),
                use("shop__price", '{"item": "text"}', id="4"),
                use("shop__price", '{"item', id="5"),
            ],
        }
        async with shop() as ex:
            good, failed, unknown, parsed, broken = await ex.handle_anthropic_tool_use(message)
        assert good == {"type": "tool_result", "tool_use_id": "1", "content": '{"item": "tea", "euros": 3}'}
        assert failed["is_error"] is True
        assert "handler_failed" in failed["content"]
        assert unknown["toolset_name"] == "browser"
        assert unknown["is_error"]
        assert "text" in parsed["content"]
        assert "not valid JSON" in broken["content"]

    async def test_pictures(self) -> None:
        """As blocks, except for code, which gets text, and kinds that the API does not take."""
        async with shop() as ex:
            (answer,) = await ex.handle_anthropic_tool_use([use("shop__picture")])
            words, picture = answer["content"]
            assert words == {"type": "text", "text": "look\n[image/tiff of 3 bytes: not shown here]"}
            assert picture == {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
            caller = {"type": "code_execution_20260120", "tool_id": "srv"}
            (answer,) = await ex.handle_anthropic_tool_use(use("shop__picture", caller=caller))
            assert answer["content"].startswith("look\n[image/png")
            (answer,) = await ex.handle_anthropic_tool_use(use("shop__picture", caller={"type": "direct"}))
            assert isinstance(answer["content"], list)
            (answer,) = await ex.handle_anthropic_tool_use(use("shop__only-picture"))
            assert [block["type"] for block in answer["content"]] == ["image"]

    async def test_search(self) -> None:
        """A search is answered with references to tools of the request; without any, with text."""
        async with shop() as ex:
            tools = await ex.export_tools("anthropic", search="client")
            found, nothing, wrong = await ex.handle_anthropic_tool_use(
                [
                    use("search_tools", {"query": "what an item costs", "limit": 1}),
                    use("search_tools", {"query": "xylophone"}),
                    use("search_tools", {"query": 5}),
                ],
                tools,
            )
            assert found["content"] == [{"type": "tool_reference", "tool_name": "shop__price"}]
            assert "no tools fit" in nothing["content"]
            assert wrong["is_error"]
            plain = await ex.export_tools("anthropic")
            (answer,) = await ex.handle_anthropic_tool_use(use("search_tools", {"query": "x"}), plain)
            assert "tool_not_found" in answer["content"]

    async def test_a_tool_called_search_tools(self) -> None:
        """Has another name, and is not in the way."""
        async with shop() as ex:
            ex.add(lambda: "mine", "search_tools")
            tools = await ex.export_tools("anthropic", search="client")
            name = tools.names.to_vendor("search_tools")
            assert name != "search_tools"
            (answer,) = await ex.handle_anthropic_tool_use(use(name), tools)
            assert answer["content"] == "mine"

    async def test_results_that_a_budget_keeps(self) -> None:
        """The model can read on: `read_result` is among the tools, and is answered."""
        async with shop(gate=Gate(budget=Budget(ResultStore(2000)))) as ex:
            tools = await ex.export_tools("anthropic")
            assert "read_result" in [tool["name"] for tool in tools.tools]
            (answer,) = await ex.handle_anthropic_tool_use(use("shop__many"), tools)
            handle = answer["content"].partition('"handle": "')[2].partition('"')[0]
            args = {"handle": handle, "offset": 4998}
            page, wrong = await ex.handle_anthropic_tool_use(
                [use("read_result", args), use("read_result", {"handle": "r-none"})], tools, unknown="skip"
            )
            assert "[4998,4999]" in page["content"]
            assert "result_not_found" in wrong["content"]
        async with shop() as ex:
            (answer,) = await ex.handle_anthropic_tool_use(use("read_result", {"handle": "x"}))
            assert "tool_not_found" in answer["content"]

    @pytest.mark.full
    async def test_objects_of_the_package(self) -> None:
        """A message as the SDK has it."""
        types = pytest.importorskip("anthropic.types")
        caller = {"type": "code_execution_20260120", "tool_id": "srv"}
        block = types.ToolUseBlock.model_validate(use("shop__picture", caller=caller))
        message = types.Message.model_validate(
            {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [block.model_dump()],
                "stop_reason": "tool_use",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
        )
        async with shop() as ex:
            (answer,) = await ex.handle_anthropic_tool_use(message)
        assert answer["content"].startswith("look\n[image/png")


class TestGemini:
    """`functionCall` parts."""

    @pytest.mark.parametrize(
        "wrap",
        [
            lambda part: {"candidates": [{"content": {"role": "model", "parts": [{"text": "hm"}, part]}}]},
            lambda part: {"content": {"parts": [part]}},
            lambda part: {"parts": [part]},
            lambda part: [part],
            lambda part: part["functionCall"],
            lambda part: {"function_call": part["functionCall"]},
            lambda part: SimpleNamespace(
                parts=[SimpleNamespace(function_call=SimpleNamespace(**part["functionCall"]))]
            ),
        ],
    )
    async def test_wherever_the_calls_are(self, wrap: Any) -> None:
        """In a response, a content, parts, or on their own."""
        part = {"functionCall": {"id": "g", "name": "shop__price", "args": {"item": "tea"}}}
        async with shop() as ex:
            (answer,) = await ex.handle_gemini_function_calls(wrap(part))
        response = {"output": {"item": "tea", "euros": 3}}
        assert answer == {"functionResponse": {"id": "g", "name": "shop__price", "response": response}}

    async def test_failures_and_pictures(self) -> None:
        """Errors under their own key, pictures as parts; an ID only where there was one."""
        calls = [{"functionCall": {"name": name}} for name in ("shop__fail", "shop__picture", "shop__many")]
        async with shop() as ex:
            failed, picture, many = await ex.handle_gemini_function_calls(calls, max_bytes=1000)
        assert failed["functionResponse"]["response"]["error"]["code"] == "handler_failed"
        assert "id" not in failed["functionResponse"]
        assert picture["functionResponse"]["response"] == {"output": "look"}
        assert picture["functionResponse"]["parts"][0] == {"inlineData": {"mimeType": "image/png", "data": PIXEL}}
        assert "are cut here" in many["functionResponse"]["response"]["output"]

    async def test_long_errors_are_cut(self) -> None:
        """Long errors are cut and stay under their key."""

        def fail() -> None:
            raise ValueError("x" * 5000)

        ex = Exec()
        ex.add(fail, "fail")
        (answer,) = await ex.handle_gemini_function_calls({"functionCall": {"name": "fail"}}, max_bytes=1000)
        assert "are cut here" in answer["functionResponse"]["response"]["error"]
        await ex.aclose()

    @pytest.mark.parametrize(
        "message", [None, {"candidates": []}, {"candidates": [{"content": None}]}, [{"text": "x"}], 7]
    )
    async def test_no_calls(self, message: Any) -> None:
        """No answers."""
        async with shop() as ex:
            assert await ex.handle_gemini_function_calls(message) == []

    @pytest.mark.parametrize(
        "message",
        [
            {"functionCall": {"name": "shop__picture"}},
            {"functionCall": {"name": "shop__picture", "args": None}},
            {"function_call": {"name": "shop__picture", "args": None}},
            {"name": "shop__picture"},
            {"name": "shop__picture", "args": None},
            [{"name": "shop__picture", "args": {}}],
            [SimpleNamespace(id=None, name="shop__picture", args=None)],
            {"parts": [{"text": "x"}, {"functionCall": {"name": "shop__picture"}}]},
        ],
    )
    async def test_calls_without_arguments(self, message: Any) -> None:
        """A call without arguments is a call, in every form in which a call can come."""
        async with shop() as ex:
            answers = await ex.handle_gemini_function_calls(message)
        assert [answer["functionResponse"]["name"] for answer in answers] == ["shop__picture"]
        assert "error" not in answers[0]["functionResponse"]["response"]

    async def test_responses_are_not_calls(self) -> None:
        """The answer to a call has a name, too."""
        async with shop() as ex:
            assert await ex.handle_gemini_function_calls([{"name": "shop__picture", "response": {}}]) == []


def test_the_blocking_twins() -> None:
    """The blocking twins behave the same."""
    with shop().sync as ex:
        tools = ex.export_tools("openai", strict=True)
        call = {"id": "c", "type": "function", "function": {"name": "shop__price", "arguments": '{"item": "tea"}'}}
        (answer,) = ex.handle_openai_tool_calls([call], tools)
        assert "tea" in answer["content"]
        (answer,) = ex.handle_anthropic_tool_use(use("shop__price", {"item": "tea"}))
        assert "tea" in answer["content"]
        (answer,) = ex.handle_gemini_function_calls({"functionCall": {"name": "shop__price", "args": {"item": "tea"}}})
        assert "tea" in str(answer)
