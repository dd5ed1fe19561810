"""MCP servers that want a login: what calls say without one, and how they go on with it."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.net.oauth.login_server import LoginServer, login_server, visit
from tests.servers import server_environment

from toolexec import Exec
from toolexec.backend.mcp import MCPBackend, MCPServer, connection, read_mcp_servers
from toolexec.errors import ConfigurationError, LoginRequiredError, ToolExecError


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoginServer]:
    """Run a server to log in to, with a place of its own for logins."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    async with login_server() as found:
        yield found


async def test_a_call_without_a_login_names_the_command_and_one_with_it_is_made(server: LoginServer) -> None:
    """The status and the error say what to do; after that the tools are there, and no reply has the token."""
    async with Exec() as ex:
        await ex.add_mcp("notes", url=f"{server.url}/mcp")
        (status,) = [each for each in ex.backend_statuses() if each.name == "notes"]
        assert status.reason == "it needs a login: toolexec login notes"
        with pytest.raises(LoginRequiredError, match="toolexec login notes") as raised:
            await ex.run_tool("notes:read")
        assert raised.value.command == "toolexec login notes"
        assert server.url not in raised.value.public().message
        backend = ex.backends.get("notes")
        assert isinstance(backend, MCPBackend)
        await backend.log_in(visit)
        result = await ex.run_tool("notes:read")
        assert result.value == "the token is [REDACTED]"
        (status,) = [each for each in ex.backend_statuses() if each.name == "notes"]
        assert str(status.info["login"]).startswith("logged in until ")
        assert str(status.info["login"]).endswith(", renewed by itself, scopes: read")


async def test_a_login_of_another_process_is_noticed(server: LoginServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that runs need not be started again, however many calls have failed until then."""
    monkeypatch.setattr(connection, "_LOGIN_PAUSE", 0.01)
    there = asyncio.Event()
    async with Exec() as ex, Exec() as other:
        await ex.add_mcp("notes", url=f"{server.url}/mcp")
        await other.add_mcp("notes", url=f"{server.url}/mcp")
        backend, waiting = other.backends.get("notes"), ex.backends.get("notes")
        assert isinstance(backend, MCPBackend)
        assert isinstance(waiting, MCPBackend)
        waiting.on_tools(lambda tools: there.set())
        for _ in range(8):  # more than a server may be started again
            with pytest.raises(LoginRequiredError):
                await ex.run_tool("notes:read")
        await backend.log_in(visit)
        await there.wait()
        assert (await ex.run_tool("notes:read")).ok


async def test_calls_that_need_more_scopes_name_them(server: LoginServer) -> None:
    """The connection stays, and the error has the command that adds the scopes."""
    async with Exec() as ex:
        await ex.add_mcp("notes", url=f"{server.url}/mcp", auth="oauth")
        backend = ex.backends.get("notes")
        assert isinstance(backend, MCPBackend)
        await backend.log_in(visit)
        server.needed = "read write"
        with pytest.raises(LoginRequiredError) as raised:
            await ex.run_tool("notes:read")
        assert raised.value.command == "toolexec login notes --scope read --scope write"
        await backend.log_in(visit, scopes=raised.value.details["scopes"])
        assert (await ex.run_tool("notes:read")).ok


async def test_a_server_that_takes_no_token_asks_for_another_login(server: LoginServer) -> None:
    """A renewed token that is refused as well ends with the command, not with a status of HTTP."""
    async with Exec() as ex:
        await ex.add_mcp("notes", url=f"{server.url}/mcp")
        backend = ex.backends.get("notes")
        assert isinstance(backend, MCPBackend)
        await backend.log_in(visit)
        server.takes = False
        with pytest.raises(LoginRequiredError, match="does not take the token"):
            await ex.run_tool("notes:read")


async def test_a_server_that_redirects_elsewhere_does_not_take_the_token_along(server: LoginServer) -> None:
    """The token that a server has got is not sent to another origin, even where the server sends the call there."""
    async with login_server() as other, Exec() as ex:
        await ex.add_mcp("notes", url=f"{server.url}/mcp")
        backend = ex.backends.get("notes")
        assert isinstance(backend, MCPBackend)
        await backend.log_in(visit)
        server.moved["/mcp"] = f"{other.url}/mcp"
        with pytest.raises(ToolExecError):
            (await ex.run_tool("notes:read")).raise_for_error()
        assert set(other.calls) <= {""}
        assert not other.asked


async def test_a_client_that_acts_for_itself_needs_no_person(server: LoginServer) -> None:
    """The secret comes from where a reference leads, and the server is connected at once."""
    auth = {"kind": "oauth", "flow": "client", "client_id": "robot", "client_secret": "x" * 20, "issuer": server.url}
    async with Exec() as ex:
        await ex.add_mcp("notes", url=f"{server.url}/mcp", auth=auth)
        assert (await ex.run_tool("notes:read")).ok


@pytest.mark.full
async def test_the_command_logs_in_shows_the_login_and_logs_out(server: LoginServer, tmp_path: Path) -> None:
    """`toolexec login` waits for the browser, `backends` has the login, `logout` ends it."""
    file = tmp_path / "toolexec.toml"
    file.write_text(
        f'[mcpServers.notes]\nurl = "{server.url}/mcp"\nauth = "oauth"\n'
        f'[mcpServers.own]\nurl = "{server.url}/mcp"\nauth = {{ kind = "oauth", per = "caller" }}\n'
    )
    environment = server_environment() | {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "TOOLEXEC_LOGIN_KEY": base64.b64encode(b"k" * 32).decode(),
    }

    async def command(*words: str) -> tuple[int, Any, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "toolexec", *words, "-c", str(file), "--json"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        said = ""
        if words[0] == "login":
            while "/authorize" not in said:
                line = (await process.stderr.readline()).decode()
                assert line, said
                said += line
            await visit(said.split()[-1])
        out, more = await process.communicate()
        return process.returncode or 0, json.loads(out), said + more.decode()

    code, data, said = await command("login", "notes")
    assert (code, data["login"]["server"], data["login"]["scopes"]) == (0, "notes", ["read"]), said
    code, data, said = await command("backends")
    (status,) = [each for each in data["backends"] if each["name"] == "notes"]
    assert status["info"]["login"].startswith("logged in until"), said
    assert "token-number" not in json.dumps(data) + said
    assert (await command("logout", "notes"))[:2] == (0, {"logged_out": True})
    assert server.revoked
    code, data, said = await command("login", "own", "--caller", "ann")
    assert (code, data["login"]["server"], data["login"]["caller"]) == (0, "own", "ann"), said
    assert (await command("logout", "own", "--caller", "bob"))[:2] == (0, {"logged_out": False})
    assert (await command("logout", "own", "--caller", "ann"))[:2] == (0, {"logged_out": True})


@pytest.mark.full
async def test_a_server_and_an_authorization_server_of_the_sdk(
    server: LoginServer, http_server: Callable[..., Any]
) -> None:
    """Login, calls, a token that ends, and logout work with servers that others wrote."""
    there = http_server("http", "new", str(Path(__file__).with_name("sdk_login_server.py")))
    async with Exec() as ex:
        await ex.add_mcp("notes", url=there.url)
        backend = ex.backends.get("notes")
        assert isinstance(backend, MCPBackend)
        status = await backend.log_in(visit)
        assert status.scopes == ("notes",)
        assert (await ex.run_tool("notes:resources")).value == {"result": [there.url]}
        assert (await ex.run_tool("notes:expire")).value == {"result": "expired"}
        answers = await asyncio.gather(*(ex.run_tool("notes:resources") for _ in range(5)))
        assert [each.value for each in answers] == [{"result": [there.url]}] * 5
        assert await backend.log_out()
        with pytest.raises(LoginRequiredError):
            await ex.run_tool("notes:resources")


def test_a_file_has_the_settings_of_a_login(tmp_path: Path) -> None:
    """`auth` of other programs is left alone; ours is checked."""

    def read(auth: Any) -> MCPServer:
        path = tmp_path / "mcp.json"
        path.write_text(json.dumps({"mcpServers": {"notes": {"url": "https://a.example/mcp", "auth": auth}}}))
        return read_mcp_servers(path)[0]

    assert read("oauth").oauth == read({"kind": "oauth"}).oauth
    assert read({"kind": "oauth", "scopes": ["a"]}).oauth is not None
    assert read({"CLIENT_ID": "of-another-program"}).auth is None
    for wrong in ({"kind": "basic"}, {"kind": "oauth", "scope": "a"}, {"client_secret": "x"}, {"flow": "client"}):
        with pytest.raises(ConfigurationError, match="notes"):
            read(wrong)
    secret = MCPServer(
        name="n",
        url="https://a.example",
        auth={"client_id": "c", "client_secret": "the-secret", "issuer": "https://i.example"},
    )
    assert "the-secret" not in f"{secret!r} {secret.oauth!r}"
    assert secret.redact("the-secret") == "***"
    with pytest.raises(ConfigurationError, match="auth is of no use"):
        MCPServer(name="n", auth="oauth", command="x")
    with pytest.raises(ConfigurationError, match="auth is of no use"):
        MCPServer(name="n", auth="oauth", url="https://a.example", headers={"Authorization": "x"})
