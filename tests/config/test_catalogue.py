"""Tools of servers that are kept from one start to the next."""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.servers import server_environment

from toolexec.backend.base import BackendStatus
from toolexec.config.build import Built, build
from toolexec.config.load import load_settings
from toolexec.discovery.catalogue import SQLiteCatalogue
from toolexec.errors import CatalogueError, ConfigurationError, ToolNotFoundError
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool, Trouble

PYTHON = """
from toolexec import tool

@tool("here:add")
def add(a: int, b: int) -> int:
    return a + b
"""


def write(servers: dict[str, ScriptedServer], *, enabled: Sequence[str] = (), python: str = PYTHON) -> Path:
    """A configuration with these servers, of which only some are *enabled*, if any are named."""
    Path("app.py").write_text(python)
    entries: dict[str, Any] = {}
    for name, server in servers.items():
        program, *args = server.command()
        entries[name] = {"command": program, "args": args, "disabled": bool(enabled) and name not in enabled}
    path = Path("a.json")
    settings = {"catalogue": {"path": "kept.db"}, "sources": {"python": ["app.py"]}, "limits": {"start_timeout": 30}}
    path.write_text(json.dumps(settings | {"mcpServers": entries}))
    return path


def server(*names: str, **settings: Any) -> ScriptedServer:
    return ScriptedServer(tools=[ScriptedTool(name) for name in names], **settings)


@asynccontextmanager
async def running(path: Path, *, start: bool = True) -> AsyncGenerator[Built]:
    """Build what the configuration describes, and start it on request."""
    built: Built = build(load_settings([path]))
    try:
        if start:
            await built.ex.start()
        yield built
        await built.ex.aclose()
    finally:
        built.close()


def kept() -> list[str]:
    """The IDs in the file."""
    with SQLiteCatalogue("kept.db") as catalogue:
        catalogue.verify()
        return [entry.tool.id for entry in catalogue.open().tools()]


def reason(built: Built, name: str) -> str | None:
    found: list[BackendStatus] = [status for status in built.ex.backend_statuses() if status.name == name]
    return found[0].reason


async def test_tools_are_there_before_their_servers() -> None:
    """At the second start a search finds them at once, and says that they cannot be called yet; a call connects."""
    path = write({"git": server("log", "push"), "mail": server("send")})
    async with running(path) as built:
        assert (await built.ex.search_tools("log")).ids() == ["git:log"]
    assert kept() == ["git:log", "git:push", "mail:send"]
    async with running(path, start=False) as built:
        found = await built.ex.search_tools("push")
        assert found.ids() == ["git:push"]
        assert found[0].unavailable == "not started"
        assert (await built.ex.get_tool_doc("mail:send")).unavailable == "not started"
        assert (await built.ex.run_tool("git:push", {"a": 1})).value == {"a": 1}
        assert reason(built, "git") is None
        assert reason(built, "mail") == "not started"
        assert (await built.ex.run_tool("here:add", {"a": 1, "b": 2})).value == 3
        with pytest.raises(ToolNotFoundError):
            await built.ex.run_tool("git:none")
        assert reason(built, "mail") is None


async def test_they_are_brought_up_to_date() -> None:
    """New ones come and gone ones go when their server is connected; those of a server that cannot be reached stay."""
    path = write({"git": server("log", "push"), "mail": server("send", "read")})
    async with running(path):
        pass
    path = write({"git": server("log", "pull"), "mail": server("send", trouble={"start": Trouble(exit=3)})})
    async with running(path) as built:
        assert [entry.tool.id for entry in built.ex.index.tools()] == [
            "git:log",
            "git:pull",
            "here:add",
            "mail:read",
            "mail:send",
        ]
        with pytest.raises(ToolNotFoundError):
            await built.ex.run_tool("git:push")
        assert (await built.ex.search_tools("send"))[0].unavailable is not None
    assert kept() == ["git:log", "git:pull", "mail:read", "mail:send"]


async def test_servers_that_are_gone_take_their_tools_along() -> None:
    """Taken out of the file, or switched off."""
    path = write({"git": server("log"), "mail": server("send"), "off": server("x")})
    async with running(path):
        pass
    path = write({"git": server("log"), "off": server("x")}, enabled=["git"])
    async with running(path, start=False) as built:
        assert [entry.tool.id for entry in built.ex.index.tools()] == ["git:log", "here:add"]
    assert kept() == ["git:log"]


async def test_a_new_server_among_stored_ones() -> None:
    """A search waits for that one, and for no other."""
    path = write({"git": server("log")})
    async with running(path):
        pass
    path = write({"git": server("log"), "mail": server("send")})
    async with running(path, start=False) as built:
        assert (await built.ex.search_tools("send")).ids() == ["mail:send"]
        assert reason(built, "mail") is None
        assert reason(built, "git") == "not started"
        assert (await built.ex.tool_facets()).total == 3
    assert kept() == ["git:log", "mail:send"]


async def test_a_tool_of_python_comes_first() -> None:
    """A stored tool with the ID of one that the Python file has now gives way, as if it had not been there."""
    path = write({"here": server("add", "more")}, python="from toolexec import tool\n@tool('x')\ndef x(): ...\n")
    async with running(path):
        pass
    assert kept() == ["here:add", "here:more"]
    path = write({"here": server("add", "more")})
    async with running(path) as built:
        assert (await built.ex.run_tool("here:add", {"a": 1, "b": 2})).value == 3
        assert "here:add" in built.ex.backend_statuses()[1].skipped
    assert kept() == ["here:more"]


async def test_a_damaged_catalogue_is_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    """With a warning; nothing is lost that the servers do not have."""
    path = write({"git": server("log")})
    async with running(path):
        pass
    database = sqlite3.connect("kept.db", isolation_level=None)
    database.execute("UPDATE tools SET description = 'Deletes everything'")
    database.close()
    with caplog.at_level(logging.WARNING):
        async with running(path, start=False) as built:
            assert [entry.tool.id for entry in built.ex.index.tools()] == ["here:add"]
            assert (await built.ex.search_tools("log")).ids() == ["git:log"]
    assert "begun again" in caplog.text
    assert kept() == ["git:log"]


async def test_a_catalogue_that_cannot_be_used() -> None:
    """An unusable catalogue is an error at the start, and its file stays as it is."""
    path = write({})
    Path("kept.db").write_text("not mine" * 1000)
    Path("kept.db").chmod(0o600)
    with pytest.raises(CatalogueError, match="not a database"):
        build(load_settings([path]))
    assert Path("kept.db").read_text() == "not mine" * 1000
    Path("kept.db").chmod(0o666)
    with pytest.raises(CatalogueError, match="other users may write"):
        build(load_settings([path]))
    Path("kept.db").unlink()
    path = write({}, python="nothing = 1\n")
    with pytest.raises(ConfigurationError, match=r"app\.py"):
        build(load_settings([path]))
    with SQLiteCatalogue("kept.db") as catalogue:
        assert len(catalogue) == 0


async def test_an_exec_of_a_python_file_has_its_own_index() -> None:
    """The message says how that Exec gets the catalogue."""
    path = write({}, python=f"from toolexec import Exec\n{PYTHON}\nex = Exec()\n")
    with pytest.raises(ConfigurationError, match=r"index=SQLiteCatalogue\(path\)\.open\(\)"):
        build(load_settings([path]))


async def test_a_failure_at_the_end_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Such a failure undoes nothing; the file is as it was before."""
    path = write({"git": server("log")})
    with caplog.at_level(logging.ERROR):
        async with running(path) as built:
            assert built.catalogue is not None
            built.catalogue.flush()
            database = sqlite3.connect("kept.db", isolation_level=None)
            database.execute("DROP TABLE pages")
            database.close()
            built.ex.everything.unregister("git:log")
    assert "pages" in caplog.text


@pytest.mark.full
async def test_the_search_command_does_not_connect() -> None:
    """Prints what is stored and names the servers that were not asked; `list` asks them."""
    path = write({"git": server("log")})
    async with running(path):
        pass
    write({"git": server("pull")})
    command = [sys.executable, "-m", "toolexec", "--json", "-c", str(path)]
    for words, wanted in ((["search", "log"], "git:log"), (["list"], "git:pull"), (["search", "pull"], "git:pull")):
        done = subprocess.run([*command, *words], capture_output=True, text=True, env=server_environment(), check=True)
        assert wanted in done.stdout
        assert ("not started" in done.stdout) is (words[0] == "search")
