"""The tools for LangChain, called by a scripted chat model in a plain loop."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from tests.integrations.shop import Guard, make_shop, require

from toolexec import Filters, ToolContext, tool
from toolexec.exec import Exec
from toolexec.model.origin import Caller, Origin

require("langchain_core", "langchain")
require("langgraph", "langchain")

from langchain_core.callbacks import BaseCallbackHandler  # noqa: E402
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel  # noqa: E402
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage  # noqa: E402
from langchain_core.tools import BaseTool  # noqa: E402
from langchain_core.utils.function_calling import convert_to_openai_tool  # noqa: E402
from langgraph.config import get_stream_writer  # noqa: E402
from langgraph.graph import START, MessagesState, StateGraph  # noqa: E402
from langgraph.prebuilt import ToolNode  # noqa: E402

from toolexec.integrations.langchain import tools  # noqa: E402


def script(*calls: tuple[str, dict[str, Any]]) -> GenericFakeChatModel:
    """A model that asks for these calls, one a turn, and then answers."""
    asks = [
        AIMessage(content="", tool_calls=[{"name": name, "args": args, "id": f"c{number}", "type": "tool_call"}])
        for number, (name, args) in enumerate(calls)
    ]
    return GenericFakeChatModel(messages=iter([*asks, AIMessage(content="done")]))


async def run(found: Sequence[BaseTool], *calls: tuple[str, dict[str, Any]]) -> list[ToolMessage]:
    """Have the model make these calls in an async loop; what it read for each."""
    model, by_name = script(*calls), {tool.name: tool for tool in found}
    messages: list[BaseMessage] = [HumanMessage("go")]
    while True:
        answer = await model.ainvoke(messages)
        messages.append(answer)
        if not answer.tool_calls:
            assert answer.content == "done"
            return [message for message in messages if isinstance(message, ToolMessage)]
        messages += [await by_name[call["name"]].ainvoke(call) for call in answer.tool_calls]


async def test_a_tool_call_goes_through_the_gate_and_its_value_back_to_the_model() -> None:
    """The model asks, the tool runs behind the gate for the origin, the model reads the value as text."""
    guard = Guard()
    origin = Origin(caller=Caller(id="ann"))
    async with make_shop(guard) as ex:
        (received,) = await run(tools(ex, origin=origin), ("shop__price", {"item": "tea"}))
    assert json.loads(received.text) == received.artifact == {"item": "tea", "price": 3, "currency": "EUR"}
    assert received.status == "success"
    assert [(call.tool_id, call.origin) for call in guard.calls] == [("shop:price", origin)]


async def test_what_is_refused_or_fails_is_a_message_with_a_code() -> None:
    """A refusal, a failure and wrong arguments are error messages; the loop goes on."""
    calls = [("shop__refund", {"order": 1}), ("shop__broken", {}), ("shop__price", {"itm": "tea"})]
    async with make_shop() as ex:
        received = await run(tools(ex), *calls)
    assert [message.status for message in received] == ["error"] * 3
    codes = [json.loads(message.text)["error"]["code"] for message in received]
    assert codes == ["policy_denied", "handler_failed", "validation_input"]


async def test_an_image_is_a_content_block() -> None:
    """A reply with a picture is a text block and an image block."""
    async with make_shop() as ex:
        (received,) = await run(tools(ex), ("shop__photo", {"item": "cup"}))
    assert [block["type"] for block in received.content_blocks] == ["text", "image"]


async def test_arguments_may_have_any_name() -> None:
    """Arguments that are called as something of LangChain's reach the tool all the same."""
    args = {"self": 1, "config": {"a": 2}, "run_manager": 3, "callbacks": 4}
    async with make_shop() as ex:
        (received,) = await run(tools(ex), ("stock__odd_names", args))
    assert received.artifact == args


async def test_the_modes_work(sandbox: None) -> None:
    """Search mode finds, describes and runs; code mode runs code; filters hold."""
    guard = Guard()
    async with make_shop(guard) as ex:
        received = await run(
            tools(ex, mode="search", filters=Filters(namespace="shop")),
            ("search_tools", {"query": "price", "limit": 1}),
            ("describe_tool", {"tool_id": "shop:price"}),
            ("run_tool", {"tool_id": "shop:price", "args": {"item": "tea"}}),
            ("run_tool", {"tool_id": "stock:everything"}),
        )
        (coded,) = await run(
            tools(ex, mode="code"), ("execute_code", {"code": "tools.shop.price(item='tea')['price'] + 1"})
        )
    found, doc, value, missing = received
    assert found.artifact["tools"][0]["id"] == doc.artifact["id"] == "shop:price"
    assert value.artifact["price"] == 3
    assert missing.status == "error"
    assert coded.artifact == {"value": 4}
    assert [call.origin.path for call in guard.calls] == ["direct", "code"]


async def test_the_definitions_are_those_of_the_tools() -> None:
    """A model is told the tool's own schema."""
    async with make_shop() as ex:
        told = {tool.name: convert_to_openai_tool(tool)["function"] for tool in tools(ex)}
    assert told["shop__price"]["description"] == "Tells the price of an item."
    assert told["shop__price"]["parameters"]["properties"]["item"]["type"] == "string"
    assert told["shop__price"]["parameters"]["required"] == ["item"]


def test_the_tools_can_be_called_without_an_event_loop(sandbox: None) -> None:
    """`invoke` does in a blocking way what `ainvoke` does, in every mode."""
    ex: Exec = make_shop()
    with ex.sync:
        direct = {tool.name: tool for tool in tools(ex)}
        call = {"name": "shop__price", "args": {"item": "tea"}, "id": "1", "type": "tool_call"}
        assert direct["shop__price"].invoke(call).artifact["price"] == 3
        refused = direct["shop__refund"].invoke({**call, "name": "shop__refund", "args": {"order": 1}})
        assert refused.status == "error"
        search = {tool.name: tool for tool in tools(ex, mode="search")}
        assert "shop:price" in search["search_tools"].invoke({"query": "price"})
        assert "item" in search["describe_tool"].invoke({"tool_id": "shop:price"})
        code = {tool.name: tool for tool in tools(ex, mode="code")}
        assert json.loads(code["execute_code"].invoke({"code": "1 + 1"})) == {"value": 2}


# -- progress, copies, optional arguments --------------------------------------------------------------------------


@tool(namespace="shop")
async def bake(context: ToolContext, loaves: int = 2) -> str:
    """Bakes bread."""
    for number in range(loaves):
        context.report(number + 1, loaves, f"loaf {number + 1}")
    return "baked"


@tool(namespace="shop")
def weigh(item: str, unit: str = "kg") -> str:
    """Weighs an item, in a thread, and writes into the stream of the graph by itself."""
    get_stream_writer()({"weighed": item})
    return f"1 {unit}"


def graph_of(found: Sequence[BaseTool]) -> Any:
    graph: Any = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([*found]))
    graph.add_edge(START, "tools")
    return graph.compile()


def asking(*calls: tuple[str, dict[str, Any]]) -> Any:
    asked = [{"name": name, "args": args, "id": f"c{i}", "type": "tool_call"} for i, (name, args) in enumerate(calls)]
    return {"messages": [AIMessage(content="", tool_calls=asked)]}


REPORTED = [
    {"tool": "shop__bake", "tool_call_id": "c0", "progress": number, "total": 2, "message": f"loaf {number}"}
    for number in (1, 2)
]


async def test_what_a_tool_reports_reaches_the_custom_stream_of_a_graph() -> None:
    """The mode `custom` has the progress of each call, with its ID, also when another tool writes there itself."""
    async with make_shop() as ex:
        ex.add(bake)
        ex.add(weigh)
        graph = graph_of(tools(ex))
        asked = asking(("shop__bake", {}), ("shop__weigh", {"item": "tea"}))
        parts = [part async for part in graph.astream(asked, stream_mode="custom")]
    assert [part for part in parts if "tool" in part] == REPORTED
    assert {"weighed": "tea"} in parts


def test_what_a_tool_reports_reaches_the_custom_stream_without_an_event_loop() -> None:
    """`stream` is as `astream`."""
    ex = make_shop()
    with ex.sync:
        ex.add(bake)
        ex.add(weigh)
        graph = graph_of(tools(ex))
        asked = asking(("shop__bake", {}), ("shop__weigh", {"item": "tea"}))
        parts = [*graph.stream(asked, stream_mode="custom")]
    assert [part for part in parts if "tool" in part] == REPORTED
    assert {"weighed": "tea"} in parts


async def test_what_a_tool_reports_is_an_event_of_the_tool() -> None:
    """`astream_events` has the progress between the start and the end of the tool, without any graph, too."""
    call = {"name": "shop__bake", "args": {}, "id": "c0", "type": "tool_call"}
    async with make_shop() as ex:
        ex.add(bake)
        (found,) = [one for one in tools(ex) if one.name == "shop__bake"]
        events: list[Any] = [event async for event in found.astream_events(call, version="v2")]
    kinds = ["on_tool_start", "on_custom_event", "on_custom_event", "on_tool_end"]
    assert [event["event"] for event in events if event["event"] in kinds] == kinds
    assert [event["data"] for event in events if event["name"] == "tool_progress"] == REPORTED


def test_callback_handlers_receive_what_a_tool_reports_without_an_event_loop() -> None:
    """A handler that is passed to `invoke` gets the custom events."""
    received_events: list[Any] = []

    class Handler(BaseCallbackHandler):
        def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
            received_events.append((name, data))

    ex = make_shop()
    with ex.sync:
        ex.add(bake)
        (found,) = [one for one in tools(ex) if one.name == "shop__bake"]
        assert found.invoke({}, {"callbacks": [Handler()]}) == "baked"
    plain = [{name: part for name, part in data.items() if name != "tool_call_id"} for data in REPORTED]
    assert received_events == [("tool_progress", data) for data in plain]


@pytest.mark.parametrize("mode", ["direct", "search", "code"])
async def test_tools_can_be_copied(mode: Any) -> None:
    """Deep and shallow copies, as agents make them, call the tools of the same Exec."""
    async with make_shop() as ex:
        found = tools(ex, mode=mode)
        copies = [
            *copy.deepcopy(found),
            *[copy.copy(one) for one in found],
            *[one.model_copy(deep=True) for one in found],
        ]
        by_name = [one for one in copies if one.name in {"shop__price", "search_tools"}]
        answers = [await one.ainvoke({"item": "tea"} if mode == "direct" else {"query": "price"}) for one in by_name]
    assert len(answers) == 3
    assert all("price" in answer for answer in answers)


async def test_null_stands_for_an_optional_argument_that_is_left_out() -> None:
    """Null is as if the argument were not there, for tools and for those that find them."""
    async with make_shop() as ex:
        found = [*tools(ex), *tools(ex, mode="search")]
        price, search = await run(
            found,
            ("shop__price", {"item": "tea", "currency": None}),
            ("search_tools", {"query": "price", "limit": None}),
        )
    assert price.artifact["currency"] == "EUR"
    assert search.status == "success"


@pytest.mark.full
def test_without_the_package_the_extra_is_named() -> None:
    """Names the extra to install."""
    code = "import sys; sys.modules['langchain_core.tools'] = None; import toolexec.integrations.langchain"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "pip install 'toolexec[langchain]'" in ran.stderr
