"""`toolexec temporal worker`, and the settings that say where Temporal is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from packages.temporal.tests.server.servers import DevServer

from toolexec import Exec
from toolexec.config import build, load
from toolexec.runtime import wasm
from toolexec_temporal import TemporalBackend, TemporalEngine, TemporalSettings
from toolexec_temporal.client import connect
from toolexec_temporal.pollers import known_pollers, wait_until_known

_TOOLS = """from toolexec import tool

@tool("shop:price")
def price(item: int) -> int:
    return item * 20
"""


def write_settings(directory: Path, address: str) -> Path:
    """Write a configuration with one tool whose durable runs are on Temporal."""
    (directory / "tools.py").write_text(_TOOLS)
    file = directory / "toolexec.toml"
    file.write_text(
        f'[sources]\npython = ["tools.py"]\n[durable.temporal]\naddress = "{address}"\ntask_queue = "shop"\n'
        'key = "secretref:env:TEMPORAL_KEY"\n'
    )
    return file


async def test_a_worker_is_known_when_its_block_begins(settings: TemporalSettings) -> None:
    """The server lists each of five workers, one after the other, to a caller that asks at once."""
    backend = TemporalBackend(wasm.WasmBackend(), settings)
    client = await connect(settings)
    seen: set[str] = set()
    try:
        for n in range(1, 6):
            async with Exec(journal=TemporalEngine(settings), runtime_backends=[backend.inner]) as ex, ex.worker():
                seen |= await known_pollers(client, settings.queue_for("wasm"))
                assert len(seen) == n
                assert (await backend.check()).ok
    finally:
        await backend.aclose()


async def test_a_server_that_does_not_confirm_a_worker_is_not_waited_for(
    settings: TemporalSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """The wait has an end, and a warning."""
    client = await connect(settings)
    assert not await wait_until_known(client, settings.task_queue, "another", patience=0.05)
    assert f"does not confirm the worker another of the task queue {settings.task_queue}" in caplog.text


async def test_the_command_works_until_it_is_stopped(
    server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker started on the command line runs what another process asks for; SIGTERM ends it."""
    monkeypatch.setenv("TEMPORAL_KEY", "a key of at least sixteen characters")
    monkeypatch.chdir(tmp_path)
    file = write_settings(tmp_path, server.address)
    command = [sys.executable, "-m", "toolexec", "temporal", "worker", "--json", "--isolation", "wasm", "-c", str(file)]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path)
    try:
        assert worker.stdout is not None
        built = build.build(load.load_settings([str(file)]))
        async with built.ex as ex:
            result = await ex.run_chain([{"tool": "shop:price", "args": {"item": 2}}], durable="order")
        built.close()
        worker.send_signal(signal.SIGTERM)
        out, _ = worker.communicate(timeout=60)
    finally:
        worker.kill()
        worker.wait(30)
    assert result.raise_for_error().value == 40
    assert worker.returncode == 0
    assert json.loads(out)["queues"] == ["shop", "shop-wasm"]
