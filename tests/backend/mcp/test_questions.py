"""Which questions a server may ask, by its settings."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ElicitRequestFormParams, ErrorData

from toolexec import Exec
from toolexec.backend.mcp import MCPBackend, MCPServer
from toolexec.backend.mcp.files import read_mcp_server
from toolexec.backend.mcp.relay import Relay
from toolexec.errors import ConfigurationError
from toolexec.model.call import ToolCall
from toolexec.model.origin import Origin, acting
from toolexec.model.questions import QUESTIONS, ClientQuestion

SERVER = str(Path(__file__).parents[2] / "server" / "offers_server.py")
CONTEXT: Any = None  # the SDK's, which is not looked at
FORM = ElicitRequestFormParams(message="Who?", requested_schema={"type": "object", "properties": {}})


@pytest.mark.parametrize(("questions", "said"), [(["elicitation"], "accept Ann"), (["sampling", "roots"], "")])
async def test_a_server_asks_only_what_its_settings_allow(questions: Any, said: str) -> None:
    """A question of a listed kind is answered; one of another kind reaches no client, and its tool learns that."""
    asked: list[ClientQuestion] = []

    async def answer(question: ClientQuestion) -> dict[str, Any]:
        asked.append(question)
        return {"action": "accept", "content": {"name": "Ann"}}

    command = [SERVER, "stdio", "old", "0"]
    server = MCPServer(name="docs", command=sys.executable, args=command, stop_timeout=0.5, questions=questions)
    async with Exec() as ex:
        backend = MCPBackend(server)
        backend.relay.active = True
        await ex.add_backends(backend)
        with acting(Origin(answer=answer)):
            result = await ex.run_tool("docs:ask_name")
    assert [question.kind for question in asked] == (["elicitation"] if said else [])
    assert result.ok == bool(said)
    assert said in str(result.value)


async def test_a_question_that_is_not_listed_is_refused_when_it_comes_all_the_same() -> None:
    """Servers do not learn of it, and one that asks nevertheless learns why it gets no answer."""

    async def answer(question: ClientQuestion) -> dict[str, Any]:
        raise AssertionError(question)

    relay = Relay("docs", ())
    relay.active = True
    assert not any(map(relay.takes, QUESTIONS))
    with relay.during(ToolCall("docs:x", {}, origin=Origin(answer=answer))):
        for refused in (await relay.elicitation(CONTEXT, FORM), await relay.roots(CONTEXT)):
            assert isinstance(refused, ErrorData)
            assert "this server may not ask for it" in refused.message


def test_the_settings_of_a_file_say_which() -> None:
    """All kinds are the default; a list in a file takes their place, and what is not a kind is refused."""

    def read(**entry: Any) -> MCPServer:
        return read_mcp_server("docs", {"command": "x", **entry}, where="file", directory=Path())

    assert tuple(read().questions) == QUESTIONS
    assert list(read(questions=[]).questions) == []
    assert list(read(questions=["roots"]).questions) == ["roots"]
    for wrong in (["samplin"], "sampling"):
        with pytest.raises(ConfigurationError, match="questions"):
            read(questions=wrong)
