"""Servers that keep state, with an instance for each session or each caller."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp import Client
from tests.backend.mcp.counting_server import make
from tests.waiting import until

from toolexec import Exec
from toolexec.backend.mcp import MCPBackend, MCPServer
from toolexec.backend.mcp.files import read_mcp_server
from toolexec.errors import BackendUnavailableError, ConfigurationError, PolicyError
from toolexec.model.origin import Caller, Origin, acting
from toolexec.server.app import ToolServer
from toolexec.server.settings import ServeSettings

SCRIPT = str(Path(__file__).with_name("counting_server.py"))
ANN, BOB = Origin(caller=Caller(id="ann", method="api_key")), Origin(caller=Caller(id="bob", method="api_key"))


@asynccontextmanager
async def running() -> AsyncGenerator[str]:
    """Yield the address of the server over HTTP, on this event loop."""
    server = _Quiet(uvicorn.Config(make().streamable_http_app(), port=0, log_level="error"))
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    finally:
        server.should_exit = server.force_exit = True
        await serving


class _Quiet(uvicorn.Server):
    """Leaves the signals alone."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@asynccontextmanager
async def counting(**settings: Any) -> AsyncGenerator[tuple[Exec, MCPBackend]]:
    """Yield an Exec with the server that keeps state, set up in this way; over HTTP without a command."""
    async with AsyncExitStack() as stack:
        if "command" not in settings:
            settings["url"] = await stack.enter_async_context(running())
        ex = await stack.enter_async_context(Exec())
        backend = MCPBackend(MCPServer(name="count", **settings))
        ex.add_backends(backend)
        await ex.start()
        yield ex, backend


async def call(ex: Exec, origin: Origin, name: str, **args: Any) -> Any:
    """Return what a call for *origin* gives."""
    with acting(origin):
        return (await ex.run_tool(f"count:{name}", args)).raise_for_error().value["result"]


def instances(backend: MCPBackend) -> object:
    """Return how many instances there are."""
    return backend.status().info["instances"]


async def test_callers_share_no_state_and_each_keeps_its_own() -> None:
    """Ann's notes are hers in each of her sessions; the program itself has others."""
    async with counting(isolation="caller") as (ex, backend):
        await asyncio.gather(
            call(ex, ANN, "remember", note="of ann"),
            call(ex, BOB, "remember", note="of bob"),
        )
        assert await call(ex, replace(ANN, session="other"), "remember", note="more of ann") == 2
        assert (await call(ex, ANN, "recall"))[1:] == ["of ann", "more of ann"]
        assert (await call(ex, BOB, "recall"))[1:] == ["of bob"]
        assert (await call(ex, Origin(), "recall"))[1:] == []
        at_endpoint = Origin(caller=Caller(id="ann", method="api_key", endpoint="team-a"))
        assert (await call(ex, at_endpoint, "recall"))[1:] == []
        assert instances(backend) == 4


async def test_sessions_share_no_state_and_their_end_closes_it() -> None:
    """The same caller has other notes in another session; a session of that name begins again after its end."""
    one, two = replace(ANN, session="one"), replace(ANN, session="two")
    async with counting(isolation="session") as (ex, backend):
        await call(ex, one, "remember", note="in one")
        await call(ex, two, "remember", note="in two")
        assert (await call(ex, one, "recall"))[1:] == ["in one"]
        ex.backends.end_session("one")
        assert instances(backend) == 1
        assert (await call(ex, one, "recall"))[1:] == []
        assert (await call(ex, two, "recall"))[1:] == ["in two"]


async def test_resources_are_those_of_the_instance() -> None:
    """One reads its own notes, also by their URI, and cannot subscribe to them."""
    async with counting(isolation="caller") as (ex, _):
        await call(ex, ANN, "remember", note="of ann")
        for origin, expected in ((ANN, "of ann"), (BOB, "")):
            with acting(origin):
                uri = (await ex.list_resource_templates())[0].uri_template.replace("{kind}", "all")
                assert (await ex.read_resource(uri)).contents[0].text == expected
        assert "subscribe" not in ex.resources.may_offer()


async def test_who_cannot_be_distinguished_gets_no_instance() -> None:
    """An anonymous request without a session could be from any client, so the call is refused with nothing done."""
    async with counting(isolation="session") as (ex, backend):
        with pytest.raises(PolicyError, match="neither a known caller nor a session"):
            await call(ex, Origin(session="process", approvals="once"), "recall")
        assert instances(backend) == 0


async def test_one_caller_cannot_take_all_instances() -> None:
    """A newcomer gets one of the caller with most; that caller's oldest idle one gives way."""
    async with counting(isolation="session", max_instances=2) as (ex, backend):
        await call(ex, replace(ANN, session="1"), "remember", note="first")
        await call(ex, replace(ANN, session="2"), "remember", note="second")
        await call(ex, replace(BOB, session="3"), "remember", note="third")
        assert instances(backend) == 2
        assert (await call(ex, replace(ANN, session="2"), "recall"))[1:] == ["second"]
        assert (await call(ex, replace(BOB, session="3"), "recall"))[1:] == ["third"]
        assert backend._instances is not None
        with (
            backend._instances.used_by(replace(ANN, session="2")),
            backend._instances.used_by(replace(BOB, session="3")),
            pytest.raises(BackendUnavailableError, match="all of this caller's are in use"),
            backend._instances.used_by(replace(ANN, session="4")),
        ):
            pass


async def test_an_only_instance_does_not_give_way() -> None:
    """Callers with one each keep theirs; one more is refused, and the operator reads what to set."""
    async with counting(isolation="caller", max_instances=1) as (ex, _):
        await call(ex, ANN, "remember", note="of ann")
        with pytest.raises(BackendUnavailableError, match="another caller's only one; set a higher max_instances"):
            await call(ex, BOB, "recall")
        assert (await call(ex, ANN, "recall"))[1:] == ["of ann"]


async def test_an_idle_instance_is_closed() -> None:
    """Its process ends, and the next call begins with another one."""
    async with counting(isolation="caller", instance_idle=0.01) as (ex, backend):
        await call(ex, ANN, "remember", note="gone")
        await until(lambda: instances(backend) == 0)
        assert (await call(ex, ANN, "recall"))[1:] == []


def test_a_wrong_setting_is_refused() -> None:
    """The message says which, and what there is."""
    with pytest.raises(ConfigurationError, match="isolation"):
        read_mcp_server("count", {"command": "x", "isolation": "tenant"}, where="a", directory=Path(), secrets=None)
    with Exec().sync as ex, pytest.raises(ConfigurationError, match="isolation must be one of shared, session, caller"):
        ex.add_mcp("count", command="x", isolation="tenant")  # type: ignore[typeddict-item]
    with pytest.raises(ConfigurationError, match="max_instances"):
        MCPServer(name="count", command="x", isolation="caller", max_instances=0)


async def test_the_end_of_a_served_session_ends_its_instance() -> None:
    """Two sessions of clients have notes of their own; the one that ends takes its instance with it."""
    async with counting(isolation="session") as (ex, backend), ToolServer(ex, ServeSettings(expose="direct")) as served:
        async with Client(served.lowlevel, mode="legacy") as one:
            await one.call_tool("count__remember", {"note": "of one"})
            async with Client(served.lowlevel, mode="legacy") as two:
                said = (await two.call_tool("count__recall", {})).structured_content
                assert said is not None
                assert len(said["result"]) == 1
                assert instances(backend) == 2
            await until(lambda: instances(backend) == 1)
            said = (await one.call_tool("count__recall", {})).structured_content
            assert said is not None
            assert said["result"][1:] == ["of one"]
        await until(lambda: instances(backend) == 0)


@pytest.mark.full
async def test_a_command_has_a_process_for_each_caller() -> None:
    """Each has the state of its own process, and none is left at the end."""
    async with counting(command=sys.executable, args=[SCRIPT], isolation="caller") as (ex, _):
        await call(ex, ANN, "remember", note="of ann")
        process, *notes = await call(ex, ANN, "recall")
        other, *others = await call(ex, BOB, "recall")
        assert (notes, others, process == other) == (["of ann"], [], False)
