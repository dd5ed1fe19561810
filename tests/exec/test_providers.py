"""Providers that are added to an Exec, and how they are afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.backend.providers.service import Service, serving

from toolexec import Exec
from toolexec.errors import BackendError, ConfigurationError
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool

TOOLS: dict[str, Any] = {"items": {"path": "/items", "response": "total"}, "bad": {"path": "/status/500"}}


@pytest.fixture(scope="module")
def running() -> Iterator[Service]:
    """One service for the tests of this file."""
    with serving() as service:
        yield service


@pytest.fixture
def service(running: Service) -> Service:
    """The service, with nothing seen yet."""
    running.seen.clear()
    return running


@pytest.mark.anyio
async def test_http(service: Service) -> None:
    """One line adds endpoints; the first call starts them, and the status says how they are doing."""
    async with Exec() as ex:
        added = ex.add_http("shop", service.url, tools=TOOLS, timeout=5)
        assert len(added) == 1
        assert (await ex.run_tool("shop:items")).value == 3
        assert not (await ex.run_tool("shop:bad")).ok
        [status] = [each for each in ex.backend_statuses() if each.name == "shop"]
    assert (status.kind, status.tools, status.available) == ("provider", 2, True)
    assert (status.info["calls"], status.info["errors"]) == (2, 1)
    assert status.info["latency_ms"] > 0
    assert "status 500" in status.info["last_error"]


def test_blocking_twin(service: Service) -> None:
    """The same without an event loop."""
    with Exec().sync as ex:
        status = ex.add_http("shop", service.url, tools=TOOLS)
        assert (status.name, status.tools) == ("shop", 2)
        assert ex.run_tool("shop:items").value == 3
        assert [each.name for each in ex.refresh()] == ["shop"]


def test_wrong_settings() -> None:
    """Nothing is added where something is wrong; what every provider takes is known, too."""
    ex = Exec()
    for settings, close in (({"base_ulr": "x"}, "base_url"), ({"enabeld": True}, "enabled")):
        with pytest.raises(ConfigurationError, match=f"did you mean {close}"):
            ex.add_http("shop", **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="refresh"):
        ex.add_http("shop", refresh=-1.0)
    ex.add_http("shop")
    with pytest.raises(BackendError, match="is there already"):
        ex.add_http("shop")


@pytest.mark.anyio
async def test_code_calls_providers(service: Service) -> None:
    """Code in the sandbox calls these tools as any other; the gateway is all that it has of the network."""
    async with Exec() as ex:
        await ex.add_http("shop", service.url, tools=TOOLS)
        result = await ex.execute_code("return tools.shop.items() + 1")
    assert result.value == 4


@pytest.mark.anyio
async def test_refresh_of_servers() -> None:
    """A server is listed again on demand, and its status has its calls and what it wrote to stderr."""
    server = ScriptedServer(tools=[ScriptedTool("ping")])
    program, *args = server.command()
    noisy = [
        "-c",
        "import os, sys; os.write(2, b'starting up\\n'); os.execv(sys.argv[1], sys.argv[1:])",
        program,
        *args,
    ]
    async with Exec() as ex:
        ex.add_mcp("one", command=[sys.executable, *noisy])
        assert (await ex.run_tool("one:ping")).ok
        [status] = await ex.refresh("one")
        assert (status.available, status.tools) == (True, 1)
        assert status.info["calls"] == 1
        assert status.info["latency_ms"] > 0
        assert status.info["stderr"] == "starting up"
        with pytest.raises(BackendError, match="no backend 'two' can be refreshed"):
            await ex.refresh("two")


@pytest.mark.anyio
async def test_refresh_of_a_dead_server() -> None:
    """A server that cannot be started is in the answer with its reason; nothing is raised."""
    async with Exec() as ex:
        ex.add_mcp("gone", command="no-such-program-anywhere")
        for _ in range(2):
            [status] = await ex.refresh()
            assert not status.available
            assert "no-such-program-anywhere" in (status.reason or "")
