"""What a run leaves behind: no other run waits for a collection of garbage."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

import pytest
from packages.remote.tests.servers import Client, runtime_server, signed_post
from tests.waiting import until

from toolexec.sandbox import ExecuteRequest
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.server.duplex_run import DuplexRun
from toolexec_remote.server.relay import RelayGateway
from toolexec_remote.server.remote_run import RemoteRun
from toolexec_remote.wire import encode_request

Act = Callable[[Client, str], Awaitable[object]]


async def called(client: Client, run: str) -> object:
    """Run a program that calls a tool."""
    await client.execute(run, "call")
    await client.answer(run, lambda _: 3)
    return await client.result(run)


async def refused(client: Client, run: str) -> object:
    """Ask for what is refused."""
    await client.execute(run, "1", session="none")
    await client.expect("refused", run=run)
    return await client.put(client.links[run].ack())


async def cancelled(client: Client, run: str) -> object:
    """Cancel a program that has not started."""
    await client.execute(run, "1", go=False)
    await client.expect("ready", run=run)
    await client.send(run, "cancel")
    await client.expect("refused", run=run)
    return await client.put(client.links[run].ack())


async def posted(client: Client, run: str) -> object:
    """Run a program by POST."""
    return await signed_post(client.endpoint, encode_request(ExecuteRequest(code=f"'{run}'")))


def kept() -> list[object]:
    """Return what there is of runs."""
    return [each for each in gc.get_objects() if isinstance(each, DuplexRun | RemoteRun | RelayGateway)]


@pytest.mark.parametrize("act", [called, refused, cancelled, posted])
async def test_runs_are_free_without_a_collection(tmp_path: Path, act: Act) -> None:
    """Nothing of a run that is over is part of a cycle: those of many would be found together, while all others wait.
    What a server remembers of its runs is all that it keeps."""
    sandbox = ScriptedSandbox({"call": lambda request: request.gateway.run_tool("math:add", {})}, default=1)
    gc.collect()
    before = len(kept())
    gc.disable()
    try:
        async with runtime_server(tmp_path, sandbox, keeps=0.01) as endpoint, Client(endpoint) as client:
            for number in range(5):
                await act(client, f"r{number}")
                sandbox.requests.clear()
            names = count()

            async def are_free() -> bool:
                run = f"next-{next(names)}"  # at its end the server forgets old ones
                await client.execute(run, "1")
                await client.result(run)
                sandbox.requests.clear()
                return len(kept()) <= before + 3

            await until(are_free)
    finally:
        gc.enable()
