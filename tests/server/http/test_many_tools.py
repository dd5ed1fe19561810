"""A server with very many tools answers every question about them without holding its event loop."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec import Exec, Gate
from toolexec.run.pinning import Pins
from toolexec.server.app import ToolServer
from toolexec.server.http import HttpSettings, Metrics
from toolexec.testing import loop_not_held
from toolexec.testing.memory import InMemoryBackend

from .conftest import Serve

pytestmark = [pytest.mark.full, pytest.mark.untraced]  # the CPU time of a tracer is not the server's
MANY = 100_000


def names(start: int = 0, count: int = MANY) -> dict[str, Any]:
    """Tools of a backend, by name."""
    return {f"record_{number % 100}_{number}": number for number in range(start, start + count)}


QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("list_namespaces", {}),
    ("list_tools", {"namespace": "far", "limit": 20}),
    ("search_tools", {"query": "record 17", "limit": 5}),
    ("list_backends", {}),
    ("describe_tool", {"tool_id": "far:record_17_17"}),
    ("list_tools", {"namespace": "far", "limit": 20}),
]


PROGRAMS = (
    "return len(tools.search('record 17', limit=5))",
    "return len(dir(tools))",
    "return len(dir(tools.far))",
    "help(tools.far)",
    "return tools.list_namespaces()",
)


async def test_programs_that_look_around() -> None:
    """Hold the loop no more for what a program asks about many tools than for what a client does."""
    async with Exec() as ex:
        await ex.add_backends(InMemoryBackend("far", names()))
        (await ex.execute_code("return 1")).raise_for_error()  # what the first program imports
        for allowed in (None, ["far:record_17_17"]):
            for program in PROGRAMS:
                async with loop_not_held():
                    done = await ex.execute_code(program, allowed_tools=allowed, timeout=60)
                done.raise_for_error()


async def test_questions(serve: Serve, tmp_path: Any) -> None:
    """The first question, the ones after it, and the ones after two thousand tools have changed."""
    async with Exec(gate=Gate(pinning=Pins(tmp_path / "pins.db", most_per_backend=2 * MANY))) as ex:
        ex.add(lambda value=None: "taken", "kit:take")
        await ex.add_backends(InMemoryBackend("far", names()))
        server = await serve(HttpSettings(port=0), server=ToolServer(ex), metrics=Metrics())
        await ex.start()
        async with server.client("2026-07-28") as client:
            await client.call_tool("read_result", {"handle": "none"})  # what the first call imports
            assert ex.runtime.languages  # what the first program imports
            for round_number in range(2):
                for name, args in QUESTIONS:
                    async with loop_not_held():
                        answer = await client.call_tool(name, args)
                    assert not answer.is_error, (round_number, name, answer)
                await ex.add_backends(InMemoryBackend(f"near{round_number}", names(MANY, 2000)))
