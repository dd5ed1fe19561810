"""Whose client is asked what a server asks: the one whose call it works on, and no other."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Any

import pytest
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ErrorData,
    SamplingMessage,
    TextContent,
)

from toolexec.backend.mcp.relay import Relay
from toolexec.model.call import ToolCall
from toolexec.model.origin import Caller, Origin
from toolexec.model.questions import ClientQuestion

CONTEXT: Any = None  # the SDK's, which is not looked at
PARAMS = CreateMessageRequestParams(
    messages=[SamplingMessage(role="user", content=TextContent(type="text", text="hi"))],
    max_tokens=5,
    include_context="allServers",
)


def made_by(name: str, caller: str = "", session: str = "s", **settings: Any) -> ToolCall:
    """Return a call whose client answers with *name*."""

    async def answer(question: ClientQuestion) -> dict[str, Any]:
        assert "includeContext" not in question.params
        return {"role": "assistant", "content": {"type": "text", "text": name}, "model": "m"}

    origin = Origin(caller=Caller(id=caller), session=session, answer=answer, **settings)
    return ToolCall("s:tool", {}, origin=origin)


async def asked(relay: Relay) -> str:
    """Return who answers a question that comes outside of any call, as those of the older era do."""
    found = await asyncio.create_task(relay.sampling(CONTEXT, PARAMS), context=Context())
    if isinstance(found, ErrorData):
        return found.message
    assert isinstance(found, CreateMessageResult)
    assert isinstance(found.content, TextContent)
    return found.content.text


async def test_the_only_caller_is_asked():
    """While calls of one conversation are under way, the last of them is asked; after them no client is."""
    relay = Relay("s")
    with relay.during(made_by("first")), relay.during(made_by("second")):
        assert await asked(relay) == "second"
    assert "it is not known for whom" in await asked(relay)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (made_by("ann", "ann"), made_by("bob", "bob")),
        (made_by("a", session="1"), made_by("b", session="2")),
        (made_by("a", approvals="once"), made_by("b", approvals="once")),
    ],
    ids=["callers", "sessions", "strangers"],
)
async def test_no_client_is_asked_for_another(one: ToolCall, other: ToolCall):
    """While calls of several are under way, and the question does not say whose it is, it is refused."""
    relay = Relay("s")
    with relay.during(one):
        with relay.during(other):
            assert "it is not known for whom" in await asked(relay)
        assert "not known" not in await asked(relay)


async def test_a_question_within_a_call_is_of_that_call():
    """In the newer era a question comes as the answer to a call, whatever else is under way."""
    relay = Relay("s")
    with relay.during(made_by("ann", "ann")), relay.during(made_by("bob", "bob")):
        found = await relay.sampling(CONTEXT, PARAMS)
    assert isinstance(found, CreateMessageResult)
    assert found.content == TextContent(type="text", text="bob")


async def test_a_server_cannot_ask_without_end():
    """One call may ask 50 questions."""
    relay = Relay("s")
    with relay.during(made_by("ann")):
        answers = [await asked(relay) for _ in range(51)]
    assert answers[:50] == ["ann"] * 50
    assert "too many questions" in answers[50]


async def test_a_form_without_end_is_not_looked_through():
    """A form of more than 64 KB is refused before anything is looked for in it."""
    relay = Relay("s")
    form = ElicitRequestFormParams(message="x" * 70_000, requested_schema={"type": "object", "properties": {}})
    with relay.during(made_by("ann")):
        found = await relay.elicitation(CONTEXT, form)
    assert isinstance(found, ErrorData)
    assert "too long a question" in found.message
