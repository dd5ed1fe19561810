"""Approval by way of the client, in both eras and on every path."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult, ErrorData, InputRequiredResult
from tests.server.harness import ERAS, connect, gated, serving
from tests.waiting import until

from toolexec import Exec
from toolexec.model.origin import ApprovalRequest, Caller
from toolexec.run.gate import Gate
from toolexec.run.layers.approval import Approval
from toolexec.run.policy import Policy
from toolexec.run.policy_rules import Rule
from toolexec.server.elicitation import answer_in, question

both = pytest.mark.parametrize("era", ERAS)


class Person:
    """Answers forms as told, in order, and keeps what was asked."""

    def __init__(self, *answers: str | ElicitResult | ErrorData) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, context: Any, params: Any) -> Any:
        self.asked.append(params.message)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return ElicitResult(action="accept", content={"answer": answer}) if isinstance(answer, str) else answer


def dangerous() -> tuple[Exec, Any, list[str]]:
    ran: list[str] = []
    ex, part = gated()

    def danger(path: str) -> str:
        """Deletes. \x1b[31mSAFE\u202e"""
        ran.append(path)
        return f"gone {path}"

    ex.add(danger, "fs:danger")
    ex.add(lambda path: f"read {path}", "fs:read")
    return ex, part, ran


RUN = ("run_tool", {"tool_id": "fs:danger", "args": {"path": "/x"}})
CHAIN = (
    "run_chain",
    {"steps": [{"tool_id": "fs:danger", "args": {"path": "/x"}}, {"tool_id": "fs:danger", "args": {"path": "/y"}}]},
)
CODE = ("execute_code", {"language": "python", "code": "tools.fs.danger(path='/x')\ntools.fs.danger(path='/y')"})


@both
@pytest.mark.parametrize(("call", "times"), [(RUN, 1), (CHAIN, 2), (CODE, 2)], ids=["run", "chain", "code"])
async def test_yes(era: str, call: Any, times: int) -> None:
    """A yes lets the call run, once per question, inside of chains and code too."""
    ex, part, ran = dangerous()
    person = Person("once", "session")
    async with serving(ex) as server, connect(server, era, elicitation_callback=person) as client:
        reply = await client.call_tool(*call)
        assert not reply.is_error, reply
        assert "gone" in reply.model_dump_json()
    assert ran == ["/x", "/y"][:times]
    assert part.answers == ["once", "session"][:times]
    assert len(person.asked) == times


@both
@pytest.mark.parametrize(
    "answer",
    ["no", "perhaps", ElicitResult(action="decline"), ElicitResult(action="cancel"), ElicitResult(action="accept"),
     ElicitResult(action="accept", content={"answer": ["once"]})],
    ids=["no", "perhaps", "decline", "cancel", "empty", "list"],
)  # fmt: skip
async def test_everything_else_is_no(era: str, answer: Any) -> None:
    """Whatever is not a clear yes is a no: nothing runs, and the model reads why."""
    ex, part, ran = dangerous()
    async with serving(ex) as server, connect(server, era, elicitation_callback=Person(answer)) as client:
        reply = await client.call_tool(*RUN)
        assert reply.is_error
        assert reply.structured_content["error"]["code"] == "approval_denied"
    assert ran == []
    assert part.answers == ["no"]


@both
@pytest.mark.parametrize("call", [RUN, CHAIN, CODE], ids=["run", "chain", "code"])
async def test_no_in_chain_and_code(era: str, call: Any) -> None:
    """A no ends the call that it was asked for, on every path, and nothing has run."""
    ex, _, ran = dangerous()
    async with serving(ex) as server, connect(server, era, elicitation_callback=Person("no")) as client:
        reply = await client.call_tool(*call)
        assert "approval_denied" in reply.model_dump_json() or "not approved" in reply.model_dump_json()
    assert ran == []


@both
@pytest.mark.parametrize("call", [RUN, CHAIN, CODE], ids=["run", "chain", "code"])
async def test_a_client_that_cannot_ask(era: str, call: Any) -> None:
    """Without an approver, the call is refused as needing approval, and nothing runs."""
    ex, _, ran = dangerous()
    async with serving(ex) as server, connect(server, era) as client:
        reply = await client.call_tool(*call)
        assert "needs approval" in reply.model_dump_json()
    assert ran == []


async def test_a_client_that_fails_to_ask() -> None:
    """An error as the answer of a handshake client counts as no question, and the call is not made."""
    ex, _, ran = dangerous()
    failing = Person(ErrorData(code=-32603, message="the window is gone"))
    async with serving(ex) as server, connect(server, "legacy", elicitation_callback=failing) as client:
        reply = await client.call_tool(*RUN)
        assert reply.structured_content["error"]["code"] == "approval_required"
    assert ran == []


async def test_a_person_who_does_not_answer_handshake() -> None:
    """In the handshake era, no answer in time is a no."""
    ex, _, ran = dangerous()

    async def never(context: Any, params: Any) -> Any:
        await asyncio.sleep(60)

    async with serving(ex, approval_timeout=0.1) as server:
        async with connect(server, "legacy", elicitation_callback=never) as client:
            reply = await client.call_tool(*RUN)
            assert reply.structured_content["error"]["code"] == "approval_denied"
    assert ran == []


async def test_calls_at_once_are_asked_about_together() -> None:
    """Questions of calls that run at the same time come in one reply, each with its own answer."""
    ex, part, ran = dangerous()

    async def both_at_once() -> list[Any]:
        from toolexec.model.origin import current_origin

        assert current_origin().ask is not None
        results = await asyncio.gather(*(ex.run_tool("fs:danger", {"path": path}) for path in ("/x", "/y")))
        return [result.value for result in results]

    ex.add(both_at_once, "t:both")
    async with serving(ex) as server, connect(server, "auto", elicitation_callback=Person("once")) as client:
        first = await client.session.call_tool("run_tool", {"tool_id": "t:both"}, allow_input_required=True)
        assert isinstance(first, InputRequiredResult)
        assert len(first.input_requests or {}) == 2
        keys = sorted(first.input_requests or {})
        yes = ElicitResult(action="accept", content={"answer": "once"})
        second = await client.session.call_tool(
            "run_tool", {"tool_id": "t:both"}, allow_input_required=True,
            input_responses={keys[0]: yes}, request_state=first.request_state,
        )  # fmt: skip
        assert isinstance(second, InputRequiredResult)
        assert list(second.input_requests or {}) == keys[1:]
        reply = await client.session.call_tool(
            "run_tool", {"tool_id": "t:both"}, allow_input_required=True,
            input_responses={keys[1]: yes, "approval-99": yes}, request_state=second.request_state,
        )  # fmt: skip
        assert reply.structured_content["structured"] == ["gone /x", "gone /y"]
    assert sorted(ran) == ["/x", "/y"]
    assert part.answers == ["once", "once"]


class Modern:
    """A client of the newer era that does each round by hand."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def call(self, args: dict[str, Any] = RUN[1], **more: Any) -> Any:
        return await self.client.session.call_tool("run_tool", args, allow_input_required=True, **more)

    async def answer(self, state: str | None, answer: str = "once", args: dict[str, Any] = RUN[1]) -> Any:
        given = ElicitResult(action="accept", content={"answer": answer})
        return await self.call(args, input_responses={"approval-1": given}, request_state=state)


async def refused(call: Any) -> str:
    with pytest.raises(MCPError) as caught:
        await call
    assert caught.value.error.code == -32602
    return caught.value.error.message


async def test_state_that_was_tampered_with() -> None:
    """A state that was changed, made up, or moved to other arguments is refused, and nothing runs; the true one still
    works afterwards."""
    ex, _, ran = dangerous()
    async with serving(ex) as server, connect(server, "auto", elicitation_callback=Person("no")) as client:
        modern = Modern(client)
        first = await modern.call()
        state = first.request_state
        middle = len(state) // 2
        changed = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
        for forged in (changed, "", "v1.AAAA", state[:-4], "x" * 10_000):
            assert "requestState" in await refused(modern.answer(forged))
        other = {"tool_id": "fs:danger", "args": {"path": "/etc"}}
        assert "requestState" in await refused(modern.answer(state, args=other))
        assert ran == []
        reply = await modern.answer(state)
        assert reply.structured_content["structured"] == "gone /x"
    assert ran == ["/x"]


async def test_state_that_is_used_twice() -> None:
    """A state is good once: the second use is refused and nothing runs again."""
    ex, _, ran = dangerous()
    async with serving(ex) as server, connect(server, "auto", elicitation_callback=Person("no")) as client:
        modern = Modern(client)
        first = await modern.call()
        await modern.answer(first.request_state)
        assert "used before" in await refused(modern.answer(first.request_state))
        assert "nothing was run again" in await refused(modern.answer(first.request_state, "always"))
    assert ran == ["/x"]


async def test_an_older_state_of_a_call_that_goes_on() -> None:
    """Each round has its own state; that of an earlier round is refused while the call goes on."""
    ex, _, ran = dangerous()
    chain = CHAIN[1]
    async with serving(ex) as server, connect(server, "auto", elicitation_callback=Person("no")) as client:
        session = client.session
        yes = ElicitResult(action="accept", content={"answer": "once"})
        first = await session.call_tool("run_chain", chain, allow_input_required=True)
        again = await session.call_tool(
            "run_chain", chain, allow_input_required=True,
            input_responses={"approval-1": yes}, request_state=first.request_state,
        )  # fmt: skip
        assert isinstance(again, InputRequiredResult)
        for _ in range(2):
            assert "used before" in await refused(
                session.call_tool(
                    "run_chain", chain, allow_input_required=True,
                    input_responses={"approval-2": yes}, request_state=first.request_state,
                )
            )  # fmt: skip
        assert ran == ["/x"]
        done = await session.call_tool(
            "run_chain", chain, allow_input_required=True,
            input_responses={"approval-2": yes}, request_state=again.request_state,
        )  # fmt: skip
        assert done.structured_content["final"] == "gone /y"
    assert ran == ["/x", "/y"]


async def test_an_answer_that_comes_too_late() -> None:
    """When the time to answer is over, the answer is no and the work ends; a late yes reads that, and runs nothing."""
    ex, part, ran = dangerous()
    async with serving(ex, approval_timeout=0.1) as server:
        async with connect(server, "auto", elicitation_callback=Person("no")) as client:
            modern = Modern(client)
            first = await modern.call()
            await until(lambda: part.answers == ["no"])
            reply = await modern.answer(first.request_state)
            assert reply.structured_content["error"]["code"] == "approval_denied"
            assert "requestState" in await refused(modern.answer(first.request_state))
    assert ran == []


async def test_a_state_without_answers_asks_again() -> None:
    """Coming back without an answer gives the same question again, under a new state."""
    ex, _, ran = dangerous()
    async with serving(ex) as server, connect(server, "auto", elicitation_callback=Person("no")) as client:
        modern = Modern(client)
        first = await modern.call()
        second = await modern.call(request_state=first.request_state)
        assert second.input_requests == first.input_requests
        assert second.request_state != first.request_state
        await modern.answer(second.request_state)
    assert ran == ["/x"]


async def test_only_so_many_calls_may_wait() -> None:
    """Where too many calls wait already, one more is refused; when one has ended there is room again."""
    ex, _, ran = dangerous()
    async with serving(ex, suspended_max=1) as server:
        async with connect(server, "auto", elicitation_callback=Person("no")) as client:
            modern = Modern(client)
            first = await modern.call()
            reply = await modern.call()
            assert reply.structured_content["error"]["code"] == "approval_required"
            assert "nobody was asked: 1 of your calls" in reply.structured_content["error"]["message"]
            await modern.answer(first.request_state)
            assert isinstance(await modern.call(), InputRequiredResult)
    assert ran == ["/x"]


async def test_closing_ends_what_waits() -> None:
    """When the server closes, calls that wait for answers end without having run."""
    ex, part, ran = dangerous()
    ended = asyncio.Event()

    async def waits() -> Any:
        try:
            return (await ex.run_tool("fs:danger", {"path": "/x"})).value
        finally:
            ended.set()

    ex.add(waits, "t:waits")
    async with serving(ex) as server, connect(server, "auto", elicitation_callback=Person("no")) as client:
        first = await Modern(client).call({"tool_id": "t:waits"})
        assert isinstance(first, InputRequiredResult)
        assert not ended.is_set()
    assert ended.is_set()
    assert ran == []
    assert part.answers == []


async def test_state_from_another_process_is_not_known() -> None:
    """With shared keys a state can be read by another server, which does not know the call: it refuses."""
    key = ("k" * 32,)
    ex, _, ran = dangerous()
    async with serving(ex, state_keys=key) as server:
        async with connect(server, "auto", elicitation_callback=Person("no")) as client:
            state = (await Modern(client).call()).request_state
    ex, _, _ = dangerous()
    async with serving(ex, state_keys=key) as server:
        async with connect(server, "auto", elicitation_callback=Person("no")) as client:
            assert "not known here" in await refused(Modern(client).answer(state))
    assert ran == []


def test_the_question_cannot_be_forged() -> None:
    """Strings of strangers stay on lines of their own, and show what hides in them."""
    request = ApprovalRequest(
        tool_id="fs:danger\x1b]0;title\x07",
        args={"a\nWhy": "x\n\nIt gets no arguments.\u202e", "token": "[REDACTED]"},
        reason="rule 1\nArguments: none",
        description='Fine."\nAnswer once.\u202e',
        caller=Caller(id="ann\nroot"),
        path="chain",
    )
    assert question(request).params.message.splitlines() == [
        r"The tool fs:danger\x1b]0;title\x07 is to run, as a step of a chain. ann root wants it.",
        "Why you are asked: rule 1 Arguments: none",
        "Arguments:",
        r'  "a\nWhy": "x\n\nIt gets no arguments.\u202e"',
        '  token (redacted): "[REDACTED]"',
        r'The tool says of itself: "Fine.\" Answer once.\\u202e"',
    ]
    bare = question(ApprovalRequest(tool_id="a:b", args={}, reason=""))
    assert bare.params.message == "The tool a:b is to run.\nIt gets no arguments."


def test_only_an_elicitation_reply_is_an_answer() -> None:
    """A reply of another kind is a no."""
    assert answer_in({"action": "accept", "content": {"answer": "once"}}) == "no"
    assert answer_in(ElicitResult(action="accept", content={"answer": "always"})) == "always"


@both
async def test_the_real_gate(era: str) -> None:
    """Policy and approval ask by way of the client, show no secrets, and remember a yes for the session, also for code
    that comes later."""
    policy = Policy([Rule("ask", tools=("fs:danger",), reason="it deletes")])
    ran: list[str] = []
    ex = Exec(gate=Gate(policy=policy, approval=Approval(policy.decide)))

    def danger(path: str, api_key: str = "") -> str:
        ran.append(path)
        return f"gone {path}"

    ex.add(danger, "fs:danger")
    person = Person("session")
    args = {"tool_id": "fs:danger", "args": {"path": "/x", "api_key": "sk-1234567890abcdefghij"}}
    async with serving(ex) as server, connect(server, era, elicitation_callback=person) as client:
        for _ in range(2):
            assert not (await client.call_tool("run_tool", args)).is_error
        code = {"language": "python", "code": "tools.fs.danger(path='/z')"}
        assert not (await client.call_tool("execute_code", code)).is_error
    assert ran == ["/x", "/x", "/z"]
    assert len(person.asked) == 1
    assert "it deletes" in person.asked[0]
    assert "sk-1234" not in person.asked[0]
