"""Requests with keys and tokens, at a real server."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import httpx2
import pytest
from tests.server.http.conftest import INITIALIZE, JSON_HEADERS, Running, Serve, small_server, text

from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import BadCredentialError, hash_key
from toolexec.server.auth.failures import TooManyFailuresError
from toolexec.server.auth.middleware import Authentication
from toolexec.server.http import HttpSettings, Metrics

from .conftest import AUDIENCE, Issuer

ANN, BOB = "txk_key-of-ann", "txk_key-of-bob"
KEYS = (
    ApiKey(id="ann", sha256=hash_key(ANN), roles=("ops", "dev"), scopes=("tools",), tenant="acme"),
    ApiKey(id="bob", sha256=hash_key(BOB)),
)
LISTEN = {"accept": "text/event-stream", "mcp-protocol-version": "2025-11-25"}


def bearer(credential: str) -> dict[str, str]:
    return {"authorization": f"Bearer {credential}"}


async def status(server: Running, headers: dict[str, str]) -> int:
    return (await server.post(INITIALIZE, headers)).status_code


@pytest.mark.full
@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_the_caller_reaches_the_tools(serve: Serve, issuer: Issuer, era: str) -> None:
    """Whichever way they proved who they are, and in both eras."""
    server = await serve(auth=AuthSettings(api_keys=KEYS, jwt=issuer.settings()))
    token = issuer.token(sub="carl", roles=["r"], tenant="t")
    for headers, expected in (
        (bearer(ANN), "api_key/acme/ann/ops,dev"),
        ({"authorization": f"bEARER  {BOB}"}, "api_key//bob/"),
        ({"x-api-key": ANN}, "api_key/acme/ann/ops,dev"),
        (bearer(token), "jwt/t/carl/r"),
    ):
        async with server.client(era, **headers) as client:
            assert text(await client.call_tool("who", {})) == expected


@pytest.mark.full
async def test_nobody_in_particular_on_this_machine(serve: Serve) -> None:
    """Without settings a local server is open; with allow_anonymous only what is right or absent passes."""
    open_server = await serve()
    async with open_server.client(**bearer("whatever")) as client:
        assert text(await client.call_tool("who", {})) == "///"
    mixed = await serve(auth=AuthSettings(api_keys=KEYS, allow_anonymous=True))
    async with mixed.client() as client:
        assert text(await client.call_tool("who", {})) == "///"
    async with mixed.client(**bearer(ANN)) as client:
        assert text(await client.call_tool("who", {})) == "api_key/acme/ann/ops,dev"
    assert await status(mixed, bearer("wrong")) == 401


@pytest.mark.full
@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "Bearer wrong")],
        [("authorization", "Bearer")],
        [("authorization", f"Basic {ANN}")],
        [("authorization", ANN)],
        [("authorization", f"Bearer {ANN}"), ("authorization", f"Bearer {ANN}")],
        [("authorization", f"Bearer {ANN}"), ("x-api-key", ANN)],
        [("authorization", f"Bearer {hash_key(ANN)}")],
        [("authorization", "Bearer a.b.c")],
        [("x-api-key", "")],
        [("x-api-key", "\xe9" * 50)],
        [("cookie", f"authorization=Bearer {ANN}")],
    ],
)
async def test_what_is_no_proof(serve: Serve, issuer: Issuer, headers: list[tuple[str, str]]) -> None:
    """401, with the way to do it right in the header that is meant for that."""
    auth = AuthSettings(
        api_keys=KEYS,
        jwt=issuer.settings(),
        resource_url=AUDIENCE,
        authorization_servers=("https://issuer.example",),
        required_scopes=("tools",),
    )
    server = await serve(auth=auth)
    encoded = [(name, value.encode("latin-1")) for name, value in [*JSON_HEADERS.items(), *headers]]
    for path in ("/mcp", "/mcp/", "/health", "/metrics", "/nothing", f"/mcp?access_token={ANN}"):
        answer = await server.request("POST", path, json=INITIALIZE, headers=encoded)
        assert answer.status_code == 401
        challenge = answer.headers["www-authenticate"]
        metadata = "https://tools.example.com/.well-known/oauth-protected-resource/mcp"
        assert challenge.startswith("Bearer ")
        assert f'resource_metadata="{metadata}"' in challenge
        assert 'scope="tools"' in challenge


async def test_a_scope_that_is_missing(serve: Serve) -> None:
    """403, with the scope in the answer."""
    server = await serve(auth=AuthSettings(api_keys=KEYS, required_scopes=("tools",)))
    assert await status(server, bearer(ANN)) == 200
    answer = await server.post(INITIALIZE, bearer(BOB))
    assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_scope")
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


@pytest.mark.full
async def test_a_session_belongs_to_its_caller(serve: Serve, issuer: Issuer) -> None:
    """Another caller's session looks like none, on every path; its owner goes on."""
    server = await serve(auth=AuthSettings(api_keys=KEYS, jwt=issuer.settings(), allow_anonymous=True))
    opened = await server.post(INITIALIZE, bearer(ANN))
    session = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    for other in (
        bearer(BOB),
        bearer(issuer.token(sub="carl")),
        bearer(issuer.token(sub="api_key:ann", client_id="api_key:ann")),
        {},
    ):
        assert (await server.post(call, {**session, **other})).status_code == 404
        assert (await server.request("GET", headers={**LISTEN, **session, **other})).status_code == 404
        assert (await server.request("DELETE", headers={**session, **other})).status_code == 404
    assert (await server.post(call, {**session, **bearer(ANN)})).status_code == 200
    forged = {**session, "mcp-session-id": "f" * 32}
    assert (await server.post(call, {**forged, **bearer(ANN)})).status_code == 404
    assert (await server.request("DELETE", headers={**session, **bearer(ANN)})).status_code == 200
    assert (await server.post(call, {**session, **bearer(ANN)})).status_code == 404


async def test_a_session_of_nobody_is_not_for_a_caller(serve: Serve) -> None:
    """A session of a caller is not for an anonymous client, either."""
    server = await serve(auth=AuthSettings(api_keys=KEYS, allow_anonymous=True))
    opened = await server.post(INITIALIZE)
    session = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert (await server.post(call, {**session, **bearer(ANN)})).status_code == 404
    assert (await server.post(call, session)).status_code == 200


async def test_messages_of_the_older_transport_belong_to_its_caller(serve: Serve) -> None:
    """No other caller can speak in a conversation of theirs."""
    server = await serve(HttpSettings(port=0, sse=True), AuthSettings(api_keys=KEYS))
    assert (await server.request("GET", "/sse", headers={"accept": "text/event-stream"})).status_code == 401
    async with (
        httpx2.AsyncClient(verify=False) as client,
        client.stream("GET", f"{server.root}/sse", headers=bearer(ANN)) as stream,
    ):
        lines = stream.aiter_lines()
        while not (line := await anext(lines)).startswith("data: "):
            pass
        path = line.removeprefix("data: ")
        message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await server.post(message, bearer(BOB), path=path)).status_code == 404
        assert (await server.post(message, bearer(ANN), path=path)).status_code == 202


@pytest.mark.full
async def test_too_many_wrong_ones(serve: Serve) -> None:
    """Then wrong ones are answered with a wait, and right ones are let in, whether they were seen before or not."""
    metrics = Metrics()
    server = await serve(auth=AuthSettings(api_keys=KEYS, max_failures=3), metrics=metrics)
    assert await status(server, bearer(ANN)) == 200
    assert [await status(server, bearer(f"guess {n}")) for n in range(4)] == [401, 401, 401, 429]
    answer = await server.post(INITIALIZE, bearer("guess 5"))
    assert (answer.status_code, 1 <= int(answer.headers["retry-after"]) <= 60) == (429, True)
    assert [await status(server, bearer(key)) for key in (ANN, BOB)] == [200, 200]
    assert b'toolexec_http_rejected_total{reason="bad_credential"} 3.0' in metrics.text()
    assert b'toolexec_http_rejected_total{reason="too_many_failures"} 2.0' in metrics.text()


@pytest.mark.full
async def test_behind_a_proxy_addresses_are_those_of_clients(serve: Serve) -> None:
    """One who guesses does not have all others wait; and only a trusted proxy is believed."""
    auth = AuthSettings(api_keys=KEYS, max_failures=1)
    http = HttpSettings(port=0, behind_proxy=True, allowed_hosts=("127.0.0.1",))
    server = await serve(http, auth)
    guesser, other = {"x-forwarded-for": "203.0.113.7"}, {"x-forwarded-for": "203.0.113.8"}
    assert await status(server, bearer("guess") | guesser) == 401
    assert await status(server, bearer("guess 2") | guesser) == 429
    assert await status(server, bearer("guess") | other) == 401
    direct = await serve(auth=auth)
    assert await status(direct, bearer("guess") | guesser) == 401
    assert await status(direct, bearer("guess") | other) == 429


async def test_keys_that_are_not_there_are_not_the_callers_fault(serve: Serve, issuer: Issuer) -> None:
    """503, to be tried again; API keys go on working."""
    issuer.broken = True
    server = await serve(auth=AuthSettings(api_keys=KEYS, jwt=issuer.settings()))
    answer = await server.post(INITIALIZE, bearer(issuer.token(sub="carl")))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
    assert await status(server, bearer(ANN)) == 200


async def test_only_tokens(serve: Serve, issuer: Issuer) -> None:
    """Without API keys, what is no token is refused as that."""
    server = await serve(auth=AuthSettings(jwt=issuer.settings()))
    assert (await server.post(INITIALIZE, {"x-api-key": "x"})).json()["error_description"] == "this is no token"
    assert (await server.post(INITIALIZE, {"x-api-key": issuer.token(sub="carl")})).status_code == 401
    assert await status(server, bearer(issuer.token(sub="carl"))) == 200


async def test_a_form_is_proof_of_the_same_callers_as_a_request(issuer: Issuer) -> None:
    """A key or a token that a person pastes is checked as that of a call, for its endpoint, and wrong ones count."""
    auth, refusals = AuthSettings(api_keys=KEYS, jwt=issuer.settings(), max_failures=2), list[str]()
    proofs = Authentication(small_server, auth, on_refusal=refusals.append, endpoint="team-a")  # type: ignore[arg-type]
    caller = await proofs.prove("1.2.3.4", ANN)
    assert (caller.id, caller.tenant, caller.method, caller.endpoint) == ("ann", "acme", "api_key", "team-a")
    caller = await proofs.prove("1.2.3.4", issuer.token(sub="carl"))
    assert (caller.id, caller.method) == ("carl", "jwt")
    for wrong in (issuer.token(aud="another"), issuer.token(sub="ann")):  # the second takes the name of a key
        with pytest.raises(BadCredentialError):
            await proofs.prove("1.2.3.4", wrong)
    with pytest.raises(TooManyFailuresError) as raised:
        await proofs.prove("1.2.3.4", "nonsense")
    assert 0 < raised.value.wait <= 60
    assert refusals == ["too_many_failures"]
    assert (await proofs.prove("1.2.3.4", BOB)).id == "bob"


@pytest.mark.full
async def test_nobody_listens_on_with_an_expired_token(serve: Serve, issuer: Issuer) -> None:
    """A stream ends when the token does."""
    server = await serve(auth=AuthSettings(jwt=issuer.settings(leeway=0)))
    token = issuer.token(sub="carl", exp=int(time.time()) + 2)
    opened = await server.post(INITIALIZE, bearer(token))
    session = {"mcp-session-id": opened.headers["mcp-session-id"]}
    async with asyncio.timeout(20):
        answer = await server.request("GET", headers={**LISTEN, **session, **bearer(token)})
    assert answer.status_code == 200
    assert await status(server, bearer(token)) == 401


async def test_credentials_are_in_no_log(serve: Serve, issuer: Issuer, caplog: pytest.LogCaptureFixture) -> None:
    """Neither good nor bad ones, at any level of our own loggers and of the server's."""
    server = await serve(auth=AuthSettings(api_keys=KEYS, jwt=issuer.settings()))
    caplog.set_level(logging.DEBUG)
    token, wrong = issuer.token(sub="carl"), "wrong-" + "w" * 20
    replies: list[Any] = []
    for headers in (bearer(ANN), bearer(token), bearer(wrong), {"x-api-key": wrong}, bearer(token[:-9] + "AAAAAAAAA")):
        replies.append(await server.post(INITIALIZE, headers, path=f"/mcp?key={wrong}"))
    own = "\n".join(r.getMessage() for r in caplog.records if not r.name.startswith(("httpx", "httpcore", "asyncio")))
    assert "refused a request from 127.0.0.1: the API key is unknown" in own
    for credential in (ANN, token, token.rsplit(".", 1)[1], wrong):
        assert credential not in own
        assert not any(credential in reply.text or credential in str(reply.headers) for reply in replies)
