"""Several server processes behind one port, as `toolexec runtime serve --processes` starts them: who has a run keeps it,
and the end of one process is none of the others' business."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from packages.remote.tests.servers import (
    KEY,
    Client,
    ServerProcess,
    identity,
    server_process,
    signed_get,
    signed_post,
)
from packages.remote.tests.tools import Workshop
from tests.engines.certificates import make_certificates
from tests.waiting import PATIENCE, until

from toolexec.errors import SandboxFailedError
from toolexec.remote import RemoteSettings
from toolexec.sandbox import CodeResult, ExecuteRequest
from toolexec_remote.backend import RemoteBackend
from toolexec_remote.homes import new_run
from toolexec_remote.wire import encode_request, read_proof, read_response

pytestmark = pytest.mark.full


@contextmanager
def two_processes(directory: Path, **settings: Any) -> Generator[ServerProcess]:
    """Give a server of two processes, each of which runs programs itself. They end in peace, unless they have ended."""
    with server_process(directory, processes=2, wasm_workers=0, **settings) as found:
        yield found
        if found.process is not None and found.process.poll() is None:
            found.terminate()
            found.ended()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of two processes that all tests use which leave it as it is."""
    with two_processes(tmp_path_factory.mktemp("kept"), max_running=4, gateway_private=True) as found:
        yield found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of two processes, with two places each."""
    with two_processes(tmp_path / "server", max_running=4) as found:
        yield found


@asynccontextmanager
async def caller(server: ServerProcess, **fields: Any) -> AsyncGenerator[RemoteBackend]:
    """A client of that server, and of no other."""
    own: dict[str, Any] = {"key_id": KEY.id, "token": KEY.token, "signing_key": KEY.secret, **fields}
    backend = RemoteBackend(RemoteSettings(endpoints=(server.endpoint,), **own))
    try:
        yield backend
    finally:
        await backend.aclose()


async def both(server: ServerProcess) -> dict[int, str]:
    """Return the incarnations of the processes, by their numbers."""
    import aiohttp

    found: dict[int, str] = {}

    async def are_known() -> bool:
        async with aiohttp.ClientSession() as session:
            for number in (1, 2):
                headers = {"X-Toolruntime-Process": str(number)}
                async with session.get(f"{server.endpoint}/identity", headers=headers) as response:
                    said = await response.json()
                    if response.status == 200:
                        found[said["process"]] = said["incarnation"]
        return found.keys() == {1, 2}

    await until(are_known, 0.05)
    return found


def children(server: ServerProcess) -> list[psutil.Process]:
    """Return the server processes, in the order of their numbers."""
    assert server.process is not None
    return sorted(psutil.Process(server.process.pid).children(), key=lambda child: child.create_time())


async def runs(backend: RemoteBackend, shop: Workshop, items: range) -> list[CodeResult]:
    """Return the results of programs with one call each, which take place at once."""
    requests = (shop.request(f"return tools.shop.count(item={item})") for item in items)
    return await asyncio.gather(*(backend.execute(request) for request in requests))


async def counted(server: ServerProcess, name: str) -> dict[str, float]:
    """Return what each process has counted under a name."""
    _, body = await signed_get(server.endpoint.replace("/v1/execute", "/metrics"), server.endpoint)
    lines = [line for line in body.decode().splitlines() if line.startswith(f"{name}{{")]
    return {line.split('process="')[1].split('"')[0]: float(line.split()[-1]) for line in lines}


async def test_the_processes_share_the_load_of_one_client(kept: ServerProcess) -> None:
    """A client of the one endpoint runs programs in both of them, each once, and one answer has the counts of all."""
    shop, before = Workshop(), await counted(kept, "toolexec_remote_run_seconds_count")
    async with caller(kept) as backend:
        assert (await backend.check()).ok
        results = await runs(backend, shop, range(60))
    assert [result.value for result in results] == [*range(60)]
    assert all(shop.calls[item] == 1 for item in range(60))
    ended = await counted(kept, "toolexec_remote_run_seconds_count")
    assert sum(ended.values()) - sum(before.values()) == 60
    assert all(ended[number] > before[number] for number in ("1", "2"))


async def test_each_request_of_a_run_reaches_the_process_that_has_it(kept: ServerProcess) -> None:
    """The same ID by POST is the same run, its events can be read again, and its state asked for, whichever process
    takes the connection; signed for the other one it is refused, with the name of the right one, and runs nowhere."""
    names = await both(kept)
    for number, other in ((1, 2), (2, 1)):
        run = new_run(number, 2)
        body = encode_request(ExecuteRequest(code="import random\nprint('x')\nreturn random.random()"), run=run)
        key = {"Idempotency-Key": run}
        status, _, refused = await signed_post(kept.endpoint, body, headers=key, incarnation=names[other])
        assert (status, json.loads(refused)["error"]["code"]) == (421, "wrong_incarnation")
        assert json.loads(refused)["error"]["details"]["incarnation"] == names[number]
        assert read_proof(refused)
        posts = [signed_post(kept.endpoint, body, headers=key, incarnation=names[number]) for _ in range(8)]
        values = {read_response(answer).value for _, _, answer in await asyncio.gather(*posts)}
        assert len(values) == 1
        again = {**key, "Accept": "text/event-stream", "Last-Event-ID": f"{run}:0"}
        for _ in range(4):
            _, _, events = await signed_post(kept.endpoint, body, headers=again, incarnation=names[number])
            assert b"event: result" in events
        _, shown = await signed_get(f"{kept.endpoint}/runs/{run}", kept.endpoint, incarnation=names[number])
        assert {read_response(shown).value} == values


async def test_a_connection_can_be_for_one_process(kept: ServerProcess) -> None:
    """A stop that comes over such a connection reaches the run there, also after a loss of the connection."""
    names = await both(kept)
    for number in (1, 2):
        client = Client(kept.endpoint, process=number)
        for _ in range(4):
            await client.lose()
            await client.connect()
            assert client.incarnation == names[number]
        await client.execute("long", "tools.math.add()", timeout=60)
        await client.expect("frame", run="long")
        await client.lose()
        await client.connect()
        await client.resume("long")
        await client.send("long", "cancel")
        message = await client.expect("result", run="long")
        assert isinstance(read_response(message.body).error, SandboxFailedError)
        await client.lose()


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "asked to end"])
async def test_one_process_ends_under_load(server: ServerProcess, signal_number: int) -> None:
    """One that is asked to end loses nothing. One that is killed loses what it had begun, with an error that says so;
    nothing is run twice, no run of the other one is lost, and another one takes its place."""
    shop = Workshop()
    before = await both(server)
    async with caller(server) as backend:
        await runs(backend, shop, range(10))
        load = asyncio.create_task(runs(backend, shop, range(10, 210)))
        await until(lambda: sum(shop.calls.values()) > 40, 0.005)
        children(server)[0].send_signal(signal_number)
        results = await asyncio.wait_for(load, PATIENCE)
        lost = [result.error for result in results if result.error is not None]
        assert all(count == 1 for count in shop.calls.values())
        assert len(lost) <= (2 + 1 if signal_number == signal.SIGKILL else 0), lost
        assert all(isinstance(error, SandboxFailedError) and error.details["began"] for error in lost)
        after: dict[int, str] = {}

        async def is_replaced() -> bool:
            after.update(await both(server))
            return len({*before.values()} & {*after.values()}) == 1

        await until(is_replaced, 0.1)
        again = await runs(backend, shop, range(300, 320))
    assert [result.error for result in again] == [None] * 20


async def test_all_of_them_end_together(server: ServerProcess) -> None:
    """Programs that run may end, in both of them, and then no process is left; the exit code is 0."""
    shop = Workshop()
    processes = children(server)
    async with caller(server) as backend:
        running = [asyncio.create_task(backend.execute(shop.request("return tools.shop.wait(item=1)"))) for _ in "1234"]
        await until(lambda: shop.calls[1] == 4, 0.01)
        server.terminate()
        gone = await backend.check()
        while gone.ok:
            gone = await backend.check()
        shop.gate.set()
        assert [(await each).value for each in running] == [1] * 4
    assert await asyncio.to_thread(server.ended) == 0
    assert not any(process.is_running() for process in processes)


async def test_no_process_outlives_the_one_that_started_them(server: ServerProcess) -> None:
    """The others see it when that one is killed, and end in good order."""
    processes = children(server)
    assert len(processes) == 2
    server.kill()
    await asyncio.to_thread(psutil.wait_procs, processes, PATIENCE)
    assert not any(process.is_running() for process in processes)


async def test_tls_is_undone_by_the_process_that_takes_the_connection(tmp_path: Path) -> None:
    """A connection that is for another one is passed on by it; large values arrive as they are."""
    make_certificates(tmp_path)
    own = {"tls_cert": str(tmp_path / "server-cert.pem"), "tls_key": str(tmp_path / "server-key.pem")}
    shop = Workshop()
    with two_processes(tmp_path / "server", max_running=2, **own) as server:
        async with caller(server, ca_file=str(tmp_path / "ca.pem")) as backend:
            results = await runs(backend, shop, range(20))
            large = [shop.request("return 'x' * 3_000_000") for _ in range(6)]
            values = [result.value for result in await asyncio.gather(*map(backend.execute, large))]
    assert [result.value for result in results] == [*range(20)]
    assert values == ["x" * 3_000_000] * 6


async def test_posts_are_shared_and_kept(kept: ServerProcess) -> None:
    """The client by POST asks for IDs that the process has which it asks, so that none is sent on or refused."""
    shop, before = Workshop(), await counted(kept, "toolexec_remote_refused_total")
    async with caller(kept, protocol="post") as backend:
        for first in range(0, 30, 10):
            results = await runs(backend, shop, range(first, first + 10))
            assert [result.value for result in results] == [*range(first, first + 10)]
    assert all(count == 1 for count in shop.calls.values())
    assert await counted(kept, "toolexec_remote_refused_total") == before


async def test_another_number_of_processes_starts_no_run_again(tmp_path: Path) -> None:
    """A request that is repeated under the ID of a run from before gets the response of that one, or ends as
    lost, whichever process has the ID now; a new one runs."""
    first: dict[str, str] = {}
    for count in (2, 3, 1):
        with server_process(tmp_path / "server", processes=count, wasm_workers=0, max_running=4) as server:
            said = {
                run: await posted(server, run) for run in (*(f"run-{number}" for number in range(8)), f"new-{count}")
            }
            ended = {run: answer["result"]["value"] for run, answer in said.items() if "error" not in answer}
            first = {**ended, **first}
            assert ended.items() <= first.items()
            lost = [answer["error"]["code"] for answer in said.values() if "error" in answer]
            assert {*lost} == ({"remote_run_lost"} if count != 2 else set())
            server.terminate()
            server.ended()


async def posted(server: ServerProcess, run: str) -> dict[str, Any]:
    """Return the response to a program by POST under that ID, from the process that has it."""
    program = ExecuteRequest(code="import os\nreturn os.urandom(8).hex()", language="python")
    which = ""

    async def response() -> dict[str, Any] | None:
        nonlocal which
        status, _, answer = await signed_post(
            server.endpoint, encode_request(program), headers={"Idempotency-Key": run}, incarnation=which
        )
        said = json.loads(answer)
        which = said.get("error", {}).get("details", {}).get("incarnation", "")
        return said if status not in (421, 503) else None

    return await until(response, 0.02)


async def test_a_stranger_who_names_a_process_is_cut_like_any_other(tmp_path: Path) -> None:
    """A connection without a key does not stay, whichever process the connection was handed to."""
    with two_processes(tmp_path / "server", header_timeout=0.3) as server:
        await identity(server.endpoint)
        host, port = "127.0.0.1", int(server.endpoint.split(":")[2].split("/")[0])
        for number in (1, 2):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(f"GET /v1/execute/connect HTTP/1.1\r\nX-Toolruntime-Process: {number}\r\nHo".encode())
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
            writer.close()
