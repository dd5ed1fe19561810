"""Backends that mean no good behind `toolexec serve`, as a client outside sees them: a clear error, and all else works."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from tests.backend.mcp.test_offers import SERVER
from tests.config.commands import COMMAND
from tests.server.processes import served
from tests.waiting import until

from toolexec.backend.mcp.offers import MAX_OFFERS

pytestmark = pytest.mark.full
REFUSED = {
    "toolexec://bad/huge://": "for a message of more than 67108864 bytes",
    "toolexec://bad/unlisted://large": "is too long",
    "file:///etc/passwd": "no resource",
    "toolexec://none/secret://x": "no resource",
    "secret://x": "no resource",
}


def settings() -> str:
    """Return the file of a server with two such backends, as their commands."""
    tables = [
        f"[mcpServers.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps([str(SERVER), behaviour])}\n"
        for name, behaviour in (("bad", "plain"), ("endless", "endless"))
    ]
    return "[server]\nport = 0\npage_size = 1000\n" + "".join(tables)


async def listed(client: Client) -> set[str]:
    """Return the URIs of all resources, page by page."""
    found, cursor = set[str](), None
    while True:
        page = await client.list_resources(cursor=cursor)
        found |= {str(each.uri) for each in page.resources}
        if (cursor := page.next_cursor) is None:
            return found


async def test_a_client_gets_clear_errors_and_goes_on(tmp_path: Path) -> None:
    """A list without an end is cut, what is too large and what is another's is refused with its reason, nothing hides
    in a definition, a server cannot answer in the name of another one, and the backends can be used afterwards."""
    (tmp_path / "toolexec.toml").write_text(settings())
    words = [*COMMAND, "serve", "-c", str(tmp_path / "toolexec.toml")]
    with served(words, tmp_path) as url:
        async with Client(url) as client:

            async def prompts() -> list[str | None]:
                return [prompt.description for prompt in (await client.list_prompts()).prompts]

            async def all_are_there() -> bool:
                return len(await prompts()) == 4

            await until(all_are_there, 0.1)
            assert set(await prompts()) == {"Read this", None}
            assert len(await listed(client)) == MAX_OFFERS + 1
            for uri, why in REFUSED.items():
                with pytest.raises(MCPError, match=why):
                    await client.read_resource(uri)
            [part] = (await client.read_resource("toolexec://bad/foreign://x")).contents
            assert str(part.uri) == "toolexec://bad/toolexec://other/secret://x"
