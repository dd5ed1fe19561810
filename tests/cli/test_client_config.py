"""`toolexec client-config`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.config.commands import call

from toolexec.backend.secrets import SecretResolver
from toolexec.cli import client_config as module
from toolexec.errors import SecretError


def document(*words: object) -> dict[str, Any]:
    done = call("client-config", *words)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "toolexec.toml"
    path.write_text("")
    return path


@pytest.mark.parametrize(("client", "key"), [("claude", "mcpServers"), ("cursor", "mcpServers"), ("vscode", "servers")])
def test_each_client_gets_its_form(file: Path, client: str, key: str) -> None:
    """With whole paths: the client starts it from any directory. Where to paste it is on stderr."""
    done = call("client-config", client, "-c", "toolexec.toml")
    entry = json.loads(done.stdout)[key]["toolexec"]
    assert entry["args"][-3:] == ["serve", "-c", str(file)]
    assert Path(entry["command"]).is_absolute()
    assert entry.get("type") == ("stdio" if client == "vscode" else None)
    assert "paste it into" in done.stderr


def test_the_command_works(file: Path) -> None:
    """The printed command starts the very program that printed it."""
    entry = document("claude")["mcpServers"]["toolexec"]
    words = [word for word in entry["args"] if word not in ("serve", "-c", str(file))]
    done = subprocess.run([entry["command"], *words, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("toolexec ")


def test_without_an_installed_command_python_starts_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a module."""
    monkeypatch.setattr(module.shutil, "which", lambda *_, **__: None)
    entry = document("cursor", "--name", "mine")["mcpServers"]["mine"]
    assert (entry["command"], entry["args"]) == (sys.executable, ["-m", "toolexec", "serve", "-c", str(file)])


@pytest.mark.parametrize(
    ("settings", "words", "entry"),
    [
        ("", [], {"type": "http", "url": "http://127.0.0.1:8080/mcp"}),
        ("[server]\nport = 9\npath = '/x'\nhost = '::1'", [], {"type": "http", "url": "http://[::1]:9/x"}),
        ("", ["--url", "https://x.example.com/mcp"], {"type": "http", "url": "https://x.example.com/mcp"}),
        ("", ["--transport", "sse"], {"type": "sse", "url": "http://127.0.0.1:8080/sse"}),
    ],
)
def test_a_running_server_is_reached_by_its_address(
    file: Path, settings: str, words: list[str], entry: dict[str, Any]
) -> None:
    """As the settings say, or as it is given."""
    file.write_text(settings)
    found = document("vscode", "--transport", "http", *words)["servers"]["toolexec"]
    assert found == entry
    claude = document("claude", "--transport", "http", *words)["mcpServers"]["toolexec"]
    assert claude == entry
    cursor = document("cursor", "--transport", "http", *words)["mcpServers"]["toolexec"]
    assert cursor == {"url": entry["url"]}


def test_a_key_that_is_needed_has_its_place(file: Path) -> None:
    """Leaves a placeholder for the key; the address is the one that the server reports."""
    file.write_text(
        '[server]\nhost = "0.0.0.0"\n[http]\nbehind_proxy = true\n[auth]\nresource_url = "https://x.example.com/mcp"\n'
        f'api_keys = [{{ id = "a", sha256 = "{"ab" * 32}" }}]\n'
    )
    entry = document("cursor", "-t", "http")["mcpServers"]["toolexec"]
    assert entry == {"url": "https://x.example.com/mcp", "headers": {"Authorization": "Bearer PUT-YOUR-KEY-HERE"}}


def test_a_wildcard_is_no_address(file: Path) -> None:
    """The client on this machine uses the loopback."""
    file.write_text(
        '[server]\nhost = "0.0.0.0"\n[http]\ntls_cert = "c.pem"\nallowed_hosts = ["x.example.com"]\n[auth]\n'
        f'api_keys = [{{ id = "a", sha256 = "{"ab" * 32}" }}]\n'
    )
    assert document("cursor", "-t", "http")["mcpServers"]["toolexec"]["url"] == "https://127.0.0.1:8080/mcp"


def test_without_tools_there_is_nothing_to_start() -> None:
    """The error says what to do."""
    done = call("client-config", "claude")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "no tools" in done.stderr


SERVERS = """
[mcpServers.a]
command = "a"
args = ["--root", "${HOME}", "--zone", "${ZONE:-utc}", "--key=${A_KEY}", "$${NOT}", "$PLAIN"]
env = { API_KEY = "${API_KEY}", B = "secretref:env:B_KEY", C = "${env:C_KEY}" }
[mcpServers.b]
url = "https://example.com/${B_PATH}"
headers = { Authorization = "Bearer secretref:env:B_TOKEN" }
[mcpServers.off]
command = "a"
env = { OFF = "${OFF}" }
disabled = true
"""
NEEDED = ["A_KEY", "API_KEY", "B_KEY", "C_KEY", "B_PATH", "B_TOKEN"]


@pytest.mark.parametrize("client", ["claude", "vscode", "cursor"])
def test_variables_of_the_settings_are_handed_over(file: Path, client: str) -> None:
    """A program with windows does not have those of a shell: what is printed names each, and what to do about it."""
    file.write_text(SERVERS)
    done = call("client-config", client, "-c", file)
    data = json.loads(done.stdout)
    env = data["servers" if client == "vscode" else "mcpServers"]["toolexec"]["env"]
    assert sorted(env) == sorted(NEEDED)
    if client == "vscode":
        assert {f"${{input:{each['id']}}}" for each in data["inputs"]} == set(env.values())
        assert all(each["password"] for each in data["inputs"])
    else:
        assert set(env.values()) == {"PUT-ITS-VALUE-HERE"}
    assert "API_KEY (mcpServers.a.env.API_KEY)" in done.stderr
    assert "secretref:keyring" in done.stderr


def test_with_these_variables_every_reference_leads_somewhere(file: Path) -> None:
    """Nothing else is needed by what the settings say; a place that was not filled in is told."""
    file.write_text(SERVERS)
    env = document("claude", "-c", file)["mcpServers"]["toolexec"]["env"]
    strings = re.findall(r'"([^"]*)"', SERVERS.partition("[mcpServers.off]")[0])
    alone = SecretResolver(environment={"HOME": "/x", **dict.fromkeys(env, "given")})
    assert all(
        "${" not in text or "${NOT}" in text for text in alone.resolve_all(dict(enumerate(strings)), "x").values()
    )
    with pytest.raises(SecretError, match="A_KEY is still PUT-ITS-VALUE-HERE"):
        SecretResolver(environment=env).resolve("${A_KEY}", "x")


def test_a_running_server_needs_no_variables(file: Path) -> None:
    """A running server needs no variables beyond those it was started with."""
    file.write_text(SERVERS)
    assert "env" not in document("claude", "-c", file, "--transport", "http")["mcpServers"]["toolexec"]
