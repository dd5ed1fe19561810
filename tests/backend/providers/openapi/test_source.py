"""Providers: settings, servers, credentials, secrets and calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.openapi import API, HOST, answer, api

from toolexec.backend.providers.kinds import source_of
from toolexec.backend.providers.openapi.settings import OpenAPIProvider
from toolexec.backend.providers.openapi.source import OpenAPISource
from toolexec.backend.secrets import SecretResolver
from toolexec.errors import BackendUnavailableError, ConfigurationError, RemoteToolError, SecretError
from toolexec.model.redaction import Redactor
from toolexec.net.http import HTTPRequest, HTTPResponse

ONE = api({"/x": {"get": {}}})


def secured(*schemes: str, security: Any = None, **known: Any) -> dict[str, Any]:
    """Return a document whose one operation needs *schemes* together."""
    needed = security if security is not None else [{name: [] for name in schemes}]
    return api({"/x": {"get": {"security": needed}}}, components={"securitySchemes": known})


KEY = {"type": "apiKey", "in": "header", "name": "X-Key"}
BEARER = {"type": "http", "scheme": "bearer"}
OAUTH = {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "https://id.example.com/token", "scopes": {}}}}


def test_a_source_is_made_from_settings() -> None:
    """A misspelt one is named with the nearest."""
    source = source_of("openapi", "pets", {"spec": ONE, "include": ["get_*"]})
    assert isinstance(source, OpenAPISource)
    assert source.kind == "openapi"
    with pytest.raises(ConfigurationError, match="no setting 'base_ur'; did you mean base_url"):
        source_of("openapi", "pets", {"spec": ONE, "base_ur": "https://x"})
    with pytest.raises(ConfigurationError, match="set spec to the path or the URL"):
        source_of("openapi", "pets", {})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "a b"}, "its name contains ' '"),
        ({"spec": ""}, "spec must name a document"),
        ({"base_url": "ftp://x"}, "base_url must be http"),
        ({"spec": "https://u:p@x.example/s.json"}, "spec has a user or a password in it; send these in a header"),
        ({"timeout": 0}, "timeout must be above 0"),
        ({"include": "get_*"}, "include must be a list of strings"),
        ({"headers": {"A": 1}}, "headers"),
        ({"rename": {"a": "b c"}}, "the name for 'a' contains"),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    """Nothing is read."""
    with pytest.raises(ConfigurationError, match=message):
        OpenAPIProvider(**{"name": "api", "spec": ONE, **settings})


def test_the_repr_shows_no_secrets() -> None:
    """Neither headers, credentials nor the query of a URL."""
    provider = OpenAPIProvider(
        name="api",
        spec="https://docs.example.com/s.json?key=hidden",
        headers={"A": "hidden"},
        auth={"k": "hidden"},
    )
    assert repr(provider) == "OpenAPIProvider(name='api', spec='https://docs.example.com/s.json')"


# -- servers ----------------------------------------------------------------------------------------------------------

SERVERS = [
    {
        "url": "https://{region}.example.com/{v}",
        "description": "live",
        "variables": {"region": {"default": "eu"}, "v": {}},
    },
    {"url": "https://test.example.com", "description": "test"},
]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"variables": {"v": "2"}}, "https://eu.example.com/2/x"),
        ({"variables": {"v": "2", "region": "us"}}, "https://us.example.com/2/x"),
        ({"server": 1}, "https://test.example.com/x"),
        ({"server": "test"}, "https://test.example.com/x"),
        ({"server": "https://test.example.com"}, "https://test.example.com/x"),
        ({"base_url": "http://127.0.0.1:8080/base/"}, "http://127.0.0.1:8080/base/x"),
    ],
    ids=str,
)
async def test_a_server_is_chosen(settings: dict[str, Any], expected: str) -> None:
    """Only its host may be reached."""
    found = API({**ONE, "servers": SERVERS}, **settings)
    await found.call("get_x")
    assert found.requests[0].url == expected
    assert found.clients[0].settings["hosts"] == (expected.split("/")[2],)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"server": 2}, "has 2 servers; number 2 is not one of them"),
        ({"server": "tst"}, "no server 'tst'; did you mean test"),
        ({"variables": {"regoin": "eu"}}, "a variable 'regoin'; did you mean region"),
        ({"server": 0}, "the variable 'v' of its server has no value; set it in variables"),
    ],
    ids=str,
)
async def test_a_server_that_is_not_there_is_refused(settings: dict[str, Any], message: str) -> None:
    """The nearest is named."""
    with pytest.raises(ConfigurationError, match=message):
        await API({**ONE, "servers": SERVERS}, **settings).load()


async def test_the_servers_of_an_operation_come_first() -> None:
    """Then those of its path, then those of the document."""
    get, put = {"servers": [{"url": "https://a.example.com"}]}, {}
    path = {"get": get, "put": put, "servers": [{"url": "https://b.example.com/"}]}
    found = API(api({"/x": path, "/y": {"get": {}}}))
    for name in ("get_x", "put_x", "get_y"):
        await found.call(name)
    assert [r.url for r in found.requests] == ["https://a.example.com/x", "https://b.example.com/x", f"{HOST}/y"]
    assert found.source.info()["hosts"] == ["a.example.com", "api.example.com", "b.example.com"]


async def test_a_document_without_a_host_needs_a_base_url() -> None:
    """The error says so at once."""
    for servers in ([], [{"url": "/v1"}]):
        with pytest.raises(ConfigurationError, match="names no server with a host; set base_url"):
            await API({**ONE, "servers": servers}).load()


async def test_a_document_from_elsewhere_does_not_lead_into_this_network() -> None:
    """A server on a private address is refused, unless the user names it or allows it."""
    for host in ("127.0.0.1:8000", "localhost", "10.0.0.1", "[::1]:80", "169.254.169.254", "x.localhost"):
        root = {**ONE, "servers": [{"url": f"http://{host}"}]}
        definition = await API("https://docs.example.com/s.json", answer(root)).load()
        assert "is one of this machine or network" in definition.skipped["get_x"]
        for allowed in ({"allow_private": True}, {"base_url": f"http://{host}"}):
            assert (await API("https://docs.example.com/s.json", answer(root), **allowed).load()).tools


# -- credentials ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "credential", "expected"),
    [
        (KEY, "k e y", ("X-Key", "k e y")),
        ({"type": "apiKey", "in": "cookie", "name": "sid"}, "a;b", ("Cookie", "sid=a%3Bb")),
        (BEARER, "token", ("Authorization", "Bearer token")),
        ({"type": "openIdConnect"}, "token", ("Authorization", "Bearer token")),
        (OAUTH, "token", ("Authorization", "Bearer token")),
        ({"type": "http", "scheme": "Basic"}, "u:p", ("Authorization", "Basic dTpw")),
        ({"type": "http", "scheme": "basic"}, {"username": "u", "password": "p"}, ("Authorization", "Basic dTpw")),
    ],
    ids=str,
)
async def test_each_scheme_adds_its_credential(scheme: Any, credential: Any, expected: tuple[str, str]) -> None:
    """The document says where it goes."""
    found = API(secured("s", s=scheme), auth={"s": credential})
    await found.call("get_x")
    assert expected in found.requests[0].headers


async def test_a_key_in_the_query_is_encoded() -> None:
    """The parameter that the document may have for it is not an argument."""
    root = secured("s", s={"type": "apiKey", "in": "query", "name": "api_key"})
    root["paths"]["/x"]["get"]["parameters"] = [{"name": "api_key", "in": "query", "required": True, "schema": {}}]
    found = API(root, auth={"s": "a&b=c"})
    definition = await found.load()
    assert definition.tools[0].tool.input_schema.to_json()["properties"] == {}
    await found.call("get_x")
    assert found.requests[0].url == f"{HOST}/x?api_key=a%26b%3Dc"


async def test_only_what_an_operation_asks_for_is_sent() -> None:
    """Of alternatives the first that there are credentials for."""
    schemes = {"key": KEY, "token": BEARER, "other": BEARER}
    auth = {"key": "the-key", "token": "the-token"}

    async def sent(**how: Any) -> set[str]:
        root = api({"/x": {"get": how}}, components={"securitySchemes": schemes})
        found = API(root, auth=auth)
        await found.call("get_x")
        return {value for _, value in found.requests[0].headers} & {"the-key", "Bearer the-token"}

    assert await sent(security=[{"other": []}, {"token": []}]) == {"Bearer the-token"}
    assert await sent(security=[{"key": [], "token": []}]) == {"the-key", "Bearer the-token"}
    assert await sent(security=[{"key": [], "other": []}]) == set()
    assert await sent(security=[{}, {"key": []}]) == {"the-key"}
    assert await sent(security=[]) == set()
    assert await sent() == {"the-key", "Bearer the-token"}


async def test_headers_of_the_settings_replace_others() -> None:
    """A parameter of that name is not an argument, and credentials come last."""
    root = secured("s", s=BEARER)
    root["paths"]["/x"]["get"]["parameters"] = [{"name": "X-Version", "in": "header", "required": True, "schema": {}}]
    headers = {"accept": "application/vnd.x+json", "x-version": "3", "authorization": "none"}
    found = API(root, headers=headers, auth={"s": "token"})
    definition = await found.load()
    assert definition.tools[0].tool.input_schema.to_json()["properties"] == {}
    await found.call("get_x")
    assert found.requests[0].headers == [
        ("accept", "application/vnd.x+json"),
        ("x-version", "3"),
        ("Authorization", "Bearer token"),
    ]


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        ({"kye": "x"}, "no security scheme 'kye'; did you mean key"),
        ({"key": {"username": "u", "password": "p"}}, "auth.key must be a string, the key"),
        ({"basic": "nocolon"}, "auth.basic: give a mapping with username and password"),
        ({"basic": {"username": "u"}}, "auth.basic has no password"),
        ({"oauth": {"client_id": "u", "client_secret": "p", "scopes": "s"}}, "no setting 'scopes'; did you mean scope"),
        ({"digest": "x"}, "auth.digest: the certificate for it is not a credential of auth; set cert_file"),
    ],
    ids=str,
)
async def test_a_credential_that_does_not_fit_is_refused(auth: Any, message: str) -> None:
    """Before anything is called."""
    schemes = {
        "key": KEY,
        "basic": {"type": "http", "scheme": "basic"},
        "oauth": OAUTH,
        "digest": {"type": "mutualTLS"},
    }
    with pytest.raises(ConfigurationError, match=message):
        await API(secured("key", **schemes), auth=auth).load()


async def test_a_token_is_asked_for_once() -> None:
    """All calls share it until it expires; one that is refused is replaced, and the call made again."""
    issued: list[str] = []

    def reply(request: HTTPRequest) -> HTTPResponse:
        if request.url == "https://id.example.com/token":
            assert request.body == b"grant_type=client_credentials&scope=read"
            assert ("Authorization", "Basic aSUyRmQ6cyUyQmVjcmV0") in request.headers
            issued.append(f"token-number-{len(issued)}")
            return answer({"access_token": issued[-1], "expires_in": 3600})
        is_fresh = ("Authorization", f"Bearer {issued[-1]}") in request.headers
        return answer({"fresh": is_fresh}, status=401 if len(issued) == 1 and len(found.requests) > 5 else 200)

    auth = {"o": {"client_id": "i/d", "client_secret": "s+ecret", "scope": "read"}}
    found = API(secured("o", o=OAUTH), reply, auth=auth)
    await found.load()
    assert await asyncio.gather(*(found.call("get_x") for _ in range(4))) == [{"fresh": True}] * 4
    assert len(issued) == 1
    assert found.clients[0].settings["hosts"] == ("api.example.com", "id.example.com")
    assert await found.call("get_x") == {"fresh": True}
    assert len(issued) == 2


async def test_a_token_that_cannot_be_had_makes_no_call() -> None:
    """The call never began. A server that wants the secret in the body gets it there."""

    def refuse(request: HTTPRequest) -> HTTPResponse:
        assert request.url == "https://id.example.com/token"
        return answer({"error": "invalid_client"}, status=401)

    auth = {"o": {"client_id": "id", "client_secret": "very-secret"}}
    found = API(secured("o", o=OAUTH), refuse, auth=auth)
    with pytest.raises(BackendUnavailableError, match=r"no token for auth\.o: its server answered 401") as caught:
        await found.call("get_x")
    assert caught.value.outcome == "not_sent"
    assert not caught.value.retryable
    assert found.requests[1].body == b"grant_type=client_credentials&client_id=id&client_secret=very-secret"


# -- secrets ----------------------------------------------------------------------------------------------------------


async def test_secrets_are_filled_in_when_the_document_is_read() -> None:
    """Secrets reach the server, and nothing else: not the tools, the status, answers or errors."""
    environment = {"API_TOKEN": "s3cret-token-value", "KEY": "k3y-value-12345", "HOST": "https://h.example.com"}
    secrets = SecretResolver(environment=environment, redact=Redactor())

    def reply(request: HTTPRequest) -> HTTPResponse:
        assert ("Authorization", "Bearer s3cret-token-value") in request.headers
        assert ("X-Key", "k3y-value-12345") in request.headers
        if request.url.endswith("/bad"):
            return answer({"echo": "you sent s3cret-token-value"}, status=400)
        return answer({"echo": "you sent k3y-value-12345 and s3cret-token-value"})

    root = api({"/x": {"get": {}}, "/bad": {"get": {}}}, components={"securitySchemes": {"k": KEY}})
    headers = {"Authorization": "Bearer ${API_TOKEN}"}
    settings: dict[str, Any] = {"headers": headers, "auth": {"k": "secretref:env:KEY"}, "base_url": "${HOST}"}
    found = API(root, reply, secrets=secrets, **settings)
    assert (await found.load()).tools
    assert await found.call("get_x") == {"echo": "you sent [REDACTED] and [REDACTED]"}
    assert found.requests[0].url == "https://h.example.com/x"
    with pytest.raises(RemoteToolError) as caught:
        await found.call("get_bad")
    assert "s3cret" not in str(caught.value.to_dict())
    assert "s3cret" not in str(found.source.info())
    broken = API(root, secrets=SecretResolver(environment={}, redact=Redactor()), **settings)
    with pytest.raises(SecretError, match="API_TOKEN is not set"):
        await broken.load()
    poisoned = SecretResolver(environment={**environment, "API_TOKEN": "a\r\nX: y"}, redact=Redactor())
    with pytest.raises(SecretError, match="has a line break"):
        await API(root, secrets=poisoned, **settings).load()


# -- calls ------------------------------------------------------------------------------------------------------------


async def test_reading_again_keeps_the_connections() -> None:
    """Closing the source closes them."""
    found = API(ONE)
    await found.call("get_x")
    await found.load()
    await found.call("get_x")
    assert len(found.clients) == 1
    await found.source.aclose()
    await found.source.aclose()
    assert found.clients[0].closed == 1


async def test_a_tool_says_where_it_is_so_that_a_pin_holds_it() -> None:
    """A document that names another server makes another tool."""
    first = (await API(ONE).load()).tools[0].tool
    second = (await API({**ONE, "servers": [{"url": "https://evil.example"}]}).load()).tools[0].tool
    assert first.meta["http"] == {"method": "GET", "path": "/x", "server": HOST}
    assert not first.same_definition(second)
    auth = {"o": {"client_id": "id", "client_secret": "secret"}}
    tool = (await API(secured("o", o=OAUTH), auth=auth).load()).tools[0].tool
    assert tool.meta["http"]["tokens"] == ["https://id.example.com/token"]


async def test_a_document_from_elsewhere_asks_for_no_tokens_in_this_network() -> None:
    """The user may name the place."""
    scheme = {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "http://127.0.0.1/token"}}}
    auth = {"client_id": "id", "client_secret": "secret"}
    spec, reply = "https://docs.example.com/s.json", answer(secured("o", o=scheme))
    with pytest.raises(ConfigurationError, match=r"come from 127\.0\.0\.1, which is of this machine or network"):
        await API(spec, reply, auth={"o": auth}).load()
    assert (await API(spec, reply, auth={"o": {**auth, "token_url": "http://127.0.0.1/token"}}).load()).tools
