"""Every transport in every era: the same calls give the same results."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from tests.waiting import until

from toolexec import Exec
from toolexec.model.call import ToolCall

pytestmark = pytest.mark.full

SDK_SERVER = str(Path(__file__).with_name("sdk_server.py"))
MATRIX = [("stdio", "old"), ("stdio", "new"), ("http", "old"), ("http", "new"), ("sse", "old")]


@pytest.fixture(params=MATRIX, ids="-".join)
def backend(request, http_server, connect):
    transport, era = request.param
    if transport == "stdio":
        return connect([sys.executable, SDK_SERVER, "stdio", era, "0"])
    return connect(http_server(transport, era).url)


@pytest.fixture
def era(request) -> str:
    return request.node.callspec.params["backend"][1]


async def call(backend, name, args=None, **settings):
    return await backend.call(name, ToolCall(f"s:{name}", args, **settings))


async def test_the_era_is_negotiated(backend, era):
    """Servers that know 2026-07-28 are spoken to in it, others by handshake."""
    await backend.start()
    status = backend.status()
    assert status.available, status.reason
    assert (status.info["protocol"] == "2026-07-28") == (era == "new")


async def test_tools_are_listed_and_called(backend):
    """The tools have their schemas, and a call gives the structured result."""
    tools = {tool.name: tool for tool in await backend.list_tools()}
    assert tools["add"].description == "Add two numbers."
    assert set(tools["add"].input_schema.to_json()["properties"]) == {"a", "b"}
    reply = await call(backend, "add", {"a": 2, "b": 3})
    assert reply.structured == {"result": 5}


async def test_every_content_part_is_kept(backend):
    """Text, image, audio and links arrive as they were sent."""
    reply = await call(backend, "parts")
    assert [part["type"] for part in reply.content] == ["text", "image", "audio", "resource_link"]
    assert reply.content[1] == {"type": "image", "data": "aGk=", "mimeType": "image/png"}


async def test_a_tool_that_fails_says_so(backend):
    """An error that the tool reports comes as a reply marked as an error."""
    reply = await call(backend, "fail")
    assert reply.is_error
    assert "on purpose" in reply.content[0]["text"]


async def test_an_unknown_tool_is_the_servers_error(backend):
    """Calling what is not there fails as the server says, and the connection stays."""
    reply = await call(backend, "missing")
    assert reply.is_error
    assert "missing" in reply.content[0]["text"]
    assert (await call(backend, "add", {"a": 1, "b": 1})).structured == {"result": 2}


async def test_progress_arrives_in_order(backend):
    """Each progress notification reaches the caller."""
    seen = []
    await call(backend, "steps", {"count": 4}, on_progress=seen.append)
    assert [(p.done, p.total, p.message) for p in seen] == [(n, 4, f"step {n}") for n in (1, 2, 3, 4)]


async def test_cancelling_reaches_the_server(backend):
    """A cancelled call stops the tool on the server, and the connection goes on."""
    await backend.start()

    async def running() -> int:
        return (await call(backend, "running")).structured["result"]

    async def over() -> bool:
        return await running() == 0

    task = asyncio.create_task(call(backend, "slow"))
    assert await until(running) == 1  # another call may overtake this one: over HTTP each has a connection of its own
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await until(over)


async def test_ten_megabytes_each_way(backend, request):
    """Huge arguments and huge replies pass; only the legacy SSE transport has a limit of 1 MiB for replies."""
    size = 1_000_000 if "sse" in request.node.name else 10_000_000
    assert (await call(backend, "size", {"text": "y" * 3_000_000})).structured == {"result": 3_000_000}
    assert len((await call(backend, "big", {"characters": size})).content[0]["text"]) == size


async def test_a_changed_list_updates_the_index(backend, until):
    """A server that gets a new tool says so, and the index shows it without a request."""
    async with Exec() as ex:
        await ex.add_backends(backend)
        assert ex.index.find("s:grown") is None
        await ex.run_tool("s:grow")
        await until(lambda: ex.index.find("s:grown"))
        assert (await ex.run_tool("s:grown")).value == {"result": "grown"}


async def test_calls_run_at_the_same_time(backend):
    """A slow call does not hold up the others."""
    await backend.start()
    slow = asyncio.create_task(call(backend, "wait", {"seconds": 0.5}))
    replies = await asyncio.gather(*(call(backend, "add", {"a": n, "b": 1}) for n in range(20)))
    assert [reply.structured["result"] for reply in replies] == list(range(1, 21))
    assert (await slow).content[0]["text"] == "waited"
