"""A tool of a served Exec that closes it: the client gets the outcome that a caller in the process gets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolexec import Exec, tool
from toolexec.server.app import ToolServer
from toolexec.server.in_process import InProcessClient
from toolexec.server.settings import ServeSettings

PATIENCE = 60
RUNS: dict[str, dict[str, Any]] = {
    "run_chain": {"steps": [{"tool_id": "t:close"}, {"tool_id": "t:last"}]},
    "run_workflow": {"workflow": 'run("t:close")\nreturn run("t:last")'},
    "execute_code": {"code": 'tools.run("t:close")\nreturn tools.run("t:last")'},
}


class Scene:
    """A server, a client of it, and what its tools have done."""

    def __init__(self) -> None:
        self.ex = Exec()
        self.done: list[str] = []

        @tool("t:close")
        async def close() -> str:
            await self.ex.aclose()
            await asyncio.sleep(0)
            self.done.append("closed")
            return "closed"

        @tool("t:last")
        async def last() -> None:
            self.done.append("last")

        self.ex.add(close)
        self.ex.add(last)
        self.server = ToolServer(self.ex, ServeSettings(expose="meta"))

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return the structured answer to a call of one of the server's own tools."""
        client = InProcessClient(self.server.lowlevel)
        params = {"name": name, "arguments": arguments}
        async with self.server:
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            answer = await asyncio.wait_for(client.send(message), PATIENCE)
            await client.aclose()
        assert answer is not None
        return answer["result"]["structuredContent"]


@pytest.mark.parametrize(("name", "arguments"), RUNS.items(), ids=RUNS)
async def test_a_run_is_stopped_after_the_call_that_closed_it(name: str, arguments: dict[str, Any]) -> None:
    """The call ends as it would have, no other follows, and the answer says why."""
    scene = Scene()
    answer = await scene.call(name, arguments)
    assert answer["error"]["code"] == "closed", answer
    assert scene.done == ["closed"]


async def test_a_single_call_is_answered() -> None:
    """A call alone ends with what its tool gives."""
    scene = Scene()
    answer = await scene.call("run_tool", {"tool_id": "t:close", "args": {}})
    assert answer["structured"] == "closed"
