"""The commented file, the shown settings, and the table of the documents."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from toolexec.config.blocks import BLOCKS, KEYS
from toolexec.config.load import load_settings
from toolexec.config.template import (
    key_table,
    render_server,
    shown_servers,
    shown_settings,
    template,
    toml_key,
    toml_value,
)

GUIDE = Path(__file__).parents[2] / "docs" / "config.md"
EXAMPLES = ("sources.python", "sources.include", "sources.skills", "policy.rules", "auth.api_keys")


def test_the_template_says_nothing_but_names_everything() -> None:
    """The template is valid, changes no setting, and has every key once as a comment."""
    text = template()
    Path("a.toml").write_text(text)
    loaded = load_settings(["a.toml"])
    assert set(loaded.origins.values()) == {"default"}
    assert re.findall(r"^\[([\w.]+)\]$", text, re.MULTILINE) == list(BLOCKS)
    for key in KEYS.values():
        assert text.count(f"\n# {key.name} = ") >= 1
    assert all(len(line) <= 120 for line in text.splitlines())


def test_the_template_with_its_comments_taken_away_holds() -> None:
    """Each commented value is the default, and valid where it stands."""
    text = re.sub(r"^# (\w+ = )", r"\1", template(), flags=re.MULTILINE)
    text = text.replace('"..."', f'"{"ab" * 32}"')
    Path("cursor.json").write_text('{"mcpServers": {}}')
    Path("app.py").touch()
    Path("skills").mkdir()
    text = text.replace("~/.cursor/mcp.json", "cursor.json")
    left_out = ("[auth.jwt]", "[auth.sign_in]", "[mcpServers", "[tools", "[endpoints", "[queues", "[providers")
    text = "\n\n".join(part for part in text.split("\n\n") if not any(word in part for word in left_out))
    Path("a.toml").write_text(text)
    data = tomllib.loads(text)
    assert data["limits"]["call_timeout"] == 30
    loaded = load_settings(["a.toml"])
    for path, value in loaded.values.items():
        if path not in EXAMPLES and not path.startswith(("auth.jwt.", "auth.sign_in.")):
            assert value.value == KEYS[path].default, path
            assert value.layer == "file", path


@pytest.mark.parametrize(
    "value", ["", 'a"b\\c\n\x07\x7f€😀', 1, 2.5, 1e300, True, [], ["a", [1]], {}, {"a b": {"c": "d"}}]
)
def test_values_are_written_as_toml(value: object) -> None:
    """Written values read back the same."""
    assert tomllib.loads(f"{toml_key('the key')} = {toml_value(value)}") == {"the key": value}


def test_null_is_no_toml() -> None:
    """Refuses null, which TOML does not have."""
    with pytest.raises(TypeError, match="NoneType"):
        toml_value(None)


def test_a_server_is_written_with_its_notes() -> None:
    """As comments above it."""
    text = render_server("my server", {"command": "x", "env": {"A": "b"}}, ["from here", ""])
    assert text == '# from here\n# \n[mcpServers."my server"]\ncommand = "x"\nenv = { A = "b" }'


def test_settings_are_shown_without_secrets() -> None:
    """Hashes of keys, environments, headers and queries; references stay, as they say nothing."""
    Path("a.toml").write_text(
        f"""
        [auth]
        api_keys = [{{ id = "ann", sha256 = "{"ab" * 32}" }}]
        [durable]
        postgres = "postgresql://me:hush-hush@x.example.com/runs"
        [mcpServers.a]
        command = "x"
        args = ["--verbose"]
        env = {{ A = "hush-hush", B = "${{B}}", C = "secretref:file:/x" }}
        [mcpServers.b]
        url = "https://me:hush-hush@x.example.com:81/mcp?key=hush-hush"
        headers = {{ Authorization = "Bearer ${{T}}", X = "Bearer hush-hush" }}
        [mcpServers.c]
        url = "${{ADDRESS}}"
        """
    )
    loaded = load_settings(["a.toml"])
    shown = shown_settings(loaded)
    servers = shown_servers(loaded)
    text = json.dumps([shown, servers])
    assert "hush" not in text
    assert "abab" not in text
    assert shown["auth.api_keys"] == [{"id": "ann", "sha256": "[REDACTED]"}]
    assert shown["durable.postgres"] == "[REDACTED]"
    assert servers["a"]["env"] == {"A": "[REDACTED]", "B": "${B}", "C": "secretref:file:/x"}
    assert servers["a"]["args"] == ["--verbose"]
    assert servers["b"]["url"] == "https://x.example.com:81/mcp?[REDACTED]"
    assert servers["b"]["headers"] == {"Authorization": "Bearer ${T}", "X": "[REDACTED]"}
    assert servers["c"]["url"] == "${ADDRESS}"


def test_odd_addresses_are_not_shown() -> None:
    """Rather than to guess what of them is secret."""
    Path("a.toml").write_text('[mcpServers.a]\nurl = "${A}hush"\n[mcpServers.b]\nurl = "http://x:${PORT}/"\n')
    servers = shown_servers(load_settings(["a.toml"]))
    assert [server["url"] for server in servers.values()] == ["[REDACTED]", "[REDACTED]"]


def test_the_table_of_the_documents_is_true() -> None:
    """`docs/config.md` has the table that comes of the schema."""
    assert key_table() in GUIDE.read_text()
