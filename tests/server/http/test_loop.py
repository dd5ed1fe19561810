"""Nothing that one caller sends holds the event loop of a server over HTTP, and what does is measured."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec, Gate
from toolexec.errors import InputValidationError
from toolexec.run.audit import AuditLog
from toolexec.run.layers.audit import Audit
from toolexec.server.app import ToolServer
from toolexec.server.http import HttpSettings, Metrics
from toolexec.server.pauses import LONG_PAUSE, watch_loop
from toolexec.testing import loop_not_held

from .conftest import JSON_HEADERS, MODERN, Running, Serve

pytestmark = pytest.mark.untraced  # the CPU time of a tracer is not the server's
LINES = 16_000
SHARED = "\n".join(["a := [1]", *["a = [a, a]"] * 40, 'run("kit:take", {value: a})'])


def long_workflow(end: str) -> str:
    return "".join(f"value{number} := {number} + 2 * 3\n" for number in range(LINES)) + end


async def served(serve: Serve, directory: Path) -> tuple[Exec, Running]:
    """A server whose gate writes an audit log."""
    ex = Exec(gate=Gate(audit=Audit(AuditLog.open(directory / "audit.jsonl", args="redacted"))))
    ex.add(lambda value=None: "taken", "kit:take")
    return ex, await serve(HttpSettings(port=0), server=ToolServer(ex), metrics=Metrics())


class TestAttempts:
    """What took seconds of the loop."""

    @pytest.mark.parametrize(
        "source",
        [SHARED, long_workflow('run("kit:take", {})'), long_workflow("x := )")],
        ids=["shared", "long", "mistaken"],
    )
    async def test_workflows(self, serve: Serve, tmp_path: Path, source: str) -> None:
        """One with shared lists, one of 400 kB, and one of 400 kB with a mistake; the server answers others."""
        ex, server = await served(serve, tmp_path)
        await ex.run_workflow('run("kit:take", {value: [[1]]})')  # what is compiled once is not the caller's doing
        async with loop_not_held():
            running = asyncio.create_task(ex.run_workflow(source))
            assert (await server.request("GET", "/healthz")).status_code == 200
            result = await running
        assert result.ok is ("x := )" not in source and source != SHARED)

    async def test_unknown_names(self) -> None:
        """Thousands of names that are not defined are found in the time of thousands that are."""
        async with Exec() as ex:
            began = time.process_time()
            good = await ex.run_workflow("".join(f"value{number} := {number}\n" for number in range(4000)))
            middle = time.process_time()
            bad = await ex.run_workflow("".join(f"x{number} := zzz{number}\n" for number in range(4000)))
            assert good.ok
            assert not bad.ok
            assert time.process_time() - middle < 10 * (middle - began) + 1

    async def test_arguments_that_are_shared(self, serve: Serve, tmp_path: Path) -> None:
        """A caller in the process of the server is refused at once."""
        ex, server = await served(serve, tmp_path)
        value: Any = None
        for _ in range(40):
            value = [value, value]
        async with loop_not_held():
            with pytest.raises(InputValidationError, match="more than 10,000,000 values"):
                await ex.run_tool("kit:take", {"value": value})
            assert (await server.request("GET", "/healthz")).status_code == 200

    async def test_arguments_with_many_values(self, serve: Serve, tmp_path: Path) -> None:
        """A body of a megabyte with 300,000 values is decoded on the loop; all else is done beside it."""
        _, server = await served(serve, tmp_path)
        rows = [[number % 10, 2, 3, 4, 5, True] for number in range(50_000)]
        arguments = {"tool_id": "kit:take", "args": {"value": rows}}
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"name": "run_tool", "arguments": arguments, "_meta": meta}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "run_tool", **JSON_HEADERS}
        async with loop_not_held():
            answer = await server.request("POST", content=body, headers=headers)
        assert answer.json()["result"]["structuredContent"]["structured"] == "taken"

    async def test_arguments_with_far_too_many_values(self, serve: Serve, tmp_path: Path) -> None:
        """Four megabytes with a million lists are refused before they are decoded."""
        _, server = await served(serve, tmp_path)
        body = b'{"a":[' + b",".join([b"[]"] * 1_300_000) + b"]}"
        async with loop_not_held():
            answer = await server.request("POST", content=body, headers=JSON_HEADERS)
        assert answer.status_code == 400
        assert "400000 values" in answer.text

    async def test_deep_arguments(self, serve: Serve, tmp_path: Path) -> None:
        """Arguments that are nested too deeply are refused with the body."""
        _, server = await served(serve, tmp_path)
        body = b'{"a":' + b"[" * 500_000 + b"]" * 500_000 + b"}"
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        async with loop_not_held():
            answer = await server.request("POST", content=body, headers=headers)
        assert answer.status_code == 400
        assert "nested" in answer.text


class TestWatch:
    """The measurement itself."""

    async def test_a_pause_is_counted_and_logged_with_what_held_the_loop(
        self, serve: Serve, caplog: pytest.LogCaptureFixture
    ) -> None:
        """In the metrics, and in the log with the function that did it."""
        metrics = Metrics()
        caplog.set_level(logging.WARNING, "toolexec.server.pauses")
        server = await serve(metrics=metrics)
        holds_the_loop(4 * LONG_PAUSE)
        await until(lambda: caplog.records, pause=0)
        assert "holds_the_loop" in caplog.text
        text = metrics.text().decode()
        longest = next(line for line in text.splitlines() if line.startswith("toolexec_loop_pause_max_seconds"))
        assert float(longest.split()[1]) > LONG_PAUSE
        assert "toolexec_loop_pause_seconds_bucket" in text
        assert (await server.request("GET", "/healthz")).status_code == 200

    async def test_many_pauses_are_one_line_of_the_log(self, caplog: pytest.LogCaptureFixture) -> None:
        """Each is observed all the same."""
        late: list[float] = []
        caplog.set_level(logging.WARNING, "toolexec.server.pauses")
        async with watch_loop(late.append):
            await asyncio.sleep(0)  # the first tick is begun
            for _ in range(3):
                holds_the_loop(2 * LONG_PAUSE)
                before = len(late)
                await until(lambda before=before: len(late) > before, pause=0)
        assert len([each for each in late if each > LONG_PAUSE]) >= 3
        assert len(caplog.records) == 1

    async def test_a_test_that_holds_the_loop_fails(self) -> None:
        """By the CPU time of the loop's thread: one that only waits does not count."""
        async with loop_not_held():
            await asyncio.to_thread(holds_the_loop, 2 * LONG_PAUSE)
        with pytest.raises(AssertionError, match="the event loop was held"):
            async with loop_not_held():
                holds_the_loop(4 * LONG_PAUSE)


def holds_the_loop(seconds: float) -> None:
    """Take CPU time."""
    ends = time.thread_time() + seconds
    while time.thread_time() < ends:
        sum(range(1000))
