"""The toolset for the OpenAI Agents SDK, in the SDK's own loop with a scripted model."""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

import pytest
from tests.integrations.shop import Guard, make_shop, require

from toolexec import Exec, Filters, Gate, Policy, Rule, Tool, tool
from toolexec.errors import ConfigurationError, MissingExtraError
from toolexec.integrations.openai_agents import toolset
from toolexec.model.origin import Caller, Origin
from toolexec.run.layers.budget import Budget
from toolexec.run.results import ResultStore

agents = require("agents", "openai-agents")

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage  # noqa: E402
from openai.types.responses import (  # noqa: E402
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

NO_TRACES = RunConfig(tracing_disabled=True)


class ScriptedModel(Model):
    """Asks for the given tool calls, one a turn, and then answers; `received` is what came back for each."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self.calls = list(calls)
        self.turn = 0
        self.tools: list[Any] = []
        self.received: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, model_settings: Any, tools: Any, *args: Any, **kw: Any) -> ModelResponse:  # fmt: skip
        self.tools = tools
        self.received = [item["output"] for item in input if isinstance(item, dict) and "output" in item]
        if self.turn == len(self.calls):
            done = ResponseOutputText(text="done", type="output_text", annotations=[])
            item: Any = ResponseOutputMessage(
                id="m", content=[done], role="assistant", status="completed", type="message"
            )
        else:
            name, arguments = self.calls[self.turn]
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            item = ResponseFunctionToolCall(
                call_id=f"c{self.turn}", name=name, arguments=text, type="function_call", id=f"f{self.turn}"
            )
        self.turn += 1
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kw: Any) -> Any:
        raise NotImplementedError


async def run(tools: list[Any], *calls: tuple[str, Any]) -> ScriptedModel:
    """Have an agent make these calls; the model that asked for them."""
    model = ScriptedModel(*calls)
    result = await Runner.run(Agent(name="clerk", tools=tools, model=model), "go", run_config=NO_TRACES)
    assert result.final_output == "done"
    return model


async def test_a_tool_call_goes_through_the_gate_and_its_value_back_to_the_model() -> None:
    """The model asks, the tool runs behind the gate for the origin, the model reads the value."""
    guard = Guard()
    origin = Origin(caller=Caller(id="ann"), session="s")
    async with make_shop(guard) as ex:
        model = await run(toolset(ex, origin=origin), ("shop__price", {"item": "tea"}))
    assert json.loads(model.received[0]) == {"item": "tea", "price": 3, "currency": "EUR"}
    assert [(call.tool_id, call.origin) for call in guard.calls] == [("shop:price", origin)]


@pytest.mark.parametrize(
    ("name", "args", "code"),
    [
        ("shop__refund", {"order": 1}, "policy_denied"),
        ("shop__broken", {}, "handler_failed"),
        ("shop__price", {"thing": "tea"}, "validation_input"),
        ("shop__price", [1], "validation_input"),
        ("shop__price", "{not json", "validation_input"),
    ],
)
async def test_a_failure_is_text_with_a_code_and_the_run_goes_on(name: str, args: Any, code: str) -> None:
    """Whatever goes wrong, the model reads which way, and the loop goes on."""
    async with make_shop() as ex:
        model = await run(toolset(ex), (name, args))
    assert json.loads(model.received[0])["error"]["code"] == code


@pytest.mark.parametrize("mode", ["direct", "search"])
@pytest.mark.parametrize("args", ["", "{not json", "[1]", "null"])
async def test_arguments_that_cannot_be_read_end_no_run(mode: Any, args: str) -> None:
    """Behind the gate that an Exec has by default, the model reads what is wrong, and no user is asked, about a tool
    that no rule asks about."""
    async with Exec() as ex:
        ex.add(tool("shop:hello")(lambda: "hello"))
        ex.add(tool("shop:price")(lambda item: item))
        model = await run(toolset(ex, mode=mode), ("shop__price" if mode == "direct" else "search_tools", args))
    assert json.loads(model.received[0])["error"]["code"] == "validation_input"


@pytest.mark.parametrize(
    ("rule", "asks"),
    [
        (Rule("ask", tools="shop:price", callers="bob"), True),
        (Rule("ask", tools="shop:price", when={"item": "gold"}), True),
        (Rule("ask", tools="shop:other"), False),
        (Rule("deny", tools="shop:price", when={"item": "gold"}), False),
    ],
)
async def test_the_sdk_is_given_a_question_only_where_a_rule_may_ask(rule: Rule, asks: bool) -> None:
    """A tool that a rule asks about for some callers or arguments may interrupt a run, no other one does."""
    async with Exec(gate=Gate(policy=Policy([rule]))) as ex:
        ex.add(tool("shop:price")(lambda item: item))
        [made] = toolset(ex)
    assert bool(made.needs_approval) is asks


async def test_null_stands_for_an_optional_argument_that_is_left_out() -> None:
    """Null is as if the argument were not there, for tools and for those that find them."""
    async with make_shop() as ex:
        direct = await run(toolset(ex), ("shop__price", {"item": "tea", "currency": None}))
        search = await run(toolset(ex, mode="search"), ("search_tools", {"query": "price", "limit": None}))
    assert json.loads(direct.received[0])["currency"] == "EUR"
    assert json.loads(search.received[0])["tools"]


async def test_tools_can_be_copied() -> None:
    """Deep copies of an agent's tools call the tools of the same Exec."""
    async with make_shop() as ex:
        model = await run(copy.deepcopy(toolset(ex)), ("shop__price", {"item": "tea"}))
    assert json.loads(model.received[0])["price"] == 3


async def test_an_image_reaches_the_model_as_one() -> None:
    """A reply with a picture is text and picture for the model."""
    async with make_shop() as ex:
        model = await run(toolset(ex), ("shop__photo", {"item": "cup"}))
    kinds = [part["type"] for part in model.received[0]]
    assert kinds == ["input_text", "input_image"]
    assert model.received[0][1]["image_url"].startswith("data:image/png;base64,")


async def test_names_and_schemas_are_what_the_api_takes() -> None:
    """Names have letters, digits, _ and -; a schema is strict only where that changes nothing of it."""
    async with make_shop() as ex:
        tools = {tool.name: tool for tool in toolset(ex)}
    assert set(tools) == {
        "shop__broken", "shop__photo", "shop__price", "shop__refund", "stock__everything", "stock__odd_names"
    }  # fmt: skip
    assert tools["shop__refund"].strict_json_schema
    assert not tools["shop__price"].strict_json_schema
    assert "currency" not in tools["shop__price"].params_json_schema["required"]


async def test_search_mode_finds_describes_and_runs() -> None:
    """Three tools stand for all: one finds, one describes, one runs behind the gate."""
    guard = Guard()
    async with make_shop(guard) as ex:
        model = await run(
            toolset(ex, mode="search"),
            ("search_tools", {"query": "price of an item", "limit": 1}),
            ("describe_tool", {"tool_id": "shop:price"}),
            ("run_tool", {"tool_id": "shop:price", "args": {"item": "tea"}}),
            ("run_tool", {"tool_id": "shop:refund", "args": {"order": 1}}),
            ("run_tool", {"tool": "shop:refund"}),
        )
    found, doc, value, refused, wrong = map(json.loads, model.received)
    assert [tool["id"] for tool in found["tools"]] == ["shop:price"]
    assert doc["tool"]["inputSchema"]["required"] == ["item"]
    assert value["price"] == 3
    assert refused["error"]["code"] == "policy_denied"
    assert wrong["error"]["code"] == "validation_input"
    assert [call.tool_id for call in guard.calls] == ["shop:price", "shop:refund"]


async def test_code_mode_runs_code_whose_calls_go_through_the_gate(sandbox: None) -> None:
    """Code calls tools behind the gate, and its value, or its failure, goes back to the model."""
    guard = Guard()
    async with make_shop(guard) as ex:
        model = await run(
            toolset(ex, mode="code"),
            ("describe_tool", {"tool_id": "shop:price"}),
            ("execute_code", {"code": "print('hm')\nreturn tools.shop.price(item='tea')['price'] * 2"}),
            ("execute_code", {"code": "tools.shop.refund(order=1)"}),
        )
    doc, value, refused = map(json.loads, model.received)
    assert "def price" in doc["stub"]
    assert value == {"value": 6, "stdout": "hm\n"}
    assert "refunds are for people" in refused["error"]["message"]
    assert [(call.tool_id, call.origin.path) for call in guard.calls] == [
        ("shop:price", "code"),
        ("shop:refund", "code"),
    ]


async def test_filters_hold_on_every_way_to_a_tool(sandbox: None) -> None:
    """Filtered tools are neither listed, found, described, run, nor called by code."""
    only = Filters(namespace="stock")
    async with make_shop() as ex:
        assert {tool.name for tool in toolset(ex, filters=only)} == {"stock__everything", "stock__odd_names"}
        model = await run(
            toolset(ex, mode="search", filters=only),
            ("search_tools", {"query": "price"}),
            ("describe_tool", {"tool_id": "shop:price"}),
            ("run_tool", {"tool_id": "shop:price", "args": {"item": "tea"}}),
        )
        found, doc, ran = map(json.loads, model.received)
        model = await run(
            toolset(ex, mode="code", filters=only),
            ("execute_code", {"code": "tools.run('shop:price', {'item': 'tea'})"}),
        )
        nothing = Filters(namespace="none")
        other = await run(
            toolset(ex, mode="code", filters=nothing), ("execute_code", {"code": "tools.run('stock:everything', {})"})
        )
    assert all(tool["namespace"] == "stock" for tool in found["tools"])
    assert doc["error"]["code"] == ran["error"]["code"] == "tool_not_found"
    assert "error" in json.loads(model.received[0])
    assert "error" in json.loads(other.received[0])


async def test_a_budget_brings_read_result_along() -> None:
    """A value over the budget comes as an outline, and read_result reads the rest for the same origin."""
    origin = Origin(session="one")
    async with make_shop(max_bytes=2000) as ex:
        first = await run(toolset(ex, origin=origin), ("stock__everything", {}))
        outline = json.loads(first.received[0])
        second = await run(
            toolset(ex, origin=origin), ("read_result", {"handle": outline["handle"], "path": "[499].name"})
        )
        third = await run(toolset(ex, origin=Origin(session="two")), ("read_result", {"handle": outline["handle"]}))
    assert len(first.received[0]) <= 2200
    assert json.loads(second.received[0])["value"] == "thing 499"
    assert json.loads(third.received[0])["error"]["code"] == "result_not_found"


async def test_another_gate_has_its_results_read() -> None:
    """A toolset that was made before `Exec.reconfigure` reads by the handles of the budget that there is now."""
    budgets = [Gate(budget=Budget(ResultStore(size))) for size in (2000, 3000)]
    async with Exec(gate=budgets[0]) as ex:
        ex.add(tool("shop:list")(lambda: [*range(5000)]))
        tools = toolset(ex)
        ex.reconfigure(gate=budgets[1])
        first = await run(tools, ("shop__list", {}))
        handle = json.loads(first.received[0])["handle"]
        second = await run(tools, ("read_result", {"handle": handle, "path": "[4999]"}))
    assert json.loads(second.received[0])["value"] == 4999


@pytest.mark.parametrize("mode", ["direct", "search"])
async def test_the_sdk_asks_for_approval_where_told(mode: Any) -> None:
    """A call that needs approval interrupts the run before anything happens; one that does not runs."""
    asked: list[Any] = []

    def needs(tool_id: str, args: Any) -> bool:
        asked.append((tool_id, dict(args)))
        return tool_id == "shop:refund"

    def call(tool_id: str, args: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return (
            (tool_id.replace(":", "__"), args) if mode == "direct" else ("run_tool", {"tool_id": tool_id, "args": args})
        )

    guard = Guard()
    async with make_shop(guard) as ex:
        tools = toolset(ex, mode=mode, needs_approval=needs)
        model = ScriptedModel(call("shop:price", {"item": "tea"}), call("shop:refund", {"order": 1}))
        result = await Runner.run(Agent(name="clerk", tools=tools, model=model), "go", run_config=NO_TRACES)
    assert len(result.interruptions) == 1
    assert ("shop:refund", {"order": 1}) in asked
    assert [made.tool_id for made in guard.calls] == ["shop:price"]


async def test_modes_that_cannot_be_are_refused() -> None:
    """An unknown mode, and code where code is switched off, are refused at once."""
    async with make_shop() as ex, make_shop(enable_code_execution=False) as other:
        with pytest.raises(ConfigurationError, match="direct, search, code"):
            toolset(ex, mode="all")  # pyright: ignore[reportArgumentType]
        with pytest.raises(ConfigurationError, match="switched off"):
            toolset(other, mode="code")


async def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names the extra to install."""
    monkeypatch.setitem(sys.modules, "agents", None)
    async with make_shop() as ex:
        with pytest.raises(MissingExtraError, match="openai-agents"):
            toolset(ex)


async def test_names_that_would_clash_or_are_too_long_end_in_a_hash() -> None:
    """Every tool has a name of its own, of at most 64 characters, that does not depend on the other tools' order."""
    async with make_shop() as ex:
        for name in ("a:b.c", "a:b_c", f"long:{'x' * 90}"):
            ex.add(lambda: 1, name)
        names = [tool.name for tool in toolset(ex, filters=Filters(namespace="a"))]
        (long,) = [tool.name for tool in toolset(ex, filters=Filters(namespace="long"))]
    assert len(set(names)) == 2
    assert all(name.startswith("a__b_c_") for name in names)
    assert len(long) == 64


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}, True),
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, False),
        ({"properties": {"a": {"type": "string", "minLength": 1}}, "required": ["a"], "additionalProperties": False}, False),
        ({"properties": {"a": True}, "required": ["a"], "additionalProperties": False}, False),
        ({"properties": {"a": {"items": {"type": "object"}}}, "required": ["a"], "additionalProperties": False}, False),
        ({"properties": {"a": {"$ref": "#/$defs/x", "items": {}}}, "required": ["a"], "$defs": {"x": {}}, "additionalProperties": False}, False),
    ],
)  # fmt: skip
async def test_a_schema_is_strict_only_where_that_changes_nothing(schema: dict[str, Any], strict: bool) -> None:
    """The model is told the tool's own schema, marked strict where it is that already."""
    async with Exec() as ex:
        ex.add(Tool(name="t", input_schema={"type": "object", **schema}), handler=lambda args: args)
        (made,) = toolset(ex)
    assert made.strict_json_schema is strict
    assert made.params_json_schema == {"type": "object", **schema}
