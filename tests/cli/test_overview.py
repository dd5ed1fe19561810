"""`toolexec` alone, and what it knows without a connection."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with no settings of any program, and no cache."""
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOOLEXEC_CACHE", str(tmp_path / "cache"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def settings(place: Path, **servers: str) -> None:
    """Write an mcp.json with servers that are commands."""
    entries = {name: {"command": command} for name, command in servers.items()}
    (place / "mcp.json").write_text(json.dumps({"mcpServers": entries}))


def test_with_nothing_it_says_how_to_begin(cli: Cli) -> None:
    """That there is no file is fine: the exit code is 0, and the next step is init."""
    done = cli()
    assert done.exit_code == 0
    assert "none: no file in this directory" in done.stdout
    assert "Next: toolexec init" in done.stdout


def test_it_shows_what_is_set_up_and_starts_nothing(cli: Cli, tmp_path: Path) -> None:
    """Servers are named and not started; a Python file is named and not run."""
    (tmp_path / "app.py").write_text("raise SystemExit('it was run')\n")
    (tmp_path / "toolexec.toml").write_text(
        '[sources]\npython = ["app.py"]\n[mcpServers.git]\ncommand = "no-such-command"\n'
        '[mcpServers.off]\ncommand = "x"\ndisabled = true\n'
    )
    data = json.loads(cli("--json").stdout)
    assert data["servers"] == ["git"]
    assert data["switchedOff"] == ["off"]
    assert data["tools"] is None
    assert (data["problems"], data["next"]) == ([], "toolexec list")
    done = cli()
    assert "not counted yet" in done.stdout


def test_tools_are_counted_by_the_command_that_had_them(cli: Cli, tmp_path: Path, tools_file: Path) -> None:
    """After `list`, it knows how many tools there were, and which servers could not be reached; until a file changes."""
    (tmp_path / "toolexec.toml").write_text(
        f'[sources]\npython = ["{tools_file.name}"]\n[mcpServers.dead]\ncommand = "no-such-command"\n'
    )
    count = json.loads(cli("list", "--json").stdout)["count"]
    data = json.loads(cli("--json").stdout)
    assert data["tools"] == count > 0
    assert [each.split(":")[0] for each in data["problems"]] == ["dead could not be reached"]
    assert data["next"] == "toolexec check"
    (tmp_path / "toolexec.toml").touch()
    later = (tmp_path / "toolexec.toml").stat().st_mtime + 10
    import os

    os.utime(tmp_path / "toolexec.toml", (later, later))
    assert json.loads(cli("--json").stdout)["tools"] is None


def test_a_server_that_wants_a_login_is_the_next_step(cli: Cli, tmp_path: Path) -> None:
    """Where a command could not reach a server without one, the command that logs in is shown."""

    class Closed(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Closed) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"wiki": {"url": url}}}))
        cli("list")
        server.shutdown()
        thread.join()
    assert json.loads(cli("--json").stdout)["next"] == "toolexec login wiki"


def test_a_client_that_is_set_up_is_named(cli: Cli, tmp_path: Path) -> None:
    """The clients that start toolexec are listed; without one, that is the next step."""
    settings(tmp_path, time=sys.executable)
    cli("install", "cursor", "--yes")
    assert json.loads(cli("--json").stdout)["clients"] == ["Cursor"]


def test_mistakes_in_the_settings_are_shown(cli: Cli, tmp_path: Path) -> None:
    """Each with its place; the next step is check."""
    (tmp_path / "toolexec.toml").write_text("[server]\nport = 'x'\nhots = 1\n")
    data = json.loads(cli("--json").stdout)
    assert len(data["problems"]) == 2
    assert "toolexec.toml, line 2" in data["problems"][0]
    assert data["next"] == "toolexec check"


def test_it_fits_80_columns(cli: Cli, tmp_path: Path) -> None:
    """Long names and reasons are folded, and nothing in them steers a terminal."""
    settings(tmp_path, **{f"server-{number}-with-a-long-name": "x" for number in range(9)}, **{"e\x1b[31m": "x"})
    done = cli(COLUMNS="80")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
