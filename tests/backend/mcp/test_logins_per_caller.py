"""MCP servers that each caller logs in to: whose token their calls have, and on whose connection they are."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.net.oauth.login_server import LoginServer, login_server, visit

from toolexec import Exec, Gate
from toolexec.backend.mcp import MCPBackend, MCPServer, read_mcp_servers
from toolexec.errors import ConfigurationError, LoginRequiredError, PolicyError
from toolexec.model.origin import Caller, Origin, acting
from toolexec.run.layers.cache import Cache

PER = {"kind": "oauth", "per": "caller"}


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoginServer]:
    """Run a server to log in to, which says whose token a call has, with a place of its own for logins."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.setenv("TOOLEXEC_LOGIN_KEY", base64.b64encode(b"k" * 32).decode())
    async with login_server() as found:
        found.said = "{owner}"
        yield found


async def show(server: LoginServer, who: str, link: str, code: str) -> None:
    """Be who logs in in the browser."""
    server.visitor = who
    await visit(link, code)


async def add(ex: Exec, server: LoginServer, **settings: Any) -> MCPBackend:
    """Add the server, whose tools an operator's login lists."""
    await ex.add_mcp("notes", url=f"{server.url}/mcp", auth=PER, **settings)
    backend = ex.backends.get("notes")
    assert isinstance(backend, MCPBackend)
    await backend.log_in(partial(show, server, "operator"))
    return backend


async def call(ex: Exec, caller: str, session: str = "") -> Any:
    """Make a call as a caller."""
    with acting(Origin(caller=Caller(id=caller), session=session)):
        return (await ex.run_tool("notes:read")).value


@pytest.mark.parametrize("isolation", ["shared", "session"])
async def test_each_call_is_on_a_connection_with_the_login_of_its_caller(server: LoginServer, isolation: str) -> None:
    """The login that lists the tools makes no call, and the error of a caller without one has the command."""
    async with Exec(gate=Gate(cache=Cache(identity="none"))) as ex:
        backend = await add(ex, server, isolation=isolation)
        with pytest.raises(LoginRequiredError, match="caller 'ann' has to log in: it needs a login") as raised:
            await call(ex, "ann")
        assert raised.value.command == "toolexec login notes --caller ann"
        for caller in ("ann", "bob"):
            await backend.log_in(partial(show, server, caller), caller=caller)
        answers = await asyncio.gather(*(call(ex, who) for who in ("ann", "bob", "ann", "bob") * 5))
        assert answers == ["ann", "bob", "ann", "bob"] * 5
        status = backend.status().info
        assert status["logins"] == "one per caller"
        assert status["instances"] == 2
        for caller in (Caller(), Caller(id="ann", tenant="a/b")):
            with acting(Origin(caller=caller)), pytest.raises(PolicyError, match="the login of each caller") as denied:
                await ex.run_tool("notes:read")
            assert denied.value.code == "no_caller"


async def test_a_caller_who_logs_in_again_or_out_is_noticed_at_the_next_call(server: LoginServer) -> None:
    """Another program may do it: no call is made with the token before, and no other caller is disturbed."""
    async with Exec(gate=None) as ex, Exec(gate=None) as other:
        backend = await add(ex, server)
        for caller in ("ann", "bob"):
            await backend.log_in(partial(show, server, caller), caller=caller)
            assert await call(ex, caller) == caller
        await other.add_mcp("notes", url=f"{server.url}/mcp", auth=PER)
        elsewhere = other.backends.get("notes")
        assert isinstance(elsewhere, MCPBackend)
        await elsewhere.log_in(partial(show, server, "ann's other name"), caller="ann")
        assert await call(ex, "ann") == "ann's other name"
        assert await elsewhere.log_out(caller="ann")
        with pytest.raises(LoginRequiredError, match="'ann'"):
            await call(ex, "ann")
        assert await call(ex, "bob") == "bob"


async def test_a_revoked_token_is_renewed_once_and_disturbs_no_other_caller(server: LoginServer) -> None:
    """Twenty calls of one caller share a refresh."""
    async with Exec(gate=None) as ex:
        backend = await add(ex, server)
        for caller in ("ann", "bob"):
            await backend.log_in(partial(show, server, caller), caller=caller)
            assert await call(ex, caller) == caller
        for token in [token for token, owner in server.owners.items() if owner == "ann"]:
            server.tokens.pop(token, None)
        server.asked.clear()
        answers = await asyncio.gather(*(call(ex, who) for who in ("ann", "bob") * 20))
        assert answers == ["ann", "bob"] * 20
        assert [each["grant_type"] for each in server.asked] == ["refresh_token"]


def test_settings_of_a_login_per_caller(tmp_path: Path) -> None:
    """Where each caller has a login no two share a connection; a server without such a login takes none of a caller."""

    def read(auth: Any, **more: Any) -> MCPServer:
        path = tmp_path / "mcp.json"
        path.write_text(json.dumps({"mcpServers": {"notes": {"url": "https://a.example/mcp", "auth": auth, **more}}}))
        return read_mcp_servers(path)[0]

    assert (read("oauth").apart, read(PER).apart, read({"per": "caller"}).apart) == ("shared", "caller", "caller")
    assert read(PER, isolation="session").apart == "session"
    with pytest.raises(ConfigurationError, match="per"):
        read({"per": "person"})


async def test_a_login_for_all_takes_none_of_a_caller(server: LoginServer) -> None:
    """The error says which setting makes it one for each."""
    async with Exec() as ex:
        await ex.add_mcp("notes", url=f"{server.url}/mcp")
        backend = ex.backends.get("notes")
        assert isinstance(backend, MCPBackend)
        with pytest.raises(ConfigurationError, match='set per = "caller"'):
            await backend.log_in(visit, caller="ann")


@pytest.mark.full
async def test_a_server_of_the_sdk_checks_the_token_of_each_caller(
    server: LoginServer, http_server: Callable[..., Any]
) -> None:
    """Two callers have tokens of their own at a server and an authorization server that others wrote."""
    there = http_server("http", "new", str(Path(__file__).with_name("sdk_login_server.py")))
    async with Exec(gate=None) as ex:
        await ex.add_mcp("notes", url=there.url, auth=PER)
        backend = ex.backends.get("notes")
        assert isinstance(backend, MCPBackend)
        for caller in ("", "ann", "bob"):
            await backend.log_in(visit, caller=caller)

        async def ask(caller: str, tool: str) -> Any:
            with acting(Origin(caller=Caller(id=caller))):
                return (await ex.run_tool(f"notes:{tool}")).value

        assert await ask("ann", "resources") == await ask("bob", "resources") == {"result": [there.url] * 3}
        assert await backend.log_out(caller="ann")
        with pytest.raises(LoginRequiredError, match="'ann'"):
            await ask("ann", "resources")
        # Her token is forgotten here; the SDK ends tokens only of clients whose secret is in the body.
        assert await ask("bob", "resources") == {"result": [there.url] * 3}
