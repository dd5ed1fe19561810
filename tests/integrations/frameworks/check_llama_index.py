"""Run in the environment of `requirements.txt` here: agents of LlamaIndex use the tools of an Exec."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from tests.integrations.asking import Person, asking_shop
from tests.integrations.frameworks.page import lines_of
from tests.integrations.shop import ODD, Guard, make_shop

from toolexec import Filters
from toolexec.integrations.frameworks.llama_index import ApprovalReply, ApprovalRequested
from toolexec.integrations.llama_index import approval_request, tools
from toolexec.model.origin import Caller, Origin

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def script(*turns: Any) -> MockFunctionCallingLLM:
    """Make a model that asks for these calls, one a turn or several in a list, and then says "done"."""
    left = iter(turns)

    def answer(messages: Any, **kwargs: Any) -> ChatMessage:
        turn = next(left, None)
        if turn is None:
            return ChatMessage(role="assistant", content="done")
        calls = turn if isinstance(turn, list) else [turn]
        blocks = [
            ToolCallBlock(tool_call_id=f"c{number}", tool_name=name, tool_kwargs=args)
            for number, (name, args) in enumerate(calls)
        ]
        return ChatMessage(role="assistant", blocks=blocks)

    return MockFunctionCallingLLM(response_generator=answer)


async def run(found: Any, *turns: Any, decide: Callable[[ApprovalRequested], Any] | None = None) -> list[Any]:
    """Have an agent make these calls; the outputs of its tools, and the requests for approval that *decide* answers."""
    handler = FunctionAgent(tools=found, llm=script(*turns)).run("go")
    outputs: list[Any] = []
    async for event in handler.stream_events():
        if isinstance(event, ToolCallResult):
            outputs.append(event.tool_output)
        elif (request := approval_request(event)) is not None:
            assert decide is not None
            handler.ctx.send_event(request.reply(decide(request)))
    assert str(await handler) == "done"
    return outputs


async def test_calls_go_through_the_gate_for_the_origin() -> None:
    """Calls run behind the gate for the origin, and the model reads text; the value is beside it."""
    guard, origin = Guard(), Origin(caller=Caller(id="ann"))
    async with make_shop(guard) as ex:
        (output, other) = await run(
            tools(ex, origin=origin),
            ("shop__price", {"item": "tea"}),
            ("shop__price", {"item": "jam", "currency": None}),
        )
    assert json.loads(output.content) == output.raw_output == {"item": "tea", "price": 3, "currency": "EUR"}
    assert other.raw_output["currency"] == "EUR"
    assert not output.is_error
    assert [(call.tool_id, call.origin) for call in guard.calls] == [("shop:price", origin)] * 2


async def test_what_is_refused_or_fails_is_an_error_with_a_code() -> None:
    """A refusal, a failure and wrong arguments are errors; the run goes on."""
    async with make_shop() as ex:
        calls = [("shop__refund", {"order": 1}), ("shop__broken", {}), ("shop__price", {"itm": "tea"})]
        outputs = await run(tools(ex), *calls)
    assert all(output.is_error for output in outputs)
    codes = [json.loads(output.content)["error"]["code"] for output in outputs]
    assert codes == ["policy_denied", "handler_failed", "validation_input"]


async def test_the_modes_work() -> None:
    """Search mode finds, describes and runs, within the filters; code mode runs a program in the sandbox."""
    guard = Guard()
    async with make_shop(guard) as ex:
        found, doc, value, missing = await run(
            tools(ex, mode="search", filters=Filters(namespace="shop")),
            ("search_tools", {"query": "price", "limit": 1}),
            ("describe_tool", {"tool_id": "shop:price"}),
            ("run_tool", {"tool_id": "shop:price", "args": {"item": "tea"}}),
            ("run_tool", {"tool_id": "stock:everything"}),
        )
        code = "tools.shop.price(item='tea')['price'] + 1"
        (coded,) = await run(tools(ex, mode="code"), ("execute_code", {"code": code}))
    assert found.raw_output["tools"][0]["id"] == doc.raw_output["id"] == "shop:price"
    assert value.raw_output["price"] == 3
    assert json.loads(missing.content)["error"]["code"] == "tool_not_found"
    assert coded.raw_output == {"value": 4}
    assert [call.origin.path for call in guard.calls] == ["direct", "code"]


async def test_the_definitions_images_and_arguments_of_any_name() -> None:
    """A model reads the tool's own schema, sees pictures, and may give arguments of any name; copies share the Exec."""
    async with make_shop() as ex:
        found = {tool.metadata.name: copy.deepcopy(tool) for tool in tools(ex)}
        shown = found["shop__price"].metadata.to_openai_tool()["function"]
        assert shown["description"].endswith("the price of an item.")
        assert shown["parameters"]["required"] == ["item"]
        assert shown["parameters"]["additionalProperties"] is False
        assert found["shop__price"].metadata.fn_schema.model_json_schema() == shown["parameters"]
        photo = await found["shop__photo"].acall(item="cup")
        assert [block.block_type for block in photo.blocks] == ["text", "image"]
        args = {"self": 1, "config": {"a": 2}, "run_manager": 3, "callbacks": 4}
        assert set(args) == {*ODD.input_schema.to_json()["properties"]}
        assert (await found["stock__odd_names"].acall(**args)).raw_output == args
        assert (await found["shop__price"].acall("tea")).raw_output["item"] == "tea"


def test_the_tools_can_be_called_without_an_event_loop() -> None:
    """`call` does in a blocking way what `acall` does."""
    ex = make_shop()
    with ex.sync:
        found = {tool.metadata.name: tool for tool in tools(ex)}
        assert found["shop__price"](item="tea").raw_output["price"] == 3
        assert found["shop__refund"].call(order=1).is_error


SHAPES = [
    ("direct", "shop__refund", {"order": 1}),
    ("search", "run_tool", {"tool_id": "shop:refund", "args": {"order": 1}}),
]


@pytest.mark.parametrize(("mode", "name", "args"), SHAPES)
async def test_a_call_waits_for_its_approval(mode: Any, name: str, args: Any) -> None:
    """The workflow is asked before each call; a yes is for one call, and the gate asks no more."""
    person, asked = Person(), list[ApprovalRequested]()
    ex, made = asking_shop(person)
    answers = iter([True, False, "yes"])

    def decide(event: ApprovalRequested) -> Any:
        asked.append(event)
        return next(answers)

    async with ex:
        outputs = await run(tools(ex, mode=mode), *[(name, args)] * 3, decide=decide)
    assert [(event.tool, event.args) for event in asked] == [(name, args)] * 3
    assert [output.is_error for output in outputs] == [False, True, True]
    assert "approval_denied" in outputs[1].content
    assert made == [{"order": 1, "token": ""}]
    assert person.asked == []


async def test_one_approval_is_for_one_of_the_calls_of_a_turn() -> None:
    """Two calls with the same arguments at the same time are asked about twice, and other arguments by themselves."""
    ex, made = asking_shop()
    answers, asked = iter([True, False]), []

    def decide(event: ApprovalRequested) -> Any:
        asked.append((event.args["order"], event.key))
        return next(answers) if event.args["order"] == 1 else False

    async with ex:
        calls = [("shop__refund", {"order": 1}), ("shop__refund", {"order": 1}), ("shop__refund", {"order": 2})]
        outputs = await run(tools(ex), calls, decide=decide)
    assert sorted(output.is_error for output in outputs) == [False, True, True]
    assert made == [{"order": 1, "token": ""}]
    assert sorted(order for order, _ in asked) == [1, 1, 2]
    assert len({key for _, key in asked}) == 3


async def test_a_reply_to_another_request_approves_nothing() -> None:
    """Outside of a workflow the gate asks; a reply for another call is none for this one."""
    person = Person()
    ex, made = asking_shop(person)
    async with ex:
        found = {tool.metadata.name: tool for tool in tools(ex)}
        assert (await found["shop__refund"].acall(order=1)).is_error
        handler = FunctionAgent(tools=[*found.values()], llm=script(("shop__refund", {"order": 1}))).run("go")
        async for event in handler.stream_events():
            if isinstance(event, ApprovalRequested):
                handler.ctx.send_event(ApprovalReply(approved=True, key="other", nonce=""))
                handler.ctx.send_event(event.reply(False))
        await handler
    assert made == []
    assert len(person.asked) == 1


async def test_a_reply_that_is_sent_twice_is_one_approval() -> None:
    """The call runs once."""
    ex, made = asking_shop()
    async with ex:
        handler = FunctionAgent(tools=tools(ex), llm=script(("shop__refund", {"order": 1}))).run("go")
        async for event in handler.stream_events():
            if isinstance(event, ApprovalRequested):
                for _ in range(3):
                    handler.ctx.send_event(event.reply(True))
        await handler
    assert made == [{"order": 1, "token": ""}]


async def test_the_lines_of_the_page() -> None:
    """The lines that the documents show run."""
    async with make_shop() as ex:
        names: dict[str, Any] = {"ex": ex, "llm": script(("shop__price", {"item": "tea"}))}
        exec(lines_of("LlamaIndex"), names)
        assert str(await names["agent"].run("What does tea cost?")) == "done"
