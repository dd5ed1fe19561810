"""One bad target or one missing secret is the end of one tool, not of its provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.openapi import api

from toolexec import Exec
from toolexec.backend.base import BackendStatus
from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.kinds import source_of
from toolexec.backend.secrets import SecretResolver
from toolexec.model.redaction import Redactor

TWO_KEYS = {name: {"type": "apiKey", "in": "header", "name": f"X-{name}"} for name in ("a", "b")}


async def status_of(
    kind: str, settings: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> tuple[BackendStatus, list[str]]:
    """Return the status of a provider that was read, and the names of its tools."""
    known: dict[str, str] = dict(environment or {})
    secrets = SecretResolver(environment=known, redact=Redactor())
    async with Exec(gate=None) as ex:
        backend = SourceBackend("api", source_of(kind, "api", settings, secrets=secrets))
        await ex.add_backends(backend)
        await backend.start()
        names = [] if backend.status().reason else [tool.name for tool in await backend.list_tools()]
        return backend.status(), names


@pytest.mark.parametrize("url", ["https://exa mple/x", "https://x.example:99999/x", "https://[::1/x"])
async def test_an_endpoint_with_an_invalid_url_is_skipped(url: str) -> None:
    """Its provider has the other tools, and says why it does not have this one."""
    tools = {"fine": {"path": "/x"}, "bad": {"path": url}}
    status, names = await status_of("http", {"base_url": "https://api.example.com", "tools": tools})
    assert names == ["fine"]
    assert status.available
    assert "invalid" in status.skipped["bad"]


async def test_operations_without_a_host_are_skipped() -> None:
    """Others of the document have one."""
    paths = {
        "/a": {"get": {"operationId": "none"}},
        "/b": {"get": {"operationId": "own", "servers": [{"url": "https://x.example"}]}},
        "/c": {"get": {"operationId": "odd", "servers": [{"url": "https://exa mple:99999"}]}},
    }
    status, names = await status_of("openapi", {"spec": {**api(paths), "servers": []}})
    assert names == ["own"]
    assert "set base_url" in status.skipped["none"]
    assert "no valid host" in status.skipped["odd"]


def secured() -> dict[str, Any]:
    """Return a document whose operations need no key, one of two, either, or both."""
    kinds: dict[str, Any] = {"open": [], "a": [{"a": []}], "b": [{"b": []}], "both": [{"a": [], "b": []}]}
    kinds |= {"either": [{"b": []}, {"a": []}], "optional": [{"a": []}, {}]}
    paths = {f"/{name}": {"get": {"operationId": name, "security": given}} for name, given in kinds.items()}
    return api(paths, components={"securitySchemes": TWO_KEYS})


async def test_operations_whose_secret_is_missing_are_skipped() -> None:
    """None of them is called with less than the settings want; each has the reason, without any value."""
    settings: dict[str, Any] = {"spec": secured(), "auth": {"a": "${A_KEY}", "b": "${B_KEY}"}}
    status, names = await status_of("openapi", settings, {"B_KEY": "value-of-b"})
    assert names == ["open", "b", "either"]
    assert status.skipped.keys() == {"a", "both", "optional"}
    assert status.skipped["a"] == "GET /a: auth.a: the environment variable A_KEY is not set"
    assert "value-of-b" not in str(status.to_dict())
    status, names = await status_of("openapi", settings, {"A_KEY": "value-of-a", "B_KEY": "value-of-b"})
    assert len(names) == 6


async def test_a_provider_without_any_of_its_secrets_is_unavailable() -> None:
    """Nothing is left that could be called, or what is missing goes along with every request."""
    document = api({"/a": {"get": {"security": [{"a": []}]}}}, components={"securitySchemes": TWO_KEYS})
    for settings in ({"auth": {"a": "${A_KEY}"}}, {"headers": {"X-Key": "${A_KEY}"}}):
        status, names = await status_of("openapi", {"spec": document, **settings})
        assert names == []
        assert "A_KEY is not set" in (status.reason or "")


async def test_a_program_whose_secret_is_missing_is_skipped() -> None:
    """Programs that do not have it in their environment are there."""
    tools = {"fine": {"argv": ["ls"]}, "keyed": {"argv": ["ls"], "env": {"KEY": "${A_KEY}"}}}
    status, names = await status_of("command", {"tools": tools})
    assert names == ["fine"]
    assert status.skipped == {"keyed": "env: keyed.KEY: the environment variable A_KEY is not set"}
    status, names = await status_of("command", {"tools": tools}, {"A_KEY": "value"})
    assert names == ["fine", "keyed"]
    status, _ = await status_of("command", {"tools": tools, "env": {"ALL": "${B_KEY}"}})
    assert "B_KEY is not set" in (status.reason or "")
