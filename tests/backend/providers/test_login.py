"""Providers whose calls are made with a login: what they say without one, and how they go on with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.net.oauth.login_server import LoginServer, login_server, visit

from toolexec import Exec
from toolexec.backend.base import LoginBackend
from toolexec.backend.secrets import SecretResolver
from toolexec.errors import BackendUnavailableError, ConfigurationError, LoginError, LoginRequiredError
from toolexec.net.oauth.login import log_in
from toolexec.net.oauth.settings import OAuthSettings

TOOLS: dict[str, Any] = {"read": {"path": "/mcp/notes"}, "write": {"path": "/mcp/notes", "method": "POST"}}


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoginServer]:
    """Run a server to log in to, with a place of its own for logins."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    async with login_server() as found:
        yield found


def described(server: LoginServer, **scheme: Any) -> dict[str, Any]:
    """Return an OpenAPI document of the server."""
    urls = {"authorizationUrl": f"{server.url}/authorize", "tokenUrl": f"{server.url}/token"}
    flows = {"authorizationCode": {**urls, "scopes": {"read": "", "write": ""}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Notes", "version": "1"},
        "servers": [{"url": server.url}],
        "components": {"securitySchemes": {"person": scheme or {"type": "oauth2", "flows": flows}}},
        "security": [{"person": ["read"]}],
        "paths": {"/mcp/notes": {"get": {"operationId": "read", "responses": {"200": {"description": "them"}}}}},
    }


async def add(ex: Exec, server: LoginServer, kind: str, **auth: Any) -> LoginBackend:
    """Add the server as a provider of a kind, and return that."""
    login = {"kind": "oauth", "scopes": ["read"], **auth}
    if kind == "http":
        ex.add_http("notes", server.url, tools=TOOLS, auth=login)
    else:
        await ex.add_openapi("notes", described(server), auth={"person": login})
    backend = ex.backends.get("notes")
    assert isinstance(backend, LoginBackend)
    return backend


async def test_nothing_is_sent_without_a_login_and_calls_are_made_with_it(server: LoginServer) -> None:
    """The error names the command; after it calls have the token, and no answer shows it."""
    async with Exec() as ex:
        backend = await add(ex, server, "http", issuer=server.url)
        with pytest.raises(LoginRequiredError, match="it needs a login: toolexec login notes"):
            await ex.run_tool("notes:read")
        assert server.calls == []
        status = await backend.log_in(visit)
        assert (status.issuer, status.renews) == (server.url, True)
        assert (await ex.run_tool("notes:read")).value == {"token": "[REDACTED]"}
        assert server.calls == ["access-token-number-1"]
        assert "resource" not in server.asked[0]
        assert await backend.log_out()
        with pytest.raises(LoginRequiredError):
            await ex.run_tool("notes:read")


async def test_a_login_is_used_by_other_processes(server: LoginServer) -> None:
    """The store keeps it for the next program with the same provider."""
    async with Exec() as ex, Exec() as other:
        await (await add(ex, server, "http", issuer=server.url)).log_in(visit)
        await add(other, server, "http", issuer=server.url)
        assert (await other.run_tool("notes:read")).ok
        assert len(server.asked) == 1


async def test_calls_whose_token_is_refused_share_one_refresh(server: LoginServer) -> None:
    """Twenty calls at the same time succeed with one new token."""
    async with Exec(gate=None) as ex:
        await (await add(ex, server, "http", issuer=server.url)).log_in(visit)
        server.tokens.clear()
        done = await asyncio.gather(*(ex.run_tool("notes:write") for _ in range(20)))
        assert all(each.ok for each in done)
        assert [each["grant_type"] for each in server.asked] == ["authorization_code", "refresh_token"]


async def test_a_login_that_has_ended_asks_for_another(server: LoginServer) -> None:
    """Once neither the token nor the refresh token is taken, the error says what to do; no token is in it."""
    async with Exec() as ex:
        await (await add(ex, server, "http", issuer=server.url)).log_in(visit)
        server.tokens.clear()
        server.refresh_tokens.clear()
        with pytest.raises(LoginRequiredError, match="its login has ended: toolexec login notes") as raised:
            await ex.run_tool("notes:read")
        assert "access-token" not in str(raised.value.to_dict())
        assert raised.value.outcome == "not_sent"


async def test_a_call_that_needs_more_scopes_names_them(server: LoginServer) -> None:
    """The command that adds them is in the error; with it the call is made."""
    async with Exec() as ex:
        backend = await add(ex, server, "http", issuer=server.url)
        await backend.log_in(visit)
        server.needed = "read write"
        with pytest.raises(LoginRequiredError) as raised:
            await ex.run_tool("notes:read")
        assert raised.value.command == "toolexec login notes --scope read --scope write"
        await backend.log_in(visit, scopes=["write"])
        assert (await ex.run_tool("notes:read")).ok


async def test_a_client_logs_in_by_itself(server: LoginServer) -> None:
    """With the flow client the first call has a token, and no person is asked."""
    client = {"client_id": "me", "client_secret": "the-secret-of-me", "issuer": server.url, "audience": "notes"}
    async with Exec() as ex:
        await add(ex, server, "http", flow="client", **client)
        assert (await ex.run_tool("notes:read")).ok
        assert server.asked == [
            {"grant_type": "client_credentials", "scope": "read", "audience": "notes", "client_id": "me"}
        ]
        server.tokens.clear()
        assert (await ex.run_tool("notes:read")).ok


async def test_a_token_that_cannot_be_had_now_is_not_a_missing_login(server: LoginServer) -> None:
    """While the authorization server is away, calls fail in a way that may pass."""
    client = {"client_id": "me", "client_secret": "the-secret-of-me", "token_url": "http://127.0.0.1:9/token"}
    async with Exec() as ex:
        await add(ex, server, "http", flow="client", **client)
        with pytest.raises(BackendUnavailableError, match="there is no token for notes") as raised:
            await ex.run_tool("notes:read")
        assert raised.value.retryable
        assert server.calls == []


async def test_a_server_without_metadata_is_where_the_settings_say(server: LoginServer) -> None:
    """Nothing is asked but what was named, and the browser comes back to the fixed place."""
    places = {name: f"{server.url}/{name.removesuffix('_url')}" for name in ("authorization_url", "token_url")}
    shown: list[dict[str, str]] = []

    async def show(link: str, code: str) -> None:
        shown.append(dict(parse_qsl(urlsplit(link).query)))
        await visit(link.replace("/authorization?", "/authorize?"))

    server.wrong["answer_iss"] = ""
    async with Exec() as ex:
        backend = await add(ex, server, "http", client_id="me", **places)
        await backend.log_in(show)
        assert (await ex.run_tool("notes:read")).ok
        assert [path for path in server.paths if "well-known" in path] == []
        assert urlsplit(shown[0]["redirect_uri"]).path == "/callback"


async def test_a_person_is_not_sent_to_a_place_without_tls(server: LoginServer) -> None:
    """Places in the settings are held to https, too, but for this machine."""
    places = {"authorization_url": "http://login.example.com/authorize", "token_url": f"{server.url}/token"}
    async with Exec() as ex:
        backend = await add(ex, server, "http", client_id="me", **places)
        with pytest.raises(LoginError, match="http is for this machine only"):
            await backend.log_in(visit)
        assert server.asked == []


async def test_a_token_goes_to_no_other_origin(server: LoginServer) -> None:
    """A tool elsewhere gets none, unless its origin is named."""
    async with login_server() as other, Exec() as ex:
        tools = {**TOOLS, "elsewhere": {"path": f"{other.url}/mcp"}}
        ex.add_http("notes", server.url, tools=tools, auth={"kind": "oauth", "issuer": server.url, "scopes": ["read"]})
        backend = ex.backends.get("notes")
        assert isinstance(backend, LoginBackend)
        await backend.log_in(visit)
        with pytest.raises(BackendUnavailableError, match="auth may not go to"):
            await ex.run_tool("notes:elsewhere")
        assert other.calls == []


@pytest.mark.parametrize("scheme", [{}, {"type": "http", "scheme": "bearer"}], ids=["oauth2", "bearer"])
async def test_operations_are_called_with_the_login_of_their_scheme(
    server: LoginServer, scheme: dict[str, str]
) -> None:
    """Nothing is sent before a person has logged in; one refresh is enough for all calls that are refused at once."""
    async with Exec(gate=None) as ex:
        login = {"kind": "oauth", "issuer": server.url, "scopes": ["read"]}
        await ex.add_openapi("notes", described(server, **scheme), auth={"person": login})
        with pytest.raises(LoginRequiredError, match="toolexec login notes"):
            await ex.run_tool("notes:read")
        assert server.calls == []
        backend = ex.backends.get("notes")
        assert isinstance(backend, LoginBackend)
        await backend.log_in(visit)
        assert (await ex.run_tool("notes:read")).value == {"token": "[REDACTED]"}
        server.tokens.clear()
        done = await asyncio.gather(*(ex.run_tool("notes:read") for _ in range(8)))
        assert all(each.ok for each in done)
        assert [each["grant_type"] for each in server.asked] == ["authorization_code", "refresh_token"]
        server.takes = False
        with pytest.raises(LoginRequiredError, match="does not take the token of its login"):
            await ex.run_tool("notes:read")
        (status,) = ex.backend_statuses()[-1:]
        assert str(status.info["login"]).startswith("logged in until ")


async def test_a_document_of_ones_own_says_where_to_log_in(server: LoginServer) -> None:
    """With a client_id alone, its places count, and nothing is asked of the server about itself."""
    server.wrong["answer_iss"] = ""
    async with Exec() as ex:
        backend = await add(ex, server, "openapi", client_id="me")
        await backend.log_in(visit)
        assert (await ex.run_tool("notes:read")).ok
        assert [path for path in server.paths if "well-known" in path] == []


async def test_a_document_from_elsewhere_does_not_say_where_to_log_in(server: LoginServer) -> None:
    """Neither a person nor a code is led to a place that only such a document names; the settings may name it."""
    document = described(server)
    code = document["components"]["securitySchemes"]["person"]["flows"]["authorizationCode"]
    code["authorizationUrl"] = code["tokenUrl"] = "https://evil.example/token"
    server.documents["/api.json"] = document
    async with Exec() as ex:
        login = {"kind": "oauth", "client_id": "me"}
        [status] = await ex.add_openapi("notes", f"{server.url}/api.json", auth={"person": login})
        assert not status.available
        assert "the login of auth.person may not go to https://evil.example" in str(status.reason)
        named = {**login, "issuer": server.url}
        [status] = await ex.add_openapi("others", f"{server.url}/api.json", auth={"person": named})
        assert status.available


async def test_what_a_login_of_a_document_cannot_be(server: LoginServer) -> None:
    """A provider has one login, of a scheme that takes a bearer token, and it is not one caller's."""
    async with Exec() as ex:
        login: dict[str, Any] = {"kind": "oauth"}
        with pytest.raises(ConfigurationError, match="one and two are logins"):
            await ex.add_openapi("notes", described(server), auth={"one": login, "two": login})
        [status] = await ex.add_openapi(
            "keys", described(server, type="apiKey", name="X-Key", **{"in": "header"}), auth={"person": login}
        )
        assert "a login gives a bearer token" in str(status.reason)
        await ex.add_openapi("callers", described(server), credentials=lambda origin: {"person": OAuthSettings()})
        with pytest.raises(BackendUnavailableError, match="a login is for all callers"):
            await ex.run_tool("callers:read")


async def test_references_in_a_login_are_filled_in(server: LoginServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof of who the client is may be a secret of the environment, for both kinds of provider."""
    monkeypatch.setenv("SECRET_OF_ME", "the-secret-of-me")
    client = {"client_id": "me", "client_secret": "secretref:env:SECRET_OF_ME", "token_url": f"{server.url}/token"}
    async with Exec() as ex:
        login = {"kind": "oauth", "flow": "client", "scopes": ["read"], **client}
        secrets = SecretResolver()
        ex.add_http("notes", server.url, tools=TOOLS, auth=login, secrets=secrets)
        await ex.add_openapi("others", described(server), auth={"person": login}, secrets=secrets)
        for name in ("notes", "others"):
            assert (await ex.run_tool(f"{name}:read")).ok
        assert {head["authorization"] for head in server.heads} == {"Basic bWU6dGhlLXNlY3JldC1vZi1tZQ=="}


async def test_a_provider_that_does_not_say_where_to_log_in_has_no_guesses(server: LoginServer) -> None:
    """Without metadata of its own, it is not taken for its own authorization server, as one of MCP is."""
    async with Exec() as ex:
        backend = await add(ex, server, "http")
        with pytest.raises(LoginError, match="does not say where to log in: set issuer in its auth, or token_url"):
            await backend.log_in(visit)
        assert "/authorize" not in server.paths


async def test_a_provider_without_a_login_says_so(server: LoginServer) -> None:
    """Others cannot be logged in to, and wrong settings are refused when they are made."""
    async with Exec() as ex:
        ex.add_http("plain", server.url, tools=TOOLS)
        backend = ex.backends.get("plain")
        assert isinstance(backend, LoginBackend)
        with pytest.raises(ConfigurationError, match="provider plain takes no login"):
            await backend.log_in(visit)
        for auth, wrong in (
            ({"kind": "magic"}, "the kind 'magic' is unknown"),
            ({"kind": "oauth", "flow": "client"}, "needs client_id, issuer"),
            ({"kind": "oauth", "device_url": server.url}, "go with token_url"),
            ({"kind": "oauth", "token_url": server.url}, "set client_id"),
        ):
            with pytest.raises(ConfigurationError, match=wrong):
                ex.add_http("other", server.url, tools=TOOLS, auth=auth)


async def test_a_login_goes_on_when_the_tools_are_read_again(server: LoginServer, tmp_path: Path) -> None:
    """A person need not log in again for a definition that has changed."""
    file = tmp_path / "notes.toml"
    file.write_text('tools.read = { path = "/mcp/notes" }\n')
    async with Exec() as ex:
        ex.add_http("notes", server.url, file=file, auth={"kind": "oauth", "issuer": server.url, "scopes": ["read"]})
        source = ex.backends.get("notes").source  # type: ignore[attr-defined]
        logins = await source.find_logins()
        await log_in(logins.of_all, visit)
        file.write_text('tools.read = { path = "/mcp/others" }\n')
        await ex.refresh("notes")
        assert await source.find_logins() is logins
        assert (await ex.run_tool("notes:read")).ok
        assert server.paths[-1] == "/mcp/others"
