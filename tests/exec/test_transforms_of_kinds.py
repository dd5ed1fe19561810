"""Tools of OpenAPI documents, MCP servers and gRPC services in another form than their own, on every path."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.backend.providers.grpc.service import Shop
from tests.backend.providers.grpc.service import serving as serving_grpc
from tests.backend.providers.service import serving as serving_http
from tests.server.harness import connect
from tests.server.harness import serving as serving_tools

from toolexec import Exec, Step
from toolexec.errors import InputValidationError

SERVER = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("far", log_level="ERROR")
@server.tool()
def look(id: str, lang: str, n: int, debug: str = "") -> dict:
    return {"id": id, "lang": lang, "n": n, "debug": debug}
server.run("stdio")
"""
SHOWN = {
    "name": "see",
    "description": "Looks at an item.",
    "arguments": {
        "id": {"name": "item", "description": "Which item."},
        "n": {"default": 3},
        "lang": {"value": "en"},
        "debug": {"hide": True},
    },
}
OF_GRPC = {
    **SHOWN,
    "arguments": {
        "name": {"name": "item", "description": "Which item."},
        "count": {"name": "n", "default": 3},
        "color": {"value": "GREEN"},
        "note": {"hide": True},
    },
}


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


@pytest.fixture(scope="module")
def grpc() -> Iterator[str]:
    """Run a gRPC server."""
    with serving_grpc(Shop()) as target:
        yield target


@dataclass(frozen=True)
class Kind:
    """A kind of tool: `make` gives an Exec with the tool `far:see`; `sent` is what the tool was sent for an item, as it
    says in its value, and `hidden` are the arguments that callers do not see."""

    make: Callable[[], AbstractAsyncContextManager[Exec]]
    sent: Callable[[str, int], dict[str, Any]]
    hidden: tuple[str, ...] = ("lang", "debug")


@pytest.fixture(params=["openapi", "mcp", "grpc"])
def kind(request: pytest.FixtureRequest, http: str, grpc: str, tmp_path: Path) -> Kind:
    """Return each kind."""
    name = request.param

    @asynccontextmanager
    async def make() -> AsyncGenerator[Exec]:
        own, shown = ("far:Shop.Echo", OF_GRPC) if name == "grpc" else ("far:look", SHOWN)
        async with Exec(transforms={own: shown}, gate=None) as ex:
            if name == "openapi":
                await ex.add_openapi("far", _document(http))
            elif name == "grpc":
                await ex.add_grpc("far", grpc)
            else:
                (tmp_path / "far.py").write_text(SERVER)
                await ex.add_mcp("far", command=[sys.executable, str(tmp_path / "far.py")])
            yield ex

    if name == "openapi":
        return Kind(make, lambda item, n: {"path": f"/x/{item}", "query": f"lang=en&n={n}"})
    if name == "grpc":
        return Kind(make, lambda item, n: {"name": item, "count": n, "color": "GREEN"}, ("color", "note"))
    return Kind(make, lambda item, n: {"id": item, "lang": "en", "n": n, "debug": ""})


async def test_every_path(kind: Kind) -> None:
    """A call, a step of a chain, a program and a client all use the form that is shown, and the tool gets its own."""
    async with kind.make() as ex:
        value = (await ex.run_tool("far:see", {"item": "a"})).value
        assert value is not None
        assert kind.sent("a", 3).items() <= value.items()
        assert not value.get("note")
        chained = (await ex.run_chain([Step("far:see", {"item": "b", "n": 5})])).value
        assert kind.sent("b", 5).items() <= chained.items()
        run = await ex.execute_code("tools.far.see(item='c')")
        assert run.error is None, run.error
        assert kind.sent("c", 3).items() <= run.value.items()
        async with serving_tools(ex) as server, connect(server, "auto") as client:
            reply = await client.call_tool("run_tool", {"tool_id": "far:see", "args": {"item": "d"}})
            text = json.dumps(reply.model_dump(mode="json"))
            assert not reply.is_error, text
            assert str(kind.sent("d", 3).popitem()[1]) in text


async def test_what_is_shown(kind: Kind) -> None:
    """Callers see the new names and descriptions, and nothing of what is fixed or hidden; that is refused."""
    async with kind.make() as ex:
        doc = ex.docs.describe("far:see", "full")
        assert doc.tool is not None
        schema = doc.tool.input_schema.to_json()
        assert doc.summary.startswith("Looks at an item")
        assert schema["properties"]["item"]["description"] == "Which item."
        assert not schema["properties"].keys() & {*kind.hidden, "id", "name"}
        for hidden in kind.hidden:
            with pytest.raises(InputValidationError):
                await ex.run_tool("far:see", {"item": "a", hidden: "x"})
        with pytest.raises(InputValidationError, match="/item"):
            await ex.run_tool("far:see", {"item": 5})
