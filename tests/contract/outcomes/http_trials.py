"""Trials of the providers of HTTP endpoints and of OpenAPI documents."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.contract.outcomes.http_service import ANSWERS, LIMIT, Answer, OddService, Reply, response, serving

from toolexec.backend.providers import SourceBackend
from toolexec.backend.providers.kinds import provider_backend
from toolexec.errors import Outcome
from toolexec.testing import OutcomeTrial

__all__ = ["HTTP", "OPENAPI", "http_trial", "openapi_trial"]

_UNREACHED = {"nothing listens": Outcome.NOT_SENT, "no TLS": Outcome.NOT_SENT}
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
