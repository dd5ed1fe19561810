"""The toolset for Pydantic AI, in its own loop with a scripted model."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
import sys
from typing import Any

import pytest
from tests.integrations.shop import Guard, make_shop, require

from toolexec import Filters, ToolReply, tool
from toolexec.model.content import text
from toolexec.model.origin import Caller, Origin

require("pydantic_ai", "pydantic-ai")

from pydantic_ai import Agent, BinaryContent, RunContext  # noqa: E402
from pydantic_ai.messages import (  # noqa: E402
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel  # noqa: E402
from pydantic_ai.models.test import TestModel  # noqa: E402
from pydantic_ai.toolsets import ToolsetTool  # noqa: E402
from pydantic_ai.usage import RunUsage  # noqa: E402

from toolexec.integrations.pydantic_ai import ExecToolset  # noqa: E402


class Script:
    """Asks for the given tool calls, one a turn, and then answers; `received` is what came back, `tools` what it saw."""

    def __init__(self, *calls: tuple[str, Any]) -> None:
        self.calls = calls
        self.received: list[Any] = []
        self.failures: list[str] = []
        self.retries: list[str] = []
        self.extra: list[Any] = []
        self.tools: dict[str, Any] = {}

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.tools = {tool.name: tool for tool in info.function_tools}
        parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
        returned = [part for part in parts if isinstance(part, ToolReturnPart)]
        self.received = [part.content for part in returned if part.outcome == "success"]
        self.failures = [str(part.content) for part in returned if part.outcome == "failed"]
        self.retries = [str(part.content) for part in returned if part.outcome == "retried"]
        self.extra = [part.content for part in parts if isinstance(part, UserPromptPart)][1:]
        turn = len(returned)
        if turn == len(self.calls):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(*self.calls[turn])])


async def run(toolset: ExecToolset, *calls: tuple[str, Any]) -> Script:
    """Have an agent make these calls; the script that asked for them."""
    script = Script(*calls)
    agent = Agent(FunctionModel(script.answer), toolsets=[toolset])
    assert (await agent.run("go")).output == "done"
    return script


async def test_a_tool_call_goes_through_the_gate_and_its_value_back_to_the_model() -> None:
    """The model asks, the tool runs behind the gate for the origin, the model gets the value."""
    guard = Guard()
    origin = Origin(caller=Caller(id="ann"))
    async with make_shop(guard) as ex:
        script = await run(ExecToolset(ex, origin=origin, id="shop"), ("shop__price", {"item": "tea"}))
    assert script.received == [{"item": "tea", "price": 3, "currency": "EUR"}]
    assert [(call.tool_id, call.origin) for call in guard.calls] == [("shop:price", origin)]
    assert script.tools["shop__price"].metadata["annotations"] == {"readOnlyHint": True}


@pytest.mark.parametrize("wrapped", [False, True])
async def test_runs_share_a_toolset(wrapped: bool) -> None:
    """A run calls the tools that its own step saw, whatever another run of the toolset has seen since."""
    saw, changed, first = asyncio.Event(), asyncio.Event(), Script(("shop__price", {"item": "tea"}))
    second = Script(("late", {}))

    async def slow(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if not saw.is_set():
            saw.set()
            await changed.wait()
        return first.answer(messages, info)

    async with make_shop() as ex:
        shared: Any = ExecToolset(ex)
        shared = shared.filtered(lambda ctx, tool: True) if wrapped else shared
        running = asyncio.create_task(Agent(FunctionModel(slow), toolsets=[shared]).run("go"))
        await saw.wait()
        ex.index.unregister("shop:price")
        ex.add(lambda: 5, "late")
        await Agent(FunctionModel(second.answer), toolsets=[shared]).run("go")
        changed.set()
        await running
    assert second.received == [5]
    assert json.loads(first.failures[0])["error"]["code"] == "tool_not_found"


async def test_what_is_refused_or_fails_is_a_failed_result_and_the_run_goes_on() -> None:
    """A refusal, a failure and an error of code reach the model as failed results with a code, none as a success."""
    calls = [("shop__refund", {"order": 1}), ("shop__broken", {}), ("shop__price", {"item": "tea"})]
    async with make_shop() as ex:
        script = await run(ExecToolset(ex), *calls)
    assert [json.loads(text)["error"]["code"] for text in script.failures] == ["policy_denied", "handler_failed"]
    assert [value["price"] for value in script.received] == [3]


async def test_wrong_arguments_make_the_model_try_again() -> None:
    """Arguments that do not fit come back as a retry that says what is wrong; the next try counts."""
    async with make_shop() as ex:
        script = await run(ExecToolset(ex), ("shop__price", {"itm": "tea"}), ("shop__price", {"item": "tea"}))
    assert "did you mean 'item'" in script.retries[0]
    assert script.received[0]["price"] == 3


@pytest.mark.parametrize("max_retries", [0, 1, 2])
async def test_wrong_arguments_do_not_end_the_run_however_often_they_come(max_retries: int) -> None:
    """After the retries that are allowed, wrong arguments are failed results, and a call that fits still counts."""
    async with make_shop() as ex:
        toolset = ExecToolset(ex, max_retries=max_retries)
        script = await run(toolset, *[("shop__price", {"itm": "tea"})] * 4, ("shop__price", {"item": "tea"}))
    assert len(script.retries) == max_retries
    assert [json.loads(text)["error"]["code"] for text in script.failures] == ["validation_input"] * (4 - max_retries)
    assert script.received[0]["price"] == 3


@pytest.mark.parametrize("arguments", ['{"item": ', "[1]", "5"])
async def test_arguments_that_are_no_object_do_not_end_the_run(arguments: str) -> None:
    """Broken JSON, twice in a row, is a failed result that says so."""
    async with make_shop() as ex:
        script = await run(ExecToolset(ex), *[("shop__price", arguments)] * 2, ("shop__price", {"item": "tea"}))
    assert [json.loads(text)["error"]["code"] for text in script.failures] == ["validation_input"] * 2
    assert "JSON" in script.failures[0] or "object" in script.failures[0]
    assert script.received[0]["price"] == 3


async def test_null_stands_for_an_optional_argument_that_is_left_out() -> None:
    """Null is as if the argument were not there, for tools and for those that find them."""
    async with make_shop() as ex:
        direct = await run(ExecToolset(ex), ("shop__price", {"item": "tea", "currency": None}))
        search = await run(ExecToolset(ex, mode="search"), ("search_tools", {"query": "price", "limit": None}))
    assert direct.received[0]["currency"] == "EUR"
    assert search.received[0]["tools"]


async def test_a_toolset_can_be_copied() -> None:
    """A deep copy of a toolset calls the tools of the same Exec."""
    async with make_shop() as ex:
        script = await run(copy.deepcopy(ExecToolset(ex)), ("shop__price", {"item": "tea"}))
    assert script.received[0]["price"] == 3


async def test_the_schema_of_results_is_passed_on() -> None:
    """A tool's output schema is its return schema, which the agent shows to the model if it is asked to."""
    async with make_shop() as ex:
        ex.add(weigh)
        plain = await run(ExecToolset(ex), ("shop__weigh", {"item": "tea"}))
        shown = await run(ExecToolset(ex).include_return_schemas(), ("shop__weigh", {"item": "tea"}))
        (definition,) = [tool.tool_def for tool in await listed(ExecToolset(ex)) if tool.tool_def.name == "shop__weigh"]
    assert definition.return_schema == {"type": "integer"}
    assert "integer" not in str(plain.tools["shop__weigh"].description)
    assert '"type": "integer"' in str(shown.tools["shop__weigh"].description)


@tool(namespace="shop")
async def weigh(item: str) -> int:
    """Weighs an item."""
    return len(item)


async def listed(toolset: ExecToolset) -> list[ToolsetTool[Any]]:
    context = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    return [*(await toolset.get_tools(context)).values()]


async def test_an_image_reaches_the_model_as_one() -> None:
    """A reply with a picture is text and picture for the model."""
    async with make_shop() as ex:
        script = await run(ExecToolset(ex), ("shop__photo", {"item": "cup"}))
    everything = [*script.received, *script.extra]
    assert "a cup" in str(everything)
    assert any(isinstance(part, BinaryContent) for part in flat(everything))


async def test_the_modes_work() -> None:
    """Search mode finds, describes and runs; filters hold; the test model of the library can call every tool."""
    async with make_shop() as ex:
        only = Filters(namespace="shop", read_only=True)
        script = await run(
            ExecToolset(ex, mode="search", filters=only),
            ("search_tools", {"query": "price"}),
            ("describe_tool", {"tool_id": "shop:price"}),
            ("run_tool", {"tool_id": "shop:price", "args": {"item": "tea"}}),
            ("run_tool", {"tool_id": "shop:broken"}),
        )
        agent = Agent(TestModel(), toolsets=[ExecToolset(ex, filters=only)])
        assert "EUR" in (await agent.run("go")).output
    found, doc, value = script.received
    (missing,) = script.failures
    assert [tool["id"] for tool in found["tools"]] == ["shop:price"]
    assert doc["id"] == "shop:price"
    assert value["price"] == 3
    assert json.loads(missing)["error"]["code"] == "tool_not_found"


async def test_tools_that_come_later_are_seen_at_the_next_step() -> None:
    """The toolset shows what the Exec has at each step."""
    async with make_shop() as ex:
        toolset = ExecToolset(ex)
        await run(toolset)
        ex.add(lambda: 1, "late:comer")
        script = await run(toolset, ("late__comer", {}))
    assert script.received == [1]


def test_without_the_package_the_extra_is_named() -> None:
    """Names the extra to install."""
    code = "import sys; sys.modules['pydantic_ai'] = None; import toolexec.integrations.pydantic_ai"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'toolexec[pydantic-ai]'" in ran.stderr


def flat(value: Any) -> list[Any]:
    return [part for item in value for part in flat(item)] if isinstance(value, list | tuple) else [value]


async def test_an_image_that_is_none_is_left_out() -> None:
    """Data that is no base64 does not end the run."""
    async with make_shop() as ex:
        ex.add(no_picture, "shop:blank")
        script = await run(ExecToolset(ex), ("shop__blank", {}))
    assert script.received == ["look"]


async def no_picture() -> ToolReply:
    return ToolReply(content=[text("look"), {"type": "image", "data": "!", "mimeType": "image/png"}])
