"""MCP servers in sandboxes, by the commands: checked, added, started again, changed and removed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.cli.live_server import Caller, live_server, write
from tests.engines.bubblewrap import require_bwrap
from tests.engines.tiny_server import TINY
from tests.waiting import until

HEAD = '[server]\nexpose = "meta"\n\n[policy]\nremote_destructive = "allow"\n'
NO_BWRAP = '[sandboxes]\nbwrap = "/opt/not-there/bwrap"\n[mcpServers.s]\ncommand = "true"\nsandbox = "bubblewrap"\n'


def test_a_missing_engine_is_said_before_anything_is_served(cli: Any, tmp_path: Path) -> None:
    """By the check, which fails for it, and by the doctor; both say what to install, and nothing is started."""
    (tmp_path / "toolexec.toml").write_text(NO_BWRAP)
    done = cli("check", "--json")
    [server] = [each for each in json.loads(done.stdout)["checks"] if each["kind"] == "server"]
    assert (done.exit_code, server["name"], server["detail"]) == (1, "s", "sandbox bubblewrap")
    assert "apt-get install bubblewrap" in server["errors"][0]
    [server] = json.loads(cli("doctor", "--quick", "--json").stdout)["servers"]
    assert (server["name"], server["sandbox"], server["ready"]) == ("s", "bubblewrap", False)
    assert "apt-get install bubblewrap" in server["reason"]
    assert "MCP servers in sandboxes" in cli("doctor", "--quick").stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--sandbox", "bubblewarp", "--", "true"], "did you mean bubblewrap"),
        (["--read", "/opt", "--", "true"], "set --sandbox, too"),
        (["--sandbox", "bubblewrap", "--url", "https://example.com/mcp"], "one at a URL runs elsewhere"),
        (["--sandbox", "docker", "--", "true"], "docker needs an image"),
        (["--sandbox", "bubblewrap", "--read", "/etc", "--", "true"], "/etc belongs to the host"),
    ],
    ids=str,
)
def test_what_cannot_be_is_not_added(cli: Any, tmp_path: Path, words: list[str], why: str) -> None:
    """The file stays as it is."""
    file = tmp_path / "toolexec.toml"
    file.write_text(HEAD)
    done = cli("backend", "add", "two", "-c", file, *words)
    assert (done.exit_code, why in " ".join(done.stderr.replace("│", " ").split())) == (2, True), done.stderr
    assert file.read_text() == HEAD


@pytest.mark.full
async def test_a_server_in_a_sandbox_comes_changes_and_goes(cli: Any, tmp_path: Path) -> None:
    """While a session goes on: added with its sandbox, started again in a new one, changed by the file, removed."""
    require_bwrap()
    file = tmp_path / "toolexec.toml"
    file.write_text(HEAD)

    async def perform(*words: str, after: tuple[str, ...] = ()) -> dict[str, Any]:
        done = await asyncio.to_thread(cli, *words, "--json", "-c", file, *after)
        assert done.exit_code == 0, done.stdout + done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    async def status() -> dict[str, Any]:
        listed = (await perform("backend", "list"))["backends"]
        return next(each["info"] for each in listed if each["name"] == "s")

    async with live_server(file) as served, httpx2.AsyncClient(timeout=60, verify=False) as client:
        caller = Caller(served.url, client)
        await caller.open()
        words = ("--sandbox", "bubblewrap", "--", "python3", "-c", TINY)
        added = await perform("backend", "add", "s", after=words)
        assert added["backend"]["available"]
        assert 'sandbox = "bubblewrap"' in file.read_text()
        assert "65534" in str(await caller.call("s:user", of=""))
        assert "kept" in str(await caller.call("s:keep", of="kept"))
        before = await status()
        assert before["sandbox"] == "bubblewrap"
        await perform("backend", "restart", "s")
        assert "FileNotFoundError" in str(await caller.call("s:look", of="/work/kept"))
        write(file, file.read_text().replace('sandbox = "bubblewrap"', 'sandbox = { memory_bytes = "48M" }'))
        assert "servers changed: s" in (await perform("reload"))["text"]
        with pytest.raises(AssertionError, match="connection_lost"):
            await caller.call("s:grow", of="")
        assert "65534" in str(await caller.call("s:user", of=""))
        info = await status()
        assert "killed for its memory: sandbox.memory_bytes is 48 MiB" in info["last_error"]  # for operators alone
        pid = info["pid"]
        await perform("backend", "remove", "s")
        assert file.read_text() == HEAD
        await until(lambda: not Path(f"/proc/{pid}").exists())
