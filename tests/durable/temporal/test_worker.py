"""`toolexec temporal worker`, and the settings that say where Temporal is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.durable.temporal.servers import DevServer

from toolexec.config.build import build
from toolexec.config.load import load_settings
from toolexec.durable.temporal import TemporalBackend, TemporalEngine, TemporalSettings
from toolexec.durable.temporal.client import connect
from toolexec.durable.temporal.pollers import known_pollers, wait_until_known
from toolexec.errors import ConfigurationError
from toolexec.exec import Exec
from toolexec.runtime.wasm import WasmBackend

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


def test_the_settings_make_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`[durable.temporal]` has the runs of the Exec on Temporal, with a key that is a secret elsewhere."""
    monkeypatch.setenv("TEMPORAL_KEY", "a key of at least sixteen characters")
    monkeypatch.chdir(tmp_path)
    built = build(load_settings([str(write_settings(tmp_path, "127.0.0.1:7000"))]))
    engine = built.ex.options.journal
    built.close()
    assert isinstance(engine, TemporalEngine)
    assert (engine.settings.address, engine.settings.task_queue) == ("127.0.0.1:7000", "shop")
    assert engine.settings.key == "secretref:env:TEMPORAL_KEY"


def test_a_worker_needs_an_engine() -> None:
    """Without one there is nothing to work for, and the error names the settings."""
    with pytest.raises(ConfigurationError, match=r"durable\.temporal"):
        Exec().worker()


async def test_a_worker_is_known_when_its_block_begins(settings: TemporalSettings) -> None:
    """The server lists each of five workers, one after the other, to a caller that asks at once."""
    backend = TemporalBackend(WasmBackend(), settings)
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
        built = build(load_settings([str(file)]))
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
