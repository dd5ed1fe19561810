"""What becomes of calls that a Python program has not awaited when it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from toolexec.runtime.guest.python.channel import HostCalls
from toolexec.runtime.guest.python.loop import GuestLoop
from toolexec.runtime.guest.python.main import run_to_end
from toolexec.runtime.guest.python.tools import Tools

Program = Callable[[Any], Coroutine[Any, Any, Any]]


class Host:
    """Answers each call with its tool once the guest waits, and questions and signals only when nothing else is open."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self._open: dict[str, str] = {}

    def exchange(self, frame: str) -> str:
        """Answer a frame."""
        self.post(frame)
        ready = {key: tool for key, tool in self._open.items() if not tool.startswith("run:")} or {**self._open}
        for key in ready:
            del self._open[key]
        return json.dumps(
            [{"type": "response", "id": key, "payload": {"structured": tool}} for key, tool in ready.items()]
        )

    def post(self, frame: str) -> None:
        """Take a frame."""
        for message in json.loads(frame):
            if message["type"] == "run_tool":
                self._open[message["id"]] = message["payload"]["id"]
                self.sent.append(("call", message["payload"]["id"]))
            elif message["type"] == "cancel":
                self.sent.append(("cancel", self._open.pop(message["id"], "")))


def run(program: Program) -> tuple[Any, list[tuple[str, str]]]:
    """Run a program in a thread without a loop of its own; return its value, and what the host received."""
    host = Host()
    channel = HostCalls(host.exchange, host.post)
    value = run_to_end(GuestLoop(channel), program(Tools(channel, {})))
    return value, host.sent


async def _shields(tools: Any) -> Any:
    for name in ("run:input", "run:signal", "run:sleep"):
        asyncio.shield(tools.run(name, {}))
    return await tools.run("t:a")


async def _gathers(tools: Any) -> Any:
    asyncio.gather(tools.run("run:signal", {}), tools.run("t:a"), return_exceptions=True)
    return 1


async def _tasks(tools: Any) -> Any:
    tasks = [asyncio.create_task(tools.run(name, {})) for name in ("run:input", "t:a")]
    await asyncio.sleep(0)
    return len(tasks)


async def _bare(tools: Any) -> Any:
    tools.run("run:signal", {})
    return 1


async def _in_the_end(tools: Any) -> Any:
    async def child() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await tools.run("run:input", {})

    task = asyncio.create_task(child())
    await asyncio.sleep(0)
    return task.done()


@pytest.mark.parametrize(
    ("program", "cancelled"),
    [
        (_shields, ["run:input", "run:signal", "run:sleep"]),
        (_gathers, ["run:signal"]),
        (_tasks, ["run:input", "t:a"]),
        (_bare, []),
        (_in_the_end, []),
    ],
)
async def test_what_is_called_off(program: Program, cancelled: list[str]) -> None:
    """Waits that asyncio has and that nothing waits for, in the order of the calls; a bare call is waited for."""
    _, sent = await asyncio.to_thread(run, program)
    assert sorted(tool for what, tool in sent if what == "cancel") == sorted(cancelled)
    if program is not _tasks:  # these are a set of asyncio's
        assert [tool for what, tool in sent if what == "cancel"] == cancelled
