"""Tools of OpenAPI documents and MCP servers in another form than their own, on every path."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.backend.providers.service import serving as serving_http
from tests.exec.transforms import SHOWN, Kind, check_every_path, check_what_is_shown

from toolexec import Exec
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool

SERVER = ScriptedServer(
    tools=[
        ScriptedTool(
            "look",
            input_schema={
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "lang": {"type": "string"},
                    "n": {"type": "integer"},
                    "debug": {"type": "string", "default": ""},
                },
                "required": ["id", "lang", "n"],
            },
        )
    ]
)
"""It answers with the arguments that it gets."""


def _query(name: str, kind: str, *, required: bool = True) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": {"type": kind}}


def _document(url: str) -> dict[str, Any]:
    path = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    parameters = [path, _query("lang", "string"), _query("n", "integer"), _query("debug", "string", required=False)]
    get = {"operationId": "look", "parameters": parameters, "responses": {"200": {"description": "Seen."}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "far", "version": "1"},
        "servers": [{"url": url}],
        "paths": {"/x/{id}": {"get": get}},
    }


@pytest.fixture(scope="module")
def http() -> Iterator[str]:
    """Run a service for OpenAPI."""
    with serving_http() as running:
        yield running.url


@pytest.fixture(params=["openapi", "mcp"])
def kind(request: pytest.FixtureRequest, http: str) -> Kind:
    """Return each kind."""
    name = request.param

    @asynccontextmanager
    async def make() -> AsyncGenerator[Exec]:
        async with Exec(transforms={"far:look": SHOWN}, gate=None) as ex:
            if name == "openapi":
                await ex.add_openapi("far", _document(http))
            else:
                await ex.add_mcp("far", command=SERVER.command())
            yield ex

    if name == "openapi":
        return Kind(make, lambda item, n: {"path": f"/x/{item}", "query": f"lang=en&n={n}"})
    return Kind(make, lambda item, n: {"id": item, "lang": "en", "n": n})


async def test_every_path(kind: Kind) -> None:
    """A call, a step of a chain, a program and a client all use the form that is shown, and the tool gets its own."""
    await check_every_path(kind)


async def test_what_is_shown(kind: Kind) -> None:
    """Callers see the new names and descriptions, and nothing of what is fixed or hidden; that is refused."""
    await check_what_is_shown(kind)
