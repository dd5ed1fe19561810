"""Who makes a request."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import ClientCapabilities, ElicitationCapability, ElicitResult, UrlElicitationCapability
from tests.server.harness import ERAS, connect, gated, serving

import toolexec
from toolexec import Exec
from toolexec.model.origin import Caller
from toolexec.run.gate import Gate
from toolexec.run.policy import Policy, Rule
from toolexec.server.app import ToolServer
from toolexec.server.callers import can_elicit, connection_of
from toolexec.server.settings import ServeSettings
from toolexec.server.tools.base import MetaCall, MetaReply, MetaTool

ROOT = Path(toolexec.__file__).parent


def as_callers(server: ToolServer, callers: list[Caller | None]) -> None:
    """Have each request come from the caller that is first in *callers*, as the HTTP server says it."""

    async def identify(ctx: Any, call_next: Any) -> Any:
        request = SimpleNamespace(scope={"toolexec.caller": callers[0]})
        return await call_next(replace(ctx, request=request))

    server.lowlevel.middleware.insert(0, identify)


async def no(context: Any, params: Any) -> Any:
    return ElicitResult(action="decline")


async def test_a_proven_caller_reaches_the_call() -> None:
    """The caller that the HTTP server found is the origin's; in the newer era its requests are one session."""
    seen: list[Any] = []

    async def handle(call: MetaCall) -> MetaReply:
        seen.append(call.origin)
        return MetaReply(value={})

    tool = MetaTool(
        name="own", title="", description="", input_schema={"type": "object"}, output_schema={}, handle=handle
    )
    callers: list[Any] = [Caller(id="ann", tenant="acme", roles=("admin",))]
    async with serving(Exec(), tools=[tool]) as server:
        as_callers(server, callers)
        async with connect(server, "auto") as client:
            for caller in (callers[0], callers[0], Caller(id="bob"), "nobody proved this"):
                callers[0] = caller
                await client.call_tool("own", {})
    ann, again, bob, nobody = seen
    assert ann.caller.roles == ("admin",)
    assert ann.session == again.session != bob.session
    assert nobody.caller.id == ""
    assert "ann" not in ann.session


@pytest.mark.parametrize("era", ERAS)
async def test_instructions_are_those_of_the_caller(era: str) -> None:
    """Counts and names what the caller may know of, in either era, not what an anonymous one may."""
    policy = Policy([Rule("deny", callers="guest-*", tools="secret:*"), Rule("allow", tools="*")])
    ex = Exec(gate=Gate(policy=policy))
    for name in ("open:a", "secret:b"):
        ex.add(lambda: 1, name)
    for caller, words in (("guest-1", "1 tool in the namespaces open "), ("ann", "2 tools in the namespaces open, se")):
        async with ToolServer(ex, ServeSettings(expose="code")) as server:
            as_callers(server, [Caller(id=caller)])
            async with connect(server, era) as client:
                assert str(client.instructions).startswith(words)


async def test_state_is_bound_to_its_caller() -> None:
    """No caller can answer in place of another; the one who was asked still can."""
    ran: list[str] = []
    ex, _ = gated()
    ex.add(lambda path: ran.append(path), "fs:danger")
    ann, bob = Caller(id="ann", method="api_key"), Caller(id="bob", method="api_key")
    callers: list[Any] = [ann]
    args = {"tool_id": "fs:danger", "args": {"path": "/x"}}
    yes: Any = {"approval-1": ElicitResult(action="accept", content={"answer": "once"})}
    async with serving(ex) as server:
        as_callers(server, callers)
        async with connect(server, "auto", elicitation_callback=no) as client:
            call = client.session.call_tool
            first: Any = await call("run_tool", args, allow_input_required=True)
            for other in (bob, Caller(id="ann", method="api_key", tenant="other"), None):
                callers[0] = other
                with pytest.raises(MCPError, match="requestState"):
                    await call("run_tool", args, input_responses=yes, request_state=first.request_state)
            assert ran == []
            callers[0] = ann
            await call("run_tool", args, input_responses=yes, request_state=first.request_state)
    assert ran == ["/x"]


async def test_cursors_are_bound_to_their_caller() -> None:
    """A cursor of one caller's list is nothing for another."""
    callers: list[Any] = [Caller(id="ann")]
    async with serving(Exec(), page_size=1) as server:
        as_callers(server, callers)
        async with connect(server, "auto") as client:
            cursor = (await client.list_tools()).next_cursor
            callers[0] = Caller(id="bob")
            with pytest.raises(MCPError, match="invalid cursor"):
                await client.list_tools(cursor=cursor)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (None, False),
        (ClientCapabilities(), False),
        (ClientCapabilities(elicitation=ElicitationCapability()), True),
        (ClientCapabilities(elicitation=ElicitationCapability(url=UrlElicitationCapability())), False),
    ],
)
def test_who_can_be_asked(offered: Any, expected: bool) -> None:
    """A client can be asked when it offers forms; an empty offer means forms; an offer of pages only does not."""
    for version, way in (("2025-11-25", True), ("2026-07-28", False)):
        session = SimpleNamespace(client_capabilities=offered, can_send_request=way)
        context: Any = SimpleNamespace(session=session, protocol_version=version)
        assert can_elicit(context) is expected
    session = SimpleNamespace(client_capabilities=offered, can_send_request=False)
    context = SimpleNamespace(session=session, protocol_version="2025-11-25")
    assert can_elicit(context) is False


def test_the_sdk_has_no_public_way_to_the_connection() -> None:
    """One private attribute of the SDK is read; when this fails, there may be a public one to take its place."""
    connection = Connection.from_envelope("2025-11-25", None, None)
    channel: Any = SimpleNamespace(can_send_request=False)
    session = ServerSession(channel, connection)
    ctx: Any = SimpleNamespace(session=session)
    assert connection_of(ctx) is connection
    public = {name for name in dir(session) if not name.startswith("_")}
    assert not [name for name in public if getattr(session, name, None) is connection]
    assert "connection" not in {field.name for field in fields(ServerRequestContext)}


def test_nothing_else_reads_private_attributes_of_the_sdk() -> None:
    """Ruff flags each read of a private attribute, so a marker stands where one is read."""
    marked = [
        path.name
        for package in ("server", "backend/mcp")
        for path in (ROOT / package).rglob("*.py")
        if "SLF001" in path.read_text()
    ]
    assert marked == ["callers.py"]
