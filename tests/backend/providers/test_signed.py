"""Credentials that authenticate each request by itself, and proxies, in providers: where they go, and what is shown."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.backend.providers.service import Seen, Service, serving
from tests.net.digest_server import DigestServer, digest_server
from tests.net.proxy_server import proxy_server
from tests.openapi import api

from toolexec import Exec
from toolexec.backend.providers.openapi.settings import OpenAPIProvider
from toolexec.backend.providers.openapi.source import OpenAPISource
from toolexec.backend.secrets import SecretResolver
from toolexec.config.build import build
from toolexec.config.load import load_settings
from toolexec.errors import BackendUnavailableError, ConfigurationError, ToolExecError
from toolexec.model.origin import Caller, Origin, acting
from toolexec.net import HTTPClient, HTTPRequest
from toolexec.net.sigv4 import SigV4

KEYS = {
    "access_key_id": "AKIDEXAMPLE",
    "secret_access_key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "region": "eu-central-1",
    "service": "execute-api",
    "session_token": "the-session-token-of-aws",
}
PAIR = {"scheme": "digest", "username": "me", "password": "pass-word"}
AWS = {"type": "apiKey", "in": "header", "name": "Authorization", "x-amazon-apigateway-authtype": "awsSigv4"}
DIGEST = {"type": "http", "scheme": "digest"}
PATHS = {
    "/things/{name}": {
        "post": {
            "operationId": "it",
            "parameters": [
                {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}},
                {"name": "q", "in": "query", "schema": {"type": "string"}},
            ],
            "requestBody": {
                "content": {
                    "application/json": {"schema": {"type": "object", "properties": {"size": {"type": "integer"}}}}
                }
            },
            "responses": {"200": {"description": "ok"}},
        }
    }
}
ARGS = {"name": "a b/c", "q": "x+y & é", "size": 3}


async def add(ex: Exec, kind: str, url: str, auth: Mapping[str, str], **settings: Any) -> None:
    """Add a provider with one tool, and one credential."""
    if kind == "openapi":
        scheme = AWS if "region" in auth else DIGEST
        document = api(PATHS, components={"securitySchemes": {"it": scheme}}, security=[{"it": []}])
        given = {name: value for name, value in auth.items() if name != "scheme"}
        await ex.add_openapi("api", document, base_url=url, auth={"it": given}, **settings)
        return
    tool = {
        "path": "/things/{name}",
        "method": "POST",
        "query": {"q": "{{q}}"},
        "body": {"size": "{{size}}"},
    }
    await ex.add_http("api", url, tools={"it": tool}, auth=auth, **settings)


def expected(url: str, seen: Seen) -> str:
    """Return the signature of a request as it has arrived."""
    headers = [(name, value) for name, value in seen.headers.items() if name != "authorization"]
    sent = datetime.strptime(f"{seen.headers['x-amz-date']}+0000", "%Y%m%dT%H%M%SZ%z")
    target = f"{url}{seen.path}?{seen.query}" if seen.query else url + seen.path
    named = re.findall(r"SignedHeaders=([^,]+)", seen.headers["authorization"])[0].split(";")
    signer = SigV4(**KEYS, now=lambda: sent)
    added = next(signer.flow(seen.method, target, [each for each in headers if each[0] in named], seen.body))
    return dict(added)["Authorization"]


KINDS = pytest.mark.parametrize("kind", ["http", "openapi"])


@KINDS
async def test_a_signature_covers_what_arrives(service: Service, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The path, the query and the body as the service gets them; what it repeats of the credential is hidden."""
    with caplog.at_level(logging.DEBUG):
        async with Exec(gate=None) as ex:
            await add(ex, kind, service.url, KEYS)
            result = await ex.run_tool("api:it", ARGS)
            states = str([each.to_dict() for each in ex.backend_statuses()])
    assert result.ok, result.error
    [seen] = service.seen
    value = seen.headers["authorization"]
    assert value == expected(service.url, seen)
    assert "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token" in value
    shown = f"{result.value} {states} {caplog.text}"
    for secret in (KEYS["secret_access_key"], KEYS["session_token"], value.rpartition("Signature=")[2]):
        assert secret not in shown
        assert base64.b64encode(secret.encode()).decode() not in shown


@KINDS
@pytest.mark.parametrize("qop", ["auth", "auth-int"])
async def test_digest_in_a_provider(kind: str, qop: str) -> None:
    """The server's challenge is answered once, and used further; what it repeats of the answer is hidden."""
    async with digest_server() as server, Exec(gate=None) as ex:
        server.qop = qop
        await add(ex, kind, server.url, PAIR)
        for _ in range(2):
            result = await ex.run_tool("api:it", ARGS)
            assert result.ok, result.error
            value = server.heads[-1][1]
            for secret in ("pass-word", *re.findall(r'response="(\w+)"', value)):
                assert secret not in str(result.value)
        assert [bool(value) for _, value in server.heads] == [False, True, True]


async def add_stream(ex: Exec, kind: str, url: str, path: str, auth: Mapping[str, str], **settings: Any) -> None:
    """Add a provider with one tool, whose response is a stream of items, and one credential."""
    if kind == "http":
        tools: Any = {"it": {"path": path, "method": "POST", "stream": True}}
        await ex.add_http("api", url, tools=tools, auth=auth, **settings)
        return
    scheme = AWS if "region" in auth else DIGEST
    done = {"description": "ok", "content": {"application/x-ndjson": {}}}
    paths = {path: {"post": {"operationId": "it", "responses": {"200": done}}}}
    document = api(paths, components={"securitySchemes": {"it": scheme}}, security=[{"it": []}])
    given = {name: value for name, value in auth.items() if name != "scheme"}
    await ex.add_openapi("api", document, base_url=url, auth={"it": given}, **settings)


@KINDS
@pytest.mark.parametrize(
    ("how", "expects"),
    [("whole", ["chunk", "chunk", "done"]), ("broken", ["chunk", "error"]), ("refused", ["error"])],
)
async def test_a_signed_stream(service: Service, kind: str, how: str, expects: list[str]) -> None:
    """The signature is in no item, and not in the error of one that is not JSON; the proxy passes streams on, too."""
    async with proxy_server() as proxy, Exec(gate=None) as ex:
        await add_stream(ex, kind, service.url, f"/echo-lines/{how}", KEYS, proxy=proxy.url)
        events = [event async for event in ex.stream_tool("api:it")]
        result = await ex.run_tool("api:it")
        assert len(proxy.asked) == len(service.seen) == 2
    assert [event.kind for event in events] == expects
    if how == "whole":
        assert events[-1].data == [events[0].data, {}]
        assert events[0].data["headers"]["authorization"] == "[REDACTED]"
    errors = [each.to_dict() for each in (events[-1].error, result.error) if isinstance(each, ToolExecError)]
    assert len(errors) == (0 if how == "whole" else 2)
    shown = f"{events} {result.value} {errors}"
    for seen in service.seen:
        value = seen.headers["authorization"]
        assert value == expected(service.url, seen)
        for secret in (KEYS["secret_access_key"], KEYS["session_token"], value.rpartition("Signature=")[2]):
            assert secret not in shown


@KINDS
async def test_a_stream_that_asks_for_a_digest(kind: str) -> None:
    """The challenge is answered before the first item, once, and the answer is in no item."""
    async with digest_server() as server, Exec(gate=None) as ex:
        server.media = "application/x-ndjson"
        await add_stream(ex, kind, server.url, "/it", PAIR)
        for _ in range(2):
            events = [event async for event in ex.stream_tool("api:it")]
            assert [event.kind for event in events] == ["chunk", "done"]
            value = server.heads[-1][1]
            for secret in ("pass-word", *re.findall(r'response="(\w+)"', value)):
                assert secret not in str(events)
        server.nonce = "nonce-2"
        assert [event.kind async for event in ex.stream_tool("api:it")] == ["chunk", "done"]
    assert [bool(value) for _, value in server.heads] == [False, True, True, True, True]


async def test_a_document_is_read_again_through_the_proxy(service: Service) -> None:
    """Each reading asks through it, also the one that finds nothing new."""
    service.documents["api.json"] = ("application/json", json.dumps(api(PATHS)).encode())
    async with proxy_server() as proxy:
        provider = OpenAPIProvider(
            name="api", spec=f"{service.url}/documents/api.json", allow_private=True, proxy=proxy.url
        )
        source = OpenAPISource(provider)
        try:
            assert await source.load() is await source.load()
        finally:
            await source.aclose()
        assert proxy.asked == [f"GET {service.url}/documents/api.json HTTP/1.1"] * 2


async def test_a_redirect_does_not_make_a_signature_known(service: Service) -> None:
    """The response says what was added before the redirect, so that it is hidden where another origin repeats it."""
    with serving() as other:
        client, signer = HTTPClient(allow_private=True), SigV4(**KEYS, now=lambda: datetime.now(UTC))
        try:
            url = f"{service.url}/go?to={other.url}/there"
            response = await client.send(HTTPRequest("GET", url, auth=signer))
        finally:
            await client.aclose()
    assert "authorization" not in other.seen[0].headers
    assert service.seen[0].headers["authorization"] in response.credentials


@pytest.mark.parametrize("auth", [KEYS, PAIR], ids=["sigv4", "digest"])
async def test_a_foreign_origin_gets_none(service: Service, auth: dict[str, str]) -> None:
    """A tool elsewhere is refused before anything is sent, unless its origin is named."""
    tools: Any = {"it": {"path": "/x"}, "other": {"path": "http://127.0.0.1:9/x"}}
    async with Exec(gate=None) as ex:
        await ex.add_http("api", service.url, tools=tools, auth=auth)
        with pytest.raises(BackendUnavailableError, match=r"auth may not go to http://127\.0\.0\.1:9"):
            await ex.run_tool("api:other", {})


@pytest.mark.parametrize("auth", [KEYS, PAIR], ids=["sigv4", "digest"])
async def test_a_redirect_takes_none_along(service: Service, auth: dict[str, str]) -> None:
    """On the same origin the request is authenticated for its new path; another origin gets nothing."""
    with serving() as other:
        tools: Any = {"it": {"path": "/go", "query": {"to": "{{to}}"}}}
        hosts = [other.url.removeprefix("http://")]
        async with Exec(gate=None) as ex:
            await ex.add_http("api", service.url, tools=tools, auth=auth, hosts=hosts, allow_private=True)
            assert (await ex.run_tool("api:it", {"to": f"{other.url}/there"})).ok
            await ex.run_tool("api:it", {"to": "/here"})
        assert not {"authorization", "x-amz-date", "x-amz-security-token"} & {*other.seen[0].headers}
        if auth is KEYS:
            assert service.seen[-1].path == "/here"
            assert service.seen[-1].headers["authorization"] == expected(service.url, service.seen[-1])


@pytest.fixture
async def digests() -> AsyncGenerator[DigestServer]:
    """Run a server that asks for a digest."""
    async with digest_server() as server:
        yield server


async def test_each_caller_has_a_digest_of_its_own(digests: DigestServer) -> None:
    """The nonce that one caller was given is not used with another's password."""
    credentials = {"ann": PAIR, "bob": {**PAIR, "username": "bob", "password": "another"}}
    async with Exec(gate=None) as ex:
        await ex.add_http("api", digests.url, tools={"it": {"path": "/x"}}, credentials=credentials)
        with acting(Origin(caller=Caller(id="ann"))):
            assert (await ex.run_tool("api:it", {})).ok
        with acting(Origin(caller=Caller(id="bob"))):
            assert not (await ex.run_tool("api:it", {})).ok
    assert ['username="me"' in value for _, value in digests.heads] == [False, True, False, False]


async def test_a_file_of_settings(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and the password of a proxy are references there."""
    monkeypatch.setenv("AWS_SECRET", KEYS["secret_access_key"])
    monkeypatch.setenv("PROXY_PASSWORD", "the-password-of-the-proxy")
    async with proxy_server() as proxy:
        proxy.expects = f"Basic {base64.b64encode(b'me:the-password-of-the-proxy').decode()}"
        (tmp_path / "toolexec.toml").write_text(
            f'[providers.api]\nkind = "http"\nbase_url = "{service.url}"\ntools.it.path = "/x"\nproxy = "{proxy.url}"\n'
            'proxy_auth = { username = "me", password = "${PROXY_PASSWORD}" }\n'
            '[providers.api.auth]\naccess_key_id = "AKIDEXAMPLE"\nsecret_access_key = "${AWS_SECRET}"\n'
            'region = "eu-central-1"\nservice = "execute-api"\n'
        )
        async with build(load_settings([str(tmp_path / "toolexec.toml")])).ex as ex:
            result = await ex.run_tool("api:it", {})
            assert result.ok, result.error
            assert "the-password" not in str([each.to_dict() for each in ex.backend_statuses()])
        assert proxy.asked == [f"GET {service.url}/x HTTP/1.1"]
    assert "Credential=AKIDEXAMPLE/" in service.seen[0].headers["authorization"]


@KINDS
async def test_a_proxy_of_a_provider(service: Service, kind: str) -> None:
    """Calls go through it, and with references in its settings they are filled in."""
    async with proxy_server() as proxy, Exec(gate=None) as ex:
        proxy.expects = f"Basic {base64.b64encode(b'me:the-password-of-the-proxy').decode()}"
        secrets = SecretResolver(environment={"PW": "the-password-of-the-proxy", "PROXY": proxy.url})
        settings = {"proxy": "${PROXY}", "proxy_auth": {"username": "me", "password": "${PW}"}, "secrets": secrets}
        await add(ex, kind, service.url, KEYS, **settings)
        assert (await ex.run_tool("api:it", ARGS)).ok
        assert len(proxy.asked) == 1
        [seen] = service.seen
        assert seen.headers["authorization"] == expected(service.url, seen)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"proxy": "http://me:pass-word@proxy:3128"},
            "proxy has a user or a password in it; send these with proxy_auth",
        ),
        ({"proxy": "ftp://proxy:21"}, "proxy must be http://host:port"),
        ({"proxy_auth": {"username": "me", "password": "pass-word"}}, "proxy_auth must be.*beside the URL of a proxy"),
        ({"proxy": "http://proxy:3128", "proxy_auth": {"username": "me"}}, "proxy_auth must be"),
        ({"key_file": "key.pem"}, "key_file and key_password are those of a certificate; set cert_file"),
    ],
    ids=str,
)
@KINDS
def test_settings_that_cannot_work(kind: str, settings: Any, message: str) -> None:
    """The error says what to set, and shows no password."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        if kind == "http":
            Exec().add_http("api", "https://api.example.com", tools={"it": {"path": "/x"}}, **settings)
        else:
            Exec().add_openapi("api", api(PATHS), **settings)
    assert "pass-word" not in caught.value.message


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        ({**PAIR, "scheme": "hawk"}, "auth: scheme must be basic or digest"),
        ({"access_key_id": "x", "secret_access_key": "pass-word"}, "auth must be one of .*region, secret_access_key"),
    ],
    ids=str,
)
def test_credentials_of_the_wrong_form(auth: Any, message: str) -> None:
    """The error says which forms there are."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        Exec().add_http("api", "https://api.example.com", tools={"it": {"path": "/x"}}, auth=auth)
    assert "pass-word" not in caught.value.message
