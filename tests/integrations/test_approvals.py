"""What a framework's user approved is the gate's approval: of that call, with those arguments, once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.integrations.asking import Person, asking_shop
from tests.integrations.test_langchain import script
from tests.integrations.test_openai_agents import NO_TRACES, Agent, Runner, ScriptedModel

from toolexec import Exec
from toolexec.errors import ApprovalDeniedError, ApprovalRequiredError
from toolexec.integrations.langchain import tools as langchain_tools
from toolexec.integrations.openai_agents import toolset
from toolexec.integrations.pydantic_ai import ExecToolset
from toolexec.model.origin import Caller, Origin, acting

ORDER = {"order": 1, "token": "sk-abcdefghijklmnopqrstuvwx"}
SHAPES = [("direct", "shop__refund", ORDER), ("search", "run_tool", {"tool_id": "shop:refund", "args": ORDER})]


# -- the seam -----------------------------------------------------------------------------------------------------


async def test_an_approval_is_for_one_call_with_these_arguments() -> None:
    """The same call a second time, other arguments and another caller are asked about as always."""
    person = Person()
    ex, made = asking_shop(person)
    async with ex:
        assert ex.needs_approval("shop:refund", ORDER)
        assert not ex.needs_approval("shop:price", {"item": "tea"})
        assert not ex.needs_approval("shop:unknown")
        with ex.approved("shop:refund", {"token": ORDER["token"], "order": 1}):
            with pytest.raises(ApprovalDeniedError):
                await ex.run_tool("shop:refund", {**ORDER, "token": "sk-abcdefghijklmnopqrstuvwy"})
            assert (await ex.run_tool("shop:refund", ORDER)).ok
            with pytest.raises(ApprovalDeniedError):
                await ex.run_tool("shop:refund", ORDER)
        with ex.approved("shop:refund", ORDER) as origin, acting(Origin(caller=Caller(id="eve"), ask=origin.ask)):
            with pytest.raises(ApprovalDeniedError):
                await ex.run_tool("shop:refund", ORDER)
    assert made == [ORDER]
    assert len(person.asked) == 3


async def test_without_another_approver_the_call_is_refused() -> None:
    """The error says that the call needs an approval of its own."""
    ex, made = asking_shop()
    async with ex:
        with ex.approved("shop:refund", ORDER), pytest.raises(ApprovalRequiredError, match="of its own"):
            await ex.run_tool("shop:refund", {"order": 2})
    assert made == []


async def test_the_default_gate_asks_about_no_tool_of_this_program() -> None:
    """An Exec that was given no gate can be asked, too."""
    async with Exec() as ex:
        ex.add(lambda order: order, "shop:refund")
        assert not ex.needs_approval("shop:refund", {"order": 1})
        with ex.approved("shop:refund", {"order": 1}):
            assert (await ex.run_tool("shop:refund", {"order": 1})).ok


# -- OpenAI Agents ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "name", "args"), SHAPES)
async def test_an_approval_of_openai_agents(mode: Any, name: str, args: Any) -> None:
    """The run is interrupted; approved, the call runs, and the gate asks no more; the next call interrupts again."""
    person = Person()
    ex, made = asking_shop(person)
    async with ex:
        model = ScriptedModel((name, args), (name, args))
        agent = Agent(name="clerk", tools=toolset(ex, mode=mode), model=model)
        result = await Runner.run(agent, "go", run_config=NO_TRACES)
        assert made == []
        state = result.to_state()
        state.approve(result.interruptions[0])
        result = await Runner.run(agent, state, run_config=NO_TRACES)
        assert made == [ORDER]
        assert len(result.interruptions) == 1
        state = result.to_state()
        state.reject(result.interruptions[0])
        result = await Runner.run(agent, state, run_config=NO_TRACES)
    assert result.final_output == "done"
    assert made == [ORDER]
    assert person.asked == []


async def test_openai_agents_approve_all_calls_of_a_tool() -> None:
    """That is an approval of the call which was shown; the gate asks about the next one."""
    person = Person()
    ex, made = asking_shop(person)
    async with ex:
        model = ScriptedModel(("shop__refund", ORDER), ("shop__refund", {"order": 2, "token": ""}))
        agent = Agent(name="clerk", tools=toolset(ex), model=model)
        result = await Runner.run(agent, "go", run_config=NO_TRACES)
        state = result.to_state()
        state.approve(result.interruptions[0], always_approve=True)
        result = await Runner.run(agent, state, run_config=NO_TRACES)
    assert made == [ORDER]
    assert [request.args["order"] for request in person.asked] == [2]
    assert "approval_denied" in str(model.received[-1])


async def test_openai_agents_resume_in_another_process() -> None:
    """A state that went through JSON, and a toolset that never saw the call, take the approval, too."""
    first, _ = asking_shop()
    second, made = asking_shop()
    async with first, second:
        model = ScriptedModel(("shop__refund", ORDER))
        paused = await Runner.run(Agent(name="clerk", tools=toolset(first), model=model), "go", run_config=NO_TRACES)
        agent = Agent(name="clerk", tools=toolset(second), model=model)
        from agents import RunState

        state: Any = await RunState.from_json(agent, json.loads(json.dumps(paused.to_state().to_json())))
        state.approve(state.get_interruptions()[0])
        result = await Runner.run(agent, state, run_config=NO_TRACES)
    assert result.final_output == "done"
    assert made == [ORDER]


# -- Pydantic AI --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "name", "args"), SHAPES)
async def test_an_approval_of_pydantic_ai(mode: Any, name: str, args: Any) -> None:
    """The call is deferred; approved, it runs, and the gate asks no more; arguments that the user puts in place of the
    model's are what was approved."""
    import pydantic_ai
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        if len(returned) == 3:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart(name, args)])

    person = Person()
    ex, made = asking_shop(person)
    changed = {"order": 7, "token": ""}
    other = {**args, "args": changed} if mode == "search" else changed
    answers: list[Any] = [True, pydantic_ai.ToolApproved(override_args=other), pydantic_ai.ToolDenied("no")]
    async with ex:
        agent: Any = pydantic_ai.Agent(
            FunctionModel(answer),
            toolsets=[ExecToolset(ex, mode=mode)],
            output_type=[str, pydantic_ai.DeferredToolRequests],
        )
        result = await agent.run("go")
        for number, decision in enumerate(answers):
            assert isinstance(result.output, pydantic_ai.DeferredToolRequests)
            assert len(made) == number
            call = result.output.approvals[0]
            decided = pydantic_ai.DeferredToolResults(approvals={call.tool_call_id: decision})
            result = await agent.run(message_history=result.all_messages(), deferred_tool_results=decided)
    assert result.output == "done"
    assert made == [ORDER, changed]
    assert person.asked == []


# -- programs -----------------------------------------------------------------------------------------------------


PROGRAM = {"code": "first = tools.shop.price(item='tea')\nreturn [first, tools.shop.refund(order=1)]"}


async def _by_openai(ex: Exec) -> str:
    model = ScriptedModel(("execute_code", PROGRAM))
    agent = Agent(name="clerk", tools=toolset(ex, mode="code"), model=model)
    result = await Runner.run(agent, "go", run_config=NO_TRACES)
    assert result.interruptions == []
    return str(model.received[-1])


async def _by_pydantic(ex: Exec) -> str:
    import pydantic_ai
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        returned = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        return ModelResponse(parts=[TextPart(str(returned[0].content))] if returned else [code])

    code = ToolCallPart("execute_code", PROGRAM)
    agent: Any = pydantic_ai.Agent(FunctionModel(answer), toolsets=[ExecToolset(ex, mode="code")])
    return str((await agent.run("go")).output)


async def _by_langchain(ex: Exec) -> str:
    tool = next(tool for tool in langchain_tools(ex, mode="code") if tool.name == "execute_code")
    answer = await tool.ainvoke({"name": tool.name, "args": PROGRAM, "id": "c", "type": "tool_call"})
    return str(answer.content)


@pytest.mark.parametrize("run", [_by_openai, _by_pydantic, _by_langchain])
async def test_a_program_is_not_suspended_for_an_approval(run: Any) -> None:
    """A call in a program is not made unasked: without an approver of the gate, the error says which rule allows it."""
    ex, made = asking_shop()
    async with ex:
        said = await run(ex)
    assert made == []
    assert "call it outside of the program" in said
    assert "give the gate an approver" in said
    assert "effect" in said
    assert "shop:refund" in said


@pytest.mark.parametrize("answer", ["once", "no"])
@pytest.mark.parametrize("run", [_by_openai, _by_pydantic, _by_langchain])
async def test_the_approver_of_the_gate_is_asked_about_a_call_in_a_program(run: Any, answer: str) -> None:
    """The gate's approver sees the call with its arguments, once, while the program waits."""
    asked: list[Any] = []

    def person(request: Any) -> Any:
        asked.append((request.tool_id, dict(request.args), request.path))
        return answer

    ex, made = asking_shop(person)
    async with ex:
        said = await run(ex)
    assert asked == [("shop:refund", {"order": 1}, "code")]
    assert made == ([{"order": 1, "token": ""}] if answer == "once" else [])
    assert ("refunded 1" in said) is (answer == "once")


# -- LangChain and LangGraph --------------------------------------------------------------------------------------


async def test_outside_of_a_graph_the_gate_asks() -> None:
    """There is no user of a graph then."""
    person = Person()
    ex, made = asking_shop(person)
    async with ex:
        tool = next(tool for tool in langchain_tools(ex) if tool.name == "shop__refund")
        answer = await tool.ainvoke({"name": tool.name, "args": ORDER, "id": "c", "type": "tool_call"})
    assert answer.status == "error"
    assert made == []
    assert len(person.asked) == 1


@pytest.mark.parametrize(
    ("resume", "runs"),
    [(True, True), ({"decisions": [{"type": "approve"}]}, True), ({"decisions": [{"type": "reject"}]}, False)]
    + [(answer, False) for answer in (False, "yes", ["approve"], {"decisions": [{"type": "approve"}] * 2})],
)
@pytest.mark.parametrize("blocking", [False, True])
async def test_an_interrupt_of_langgraph(resume: Any, runs: bool, blocking: bool) -> None:
    """The graph is interrupted with the call; resumed with a yes it runs, and the gate asks no more."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode
    from langgraph.types import Command

    person = Person()
    ex, made = asking_shop(person)
    model = script(("shop__refund", ORDER), ("shop__refund", {"order": 2}))

    def clerk(state: Any) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    def after(state: Any) -> str:
        return "tools" if state["messages"][-1].tool_calls else END

    found = None if not blocking else ex.sync.__enter__()
    try:
        if not blocking:
            await ex.start()
        graph: Any = StateGraph(MessagesState)
        graph.add_node("clerk", clerk)
        graph.add_node("tools", ToolNode(langchain_tools(ex)))
        graph.add_edge(START, "clerk")
        graph.add_conditional_edges("clerk", after)
        graph.add_edge("tools", "clerk")
        app = graph.compile(checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": "t"}}

        async def step(what: Any) -> Any:
            return app.invoke(what, config) if blocking else await app.ainvoke(what, config)

        paused = await step({"messages": [("user", "go")]})
        request = paused["__interrupt__"][0].value["action_requests"][0]
        assert (request["name"], request["args"]) == ("shop__refund", ORDER)
        again = await step(Command(resume=resume))
        assert made == ([ORDER] if runs else [])
        assert again["__interrupt__"][0].value["action_requests"][0]["args"]["order"] == 2
    finally:
        if found is not None:
            ex.sync.__exit__(None, None, None)
        else:
            await ex.aclose()
    assert person.asked == []
