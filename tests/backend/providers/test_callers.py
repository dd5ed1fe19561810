"""Each caller's calls are made with that caller's credentials, and with no other's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.backend.providers.openapi.token_server import token_server
from tests.backend.providers.service import Service
from tests.openapi import api

from toolexec import Exec, Gate
from toolexec.backend.secrets import SecretResolver
from toolexec.config.build import build
from toolexec.config.load import load_settings
from toolexec.config.template import shown_providers
from toolexec.errors import BackendUnavailableError, ConfigurationError, PolicyError
from toolexec.model.origin import Caller, Origin, acting
from toolexec.run.layers.cache import Cache

TOOLS = {"it": {"path": "/x", "read_only": True}}
KEY = {"type": "apiKey", "in": "header", "name": "X-Key"}
DOCUMENT = api(
    {
        "/x": {"get": {"operationId": "it", "responses": {"200": {"description": "ok"}}}},
        "/open": {"get": {"operationId": "open", "security": [], "responses": {"200": {"description": "ok"}}}},
    },
    components={"securitySchemes": {"key": KEY}},
    security=[{"key": []}],
)


def by(caller: str, tenant: str = "") -> Origin:
    """Return the origin of a caller's calls."""
    return Origin(caller=Caller(id=caller, tenant=tenant))


async def call(ex: Exec, caller: str, tool: str = "api:it", tenant: str = "") -> Any:
    """Make a call as a caller."""
    with acting(by(caller, tenant)):
        return await ex.run_tool(tool, {})


async def add(ex: Exec, kind: str, url: str, given: Mapping[str, str] | Any, **settings: Any) -> None:
    """Add a provider whose callers have these keys: a mapping, or a function of an origin."""

    def form(key: str | None) -> Any:
        if key is None:
            return None
        return {"key": key} if kind == "openapi" else {"header": "X-Key", "value": key}

    credentials: Any
    if isinstance(given, Mapping):
        credentials = {name: form(key) for name, key in given.items()}
    else:
        credentials = lambda origin: form(given(origin))  # noqa: E731
    if kind == "openapi":
        await ex.add_openapi("api", DOCUMENT, base_url=url, credentials=credentials, **settings)
    else:
        await ex.add_http("api", url, tools=TOOLS, credentials=credentials, **settings)


def keys(service: Service) -> list[str]:
    """Return the keys that have arrived."""
    return [each.headers.get("x-key", "") for each in service.seen]


KINDS = pytest.mark.parametrize("kind", ["http", "openapi"])


@KINDS
async def test_each_caller_has_a_credential_of_its_own(service: Service, kind: str) -> None:
    """Calls at the same time are made with each caller's own; a reference is filled in, and its value hidden."""
    secrets = SecretResolver(environment={"ANN": "key-of-ann-123", "BOB": "key-of-bob-456"})
    async with Exec(gate=None) as ex:
        await add(ex, kind, service.url, {"ann": "secretref:env:ANN", "bob": "${BOB}"}, secrets=secrets)
        done = await asyncio.gather(*(call(ex, each) for each in ["ann", "bob"] * 10))
        states = str([each.to_dict() for each in ex.backend_statuses()])
    assert sorted(keys(service)) == ["key-of-ann-123"] * 10 + ["key-of-bob-456"] * 10
    assert all(each.ok for each in done)
    assert not any(key in str(each.value) or key in states for each in done for key in keys(service))


@KINDS
async def test_a_caller_without_a_credential_is_refused(service: Service, kind: str) -> None:
    """The error says who lacks what, and nothing is sent; a call without a known caller is refused, too."""
    async with Exec(gate=None) as ex:
        await add(ex, kind, service.url, {"ann": "key-of-ann-123"})
        with pytest.raises(PolicyError, match=r"caller 'bob' has no credentials of provider api.*set credentials\.bob"):
            await call(ex, "bob")
        with pytest.raises(PolicyError, match="this call has no known caller") as caught:
            await ex.run_tool("api:it", {})
        assert caught.value.code == "no_credentials"
        assert caught.value.outcome == "not_sent"
        assert not caught.value.retryable
    assert service.seen == []


@KINDS
async def test_a_function_gives_the_credential(service: Service, kind: str) -> None:
    """Each call asks the function, and its answer is taken as it is; None refuses the caller."""
    found = {"ann": "${key} of ann"}
    async with Exec(gate=None) as ex:
        await add(ex, kind, service.url, lambda origin: found.get(origin.caller.id), secrets=SecretResolver())
        assert (await call(ex, "ann")).ok
        found["ann"] = "another key of ann"
        assert (await call(ex, "ann")).ok
        with pytest.raises(PolicyError, match="caller 'bob' has no credentials"):
            await call(ex, "bob")
    assert keys(service) == ["${key} of ann", "another key of ann"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (KeyError("the-secret-name"), "the function raised KeyError"),
        ({"bearer": 3}, "what credentials returned must be one of"),
        ("a-plain-token", "what credentials returned must be one of"),
    ],
    ids=str,
)
async def test_a_function_that_fails_refuses_the_call(service: Service, answer: Any, expected: str) -> None:
    """Messages show neither what it raised nor what it returned, and nothing is sent."""

    async def credentials(origin: Origin) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with Exec(gate=None) as ex:
        await ex.add_http("api", service.url, tools=TOOLS, credentials=credentials)
        with pytest.raises(BackendUnavailableError, match=expected) as caught:
            await call(ex, "ann")
        assert "the-secret-name" not in caught.value.message
        assert "a-plain-token" not in caught.value.message
    assert service.seen == []


async def test_a_missing_secret_refuses_its_caller_only(service: Service) -> None:
    """Another caller's calls go on."""
    secrets = SecretResolver(environment={"ANN": "key-of-ann-123"})
    async with Exec(gate=None) as ex:
        await add(ex, "http", service.url, {"ann": "${ANN}", "bob": "${BOB}"}, secrets=secrets)
        assert (await call(ex, "ann")).ok
        with pytest.raises(BackendUnavailableError, match=r"credentials\.bob.*BOB is not set"):
            await call(ex, "bob")
        assert (await call(ex, "ann")).ok


async def test_callers_of_two_tenants_with_one_id(service: Service) -> None:
    """Each is named with its tenant, and an ID with a slash is not taken for one."""
    given = {"ann": "key-without-tenant", "acme/ann": "key-of-acme-ann", "/acme/bob": "key-of-plain-bob"}
    async with Exec(gate=None) as ex:
        await add(ex, "http", service.url, given)
        await call(ex, "ann")
        await call(ex, "ann", tenant="acme")
        await call(ex, "acme/bob")
        for caller, tenant in [("acme/ann", ""), ("bob", "acme"), ("ann", "other"), ("ann", "x/acme")]:
            with pytest.raises(PolicyError, match="no credentials"):
                await call(ex, caller, tenant=tenant)
    assert keys(service) == ["key-without-tenant", "key-of-acme-ann", "key-of-plain-bob"]


@pytest.mark.parametrize("identity", ["none", "tenant", "caller"])
@KINDS
async def test_no_cache_shares_answers_between_callers(service: Service, kind: str, identity: Any) -> None:
    """Answers, calls under way and failures stay with their caller, whatever the cache shares otherwise."""
    async with Exec(gate=Gate(cache=Cache(identity=identity))) as ex:
        await add(ex, kind, service.url, {"ann": "key-of-ann-123", "bob": "key-of-bob-456"})
        callers = ["ann", "bob", "ann", "bob"]
        done = await asyncio.gather(*(call(ex, each) for each in callers))
        assert all(each.ok for each in done)
        assert {"key-of-ann-123", "key-of-bob-456"} == set(keys(service))
        again = await call(ex, "ann")
        assert again.cached == (identity == "caller")
        mixed = await asyncio.gather(*(call(ex, each) for each in ["eve", "ann"]), return_exceptions=True)
        assert isinstance(mixed[0], PolicyError)
        assert not isinstance(mixed[1], BaseException)
        assert mixed[1].ok


async def test_an_operation_that_needs_no_credentials_is_open_to_all(service: Service) -> None:
    """Every caller may call it, and no credential of another is sent."""
    async with Exec(gate=None) as ex:
        await add(ex, "openapi", service.url, {"ann": "key-of-ann-123"})
        assert (await call(ex, "bob", "api:open")).ok
    assert keys(service) == [""]


async def test_no_cookie_of_one_caller_is_sent_for_another() -> None:
    """Calls share connections, and no state of their answers."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
                writer.write(b"HTTP/1.1 200 OK\r\nSet-Cookie: session=of-ann\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        async with Exec(gate=None) as ex:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            await add(ex, "http", url, {"ann": "key-of-ann-123", "bob": "key-of-bob-456"})
            for caller in ("ann", "bob", "ann"):
                assert (await call(ex, caller)).ok
    finally:
        server.close()
    assert not any("cookie" in head for head in heads)
    assert ["key-of-ann-123" in head for head in heads] == [True, False, True]


async def test_tokens_belong_to_the_caller_that_they_were_asked_for() -> None:
    """Each caller's client has its own token, also when both ask at the same time, and after one was revoked."""
    clients = {name: {"oauth": {"client_id": name, "client_secret": f"secret-of-{name}"}} for name in ("ann", "bob")}
    async with token_server() as server, Exec(gate=None) as ex:
        await ex.add_openapi("api", server.document(), credentials=clients)
        for _ in range(2):
            callers = ["ann", "bob"] * 5
            done = await asyncio.gather(*(call(ex, each, "api:items") for each in callers))
            for caller, each in zip(callers, done, strict=True):
                assert each.value["for"] == caller
            server.revoke()
        assert server.issued == 4


@pytest.mark.parametrize("credential", ['value = "${ANN}"\nheader = "X-Key"', 'bearer = "secretref:env:ANN"'])
async def test_a_file_of_settings(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, credential: str
) -> None:
    """A table has the callers of a provider; what it refers to is not shown."""
    monkeypatch.setenv("ANN", "key-of-ann-123")
    (tmp_path / "toolexec.toml").write_text(
        f'[providers.api]\nkind = "http"\nbase_url = "{service.url}"\ntools.it.path = "/x"\n'
        f"[providers.api.credentials.ann]\n{credential}\n"
        '[providers.api.credentials.eve]\nbearer = "a-literal-token"\n'
    )
    loaded = load_settings([str(tmp_path / "toolexec.toml")])
    shown = shown_providers(loaded)["api"]["credentials"]
    assert "ANN" in str(shown["ann"])
    assert "a-literal-token" not in str(shown)
    async with build(loaded).ex as ex:
        assert (await call(ex, "ann")).ok
        with pytest.raises(PolicyError, match="caller 'bob' has no credentials"):
            await call(ex, "bob")
    assert "key-of-ann-123" in str(service.seen[0].headers)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"auth": {"bearer": "x"}, "credentials": {"ann": {"bearer": "y"}}}, "give either auth.*or credentials"),
        ({"credentials": {"ann": {"bear": "y"}}}, r"credentials\.ann must be one of"),
        ({"credentials": {"": {"bearer": "y"}}}, "an anonymous caller cannot have any"),
    ],
    ids=str,
)
def test_settings_that_cannot_work(settings: Any, expected: str) -> None:
    """Say so where they are made."""
    with pytest.raises(ConfigurationError, match=expected):
        Exec().add_http("api", "https://api.example.com", tools=TOOLS, **settings)
