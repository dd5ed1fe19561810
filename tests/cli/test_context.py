"""`toolexec context`: what it shows of a running server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.command_line import Result

from toolexec import Exec
from toolexec.model.origin import Caller, Origin
from toolexec.run.context import ContextMeter
from toolexec.server.app import ToolServer
from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import HttpSettings, serve_http

Cli = Callable[..., Result]
KEYS = (ApiKey(id="ann", sha256=hash_key("ann's"), roles=("ops",)), ApiKey(id="bob", sha256=hash_key("bob's")))


@pytest.fixture
async def meter() -> ContextMeter:
    """The tokens of two conversations, one of them with a hostile name."""
    made = ContextMeter()
    bob = Caller(id="bob", method="api_key")
    made.count(Origin(caller=bob, session="session-1", client="agent"), "results", "word " * 6400, {"a": 1})
    made.count(Origin(session="session-2", client="\x1b[2J[bold]x"), "search", "word " * 80)
    return made


@pytest.fixture
async def address(meter: ContextMeter) -> AsyncIterator[str]:
    """Where a server with keys and operators listens."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    http, auth = HttpSettings(port=0, operator_roles=("ops",)), AuthSettings(api_keys=KEYS)
    async with ToolServer(Exec()) as server:
        task = asyncio.create_task(serve_http(server, http, auth, meter=meter, ready=ready.set_result, stop=stop))
        try:
            yield await ready
        finally:
            stop.set()
            await task


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("ann's\n")
    return path


async def test_an_operator_sees_what_conversations_cost(cli: Cli, address: str, key: Path) -> None:
    """An operator sees the totals by cause, and each conversation, the most expensive first; names cannot steer the
    terminal."""
    shown = await asyncio.to_thread(cli, "context", address, "--key-file", key)
    assert shown.exit_code == 0, shown.stderr
    assert "10,100" in shown.stdout
    assert shown.stdout.index("session-1") < shown.stdout.index("session-2")
    assert "results 10,003" in shown.stdout
    assert "estimates, by characters" in shown.stdout
    assert "\x1b[2J" not in shown.stdout
    assert "[bold]x" in shown.stdout
    few = await asyncio.to_thread(cli, "context", address, "--key-file", key, "-n", "1")
    assert "1 more conversations" in few.stderr
    data = json.loads((await asyncio.to_thread(cli, "context", address, "--key-file", key, "--json")).stdout)
    assert data["read"] == {"search": 100, "results": 10_000}


async def test_others_read_what_is_missing(cli: Cli, address: str, key: Path) -> None:
    """A caller without a key, and one who is not an operator, read how an operator asks."""
    without = await asyncio.to_thread(cli, "context", address)
    assert without.exit_code == 2
    assert "--key-file" in without.stderr
    key.write_text("bob's")
    other = await asyncio.to_thread(cli, "context", address, "--key-file", key)
    assert "http.operator_roles" in other.stderr
    assert "bob's" not in other.stderr


def test_a_server_that_is_not_there(cli: Cli, tmp_path: Path) -> None:
    """A server that cannot be reached is another exit code than a wrong address or file."""
    gone = cli("context", "http://127.0.0.1:9")
    assert gone.exit_code == 3
    assert "127.0.0.1" in gone.stderr
    assert cli("context", "http://").exit_code in (2, 3)
    assert cli("context", "--key-file", tmp_path / "none").exit_code == 2
