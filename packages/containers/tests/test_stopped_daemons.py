"""A daemon that is stopped keeps no run beyond its time limit, and has nothing left of it once it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from tests.engines.backends import containerd_daemon, maker  # noqa: F401 - a fixture
from tests.engines.docker import docker_daemon  # noqa: F401 - a fixture
from tests.waiting import reached, until

from toolexec import Exec
from toolexec.code import CodeResult
from toolexec.errors import SandboxUnavailableError
from toolexec.sandbox import ContainerBackend

pytestmark = [pytest.mark.anyio, pytest.mark.full]

LIMIT = 2.0
BOUND = 15.0
"""Far more than a run takes that ends at its limit, and far less than one that waits for the daemon."""


class Stand:
    """A daemon that can be stopped, and what it knows of containers."""

    def __init__(self, kind: str, request: pytest.FixtureRequest) -> None:
        self.make = maker(kind, request)
        self.kind = kind
        self.daemon = request.getfixturevalue(f"{kind}_daemon")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        os.kill(self.daemon.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.daemon.pid, signal.SIGCONT)

    def left(self) -> list[Any]:
        return self.daemon.containers() if self.kind == "docker" else self.daemon.left()


@pytest.fixture(params=["docker", "containerd"])
def stand(request: pytest.FixtureRequest) -> Stand:
    return Stand(request.param, request)


@asynccontextmanager
async def opened(stand: Stand, **settings: Any) -> AsyncIterator[tuple[Exec, ContainerBackend, asyncio.Event]]:
    """An Exec over the daemon; its tool `test:wait` never answers, and the event says that it was called."""
    backend, waits = stand.make(**settings), asyncio.Event()

    async def wait() -> None:
        waits.set()
        await asyncio.Event().wait()

    async with Exec(runtime_backends={"standard": [backend]}) as ex:
        ex.add(wait, "test:wait")
        assert (await ex.execute_code("return 1")).value == 1
        yield ex, backend, waits


async def nothing_is_left(stand: Stand, backend: ContainerBackend) -> None:
    """Wait until everything was removed, with no further run that would have it done."""
    await until(lambda: not backend.running and not backend.engine.left)
    left = await asyncio.to_thread(stand.left)
    assert not left


async def test_one_that_stops_while_code_runs(stand: Stand) -> None:
    """The run ends at its limit with all that it said, while the daemon is still stopped."""
    async with opened(stand) as (ex, backend, waits):
        code = "print('begun', flush=True)\ntools.test.wait()"
        running = asyncio.create_task(ex.execute_code(code, timeout=LIMIT * 2))
        await reached(waits, running)
        with stand.stopped():
            async with asyncio.timeout(BOUND):
                result = await running
        assert result.error is not None
        assert result.error.code == "code_timeout"
        assert (result.stdout, [call.tool_id for call in result.tool_calls]) == ("begun\n", ["test:wait"])
        await nothing_is_left(stand, backend)
        assert (await ex.execute_code("return 2")).value == 2


async def test_one_that_is_stopped_when_code_is_to_begin(stand: Stand) -> None:
    """The run ends at its limit and says that nothing was run; nothing runs later, either."""
    async with opened(stand) as (ex, backend, waits):
        backend.forget_check()
        assert (await backend.check()).ok  # which holds for a while, so that the run gets as far as its container
        with stand.stopped():
            async with asyncio.timeout(BOUND):
                result = await ex.execute_code("tools.test.wait()", timeout=LIMIT)
        assert result.error is not None
        assert result.error.code == "code_timeout"
        assert result.error.outcome == "not_sent"
        assert "had not begun" in str(result.error)
        assert not result.tool_calls
        await nothing_is_left(stand, backend)
        assert not waits.is_set()
        assert (await ex.execute_code("return 2")).value == 2


async def test_one_that_is_stopped_before_it_is_looked_at(stand: Stand) -> None:
    """A backend that knows nothing of the daemon yet gives up in time as well."""
    async with opened(stand) as (ex, backend, _):
        backend.forget_check()
        with stand.stopped():
            async with asyncio.timeout(BOUND):
                with pytest.raises(SandboxUnavailableError, match="did not answer within"):
                    await ex.execute_code("return 1", timeout=LIMIT)
        await nothing_is_left(stand, backend)
        assert (await ex.execute_code("return 2")).value == 2


async def test_a_run_that_is_cancelled_while_it_is_stopped(stand: Stand) -> None:
    """The cancellation is through in time, too."""
    async with opened(stand) as (ex, backend, waits):
        running: asyncio.Task[CodeResult] = asyncio.create_task(ex.execute_code("tools.test.wait()", timeout=60))
        await reached(waits, running)
        with stand.stopped():
            running.cancel()
            async with asyncio.timeout(BOUND):
                with pytest.raises(asyncio.CancelledError):
                    await running
        await nothing_is_left(stand, backend)


async def test_a_session_while_it_is_stopped(stand: Stand) -> None:
    """A program in a session ends at its limit; so does the opening of another one, and closing."""
    async with opened(stand) as (ex, backend, waits):
        async with ex.session() as session:
            running = asyncio.create_task(session.execute_code("tools.test.wait()", timeout=LIMIT * 2))
            await reached(waits, running)
            with stand.stopped():
                async with asyncio.timeout(BOUND):
                    result = await running
        assert result.error is not None
        assert result.error.code == "code_timeout"
        await nothing_is_left(stand, backend)
