"""Trials of the providers of HTTP endpoints and of OpenAPI documents."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.contract.outcomes.http_service import ANSWERS, LIMIT, Answer, OddService, Reply, response, serving

from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.kinds import provider_backend
from toolexec.errors import Outcome
from toolexec.testing import OutcomeTrial

_UNREACHED = dict.fromkeys(("nothing listens", "no TLS", "no such name"), Outcome.NOT_SENT)
_PICKS = {
    "no JSON where a part is picked": response(200, b"hello", "text/plain"),
    "no part to pick": response(200, b"[1]"),
}
_TOKENS: Mapping[str, Answer] = {
    "token: status 500": Answer(response(500), works=False),
    "token: broken JSON": Answer(response(200, b"{"), works=False),
    "token: cut body": Answer(response(200, b"{", length=50), works=False),
    "token: a closed connection": Answer(works=False),
    "token: silence": Answer(works=False, hangs=True),
}
_CALL = Answer(response(200, b'{"ok": true}'))
_SHARED = {name: outcome for name, (_, outcome) in ANSWERS.items()} | _UNREACHED
HTTP = _SHARED | dict.fromkeys(_PICKS, Outcome.DONE)
OPENAPI = _SHARED | dict.fromkeys(_TOKENS, Outcome.NOT_SENT)

_HERE, _THERE, _AGAIN = "/there", "http://127.0.0.1:1/", "/read"
_HOPS: Mapping[str, tuple[int, str, Answer, Outcome]] = {
    "302 to broken JSON": (302, _HERE, Answer(response(200, b"{")), Outcome.DONE),
    "302 to a failure": (302, _HERE, Answer(response(500)), Outcome.UNKNOWN),
    "302 to a closed connection": (302, _HERE, Answer(), Outcome.UNKNOWN),
    "303 to silence": (303, _HERE, Answer(hangs=True), Outcome.UNKNOWN),
    "307 to a refusal": (307, _HERE, Answer(response(404), works=False), Outcome.REFUSED),
    "302 to a host that is not allowed": (302, _THERE, _CALL, Outcome.UNKNOWN),
    "303 to a host that is not allowed": (303, _THERE, _CALL, Outcome.DONE),
    "308 to a host that is not allowed": (308, _THERE, _CALL, Outcome.REFUSED),
    "302 to no URL": (302, "http://[", _CALL, Outcome.UNKNOWN),
    "307 without an end": (307, _AGAIN, _CALL, Outcome.REFUSED),
}
REDIRECTS = {name: outcome for name, (*_, outcome) in _HOPS.items()}
"""Where a GET is led, and what became of the call."""


def _reply(name: str) -> Reply:
    if name in _TOKENS:
        return lambda head, _: _TOKENS[name] if head.startswith("POST /token ") else _CALL
    answer = Answer(_PICKS[name]) if name in _PICKS else ANSWERS[name][0] if name in ANSWERS else _CALL
    return lambda *_: answer


def _url(name: str, service: OddService) -> str:
    """Return where the service is, or where it cannot be reached."""
    port = service.url.rpartition(":")[2]
    return {
        "nothing listens": "http://127.0.0.1:1",
        "no TLS": f"https://127.0.0.1:{port}",
        "no such name": f"http://no-such-host.invalid:{port}",
    }.get(name, service.url)


def _settings(name: str) -> dict[str, Any]:
    limits = {"max_response_bytes": LIMIT, "allow_private": True}
    return limits | ({"timeout": 0.3} if "silence" in name else {})


@asynccontextmanager
async def _started(backend: SourceBackend, service: OddService) -> AsyncIterator[OutcomeTrial]:
    await backend.start()
    try:
        yield OutcomeTrial(backend=backend, tool_id="odd:pay", args={"amount": 7}, effects=lambda: service.effects)
    finally:
        await backend.aclose()


@asynccontextmanager
async def http_trial(name: str) -> AsyncIterator[OutcomeTrial]:
    """Make an endpoint."""
    async with serving(_reply(name)) as service:
        pay: dict[str, Any] = {"method": "POST", "path": "/pay", "body": {"amount": "{{amount}}"}}
        if name in _PICKS:
            pay["response"] = "sum(a.b)" if name == "no part to pick" else "a"
        settings = {"base_url": _url(name, service), "tools": {"pay": pay}, **_settings(name)}
        settings["idempotency_header"] = "Idempotency-Key"
        async with _started(provider_backend("http", "odd", settings), service) as trial:
            yield trial


@asynccontextmanager
async def redirect_trial(name: str) -> AsyncIterator[OutcomeTrial]:
    """Make an endpoint that is read, but not marked so, and that leads elsewhere."""
    status, location, there, outcome = _HOPS[name]
    first = Answer(response(status, Location=location), works=location == _THERE and outcome is not Outcome.REFUSED)

    async with serving(lambda head, _: there if head.startswith(f"GET {_HERE} ") else first) as service:
        pay: dict[str, Any] = {"path": "/read", "query": {"amount": "{{amount}}"}, "read_only": False}
        settings = {"base_url": service.url, "tools": {"pay": pay | {"idempotent": False}}, **_settings(name)}
        async with _started(provider_backend("http", "odd", settings), service) as trial:
            yield trial


@asynccontextmanager
async def openapi_trial(name: str) -> AsyncIterator[OutcomeTrial]:
    """Make an operation."""
    with TemporaryDirectory() as directory:
        async with serving(_reply(name)) as service:
            path = Path(directory) / "openapi.json"
            path.write_text(json.dumps(_document(f"{service.url}/token")))
            settings = {"spec": str(path), "base_url": _url(name, service), **_settings(name)}
            if name in _TOKENS:
                settings["auth"] = {"o": {"client_id": "id", "client_secret": "very-secret"}}
            async with _started(provider_backend("openapi", "odd", settings), service) as trial:
                yield trial


def _document(token_url: str) -> dict[str, Any]:
    amount = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    pay = {
        "operationId": "pay",
        "requestBody": {"content": {"application/json": {"schema": amount}}},
        "responses": {"200": {"description": "paid"}},
        "security": [{"o": []}],
    }
    flow = {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": token_url, "scopes": {}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "odd", "version": "1"},
        "paths": {"/pay": {"post": pay}},
        "components": {"securitySchemes": {"o": flow}},
    }
