"""Tokens of OAuth2 against a server that revokes them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.backend.providers.openapi.token_server import token_server

from toolexec import Exec
from toolexec.errors import BackendUnavailableError

CLIENT = {"client_id": "id", "client_secret": "client-secret"}


async def test_calls_whose_token_was_revoked_share_one_refresh() -> None:
    """All of twenty calls that were refused at the same time succeed, and one token is asked for."""
    async with token_server() as server, Exec(gate=None) as ex:
        await ex.add_openapi("shop", server.document(), auth={"oauth": CLIENT})
        assert (await ex.run_tool("shop:items")).ok
        server.revoke()
        server.hold = 20
        done = await asyncio.gather(*(ex.run_tool("shop:items") for _ in range(20)))
        assert [each.ok for each in done] == [True] * 20
        assert (server.issued, server.refused, len(server.calls)) == (2, 20, 41)


async def test_a_call_that_is_refused_late_keeps_the_new_token() -> None:
    """A call with the old token, which is refused after another has got a new one, is made again with that one."""
    async with token_server() as server, Exec(gate=None) as ex:
        await ex.add_openapi("shop", server.document(), auth={"oauth": CLIENT})
        await ex.run_tool("shop:items")
        server.revoke()
        server.hold = 2
        late = asyncio.create_task(ex.run_tool("shop:items"))
        while not server.refused:
            await server.changed.wait()
        server.refused, server.hold = 1, 0
        assert (await ex.run_tool("shop:items")).ok
        server.changed.set()
        assert (await late).ok
        assert server.issued == 2


async def test_calls_share_the_failure_of_one_request_for_a_token() -> None:
    """While no token can be had, calls at the same time make one request for it, and the next call makes another."""
    async with token_server() as server, Exec(gate=None) as ex:
        await ex.add_openapi("shop", server.document(), auth={"oauth": CLIENT})
        server.down = True
        done = await asyncio.gather(*(ex.run_tool("shop:items") for _ in range(8)), return_exceptions=True)
        assert all(isinstance(each, BackendUnavailableError) for each in done), done
        assert len(server.asked) == 1
        server.down = False
        assert (await ex.run_tool("shop:items")).ok


async def test_a_token_that_is_refused_again_is_reported_and_hidden() -> None:
    """A call is made at most twice; neither of its tokens is in the error, though the server repeats them."""
    async with token_server() as server, Exec(gate=None) as ex:
        await ex.add_openapi("shop", server.document(), auth={"oauth": CLIENT})
        first = await ex.run_tool("shop:items")
        assert first.value["echo"] == "[REDACTED]"
        server.token = lambda headers, fields: (200, {"access_token": "never-accepted"})  # type: ignore[method-assign]
        server.revoke()
        result = await ex.run_tool("shop:items")
        assert result.error is not None
        assert result.error.details["status"] == 401
        assert server.calls[1:] == ["access-token-number-1", "never-accepted"]
        assert not any(token in str(result.error.to_dict()) for token in server.calls)


@pytest.mark.parametrize("secret", [{}, {"client_secret": "client-secret"}], ids=["public client", "with a secret"])
async def test_a_refresh_token_is_renewed(secret: dict[str, str]) -> None:
    """The refresh token of a person's login gives access tokens; one that takes its place is used from then on, after
    the document was read again, too."""
    async with token_server() as server, Exec(gate=None) as ex:
        server.refresh_tokens["first-refresh-token"] = "ann"
        auth: Any = {"oauth": {"client_id": "id", "refresh_token": "first-refresh-token", **secret}}
        await ex.add_openapi("shop", server.document("authorizationCode", authorizationUrl="x"), auth=auth)
        assert (await ex.run_tool("shop:items")).value["for"] == "ann"
        server.revoke()
        await ex.refresh("shop")
        assert (await ex.run_tool("shop:items")).value["for"] == "ann"
        assert [each["refresh_token"] for each in server.asked] == ["first-refresh-token", "refresh-token-1"]
        server.revoke()
        server.refresh_tokens.clear()
        with pytest.raises(BackendUnavailableError, match="the refresh token may have been used or revoked"):
            await ex.run_tool("shop:items")


# -- what is said when the document is read ------------------------------------------------------------------------


async def test_a_flow_that_needs_a_person_says_what_to_give() -> None:
    """A client secret cannot be used where a person has to log in; adding the API says what can, before any call."""
    async with token_server() as server, Exec(gate=None) as ex:
        document = server.document("authorizationCode", authorizationUrl="https://id.example.com/login")
        [status] = await ex.add_openapi("shop", document, auth={"oauth": CLIENT})
        assert not status.available
        assert "auth.oauth: with a client_secret alone no token can be had" in str(status.reason)
        assert "a person has to log in at https://id.example.com/login" in str(status.reason)
        assert "set auth.oauth to { client_id, refresh_token }" in str(status.reason)
        assert "or set its token_url" in str(status.reason)
        assert server.asked == []


async def test_credentials_that_are_missing_are_shown_when_an_api_is_added(caplog: pytest.LogCaptureFixture) -> None:
    """Without any credential the status and the log say how to give it; headers may have it, and then nothing does."""
    async with token_server() as server, Exec(gate=None) as ex:
        document = server.document("authorizationCode", authorizationUrl="https://id.example.com/login")
        [status] = await ex.add_openapi("shop", document)
        assert status.available
        missing = status.info["missing_credentials"]["oauth"]
        assert missing.startswith("a person has to log in at https://id.example.com/login, with a program of yours")
        assert missing in caplog.text
        [other] = await ex.add_openapi("other", document, headers={"Authorization": "Bearer it"})
        assert "missing_credentials" not in other.info


@pytest.mark.parametrize(
    ("flow", "credential", "expected"),
    [
        ("clientCredentials", {"client_id": "id"}, "set auth.oauth to { client_id, client_secret }, or to an access"),
        ("implicit", {"client_id": "id", "refresh_token": "it"}, "does not say where it is refreshed; set its token_"),
        ("password", {"client_id": "id", "client_secret": "it"}, "has no flow clientCredentials, but password"),
    ],
)
async def test_what_a_token_cannot_be_got_with(flow: str, credential: dict[str, str], expected: str) -> None:
    """Each says what is missing, and how to give it."""
    async with token_server() as server, Exec(gate=None) as ex:
        [status] = await ex.add_openapi("shop", server.document(flow), auth={"oauth": credential})
        assert expected in str(status.reason)
