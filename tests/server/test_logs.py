"""What tools say to the client while they run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp_types import LOG_LEVEL_META_KEY
from tests.server.harness import ERAS, connect, serving
from tests.waiting import until

from toolexec import Exec, ToolContext
from toolexec.errors import ConfigurationError
from toolexec.model.origin import Origin, acting

both = pytest.mark.parametrize("era", ERAS)


def talker() -> Exec:
    ex = Exec()

    async def talk(context: ToolContext) -> str:
        context.log("debug", "details")
        context.log("warning", "care\x1b[31m!")
        return "said"

    def thread(context: ToolContext) -> str:
        context.log("error", "from a thread")
        return "said"

    def pieces(context: ToolContext) -> Any:
        context.log("error", "from a generator")
        yield 1

    for function in (talk, thread, pieces):
        ex.add(function, f"t:{function.__name__}")
    return ex


class Ear:
    def __init__(self) -> None:
        self.received: list[tuple[str, Any]] = []

    async def __call__(self, params: Any) -> None:
        self.received.append((params.level, params.data))


@pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")
async def test_handshake_levels() -> None:
    """In the handshake era a client hears from `info` on, or from the level that it set for its connection."""
    ear, other = Ear(), Ear()
    async with serving(talker()) as server:
        async with connect(server, "legacy", logging_callback=ear) as client:
            async with connect(server, "legacy", logging_callback=other) as second:
                await client.call_tool("run_tool", {"tool_id": "t:talk"})
                await until(lambda: ear.received == [("warning", "care\\x1b[31m!")])
                await client.set_logging_level("debug")
                await second.set_logging_level("error")
                await client.call_tool("run_tool", {"tool_id": "t:talk"})
                await second.call_tool("run_tool", {"tool_id": "t:talk"})
                await until(lambda: len(ear.received) == 3)
                assert ear.received[1:] == [("debug", "details"), ("warning", "care\\x1b[31m!")]
                assert other.received == []


async def test_modern_requests_opt_in() -> None:
    """In the newer era a request hears only what it asks for."""
    ear = Ear()
    async with serving(talker()) as server, connect(server, "auto", logging_callback=ear) as client:
        for level, expected in ((None, []), ("warning", ["care\\x1b[31m!"]), ("debug", ["details", "care\\x1b[31m!"])):
            ear.received.clear()
            meta: Any = {LOG_LEVEL_META_KEY: level} if level else None
            await client.call_tool("run_tool", {"tool_id": "t:talk"}, meta=meta)
            await until(lambda expected=expected: len(ear.received) >= len(expected))
            await asyncio.sleep(0.01)
            assert [data for _, data in ear.received] == expected


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("run_tool", {"tool_id": "t:thread"}),
        ("run_tool", {"tool_id": "t:pieces"}),
        ("run_chain", {"steps": [{"tool_id": "t:thread"}]}),
        ("execute_code", {"language": "python", "code": "tools.t.thread()"}),
    ],
)
async def test_on_every_path(name: str, args: dict[str, Any]) -> None:
    """Threads, generators, chains and code are received, too."""
    ear = Ear()
    async with serving(talker()) as server, connect(server, "legacy", logging_callback=ear) as client:
        reply = await client.call_tool(name, args)
        assert not reply.is_error
        await until(lambda: len(ear.received) == 1)
        assert ear.received[0][1].startswith("from a ")


async def test_a_flood_of_messages_is_bounded() -> None:
    """More messages than can be kept are dropped, and the client is told how many."""
    ex = Exec()

    async def flood(context: ToolContext) -> str:
        for number in range(1000):
            context.log("info", str(number))
        return "said"

    ex.add(flood, "t:flood")
    ear = Ear()
    async with serving(ex) as server, connect(server, "legacy", logging_callback=ear) as client:
        await client.call_tool("run_tool", {"tool_id": "t:flood"})
        await until(lambda: any("800 messages were lost" in str(data) for _, data in ear.received))
        assert len(ear.received) == 201


async def test_without_a_server() -> None:
    """A listener on the origin hears tools in process; one that fails does no harm; without one nothing happens; and
    streams are received like calls."""
    received: list[tuple[str, str]] = []

    def broken(level: str, message: str) -> None:
        raise RuntimeError("deaf")

    async with talker() as ex:
        with acting(Origin(hear=lambda level, message: received.append((level, message)))):
            await ex.run_tool("t:talk")
            assert [event.kind async for event in ex.stream_tool("t:pieces")] == ["chunk", "done"]
        with acting(Origin(hear=broken)):
            assert (await ex.run_tool("t:talk")).value == "said"
        assert (await ex.run_tool("t:talk")).value == "said"
    assert received == [("debug", "details"), ("warning", "care\x1b[31m!"), ("error", "from a generator")]


def test_unknown_levels_are_refused() -> None:
    """A level that is none names those that are."""
    with pytest.raises(ConfigurationError, match="unknown log level 'loud'; there are debug"):
        ToolContext("t:x").log("loud", "x")  # type: ignore[arg-type]
    ToolContext("t:x").log("info", "nobody hears")
