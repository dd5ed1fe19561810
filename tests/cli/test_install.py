"""`toolexec install`: the files of clients, on homes of their own."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec.config.clients import CLIENTS, Machine
from toolexec.config.formats import parse_json

Cli = Callable[..., Any]
PLACES = {
    "claude": (".claude.json", ".mcp.json"),
    "claude-desktop": (".config/Claude/claude_desktop_config.json", None),
    "cursor": (".cursor/mcp.json", ".cursor/mcp.json"),
    "vscode": (".config/Code/User/mcp.json", ".vscode/mcp.json"),
    "codex": (".codex/config.toml", ".codex/config.toml"),
    "windsurf": (".codeium/windsurf/mcp_config.json", None),
    "zed": (".config/zed/settings.json", ".zed/settings.json"),
    "gemini": (".gemini/settings.json", ".gemini/settings.json"),
}
KEYS = {"vscode": "servers", "codex": "mcp_servers", "zed": "context_servers"}
FIXED = {"claude": {"type": "stdio"}, "vscode": {"type": "stdio"}, "zed": {"source": "custom"}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with no settings of any program, in a directory with an empty file of settings."""
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "toolexec.toml").write_text("")
    return home


def parsed(file: Path) -> Any:
    text = file.read_text()
    return tomllib.loads(text) if file.suffix == ".toml" else parse_json(text).data


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_gets_its_file(cli: Cli, home: Path, tmp_path: Path, client: str) -> None:
    """The file is where the client looks for it, has its format, and only the user may read one in the home; a second
    time nothing changes, and --undo takes the file away again."""
    user, project = PLACES[client]
    for scope, file in (("user", home / user), ("project", tmp_path / project if project else None)):
        words = ("install", client, "--scope", scope)
        if file is None:
            done = cli(*words, "--yes")
            assert (done.exit_code, done.stdout) == (2, "")
            assert "has no file for a project" in done.stderr
            continue
        done = cli(*words, "--yes")
        assert done.exit_code == 0, done.output
        entry = parsed(file)[KEYS.get(client, "mcpServers")]["toolexec"]
        assert Path(entry["command"]).is_absolute()
        assert entry["args"][-3:] == ["serve", "-c", str(tmp_path / "toolexec.toml")]
        rest = {key: value for key, value in entry.items() if key not in ("command", "args")}
        assert rest == FIXED.get(client, {})
        if scope == "user":
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        before = file.read_bytes()
        assert "is set up already" in cli(*words, "--yes").stdout
        assert file.read_bytes() == before
        assert cli(*words, "--undo", "--yes").exit_code == 0
        assert not file.exists()


def test_the_entry_starts_this_program(cli: Cli, home: Path) -> None:
    """The command in the file is the one that wrote it, by its whole path."""
    cli("install", "cursor", "--yes")
    entry = parsed(home / ".cursor/mcp.json")["mcpServers"]["toolexec"]
    words = entry["args"][: entry["args"].index("serve")]
    done = subprocess.run([entry["command"], *words, "--version"], capture_output=True, text=True, check=True, env={})
    assert done.stdout.startswith("toolexec ")


ZED = """// Zed settings
{
  "theme": "One Dark", // mine
  "context_servers": {
    "git": { "command": "git-mcp" },
  },
}
"""
CODEX = """# mine
model = "m" # best

[mcp_servers.git]
command = "git-mcp" # keep
"""


@pytest.mark.parametrize(("client", "text"), [("zed", ZED), ("codex", CODEX)])
def test_what_a_person_wrote_stays(cli: Cli, home: Path, client: str, text: str) -> None:
    """Comments and other servers stay; --undo gives the file back to the byte, and after an edit takes only the entry
    out."""
    file = home / PLACES[client][0]
    file.parent.mkdir(parents=True)
    file.write_text(text)
    done = cli("install", client, "--yes")
    assert done.exit_code == 0, done.output
    written = file.read_text()
    removed = [line[1:] for line in done.stderr.splitlines() if line.startswith("-") and not line.startswith("--- ")]
    assert removed == []
    own = [line for line in text.splitlines() if line]
    assert [line for line in written.splitlines() if line in own] == own
    assert {"git", "toolexec"} == set(parsed(file)[KEYS[client]])
    kept = Path(
        next(line for line in done.stderr.splitlines() if line.startswith("backup of the file: ")).split(": ")[1]
    )
    assert kept.read_text() == text
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "as it was before" in cli("install", client, "--undo", "--yes").stdout
    assert file.read_text() == text
    cli("install", client, "--yes")
    edited = file.read_text().replace("git-mcp", "git-mcp-2")
    file.write_text(edited)
    done = cli("install", client, "--undo", "--yes")
    assert "the rest was kept" in done.stdout
    assert file.read_text() == text.replace("git-mcp", "git-mcp-2")
    done = cli("install", client, "--undo", "--yes")
    assert done.exit_code == 2
    assert "there is nothing to undo" in done.stderr


def test_what_a_person_wrote_into_the_entry_stays(cli: Cli, home: Path, tmp_path: Path) -> None:
    """Another file of settings changes the arguments, and neither the values that were filled in nor other keys."""
    (tmp_path / "toolexec.toml").write_text('[mcpServers.a]\ncommand = "a"\nenv = { K = "${A_KEY}", L = "${B_KEY}" }\n')
    file = home / PLACES["claude-desktop"][0]
    cli("install", "claude-desktop", "--yes")
    assert parsed(file)["mcpServers"]["toolexec"]["env"] == {
        "A_KEY": "PUT-ITS-VALUE-HERE",
        "B_KEY": "PUT-ITS-VALUE-HERE",
    }
    text = file.read_text().replace('"A_KEY": "PUT-ITS-VALUE-HERE"', '"A_KEY": "mine"')
    file.write_text(text.replace('"command"', '"disabled": true,\n      "command"'))
    (tmp_path / "toolexec.toml").rename(tmp_path / "other.toml")
    assert cli("install", "claude-desktop", "--yes", "-c", "other.toml").exit_code == 0
    entry = parsed(file)["mcpServers"]["toolexec"]
    assert entry["args"][-1] == str(tmp_path / "other.toml")
    assert entry["env"] == {"A_KEY": "mine", "B_KEY": "PUT-ITS-VALUE-HERE"}
    assert entry["disabled"] is True


def test_no_secret_is_copied(cli: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client looks a variable up, asks for it, passes it on, or leaves it to the user."""
    monkeypatch.setenv("A_KEY", "the-secret")
    (tmp_path / "toolexec.toml").write_text('[mcpServers.a]\ncommand = "a"\nenv = { K = "${A_KEY}" }\n')
    found: dict[str, Any] = {}
    for client in CLIENTS:
        done = cli("install", client, "--yes")
        assert done.exit_code == 0, done.output
        file = home / PLACES[client][0]
        assert "the-secret" not in file.read_text() + done.output
        entry = parsed(file)[KEYS.get(client, "mcpServers")]["toolexec"]
        found[client] = entry.get("env", {}).get("A_KEY", entry.get("env_vars"))
    assert found == {
        "claude": "${A_KEY:-PUT-ITS-VALUE-HERE}",
        "claude-desktop": "PUT-ITS-VALUE-HERE",
        "cursor": "${env:A_KEY}",
        "vscode": "${input:A_KEY}",
        "codex": ["A_KEY"],
        "windsurf": "${env:A_KEY}",
        "zed": "PUT-ITS-VALUE-HERE",
        "gemini": "${A_KEY}",
    }
    asked = parsed(home / PLACES["vscode"][0])["inputs"]
    assert asked == [{"type": "promptString", "id": "A_KEY", "description": "A_KEY, for toolexec", "password": True}]


def test_vscode_keeps_the_questions_of_others(cli: Cli, home: Path, tmp_path: Path) -> None:
    """The question for a variable is added to those that are there, and goes with the entry."""
    (tmp_path / "toolexec.toml").write_text('[mcpServers.a]\ncommand = "a"\nenv = { K = "${A_KEY}" }\n')
    file = home / PLACES["vscode"][0]
    file.parent.mkdir(parents=True)
    text = '{\n  "inputs": [\n    {"id": "x", "type": "promptString"} // x\n  ],\n  "servers": {}\n}\n'
    file.write_text(text)
    cli("install", "vscode", "--yes")
    assert [each["id"] for each in parsed(file)["inputs"]] == ["x", "A_KEY"]
    file.write_text(file.read_text().replace("// x", "// y"))
    assert cli("install", "vscode", "--undo", "--yes").exit_code == 0
    assert parsed(file) == {"inputs": [{"id": "x", "type": "promptString"}], "servers": {}}
    assert "// y" in file.read_text()


@pytest.mark.parametrize(
    ("client", "text", "where"),
    [
        ("cursor", '{\n  "mcpServers": {\n', "is not JSON, line 3"),
        ("cursor", '{\n  "mcpServers": 1\n}', "line 2: mcpServers is not a table of servers"),
        ("cursor", "[]", "is not JSON, line 1"),
        ("codex", "a = 1\nb = \n", "is not TOML, line 2"),
        ("cursor", '{"mcpServers": {"toolexec": {"url": "http://x"}}}', "reached by its address"),
        ("codex", 'mcp_servers = { git = { command = "x" } }\n', "in a form that cannot be changed"),
    ],
)
def test_a_file_that_cannot_be_changed_is_refused_and_stays(
    cli: Cli, home: Path, client: str, text: str, where: str
) -> None:
    """The error says where it is wrong, and what to do."""
    file = home / PLACES[client][0]
    file.parent.mkdir(parents=True)
    file.write_text(text)
    done = cli("install", client, "--yes")
    assert (done.exit_code, done.stdout) == (2, "")
    assert where in done.stderr
    assert "it was not touched" in done.stderr
    assert file.read_text() == text


def test_nothing_is_written_without_a_yes(cli: Cli, home: Path) -> None:
    """Where there is no terminal to ask, the diff is shown, and --yes named; --print writes nothing either."""
    done = cli("install", "gemini")
    assert done.exit_code == 2
    assert '+    "toolexec": {' in done.stderr
    assert "--yes writes without asking" in done.stderr
    done = cli("install", "gemini", "--print")
    assert list(json.loads(done.stdout)["mcpServers"]) == ["toolexec"]
    done = cli("install", "codex", "--print", "--name", "mine")
    assert list(tomllib.loads(done.stdout)["mcp_servers"]) == ["mine"]
    assert cli("install", "codex", "--name", "a.b").exit_code == 2
    assert [*home.iterdir()] == []


@pytest.mark.full
@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"n\n", 1)])
def test_a_person_is_asked(home: Path, tmp_path: Path, answer: bytes, code: int) -> None:
    """At a terminal, the file is written after a yes, and only then."""
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    done = subprocess.run(
        [sys.executable, "-m", "toolexec", "install", "cursor"],
        stdin=theirs,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    os.close(ours)
    os.close(theirs)
    assert done.returncode == code, done.stderr
    assert "Write " in done.stderr
    assert (home / ".cursor/mcp.json").exists() is (code == 0)


def test_the_clients_are_listed(cli: Cli, home: Path) -> None:
    """Each with its file and state, within 80 columns."""
    (home / ".cursor").mkdir()
    (home / ".gemini").mkdir()
    (home / ".gemini/settings.json").write_text("{")
    cli("install", "zed", "--yes")
    done = cli("install", COLUMNS="80")
    assert done.exit_code == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    states = {
        (each["client"], each["scope"]): each["state"]
        for each in json.loads(cli("install", "--json").stdout)["clients"]
    }
    assert states["zed", "user"] == "set up"
    assert states["cursor", "user"] == "not set up"
    assert states["gemini", "user"] == "broken"
    assert states["codex", "user"] == "not found"


def test_json_says_what_was_done(cli: Cli, home: Path) -> None:
    """One document: the file, the diff, and where the file is kept as it was."""
    data = json.loads(cli("install", "claude", "--yes", "--json").stdout)
    assert data["changed"] is True
    assert data["file"] == str(home / ".claude.json")
    assert data["backup"] is None
    assert json.loads(cli("install", "claude", "--json", "--undo").stdout)["error"]["code"] == "configuration"


@pytest.mark.parametrize(
    ("platform", "environment", "client", "file"),
    [
        ("darwin", {}, "claude-desktop", "/h/Library/Application Support/Claude/claude_desktop_config.json"),
        ("darwin", {}, "vscode", "/h/Library/Application Support/Code/User/mcp.json"),
        ("darwin", {"XDG_CONFIG_HOME": "/c"}, "zed", "/h/.config/zed/settings.json"),
        ("win32", {"APPDATA": "/a"}, "claude-desktop", "/a/Claude/claude_desktop_config.json"),
        ("win32", {"APPDATA": "/a"}, "zed", "/a/Zed/settings.json"),
        ("linux", {"XDG_CONFIG_HOME": "/c"}, "zed", "/c/zed/settings.json"),
        ("linux", {"XDG_CONFIG_HOME": "/c"}, "vscode", "/c/Code/User/mcp.json"),
        ("linux", {"CODEX_HOME": "/x"}, "codex", "/x/config.toml"),
        ("linux", {"CLAUDE_CONFIG_DIR": "/x"}, "claude", "/x/.claude.json"),
    ],
)
def test_each_platform_has_its_places(platform: str, environment: dict[str, str], client: str, file: str) -> None:
    """Where a program keeps its file follows the system and the variables that the program reads."""
    machine = Machine(home=Path("/h"), directory=Path("/d"), platform=platform, environment=environment)
    assert CLIENTS[client].file("user", machine) == Path(file)
