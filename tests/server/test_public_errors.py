"""What callers read of backends that are down: their names and what to do, and nothing about where and how they run."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from tests.server.harness import connect, serving

from toolexec import Exec, InMemoryIndex, Tool
from toolexec.discovery.docs import DetailLevel, InMemoryDocStore, ToolDoc
from toolexec.errors import BackendUnavailableError, ConnectionLostError, ToolExecError
from toolexec.integrations.toolset import Toolset
from toolexec.model import MCPBinding
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool

URL = "http://user:hunter22@127.0.0.1:9/hidden/mcp?token=tok12345"
PRIVATE = ("hunter22", "/private", "tok12345", "127.0.0.1", "--password", "abc12345", "words-on-stderr", "/no/such")
BACKENDS = ("dead", "crash", "absent")


def broken() -> Exec:
    """An Exec with three servers that are down, each in another way, and a tool of each."""
    ex = Exec(start_timeout=10)
    ex.add_mcp("dead", url=URL)
    ex.add_mcp("crash", command=["sh", "-c", "echo words-on-stderr >&2; exit 3", "--password=abc12345"])
    ex.add_mcp("absent", command=["/no/such/program", "--password=abc12345"])
    for name in BACKENDS:
        ex.add(Tool(name="t", namespace=name, input_schema={"type": "object"}), binding=MCPBinding(name, "t"))
    return ex


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("list_backends", {}),
    ("search_tools", {"query": "t"}),
    *[("run_tool", {"tool_id": f"{name}:t"}) for name in BACKENDS],
    *[("run_tool", {"tool_id": f"{name}:never-listed"}) for name in BACKENDS],
    *[("describe_tool", {"tool_id": f"{name}:t", "detail_level": "full"}) for name in BACKENDS],
    *[("run_chain", {"steps": [{"tool_id": f"{name}:t"}]}) for name in BACKENDS],
    *[("execute_code", {"code": f"return tools.run('{name}:t', {{}})"}) for name in BACKENDS],
    ("execute_code", {"code": "try: tools.dead.t()\nexcept Exception as error: print(error, vars(error))"}),
]


@pytest.mark.full
async def test_no_reply_says_where_a_backend_is(caplog: pytest.LogCaptureFixture) -> None:
    """On every path; the log has the reason for operators, without secrets."""
    caplog.set_level(logging.WARNING, "toolexec.server")
    async with serving(broken()) as server, connect(server, "auto") as client:
        await server.ex.start()
        for name, args in CALLS:
            reply = (await client.call_tool(name, args)).model_dump_json()
            assert [word for word in PRIVATE if word in reply] == [], (name, args, reply)
            if name == "run_tool":
                assert "try again later" in reply
                assert args["tool_id"].partition(":")[0] in reply
    assert "/hidden/mcp" in caplog.text
    assert "words-on-stderr" in caplog.text
    assert "hunter22" not in caplog.text


async def test_neither_does_a_server_of_the_tools_themselves() -> None:
    """The same for `direct`."""
    async with serving(broken(), expose="direct") as server, connect(server, "auto") as client:
        await server.ex.start()
        for name in BACKENDS:
            reply = (await client.call_tool(f"{name}__t", {})).model_dump_json()
            assert [word for word in PRIVATE if word in reply] == [], reply


async def test_neither_does_a_resource_of_it() -> None:
    """The same for what is read of a server that is down."""
    ex = Exec(start_timeout=10)
    ex.add_mcp("dead", url=URL)
    async with serving(ex) as server, connect(server, "auto") as client:
        with pytest.raises(MCPError, match="try again later") as refused:
            await client.read_resource("toolexec://dead/file:///a")
        assert [word for word in PRIVATE if word in refused.value.error.model_dump_json()] == []


async def test_what_models_read_of_a_tool() -> None:
    """A model of another vendor reads that the tool is unavailable and what to do; operators read why."""
    async with broken() as ex:
        await ex.start()
        toolset = Toolset(ex, "search")
        find, describe = (face for face in toolset.faces() if face.name in ("search_tools", "describe_tool"))
        answers = [await toolset.call(find, {"query": "t"})]
        for name in BACKENDS:
            answers.append(await toolset.call(describe, {"tool_id": f"{name}:t"}))
        assert all("try again later" in answer.text for answer in answers)
        assert [word for word in PRIVATE if any(word in answer.text for answer in answers)] == []
        reasons = [str((await ex.get_tool_doc(f"{name}:t")).unavailable) for name in BACKENDS]
        assert any(word in reason for word in PRIVATE for reason in reasons)


class _Down(InMemoryDocStore):
    """Documentation that says why its tools are unavailable."""

    def describe(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        return replace(super().describe(tool_id, level), unavailable=URL)


async def test_what_code_reads_of_a_tool() -> None:
    """The same for the documentation that code asks for."""
    index = InMemoryIndex()
    index.register(Tool(name="t", namespace="dead", input_schema={"type": "object"}), MCPBinding("dead", "t"))
    async with Exec(index=index, docs=_Down(index)) as ex:
        done = await ex.execute_code("return str(tools.describe('dead:t'))")
        assert done.error is None, done.error
        assert [word for word in PRIVATE if word in str(done.value)] == []
        assert "try again later" in done.value


@pytest.mark.full
async def test_a_backend_that_dies_during_a_call() -> None:
    """The reply says that it is not known whether the tool did its work."""
    ex = Exec()
    command = ScriptedServer(tools=[ScriptedTool("die", raw="not JSON")]).command()
    ex.add_mcp("dying", command=["sh", "-c", 'exec "$@"', "--password=abc12345", *command])
    async with serving(ex) as server, connect(server, "auto") as client:
        await server.ex.start()
        try:
            reply = (
                await client.call_tool("run_tool", {"tool_id": "dying:die", "timeout_seconds": 2})
            ).model_dump_json()
        except MCPError as error:
            reply = str(error)
        assert [word for word in PRIVATE if word in reply] == []


@pytest.mark.parametrize("kind", [BackendUnavailableError, ConnectionLostError])
def test_the_public_error(kind: type[ToolExecError]) -> None:
    """The public error is of the same class and code, and has neither the reason nor the details."""
    error = kind("at http://host/x", tool_id="a:b", op="execute", backend="a", details={"reason": "http://host/x"})
    shown = error.public()
    assert (type(shown), shown.code, shown.tool_id, shown.op, shown.backend) == (
        kind,
        error.code,
        "a:b",
        "execute",
        "a",
    )
    assert shown.retryable is error.retryable
    assert "http" not in str(shown.to_dict())
    assert "the backend a" in shown.message
    assert str(error) == "at http://host/x"
