"""Remote runtimes that die, stop, go away or refuse: what the caller gets, and how often its tools were called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from packages.remote.tests.processes import RemoteServer, settings_for
from packages.remote.tests.tools import Workshop
from tests.waiting import PATIENCE, until

from toolexec.errors import (
    InvalidRequestError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.sandbox import CodeResult
from toolexec_remote.backend import RemoteBackend

ONE = "return tools.shop.count(item=1)"
WAITS = "print('begun')\nreturn tools.shop.wait(item=7)"


@asynccontextmanager
async def client(*servers: RemoteServer, **fields: Any) -> AsyncGenerator[RemoteBackend]:
    """Give a backend that uses these servers."""
    backend = RemoteBackend(settings_for(*servers, **fields))
    try:
        yield backend
    finally:
        await backend.aclose()


async def begun(shop: Workshop, *running: asyncio.Future[Any]) -> None:
    """Wait until shop:wait was called."""
    await until(lambda: shop.begun.is_set() or any(task.done() for task in running))
    assert shop.begun.is_set(), [task.result() for task in running if task.done()]


def refusal(result: CodeResult) -> SandboxFailedError:
    """Return the error of a run that was lost: it may have done something, and is not repeated."""
    error = result.error
    assert isinstance(error, SandboxFailedError), error
    assert error.details["began"] is True
    assert error.outcome != "not_sent"
    assert not error.retryable
    assert error.backend == "remote"
    return error


async def test_programs_run_there_and_tools_here(tmp_path: Path) -> None:
    """Value, output, trace and limits come back; the tool is called once."""
    shop = Workshop()
    with RemoteServer(tmp_path) as server:
        async with client(server) as backend:
            request = shop.request("print('out')\nimport sys\nprint('err', file=sys.stderr)\n" + ONE)
            result = (await backend.execute(request)).raise_for_error()
            held = backend.enforces(request)
    assert (result.value, result.stdout, result.stderr) == (1, "out\n", "err\n")
    assert [(call.tool_id, call.value) for call in result.tool_calls] == [("shop:count", 1)]
    assert shop.calls == {1: 1}
    assert result.backend is not None
    assert (result.backend.kind, result.backend.isolation) == ("remote", "wasm")
    assert result.backend.details["inner"]["kind"] == "wasm"
    assert result.limits_enforced == held
    assert held.memory
    assert held.tool_calls


async def test_a_server_that_dies_during_a_run_fails_it_and_nothing_is_repeated(tmp_path: Path) -> None:
    """After the restart the journal says that it was running; the caller learns that it may have run."""
    shop = Workshop()
    with RemoteServer(tmp_path) as server:
        async with client(server, reconnect=PATIENCE) as backend:
            running = asyncio.ensure_future(backend.execute(shop.request(WAITS)))
            await begun(shop, running)
            server.kill()
            server.start()
            error = refusal(await running)
            assert "restarted" in str(error)
            assert (await running).stdout == "begun\n"
            assert (await backend.execute(shop.request(ONE))).raise_for_error().value == 1
    assert shop.calls == {7: 1, 1: 1}


async def test_a_server_that_never_comes_back_fails_the_run_in_time(tmp_path: Path) -> None:
    """Once the time to reconnect is over, the caller gets the error; later runs find no server."""
    shop = Workshop()
    with RemoteServer(tmp_path) as server:
        async with client(server, reconnect=0.5) as backend:
            running = asyncio.ensure_future(backend.execute(shop.request(WAITS)))
            await begun(shop, running)
            server.kill()
            assert "0.5 s" in str(refusal(await running))
            assert shop.stopped == 1
            with pytest.raises(SandboxUnavailableError) as caught:
                await backend.execute(shop.request(ONE, timeout=0.5))
            assert caught.value.retryable
            assert caught.value.outcome == "not_sent"
            assert not (await backend.check()).ok


async def test_what_has_not_started_goes_to_another_server(tmp_path: Path) -> None:
    """A run that waits in the queue of a server that dies runs on the other one, once."""
    shop = Workshop()
    with RemoteServer(tmp_path, max_running=1) as first, RemoteServer(tmp_path, max_running=1) as second:
        async with client(first, second, reconnect=PATIENCE) as backend:
            blocked = [asyncio.ensure_future(backend.execute(shop.request(WAITS))) for _ in range(2)]
            await until(lambda: shop.calls[7] == 2 or any(task.done() for task in blocked))
            queued = [
                asyncio.ensure_future(backend.execute(shop.request(f"return tools.shop.count(item={n})")))
                for n in range(6)
            ]
            await asyncio.sleep(0.2)
            first.kill()
            shop.gate.set()
            results = await asyncio.gather(*queued)
            first.start()
            ended = await asyncio.gather(*blocked)
    assert [result.raise_for_error().value for result in results] == [*range(6)]
    assert [shop.calls[n] for n in range(6)] == [1] * 6
    assert sorted(result.ok for result in ended) == [False, True]
    refusal(next(result for result in ended if not result.ok))


async def test_a_drained_server_loses_no_run(tmp_path: Path) -> None:
    """Runs end there, those that wait go to the other one, and the server ends with exit code 0."""
    shop = Workshop()
    with RemoteServer(tmp_path, max_running=1) as first, RemoteServer(tmp_path, max_running=1) as second:
        async with client(first, second) as backend:
            blocked = [asyncio.ensure_future(backend.execute(shop.request(WAITS))) for _ in range(2)]
            await until(lambda: shop.calls[7] == 2 or any(task.done() for task in blocked))
            queued = [
                asyncio.ensure_future(backend.execute(shop.request(f"return tools.shop.count(item={n})")))
                for n in range(6)
            ]
            await asyncio.sleep(0.2)
            first.terminate()
            await asyncio.sleep(0.2)
            shop.gate.set()
            results = await asyncio.gather(*blocked, *queued)
            code = await asyncio.to_thread(first.wait)
    assert [result.raise_for_error().value for result in results] == [7, 7, *range(6)]
    assert all(count == 1 for item, count in shop.calls.items() if item != 7)
    assert code == 0


async def test_a_server_that_is_silent_for_a_while_is_found_again(tmp_path: Path) -> None:
    """A half-open connection is noticed; the run goes on over the next one, and its call is made once."""
    shop = Workshop()
    with RemoteServer(tmp_path) as server:
        async with client(server, silence=0.6, reconnect=PATIENCE) as backend:
            running = asyncio.ensure_future(backend.execute(shop.request(WAITS)))
            await begun(shop, running)
            server.pause()
            await until(lambda: not backend.connections[0].up)
            shop.gate.set()
            server.resume()
            assert (await running).raise_for_error().value == 7
    assert shop.calls == {7: 1}


async def test_cancelling_stops_the_program_there(tmp_path: Path) -> None:
    """The call under way is cancelled, and the server has its room back."""
    shop = Workshop()
    with RemoteServer(tmp_path, max_running=1) as server:
        async with client(server) as backend:
            running = asyncio.ensure_future(backend.execute(shop.request(WAITS)))
            await begun(shop, running)
            running.cancel()
            await asyncio.wait({running}, timeout=PATIENCE)
            assert running.cancelled()
            assert shop.stopped == 1
            assert (await backend.execute(shop.request(ONE, timeout=20.0))).raise_for_error().value == 1


async def test_a_run_without_room_in_time_has_never_begun(tmp_path: Path) -> None:
    """The error is worth a retry, and nothing was called."""
    shop = Workshop()
    with RemoteServer(tmp_path, max_running=1) as server:
        async with client(server) as backend:
            running = asyncio.ensure_future(backend.execute(shop.request(WAITS)))
            await begun(shop, running)
            with pytest.raises(SandboxUnavailableError) as caught:
                await backend.execute(shop.request(ONE, timeout=0.5))
            assert caught.value.outcome == "not_sent"
            assert caught.value.retryable
            shop.gate.set()
            await running
    assert shop.calls == {7: 1}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param({"token": "not the token of the tests"}, "unauthenticated", id="token"),
        pytest.param({"key_id": "other"}, "unauthenticated", id="key"),
        pytest.param({"signing_key": "not the secret of the tests"}, "signature_invalid", id="signature"),
    ],
)
async def test_a_server_that_does_not_know_us_says_so(tmp_path: Path, wrong: dict[str, Any], said: str) -> None:
    """The reason is in the check, and a run fails at once with it."""
    shop = Workshop()
    with RemoteServer(tmp_path) as server:
        async with client(server, **wrong) as backend:
            state = await backend.check()
            assert not state.ok
            with pytest.raises(SandboxUnavailableError) as caught:
                await backend.execute(shop.request(ONE))
            assert not caught.value.retryable
            cause = caught.value.__cause__
            assert isinstance(cause, ToolExecError)
            assert cause.code == said


async def test_a_program_that_is_too_large_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    """The error names the limit of the server."""
    shop = Workshop()
    with RemoteServer(tmp_path, max_body_bytes=20_000) as server:
        async with client(server) as backend:
            with pytest.raises(InvalidRequestError, match="20000"):
                await backend.execute(shop.request(f"return len({'x' * 30_000!r})"))
            assert (await backend.execute(shop.request(ONE))).raise_for_error().value == 1


async def test_a_server_with_less_isolation_is_not_used(tmp_path: Path) -> None:
    """A server without a sandbox is never taken for one that was asked for."""
    shop = Workshop()
    with RemoteServer(tmp_path, "unsafe_host", profiles=["dev"]) as server:
        async with client(server) as backend:
            state = await backend.check()
            assert not state.ok
            assert "not in wasm" in state.reason
            with pytest.raises(SandboxUnavailableError):
                await backend.execute(shop.request(ONE, timeout=1.0))
    assert not shop.calls


async def test_a_session_keeps_its_state_and_its_server(tmp_path: Path) -> None:
    """Names stay from one program to the next; with its server the session is lost, and says so."""
    shop = Workshop()
    with RemoteServer(tmp_path) as first, RemoteServer(tmp_path) as second:
        async with client(first, second) as backend:
            await backend.check()
            session = await backend.open_session(shop.request("None"))
            results = [await session.execute(shop.request(code)) for code in ("n = 20", "n += 1", "return n * 2")]
            assert results[-1].raise_for_error().value == 42
            assert len({result.backend.details["endpoint"] for result in results if result.backend}) == 1
            await session.aclose()
            await until(lambda: sum(each.open_runs for each in backend.connections) == 0)
            lost = await backend.open_session(shop.request("None"))
            (await lost.execute(shop.request("n = 1"))).raise_for_error()
            for server in (first, second):
                server.kill()
                server.start()
            with pytest.raises(SandboxFailedError):
                (await lost.execute(shop.request("return n"))).raise_for_error()
            await lost.aclose()
