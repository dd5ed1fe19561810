"""What a framework's user approved is the gate's approval of a run of code: of that code, once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integrations.asking import Person
from tests.integrations.test_langchain import script
from tests.integrations.test_openai_agents import NO_TRACES, Agent, Runner, ScriptedModel

from toolexec import Exec
from toolexec.errors import ApprovalDeniedError
from toolexec.integrations.langchain import tools as langchain_tools
from toolexec.integrations.openai_agents import toolset
from toolexec.integrations.pydantic_ai import ExecToolset
from toolexec.model.origin import Caller, Origin, acting
from toolexec.run.gate import Gate
from toolexec.run.layers.approval import Approval
from toolexec.run.policy import Policy, Rule
from toolexec.testing import ScriptedSandbox

ADD = {"code": "1 + 1"}


def asking_about_code(ask: Any = None) -> tuple[Exec, ScriptedSandbox]:
    """Return an Exec whose policy asks before each run of code, and its sandbox."""
    policy = Policy([Rule("ask", runs="code", reason="it is code"), Rule("allow", tools="*")])
    sandbox = ScriptedSandbox({"1 + 1": 2, "3": 3})
    return Exec(
        gate=Gate(policy=policy, approval=Approval(policy.decide, ask=ask)), runtime_backends=[sandbox]
    ), sandbox


async def test_an_approval_of_code_is_for_one_run_of_it() -> None:
    """The same code a second time, other code and another caller are asked about as always."""
    person = Person()
    ex, sandbox = asking_about_code(person)
    async with ex:
        assert ex.needs_approval("execute_code", ADD)
        assert not ex.needs_approval("execute_code", {"code": 1})
        with ex.approved("execute_code", ADD):
            with pytest.raises(ApprovalDeniedError):
                await ex.execute_code("3")
            assert (await ex.execute_code("1 + 1", allowed_tools=[])).value == 2
            with pytest.raises(ApprovalDeniedError):
                await ex.execute_code("1 + 1")
        with ex.approved("execute_code", ADD) as origin, acting(Origin(caller=Caller(id="eve"), ask=origin.ask)):
            with pytest.raises(ApprovalDeniedError):
                await ex.execute_code("1 + 1")
    assert len(sandbox.requests) == 1
    assert len(person.asked) == 3


async def test_code_that_is_denied_or_allowed_needs_no_approval() -> None:
    """Code is refused by its own run, or runs."""
    for effect in ("allow", "deny"):
        async with Exec(gate=Gate(policy=Policy([Rule(effect, runs="code")]))) as ex:
            assert not ex.needs_approval("execute_code", ADD)
    async with Exec() as ex:
        assert not ex.needs_approval("execute_code", ADD)


async def test_openai_agents_approve_code() -> None:
    """The run of the agent is interrupted before the code runs."""
    person = Person()
    ex, sandbox = asking_about_code(person)
    async with ex:
        agent = Agent(
            name="clerk",
            tools=toolset(ex, mode="code"),
            model=ScriptedModel(("execute_code", ADD), ("execute_code", ADD)),
        )
        result = await Runner.run(agent, "go", run_config=NO_TRACES)
        assert sandbox.requests == []
        state = result.to_state()
        state.approve(result.interruptions[0])
        result = await Runner.run(agent, state, run_config=NO_TRACES)
        assert len(sandbox.requests) == 1
        state = result.to_state()
        state.reject(result.interruptions[0])
        result = await Runner.run(agent, state, run_config=NO_TRACES)
    assert result.final_output == "done"
    assert len(sandbox.requests) == 1
    assert person.asked == []


async def test_pydantic_ai_approves_code() -> None:
    """The run of code is deferred; what the user puts in its place is what was approved."""
    import pydantic_ai
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        done = any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
        return ModelResponse(parts=[TextPart("done") if done else ToolCallPart("execute_code", ADD)])

    person = Person()
    ex, sandbox = asking_about_code(person)
    async with ex:
        toolsets = [ExecToolset(ex, mode="code")]
        output: Any = [str, pydantic_ai.DeferredToolRequests]
        agent: Any = pydantic_ai.Agent(FunctionModel(answer), toolsets=toolsets, output_type=output)
        result = await agent.run("go")
        call = result.output.approvals[0]
        assert result.output.metadata[call.tool_call_id] == {"tool_id": "execute_code"}
        assert sandbox.requests == []
        approvals: Any = {call.tool_call_id: pydantic_ai.ToolApproved(override_args={"code": "3"})}
        decided = pydantic_ai.DeferredToolResults(approvals=approvals)
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=decided)
    assert result.output == "done"
    assert [request.code for request in sandbox.requests] == ["3"]
    assert person.asked == []


async def test_langgraph_approves_code() -> None:
    """The graph is interrupted with the code."""
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode
    from langgraph.types import Command

    person = Person()
    ex, sandbox = asking_about_code(person)
    async with ex:
        graph: Any = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode(langchain_tools(ex, mode="code")))
        graph.add_edge(START, "tools")
        graph.add_edge("tools", END)
        app = graph.compile(checkpointer=InMemorySaver())
        config: Any = {"configurable": {"thread_id": "t"}}
        message = script(("execute_code", ADD)).invoke("go")
        paused = await app.ainvoke({"messages": [message]}, config)
        assert paused["__interrupt__"][0].value["action_requests"][0]["args"] == ADD
        assert sandbox.requests == []
        await app.ainvoke(Command(resume=True), config)
    assert len(sandbox.requests) == 1
    assert person.asked == []
