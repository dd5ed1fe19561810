"""`toolexec init`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.config.commands import call

from toolexec.config.load import load_settings

TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory of its own, apart from the directory that the command runs in."""
    home = tmp_path / "home"
    (home / ".cursor").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(tmp_path / "work")
    return home


def put(path: Path, servers: dict[str, object]) -> None:
    path.write_text(json.dumps({"mcpServers": servers}))


def test_servers_are_taken_over_without_their_secrets(home: Path) -> None:
    """The file is valid, for its owner alone, and says which variables to set; no secret is printed."""
    put(
        home / ".cursor/mcp.json",
        {"git": {"command": "x", "env": {"GITHUB_TOKEN": TOKEN}}, "bad": {}, "plain": {"command": "y"}},
    )
    before = (home / ".cursor/mcp.json").read_bytes()
    done = call("init")
    assert done.exit_code == 0, done.output
    text = Path("toolexec.toml").read_text()
    assert TOKEN not in text + done.output
    assert Path("toolexec.toml").stat().st_mode & 0o077 == 0
    assert "# Set GITHUB_TOKEN: what looked like a secret was not copied.\n[mcpServers.git]" in text
    assert "wrote toolexec.toml: 2 servers" in done.stdout
    assert "set GITHUB_TOKEN: it stands for env GITHUB_TOKEN of git" in done.stderr
    assert "'bad'" in done.stderr
    assert (home / ".cursor/mcp.json").read_bytes() == before
    loaded = load_settings(["toolexec.toml"])
    assert [server.name for server in loaded.servers] == ["git", "plain"]
    assert set(loaded.origins.values()) == {"default"}
    assert list(Path().iterdir()) == [Path("toolexec.toml")]
    assert call("config", "validate").exit_code == 0


def test_a_file_that_is_there_stays() -> None:
    """Unless it is said that it may go."""
    Path("toolexec.toml").write_text("# mine\n")
    done = call("init")
    assert done.exit_code == 2
    assert "toolexec.toml is there already; --force writes over it" in done.stderr
    assert Path("toolexec.toml").read_text() == "# mine\n"
    assert call("init", "--force").exit_code == 0
    assert Path("toolexec.toml").read_text() != "# mine\n"


def test_without_other_programs_it_shows_how_to_add_a_server() -> None:
    """As a comment."""
    assert call("init", "-o", "other.toml").exit_code == 0
    assert "# [mcpServers.time]" in Path("other.toml").read_text()


def test_what_was_done_as_json(home: Path) -> None:
    """For programs."""
    put(home / ".cursor/mcp.json", {"git": {"command": "x", "env": {"GITHUB_TOKEN": TOKEN}}})
    (Path(".mcp.json")).write_text("{")
    document = json.loads(call("init", "--json").stdout)
    assert document["file"] == "toolexec.toml"
    assert [(each["name"], each["from"], each["variables"]) for each in document["servers"]] == [
        ("git", "Cursor", {"GITHUB_TOKEN": "env GITHUB_TOKEN"})
    ]
    assert len(document["problems"]) == 1


@pytest.mark.parametrize(
    ("name", "message"), [("a.yaml", "must end with .toml"), ("gone/a.toml", "cannot write gone/a.toml")]
)
def test_a_place_that_cannot_be_written_is_refused(name: str, message: str) -> None:
    """With the reason."""
    done = call("init", "--output", name)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_directory_is_no_file() -> None:
    """Nothing is left behind."""
    Path("a.toml").mkdir()
    done = call("init", "--output", "a.toml", "--force")
    assert done.exit_code == 2
    assert "cannot write a.toml" in done.stderr
    assert list(Path().iterdir()) == [Path("a.toml")]
