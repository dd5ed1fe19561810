"""The agent loops of three SDKs, with their own scripted models and three MCP servers, around one cassette.

`python -m tests.integrations.agent_loops record|replay DIRECTORY` prints, as JSON, what each model was answered; a
replay makes all of it ten times.
"""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from tests.integrations import test_langchain, test_openai_agents, test_pydantic_ai

from toolexec import Exec
from toolexec.integrations.langchain import tools as langchain_tools
from toolexec.integrations.openai_agents import toolset
from toolexec.integrations.pydantic_ai import ExecToolset
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool

TIMES: Final = 10


def calls(directory: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return what the models ask for: of a repository, of the clock, which is never the same, and of a third server."""
    repository = str(directory / "repository")
    return [
        ("git__git_status", {"repo_path": repository}),
        ("time__get_current_time", {"timezone": "UTC"}),
        ("notes__note", {"text": "tea"}),
        ("git__git_status", {"repo_path": repository + "-none"}),
        ("time__get_current_time", {"timezone": "UTC"}),
    ]


async def by_openai_agents(ex: Exec, directory: Path) -> list[str]:
    """Run the loop of the OpenAI Agents SDK."""
    model = await test_openai_agents.run(toolset(ex), *calls(directory))
    return [str(each) for each in model.received]


async def by_pydantic_ai(ex: Exec, directory: Path) -> list[str]:
    """Run the loop of Pydantic AI."""
    script = test_pydantic_ai.Script(*calls(directory))
    agent: Any = test_pydantic_ai.Agent(test_pydantic_ai.FunctionModel(script.answer), toolsets=[ExecToolset(ex)])
    result = await agent.run("go")
    assert result.output == "done"
    return [str(each) for each in [*script.received, *script.failures, *script.retries]]


async def by_langchain(ex: Exec, directory: Path) -> list[str]:
    """Run the loop that LangChain's messages and tools make."""
    return [str(each.content) for each in await test_langchain.run(langchain_tools(ex), *calls(directory))]


LOOPS: Final[dict[str, Callable[[Exec, Path], Awaitable[list[str]]]]] = {
    "openai-agents": by_openai_agents,
    "pydantic-ai": by_pydantic_ai,
    "langchain": by_langchain,
}


async def run(mode: Any, directory: Path) -> dict[str, list[str]]:
    """Run all loops, as agents do that know nothing of the cassette; return what each model was answered."""
    commands = {name: [sys.executable, "-m", f"mcp_server_{name}"] for name in ("git", "time")}
    commands["notes"] = ScriptedServer(tools=[ScriptedTool("note")]).command()
    async with Exec(cassette=directory / "agents.yaml", cassette_mode=mode, start_timeout=240) as ex:
        added = (ex.add_mcp(name, command=command, connect_timeout=240) for name, command in commands.items())
        for [status] in await asyncio.gather(*added):
            assert status.available, status
        return {name: await loop(ex, directory) for name, loop in LOOPS.items()}


def reached() -> str:
    """Return what comes of reaching out to this very machine."""
    try:
        socket.create_connection(("127.0.0.1", 9), 1).close()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "an answer"


async def main(mode: str, directory: Path) -> None:
    """Record the loops once, or make them again."""
    times = 1 if mode == "record" else TIMES
    found = [await run(mode, directory) for _ in range(times)]
    print(json.dumps({"reached": reached(), "answers": found}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
