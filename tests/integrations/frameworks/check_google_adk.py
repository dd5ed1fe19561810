"""Run in the environment of `requirements.txt` here: agents of Google ADK use the tools of an Exec."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from tests.integrations.asking import Person, asking_shop
from tests.integrations.frameworks.page import lines_of
from tests.integrations.shop import Guard, make_shop

from toolexec import Filters
from toolexec.errors import ConfigurationError
from toolexec.integrations.google_adk import toolset
from toolexec.model.origin import Caller, Origin

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Script(BaseLlm):
    """A model that asks for these calls, one a turn, and then says "done"."""

    model: str = "script"
    turns: list[Any] = []
    shown: list[Any] = []

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        self.shown.append([tool for each in llm_request.config.tools or () for tool in each.function_declarations])
        if self.turns:
            name, args = self.turns.pop(0)
            part = types.Part.from_function_call(name=name, args=args)
        else:
            part = types.Part.from_text(text="done")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


class Session:
    """A session of a user with an agent that has a toolset, and a model that makes these calls."""

    def __init__(self, made: Any, *turns: Any) -> None:
        self.model = Script(turns=[*turns], shown=[])
        agent = LlmAgent(name="clerk", model=self.model, tools=[made])
        self.runner = InMemoryRunner(agent=agent, app_name="shop")
        self.session: Any = None
        self.responses: list[Any] = []
        self.confirmations: list[Any] = []
        self.said = ""

    async def send(self, *parts: types.Part) -> list[Any]:
        """Send a message; what tools answered in this turn. What is to be confirmed is in `confirmations`."""
        if self.session is None:
            self.session = await self.runner.session_service.create_session(app_name="shop", user_id="ann")
        self.responses, self.confirmations = [], []
        message = types.Content(role="user", parts=[*parts] or [types.Part.from_text(text="go")])
        async for event in self.runner.run_async(user_id="ann", session_id=self.session.id, new_message=message):
            self.responses += [each.response for each in event.get_function_responses()]
            calls = event.get_function_calls()
            self.confirmations += [call for call in calls if call.name == "adk_request_confirmation"]
            if event.content and event.content.parts:
                self.said = event.content.parts[-1].text or self.said
        return self.responses

    async def confirm(self, confirmed: Any) -> list[Any]:
        """Answer the one question there is."""
        (call,) = self.confirmations
        answer = types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": confirmed})
        return await self.send(types.Part(function_response=answer))


async def test_calls_go_through_the_gate_for_the_user_of_the_session() -> None:
    """Calls run behind the gate for the user; what is refused or fails is a response with a code."""
    guard = Guard()
    async with make_shop(guard) as ex:
        made = toolset(ex, origin=lambda context: Origin(caller=Caller(id=context.user_id)))
        session = Session(
            made,
            ("shop__price", {"item": "tea", "currency": None}),
            ("shop__refund", {"order": 1}),
            ("shop__broken", {}),
            ("shop__price", {"itm": "tea"}),
            ("shop__photo", {"item": "cup"}),
        )
        responses = await session.send()
        assert await made.get_tools() == []
        await made.close()
        assert (await ex.run_tool("shop:price", {"item": "tea"})).ok
    assert session.said == "done"
    assert responses[0] == {"item": "tea", "price": 3, "currency": "EUR"}
    assert [each["error"]["code"] for each in responses[1:4]] == ["policy_denied", "handler_failed", "validation_input"]
    assert responses[4] == {"result": "a cup"}
    assert {call.origin.caller.id for call in guard.calls[:-1]} == {"ann"}
    shown = {each.name: each for each in session.model.shown[0]}["shop__price"]
    assert shown.description.endswith("the price of an item.")
    assert shown.parameters_json_schema["required"] == ["item"]


async def test_the_modes_work_and_tools_that_come_later_are_seen() -> None:
    """Search mode finds and runs, within the filters; code mode runs a program; each step has the tools of then."""
    guard = Guard()
    async with make_shop(guard) as ex:
        origin = Origin(caller=Caller(id="bob"))
        found, value, missing = await Session(
            toolset(ex, mode="search", filters=Filters(namespace="shop"), origin=origin),
            ("search_tools", {"query": "price"}),
            ("run_tool", {"tool_id": "shop:price", "args": {"item": "tea"}}),
            ("run_tool", {"tool_id": "stock:everything"}),
        ).send()
        code = {"code": "tools.shop.price(item='tea')['price'] + 1"}
        (coded,) = await Session(toolset(ex, mode="code"), ("execute_code", code)).send()

        async def hire() -> str:
            ex.add(lambda: "late", "late:comer")
            return "hired"

        ex.add(hire, "shop:hire")
        late = await Session(toolset(ex), ("shop__hire", {}), ("late__comer", {})).send()
        with pytest.raises(ConfigurationError):
            toolset(ex, mode="other")  # type: ignore[arg-type]
    assert found["tools"][0]["id"] == "shop:price"
    assert value["price"] == 3
    assert missing["error"]["code"] == "tool_not_found"
    assert coded == {"value": 4}
    assert late == [{"result": "hired"}, {"result": "late"}]
    assert [(call.origin.path, call.origin.caller.id) for call in guard.calls[:1]] == [("direct", "bob")]


SHAPES = [
    ("direct", "shop__refund", {"order": 1}),
    ("search", "run_tool", {"tool_id": "shop:refund", "args": {"order": 1}}),
]


@pytest.mark.parametrize(("mode", "name", "args"), SHAPES)
async def test_a_call_is_confirmed(mode: Any, name: str, args: Any) -> None:
    """The session's user is asked before each call; a yes is for one call, and the gate asks no more."""
    person = Person()
    ex, made = asking_shop(person)
    async with ex:
        session = Session(toolset(ex, mode=mode), *[(name, args)] * 2)
        (waits,) = [each for each in await session.send() if each]
        assert waits["error"]["code"] == "approval_required"
        assert made == []
        asked = session.confirmations[0].args["originalFunctionCall"]
        assert (asked["name"], asked["args"]) == (name, args)
        responses = await session.confirm(True)
        assert {"result": "refunded 1"} in responses
        assert made == [{"order": 1, "token": ""}]
        responses = await session.confirm(False)
        assert [each["error"]["code"] for each in responses if "error" in each] == ["approval_denied"]
    assert session.said == "done"
    assert made == [{"order": 1, "token": ""}]
    assert person.asked == []


async def test_the_lines_of_the_page() -> None:
    """The lines that the documents show run."""
    async with make_shop() as ex:
        names: dict[str, Any] = {"ex": ex, "model": Script(turns=[("shop__price", {"item": "tea"})], shown=[])}
        exec(lines_of("Google ADK"), names)
        runner = InMemoryRunner(agent=names["agent"], app_name="shop")
        events = await runner.run_debug("What does tea cost?", quiet=True)
    assert events[-1].content.parts[0].text == "done"
