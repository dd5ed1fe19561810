"""A part of a server: which of its tools, prompts and resources there are."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec
from toolexec.backend.attempt import attempt_at
from toolexec.backend.mcp import MCPBackend, MCPServer
from toolexec.backend.mcp.files import read_mcp_server
from toolexec.backend.uris import decoded, is_closed
from toolexec.discovery.index import Registered
from toolexec.errors import BackendNotFoundError, ConfigurationError, InputValidationError, NotOfferedError
from toolexec.model import MCPBinding, Tool
from toolexec.model.call import ToolCall

SERVER = str(Path(__file__).parents[2] / "server" / "offers_server.py")


@asynccontextmanager
async def choosing(**settings: Any) -> AsyncGenerator[tuple[Exec, MCPBackend]]:
    """Yield an Exec with a part of a server that has tools, resources and prompts."""
    command = [SERVER, "stdio", "new", "0"]
    server = MCPServer(name="docs", command=sys.executable, args=command, stop_timeout=0.5, **settings)
    async with Exec() as ex:
        backend = MCPBackend(server)
        await ex.add_backends(backend)
        yield ex, backend


async def test_what_is_left_out_is_not_there() -> None:
    """Nothing of it is listed, called, read, or completed, by whatever ID and in whatever spelling."""
    chosen = {
        "include": ["li*", "touch"],
        "exclude": ["to??h"],
        "exclude_prompts": ["host*"],
        "exclude_resources": ["shared://*", "user://ann/*"],
    }
    async with choosing(**chosen) as (ex, backend):
        assert [tool.id for tool in await backend.list_tools()] == ["docs:link"]
        touch = Tool(name="touch", namespace="docs", input_schema={"type": "object"})
        entry = Registered(touch, (binding := MCPBinding("docs", "touch"),), binding)
        with pytest.raises(BackendNotFoundError, match="leave out its tool touch"):
            await backend.call("touch", attempt_at(ToolCall("docs:touch", {}), entry))
        assert [prompt.name for prompt in await ex.list_prompts()] == ["docs:review"]
        with pytest.raises(NotOfferedError):
            await ex.get_prompt("docs:hostile")
        assert [resource.own_uri for resource in await ex.list_resources()] == ["bytes://some"]
        assert (await ex.read_resource("toolexec://docs/user://bob/profile")).text == "profile of bob"
        for uri in ("shared://same", "user://ann/profile", "user://%61nn/profile", "user://bob/../ann/profile"):
            with pytest.raises(NotOfferedError):
                await ex.read_resource(f"toolexec://docs/{uri}")
            for offer in ("docs:user-name-profile:+resource", "docs:unlisted:+resource"):
                with pytest.raises(InputValidationError):
                    await ex.run_tool(offer, {"uri": uri})
        about = {"argument": {"name": "code", "value": "a"}}
        for name, is_there in (("review", True), ("hostile", False)):
            ref = {"type": "ref/prompt", "name": name}
            if is_there:
                assert (await ex.run_tool("docs:complete:+completion", {"ref": ref, **about})).ok
            else:
                with pytest.raises(InputValidationError, match="offers no such prompt"):
                    await ex.run_tool("docs:complete:+completion", {"ref": ref, **about})


async def test_only_what_is_included_can_be_read() -> None:
    """A template that is excluded closes all URIs that fit it; what is not included is closed as well."""
    async with choosing(include_resources=["bytes://*", "user://*"], exclude_resources=["user://{name}/*"]) as (ex, _):
        assert await ex.list_resource_templates() == []
        assert (await ex.read_resource("toolexec://docs/bytes://some")).contents
        for uri in ("user://bob/profile", "shared://same"):
            with pytest.raises(NotOfferedError):
                await ex.read_resource(f"toolexec://docs/{uri}")


@pytest.mark.parametrize(
    ("uri", "plain"),
    [
        ("file:///a%20b", "file:///a b"),
        ("file:///a%2520b", "file:///a b"),
        ("file:///a.b/..c", "file:///a.b/..c"),
        ("file:///a/../b", None),
        ("file:///a/.%2e/b", None),
        ("file:///a%5c..%5cb", None),
        ("file:///%25252525252e", None),
    ],
)
def test_a_uri_is_taken_as_it_may_be_read(uri: str, plain: str | None) -> None:
    """Its encoding is undone, also where it was applied twice; one that leads up, or is encoded without end, is none."""
    assert decoded(uri) == plain


def test_what_is_closed_is_closed_in_every_spelling() -> None:
    """A template closes what fits it, and a URI that could mean another one is closed."""
    for uri in ("a://x/1", "a://%78/1", "b://y", "c://../y"):
        assert is_closed(uri, "b://y".__eq__, ["a://{what}/1"])
    assert not is_closed("c://y", "b://y".__eq__, ["a://{what}/1"])


def test_the_settings_of_a_file_choose() -> None:
    """A file has the settings of `MCPServer`; what is not a list of patterns is refused."""
    entry: dict[str, Any] = {"command": "x", "include": ["a*"], "exclude_resources": ["b://*"]}
    server = read_mcp_server("docs", entry, where="file", directory=Path())
    assert (server.include, server.exclude, server.exclude_resources) == (["a*"], (), ["b://*"])
    with pytest.raises(ConfigurationError, match="exclude must be a list of strings"):
        read_mcp_server("docs", {"command": "x", "exclude": "a*"}, where="file", directory=Path())
