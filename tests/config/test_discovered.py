"""The servers of other programs."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path
from typing import Any

import pytest

from toolexec.config.discovered import DiscoveredServer, Places, find_servers

TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A home directory and a project, both empty."""
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    return Places(home=tmp_path / "home", directory=tmp_path / "project", platform="linux", environment={})


def put(path: Path, data: dict[str, Any] | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))


def one(places: Places, entry: dict[str, Any], name: str = "git") -> DiscoveredServer:
    """Return one server of Cursor as it is taken over."""
    put(places.home / ".cursor/mcp.json", {"mcpServers": {name: entry}})
    (found,), problems = find_servers(places)
    assert problems == []
    return found


def test_all_programs_are_looked_at(places: Places) -> None:
    """Claude Desktop, Claude Code, VS Code and Cursor, of the user and of the project."""
    entry = {"command": "x"}
    files = {
        places.home / ".config/Claude/claude_desktop_config.json": {"mcpServers": {"a": entry}},
        places.directory / ".mcp.json": {"mcpServers": {"b": entry}},
        places.home / ".claude.json": {
            "mcpServers": {"c": entry},
            "projects": {str(places.directory): {"mcpServers": {"d": entry}}},
        },
        places.directory / ".vscode/mcp.json": '{"servers": {"e": {"command": "x"}}, // mine\n}',
        places.home / ".config/Code/User/mcp.json": {"servers": {"f": entry}},
        places.home / ".config/Code/User/settings.json": {"mcp": {"servers": {"g": entry}}},
        places.directory / ".cursor/mcp.json": {"mcpServers": {"h": entry}},
        places.home / ".cursor/mcp.json": {"mcpServers": {"i": entry}},
    }
    for path, data in files.items():
        put(path, data)
    before = {path: path.read_bytes() for path in files}
    found, problems = find_servers(places)
    assert [server.name for server in found] == list("abcdefghi")
    assert problems == []
    assert {path: path.read_bytes() for path in files} == before


@pytest.mark.parametrize(
    ("platform", "environment", "directory"),
    [
        ("darwin", {}, "home/Library/Application Support"),
        ("win32", {}, "home/AppData/Roaming"),
        ("win32", {"APPDATA": "roaming"}, "roaming"),
        ("linux", {"XDG_CONFIG_HOME": "conf"}, "conf"),
    ],
)
def test_each_system_has_its_directories(
    tmp_path: Path, platform: str, environment: dict[str, str], directory: str
) -> None:
    """Of Claude Desktop and VS Code."""
    environment = {name: str(tmp_path / value) for name, value in environment.items()}
    places = Places(home=tmp_path / "home", directory=tmp_path, platform=platform, environment=environment)
    put(tmp_path / directory / "Claude/claude_desktop_config.json", {"mcpServers": {"a": {"command": "x"}}})
    put(tmp_path / directory / "Code/User/mcp.json", {"servers": {"b": {"command": "x"}}})
    assert [server.name for server in find_servers(places)[0]] == ["a", "b"]


def test_secrets_become_variables(places: Places) -> None:
    """In the environment, headers, arguments and addresses; what is no secret stays."""
    found = one(
        places,
        {
            "command": "npx",
            "args": [
                "-y",
                "server",
                "--token",
                "short",
                "--api-key=x1",
                f"{TOKEN}",
                "--port",
                "80",
                "https://u:pw@h/x",
                "--",
                "a",
            ],
            "env": {
                "GITHUB_TOKEN": TOKEN,
                "LOG_LEVEL": "debug",
                "OTHER": TOKEN,
                "MY_PASSWORD": "x",
                "N": 5,
                "HOME_DIR": "/srv/me",
            },
            "cwd": "work",
            "disabledTools": ["y"],
        },
    )
    text = json.dumps(found.entry | {"cwd": ""})  # the name of a temporary directory may hold anything
    for secret in (TOKEN, "short", "x1", "pw"):
        assert secret not in text
    assert found.entry["env"] == {
        "GITHUB_TOKEN": "${GITHUB_TOKEN}",
        "LOG_LEVEL": "debug",
        "OTHER": "${OTHER}",
        "MY_PASSWORD": "${MY_PASSWORD}",
        "N": 5,
        "HOME_DIR": "/srv/me",
    }
    assert found.entry["args"][:4] == ["-y", "server", "--token", "${GIT_TOKEN}"]
    assert found.entry["args"][4] == "--api-key=${GIT_API_KEY}"
    assert found.entry["args"][6:8] == ["--port", "80"]
    assert found.entry["cwd"] == str(places.home / ".cursor/work")
    assert found.variables["GIT_TOKEN"] == "args token"
    assert "disabledTools" not in found.entry
    assert found.problem == ""


def test_secrets_of_remote_servers_become_variables(places: Places) -> None:
    """The kind of the header stays, and so does the rest of the address."""
    found = one(
        places,
        {
            "serverUrl": "https://x.example.com/mcp?api_key=hush&v=1",
            "headers": {"Authorization": "Bearer hush", "X-Key": "hush", "Accept": "json", "X-Ready": "${ALREADY}"},
            "type": "http",
        },
        "my server",
    )
    assert found.name == "my-server"
    assert found.entry["url"] == "https://x.example.com/mcp?api_key=${MY_SERVER_API_KEY}&v=1"
    assert found.entry["headers"] == {
        "Authorization": "Bearer ${MY_SERVER_AUTHORIZATION}",
        "X-Key": "${MY_SERVER_X_KEY}",
        "Accept": "json",
        "X-Ready": "${ALREADY}",
    }
    assert "hush" not in json.dumps(found.variables)


@pytest.mark.parametrize("url", ["https://user:hush@x.example.com/", "http://[hush"])
def test_an_address_with_a_password_is_not_copied(places: Places, url: str) -> None:
    """Not in part either."""
    found = one(places, {"url": url})
    assert found.entry["url"] == "${GIT_URL}"


def test_forms_of_vs_code_are_settled(places: Places) -> None:
    """Its inputs become variables, its directory becomes the project's."""
    put(
        places.directory / ".vscode/mcp.json",
        {
            "servers": {
                "a": {
                    "command": "${workspaceFolder}/run",
                    "env": {"T": "${input:the-key}", "U": "${env:U}", "V": "a$$b", "W": None},
                }
            }
        },
    )
    (found,), _ = find_servers(places)
    assert found.entry["command"] == f"{places.directory}/run"
    assert found.entry["env"] == {"T": "${THE_KEY}", "U": "${env:U}", "V": "a$$$$b"}
    assert found.variables == {"THE_KEY": "env the-key"}


def test_servers_of_one_name_are_told_apart(places: Places) -> None:
    """The same one is there once; a third one is left out."""
    put(places.directory / ".mcp.json", {"mcpServers": {"git": {"command": "a"}}})
    put(places.directory / ".cursor/mcp.json", {"mcpServers": {"git": {"command": "a"}}})
    put(places.home / ".cursor/mcp.json", {"mcpServers": {"git": {"command": "b"}}})
    put(places.home / ".claude.json", {"mcpServers": {"git": {"command": "c"}}})
    put(places.home / ".config/Code/User/mcp.json", {"servers": {"git": {"command": "d"}}})
    put(places.home / ".config/Code/User/settings.json", {"mcp": {"servers": {"git": {"command": "e"}}}})
    found, _ = find_servers(places)
    assert [server.name for server in found if not server.problem] == [
        "git",
        "git-claude-code",
        "git-vs-code",
        "git-cursor",
    ]
    assert ["has the name of another one" in server.problem for server in found].count(True) == 1


def test_one_variable_stands_for_one_secret(places: Places) -> None:
    """Two servers with the same variable but other values get two."""
    env = [{"API_TOKEN": value} for value in ("one", "two", "one")]
    put(
        places.home / ".cursor/mcp.json",
        {"mcpServers": {f"s{n}": {"command": "x", "env": each} for n, each in enumerate(env)}},
    )
    found, _ = find_servers(places)
    assert [server.entry["env"]["API_TOKEN"] for server in found] == ["${API_TOKEN}", "${S1_API_TOKEN}", "${API_TOKEN}"]


def test_toolexec_itself_is_not_taken_over(places: Places) -> None:
    """Skips toolexec itself, which would otherwise serve itself."""
    servers = {
        "a": {"command": "/x/bin/toolexec", "args": ["serve"]},
        "b": {"command": "python", "args": ["-m", "toolexec", "serve"]},
        "c": {"command": "other"},
        "d": "no server",
    }
    put(places.home / ".cursor/mcp.json", {"mcpServers": servers})
    assert [server.name for server in find_servers(places)[0]] == ["c"]


def test_what_cannot_be_used_is_told(places: Places) -> None:
    """A broken file or an invalid server does not keep the others out."""
    put(places.directory / ".mcp.json", "{")
    put(
        places.home / ".claude.json",
        {"mcpServers": {"bad": {"args": []}, "worse": {"command": "x", "args": [None]}, "good": {"command": "x"}}},
    )
    put(places.home / ".cursor/mcp.json", '{"mcpServers": {"odd": {"command": "\\ud800"}}}')
    found, problems = find_servers(places)
    assert len(problems) == 1
    assert problems[0].startswith("Claude Code: ")
    assert "is not JSON" in problems[0]
    assert {server.name: bool(server.problem) for server in found} == {
        "bad": True,
        "worse": True,
        "good": False,
        "odd": True,
    }


@pytest.mark.parametrize("seed", range(20))
def test_keys_of_any_kind_are_seen(places: Places, seed: int) -> None:
    """Random ones under harmless names; words and paths are none."""
    rng = random.Random(seed)
    key = "a1" + "".join(rng.choices(string.ascii_letters + string.digits, k=30))
    found = one(
        places,
        {
            "command": "x",
            "env": {"SETTING": key, "WORDS": "just some plain words here", "WHERE": "/usr/share/dict/words1"},
        },
    )
    assert found.entry["env"] == {
        "SETTING": "${SETTING}",
        "WORDS": "just some plain words here",
        "WHERE": "/usr/share/dict/words1",
    }
