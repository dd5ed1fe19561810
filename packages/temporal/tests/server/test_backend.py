"""The sandbox backend that runs each request as a Temporal workflow."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from packages.temporal.tests.server.programs import SLOW_CODE, run_slow_code
from temporalio.service import RPCError, RPCStatusCode
from tests.engines.bubblewrap import backend_of
from tests.tiers import missing
from tests.waiting import until

from toolexec import Exec, Runtime
from toolexec.config import build, load
from toolexec.errors import (
    InvalidRequestError,
    SandboxDeniedError,
    SandboxFailedError,
    SandboxUnavailableError,
)
from toolexec.runtime import unsafe_host, wasm
from toolexec.sandbox import SandboxBackend
from toolexec.testing.sandbox_suite import SANDBOX_CHECKS, run_sandbox_check
from toolexec_temporal import TemporalBackend, TemporalEngine, TemporalSettings
from toolexec_temporal.client import connect

_ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("check", SANDBOX_CHECKS)
@pytest.mark.parametrize("inner", [wasm.WasmBackend, partial(backend_of, cgroups="never")], ids=["wasm", "bubblewrap"])
async def test_it_keeps_the_contract_of_sandboxes(
    inner: Callable[[], SandboxBackend], check: str, settings: TemporalSettings
) -> None:
    """Each check of the suite holds with the embedded sandbox underneath, and with a container."""

    @asynccontextmanager
    async def make() -> AsyncIterator[SandboxBackend]:
        backend = TemporalBackend(inner(), settings, serve=True)
        state = await backend.inner.check()
        if not state.ok:
            missing(f"the sandbox does not work here: {state.reason}", "apt-get install bubblewrap")
        try:
            yield backend
        finally:
            await backend.aclose()

    await run_sandbox_check(make, check)


@contextmanager
def process(role: str, settings: TemporalSettings, effects: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `programs` in a process of its own; it is killed at the end."""
    given = {"address": settings.address, "task_queue": settings.task_queue, "prefix": settings.prefix}
    text = json.dumps({**given, "heartbeat_timeout": settings.heartbeat_timeout})
    command = [sys.executable, "-m", "packages.temporal.tests.server.programs", role, text, str(effects)]
    started = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.kill()
        started.wait(30)


async def _has_answer(settings: TemporalSettings) -> bool:
    """Return whether Temporal knows the answer to the first call of `run_slow_code`: earlier, a call is lost with its
    caller."""
    client = await connect(settings)
    try:
        history = await client.get_workflow_handle(f"{settings.prefix}sandbox-slow").fetch_history()
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    events = {event.event_id: event for event in history.events}
    done = (event.activity_task_completed_event_attributes for event in history.events)
    begun = (events.get(each.scheduled_event_id) for each in done)
    return any(
        event.activity_task_scheduled_event_attributes.activity_type.name == "answer" for event in begun if event
    )


async def test_a_request_survives_its_caller(settings: TemporalSettings, tmp_path: Path) -> None:
    """The caller is killed while its code runs; another one with the same request and ID answers from then on, and gets
    the result. Each call was made once."""
    effects = tmp_path / "effects"
    backend = TemporalBackend(wasm.WasmBackend(), settings, serve=True)
    try:
        assert (await backend.check()).ok
        with process("caller-of-sandbox", settings, effects):
            await until(partial(_has_answer, settings), 0.05)
        result = await run_slow_code(settings, effects)
        again = await run_slow_code(settings, effects)
    finally:
        await backend.aclose()
    assert result.raise_for_error().value == again.raise_for_error().value == 3
    assert effects.read_text().split() == ["1", "2"]


async def test_a_lost_worker_fails_the_request(settings: TemporalSettings, tmp_path: Path) -> None:
    """A request that was begun is not begun again: the result says that the worker was lost."""
    effects = tmp_path / "effects"
    backend = TemporalBackend(wasm.WasmBackend(), settings)
    ex = Exec(journal=TemporalEngine(settings), runtime_backends=[backend], default_timeout=None)
    with process("worker", settings, effects) as worker:
        async with ex, ex.worker(isolations=[]):
            ex.add(lambda number: worker.kill() or number, "shop:mark")
            await until(lambda: _is_ready(backend), 0.2)
            result = await ex.execute_code(SLOW_CODE, timeout=60)
    assert isinstance(result.error, SandboxFailedError)
    assert "was lost" in result.error.message


async def _is_ready(backend: TemporalBackend) -> bool:
    return (await backend.check()).ok


async def test_another_request_of_the_same_id_is_refused(settings: TemporalSettings) -> None:
    """A run ID stands for one request."""
    backend = TemporalBackend(wasm.WasmBackend(), settings, serve=True)
    async with Exec(runtime_backends=[backend]) as ex:
        first = await ex.execute_code("return 1", metadata={"run_id": "job"})
        with pytest.raises(InvalidRequestError, match="another request"):
            await ex.execute_code("return 2", metadata={"run_id": "job"})
    assert first.value == 1


async def test_it_is_judged_by_the_sandbox_underneath() -> None:
    """No profile takes `unsafe_host` behind Temporal that would not take it as it is; others take it as their own."""
    unsafe, safe = TemporalBackend(unsafe_host.UnsafeHostBackend()), TemporalBackend(wasm.WasmBackend())
    assert (unsafe.isolation, safe.isolation) == ("none", "wasm")
    runtime = Runtime([unsafe])
    assert [runtime.candidates(profile) for profile in ("dev", "standard", "hardened")] == [[unsafe], [], []]
    assert Runtime([safe]).candidates("standard") == [safe]
    async with Exec(runtime_backends={"standard": unsafe}) as ex:
        with pytest.raises(SandboxDeniedError, match="isolation 'none'"):
            await ex.execute_code("return 1", unsafe_opt_in=True)
    await safe.aclose()


async def test_it_is_unavailable_without_a_worker_or_a_server(settings: TemporalSettings) -> None:
    """The reason says what is missing."""
    backend = TemporalBackend(wasm.WasmBackend(), settings)
    async with Exec(runtime_backends=[backend]) as ex:
        with pytest.raises(SandboxUnavailableError, match="toolexec temporal worker"):
            await ex.execute_code("return 1")
    backend = TemporalBackend(wasm.WasmBackend(), replace(settings, address="127.0.0.1:9"))
    async with Exec(runtime_backends=[backend]) as ex:
        with pytest.raises(SandboxUnavailableError, match=r"127\.0\.0\.1:9"):
            await ex.execute_code("return 1")


def write_settings(directory: Path, settings: TemporalSettings) -> Path:
    """Write a configuration whose code runs on Temporal."""
    file = directory / "toolexec.toml"
    file.write_text(
        '[sandboxes]\nuse = ["temporal"]\n'
        f'[durable.temporal]\naddress = "{settings.address}"\ntask_queue = "{settings.task_queue}"\n'
    )
    return file


async def test_it_is_a_kind_of_the_settings(settings: TemporalSettings, tmp_path: Path) -> None:
    """`use = ["temporal"]` has code run by workers; one with the same settings has the sandbox underneath."""
    file = write_settings(tmp_path, settings)
    caller, worker = (build.build(load.load_settings([str(file)])) for _ in range(2))
    async with caller.ex as ex, worker.ex as other, other.worker():
        ex.add(lambda a, b: a + b, "math:add")
        result = await ex.execute_code("return tools.math.add(a=1, b=2)")
        with pytest.raises(InvalidRequestError, match="temporal has no sessions: each request is a run of its own"):
            async with ex.session():
                pass
    for built in (caller, worker):
        built.close()
    assert result.raise_for_error().value == 3
    assert result.backend is not None
    assert (result.backend.kind, result.backend.isolation) == ("temporal", "wasm")
