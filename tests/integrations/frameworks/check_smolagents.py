"""Run in the environment of `requirements.txt` here: agents of smolagents use the tools of an Exec."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from smolagents import CodeAgent, ToolCallingAgent
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    Model,
    get_tool_json_schema,
)
from tests.integrations.asking import Person, asking_shop
from tests.integrations.frameworks.page import lines_of
from tests.integrations.shop import Guard, make_shop

from toolexec import Exec, Filters, Tool
from toolexec.integrations.smolagents import tools
from toolexec.model.origin import Caller, Origin

END = ("final_answer", {"answer": "done"})


class Script(Model):
    """A model that asks for these calls, one a turn, or writes these programs; `read` is all that it was sent."""

    def __init__(self, *turns: Any) -> None:
        super().__init__(model_id="script")
        self.turns = iter(turns)
        self.shown: list[Any] = []
        self.read = ""

    def generate(self, messages: Any, tools_to_call_from: Any = None, **kwargs: Any) -> ChatMessage:
        self.read = str([message.content for message in messages])
        self.shown = [get_tool_json_schema(tool)["function"] for tool in tools_to_call_from or ()]
        turn = next(self.turns)
        if isinstance(turn, str):
            return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: go\n<code>\n{turn}\n</code>")
        calls = [
            ChatMessageToolCall(
                id=f"c{number}",
                type="function",
                function=ChatMessageToolCallFunction(name=name, arguments=arguments),
            )
            for number, (name, arguments) in enumerate(turn if isinstance(turn, list) else [turn])
        ]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls)


def run(found: list[Any], *turns: Any) -> Script:
    model = Script(*turns, END)
    assert ToolCallingAgent(found, model, verbosity_level=0).run("go") == "done"
    return model


@pytest.fixture
def guard() -> Guard:
    return Guard()


@pytest.fixture
def ex(guard: Guard) -> Iterator[Exec]:
    made = make_shop(guard)
    with made.sync:
        yield made


def test_calls_go_through_the_gate_for_the_origin(ex: Exec, guard: Guard) -> None:
    """Calls, those of one turn at the same time too, run behind the gate; the model reads the values."""
    origin = Origin(caller=Caller(id="ann"))
    model = run(
        tools(ex, origin=origin),
        ("shop__price", {"item": "tea"}),
        [("shop__price", {"item": "jam", "currency": None}), ("shop__price", {"item": "pie", "currency": "CHF"})],
    )
    assert [(call.tool_id, call.origin.caller.id) for call in guard.calls] == [("shop:price", "ann")] * 3
    assert "'item': 'jam', 'price': 3, 'currency': 'EUR'" in model.read
    assert "'item': 'pie', 'price': 3, 'currency': 'CHF'" in model.read
    shown = {each["name"]: each for each in model.shown}["shop__price"]
    assert shown["description"].endswith("the price of an item.")
    assert shown["parameters"]["properties"]["item"]["description"] == "what to buy"
    assert shown["parameters"]["required"] == ["item"]


def test_what_is_refused_or_fails_is_read_by_the_model_and_the_run_goes_on(ex: Exec) -> None:
    """A refusal and a failure are errors with a code."""
    model = run(tools(ex), ("shop__refund", {"order": 1}), ("shop__broken", {}))
    assert "policy_denied" in model.read
    assert "handler_failed" in model.read


def test_a_code_agent_gets_values(ex: Exec) -> None:
    """Programs call tools by position and by name, compute with values, and catch what fails."""
    program = "final_answer(shop__price('tea')['price'] + shop__price(item='jam', currency='CHF')['price'])"
    agent = CodeAgent(tools(ex), Script(program), verbosity_level=0)
    assert agent.run("go") == 6
    caught = "try:\n    shop__refund(order=1)\nexcept Exception as error:\n    final_answer(str(error))"
    answer = CodeAgent(tools(ex), Script(caught), verbosity_level=0).run("go")
    assert "policy_denied" in answer


def test_the_modes_work(ex: Exec, guard: Guard) -> None:
    """Search mode finds, describes and runs, within the filters; code mode runs a program in the sandbox."""
    model = run(
        tools(ex, mode="search", filters=Filters(namespace="shop")),
        ("search_tools", {"query": "price", "limit": None}),
        ("describe_tool", {"tool_id": "shop:price"}),
        ("run_tool", {"tool_id": "shop:price", "args": {"item": "tea"}}),
        ("run_tool", {"tool_id": "stock:everything"}),
    )
    assert "the price of an item." in model.read
    assert "'price': 3" in model.read
    assert "tool_not_found" in model.read
    model = run(tools(ex, mode="code"), ("execute_code", {"code": "tools.shop.price(item='tea')['price'] + 1"}))
    assert "{'value': 4}" in model.read
    assert [call.origin.path for call in guard.calls] == ["direct", "code"]


@pytest.mark.parametrize("answer", ["once", "no"])
def test_the_gate_asks(answer: str) -> None:
    """A call that needs an approval is put to the gate's approver while the agent waits."""
    asked: list[Any] = []
    ex, made = asking_shop(lambda request: asked.append(dict(request.args)) or answer)
    with ex.sync:
        model = run(tools(ex), ("shop__refund", {"order": 7}))
    assert asked == [{"order": 7}]
    assert [each["order"] for each in made] == ([7] if answer == "once" else [])
    assert ("refunded 7" in model.read) is (answer == "once")
    assert ("approval_denied" in model.read) is (answer == "no")
    ex, made = asking_shop()
    with ex.sync:
        assert "approval_required" in run(tools(ex), ("shop__refund", {"order": 7})).read
    assert made == []
    assert Person().asked == []


NODE = {"type": "object", "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}}}
HARD = Tool(
    name="hard-one",
    namespace="class",
    description="Takes what is hard to say.",
    input_schema={
        "type": "object",
        "$defs": {"node": NODE, "kind": {"enum": ["a", "b"]}},
        "properties": {
            "self": {"$ref": "#/$defs/node"},
            "kind": {"$ref": "#/$defs/kind"},
            "size": {"anyOf": [{"type": "number"}, {"type": "string"}], "description": "how large"},
            "any": {},
            "maybe": {"type": ["integer", "null"]},
            "sanitize_inputs_outputs": {"type": "boolean"},
        },
        "required": ["self", "size", "any", "maybe"],
    },
)


def test_names_and_arguments_of_every_kind() -> None:
    """Names are Python's, none is that of the end of a run; references, unions and odd names of arguments pass."""
    ex = Exec()
    with ex.sync:
        ex.add(HARD, handler=lambda args: args)
        for name in ("final_answer", "a-b:c", "a_b:c", "class", "2:go"):
            ex.add(lambda: "ours", name)
        found = tools(ex)
        names = [tool.name for tool in found]
        assert len({*names}) == len(names) == 6
        assert "final_answer" not in names
        assert {"class__hard_one", "tool_class", "tool_2__go"} < {*names}
        hard = next(tool for tool in found if tool.name == "class__hard_one")
        args = {"self": {"name": "x"}, "size": 3, "any": [1], "maybe": None, "sanitize_inputs_outputs": True}
        assert hard(**args) == args
        assert hard(args) == args
        model = run(found, ("class__hard_one", args))
        assert "'self': {'name': 'x'}" in model.read
        assert hard.inputs["size"] == {"type": ["integer", "number", "string"], "description": "how large"}
        with pytest.raises(RuntimeError) as failed:
            hard(self=1)
        assert json.loads(str(failed.value))["error"]["code"] == "validation_input"
        with pytest.raises(RuntimeError, match="takes 6 arguments"):
            hard(*range(9))


def test_the_lines_of_the_page(ex: Exec) -> None:
    """The lines that the documents show run."""
    names: dict[str, Any] = {"ex": ex, "model": Script(("shop__price", {"item": "tea"}), END)}
    exec(lines_of("smolagents"), names)
    assert names["answer"] == "done"
