"""`toolexec config`."""

from __future__ import annotations

import io
import json
import tomllib
from pathlib import Path

import pytest
from tests.config.commands import call

from toolexec.cli.config_command import _show as show
from toolexec.cli.terminal import Screen
from toolexec.config.blocks import BLOCKS, KEYS
from toolexec.config.load import load_settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.toml"
    path.write_text(
        '[limits]\ncall_timeout = 5\n[mcpServers.git]\ncommand = "git"\nargs = ["--token", "x"]\nenv = { A_TOKEN = "hush-hush" }\n'
        '[[policy.rules]]\neffect = "deny"\nwhen = { x = { equals = "y" } }\n'
    )
    return path


def test_settings_are_shown_without_secrets(file: Path) -> None:
    """All settings, with those that have their default."""
    done = call("config", "show", "-c", file)
    assert done.exit_code == 0
    assert "hush" not in done.output
    assert "call_timeout = 5\n" in done.stdout
    assert '[mcpServers.git]\ncommand = "git"' in done.stdout
    assert all(f"[{block}]\n" in done.stdout for block in BLOCKS)


def test_origins_are_shown(file: Path) -> None:
    """Default, file and line, variable, flag."""
    done = call("config", "show", "--origin", "-c", file, "--set", "server.port=1", TOOLEXEC_SERVER__NAME="mine")
    for line in (
        "call_timeout = 5  # a.toml:2",
        'name = "mine"  # TOOLEXEC_SERVER__NAME',
        "port = 1  # --set server.port",
        'host = "127.0.0.1"  # default',
        "# a.toml:3\n[mcpServers.git]",
    ):
        assert line.replace("a.toml", str(file)) in done.stdout


def test_the_same_as_json(file: Path) -> None:
    """One document; origins when they are asked for."""
    document = json.loads(call("config", "show", "--json", "-c", file).stdout)
    assert set(document) == {"settings", "toolsets", "mcpServers"}
    assert set(document["settings"]) == set(KEYS)
    assert document["settings"]["limits.call_timeout"] == 5
    assert document["mcpServers"]["git"]["env"] == {"A_TOKEN": "[REDACTED]"}
    document = json.loads(call("--json", "config", "show", "--origin", "-c", file).stdout)
    assert document["origins"]["limits.call_timeout"] == f"{file}:2"
    assert document["origins"]["mcpServers.git"] == f"{file}:3"


def test_how_tools_are_shown(tmp_path: Path) -> None:
    """Transforms are listed as a file has them, without what may be secret in what they send."""
    table = """
        [transforms."far:look"]
        name = "see"
        [transforms."far:look".arguments]
        id = { name = "item", description = "Which one." }
        api_key = { value = "hush-hush-hush" }
        lang = { value = "en" }
    """
    (tmp_path / "t.toml").write_text(table)
    done = call("config", "show", "-c", "t.toml")
    assert done.exit_code == 0
    assert '[transforms."far:look"]\nname = "see"\narguments = {' in done.stdout
    assert "hush-hush" not in done.stdout
    shown = json.loads(call("config", "show", "--json", "-c", "t.toml").stdout)["transforms"]["far:look"]
    assert shown["arguments"]["id"] == {"name": "item", "description": "Which one."}
    assert shown["arguments"]["lang"] == {"value": "en"}


def test_without_a_file_the_defaults_are_shown() -> None:
    """Without a file, the defaults and the environment are shown."""
    done = call("config", "show", "--origin", TOOLEXEC_LIMITS__CALL_TIMEOUT="2m")
    assert done.exit_code == 0
    assert "call_timeout = 120  # TOOLEXEC_LIMITS__CALL_TIMEOUT" in done.stdout


def test_null_in_a_file_of_another_program_is_left_out(tmp_path: Path) -> None:
    """TOML has none."""
    (tmp_path / "b.json").write_text(
        '{"mcpServers": {"x": {"command": "x", "cwd": null, "tools": [null, {"a": null}]}}}'
    )
    done = call("config", "show", "-c", "b.json")
    assert done.exit_code == 0
    assert "tools = [{}]" in done.stdout


def test_right_settings_are_called_right(file: Path) -> None:
    """With what is in them."""
    done = call("config", "validate", "-c", file)
    assert (done.exit_code, done.stdout) == (
        0,
        f"{file}: the settings are right (1 server, 0 Python sources, 1 policy rule)\n",
    )
    document = json.loads(call("config", "validate", "--json", "-c", file).stdout)
    facts = {"files": [str(file)], "servers": 1, "python": 0, "rules": 1, "blocks": ["policy"]}
    assert document == {"ok": True, **facts, "warnings": []}


def test_all_mistakes_are_listed(tmp_path: Path) -> None:
    """One a line on stderr, exit code 2; as JSON in the details."""
    (tmp_path / "a.toml").write_text("[limits]\nmax_tol_calls = 1\n[server]\nport = 'x'\n")
    done = call("config", "validate", "-c", "a.toml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: a.toml, line 2: unknown key limits.max_tol_calls; did you mean max_tool_calls?",
        'error: a.toml, line 4: server.port must be an integer, 0 to 65535, not "x"',
        "2 mistakes",
    ]
    done = call("config", "validate", "--json", "-c", "a.toml")
    error = json.loads(done.stdout)["error"]
    assert (done.exit_code, error["code"], len(error["details"]["mistakes"])) == (2, "configuration", 2)


def test_one_mistake_takes_one_line(tmp_path: Path) -> None:
    """No heading, no count."""
    (tmp_path / "a.toml").write_text("[limits]\nmax_tol_calls = 1\n")
    done = call("config", "validate", "-c", "a.toml")
    assert done.stderr.splitlines() == [
        "error: a.toml, line 2: unknown key limits.max_tol_calls; did you mean max_tool_calls?"
    ]


def test_validating_runs_no_python(tmp_path: Path) -> None:
    """Not even what would fail."""
    (tmp_path / "app.py").write_text("raise SystemExit('it was run')\n")
    assert call("config", "validate", "-c", "app.py").exit_code == 0


def test_all_keys_are_listed() -> None:
    """For people and for programs."""
    done = call("config", "keys")
    assert done.exit_code == 0
    assert all(f"{path} = " in done.stdout for path in KEYS)
    listed = json.loads(call("config", "keys", "--json").stdout)
    assert [each["key"] for each in listed][: len(KEYS)] == list(KEYS)  # then those of journals that are installed
    assert listed[0]["variable"] == "TOOLEXEC_SOURCES__PYTHON"


SPECIAL: dict[str, object] = {
    "auth.api_keys": [{"id": "ann", "sha256": "5f" * 32, "roles": ["admin"]}],
    "auth.authorization_servers": ["https://example.com/"],
    "auth.resource_url": "https://example.com/mcp",
    "auth.jwt.algorithms": ["RS256"],
    "auth.sign_in.domains": ["example.com"],
    "auth.sign_in.scopes": ["openid"],
    "cache.rules": [{"tools": "weather:*", "ttl": 60}],
    "http.trusted_proxies": ["10.0.0.1"],
    "policy.rules": [{"effect": "deny", "when": {"path": {"glob": "/etc/*"}}}],
    "resilience.fallbacks": [{"tools": "maps:*", "to": ["osm:*"]}],
    "runtime_server.keys": [{"id": "ann", "token": "hush-hush-hush-hush", "secret": "hush-hush-hush-hush-too"}],
    "runtime_server.quotas": [{"tenant": "ann", "running": 3}],
    "sandboxes.plugins": [{"kind": "cell", "size": 2}],
    "sandboxes.wasm_workers": 3,
    "sandboxes.egress": ["https://example.com"],
    "sandboxes.egress_secrets": [{"placeholder": "KEY", "hosts": ["https://example.com"], "value": "${KEY}"}],
    "server.state_keys": ["hush-hush-hush-hush-hush-hush-hush"],
    "secrets.providers": ["env"],
}


def other_value(path: str) -> object:
    """A value of the key that is not its default."""
    key = KEYS[path]
    if path in SPECIAL:
        return SPECIAL[path]
    if isinstance(key.default, bool):
        return not key.default
    if isinstance(key.default, int | float):
        return key.default + 1
    words = key.kind.name.removeprefix("list of ").split((key.kind.name.count(" / ") and " / ") or ", ")
    word = next((word for word in words if len(words) > 1 and word != key.default), "/some/x")
    return [word] if isinstance(key.default, tuple) else word


@pytest.mark.full
@pytest.mark.parametrize("path", KEYS)
def test_every_setting_can_be_shown(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a key is set to, the text and the JSON can be read, and a secret is in neither."""
    monkeypatch.setattr("toolexec.config.load.check_parts", lambda *_, **__: None)  # whether it fits the others
    (tmp_path / "mcp.json").write_text('{"mcpServers": {}}')
    there = {"sources.include": tmp_path / "mcp.json", "sources.skills": tmp_path}  # what must exist
    value = [str(there[path])] if path in there else other_value(path)
    loaded = load_settings([], flags={path: value})
    read = loaded.settings.get(path)
    assert read != KEYS[path].default
    screen, out = shown_on(as_json=False)
    show(screen, loaded, origin=True)
    assert tomllib.loads(out.getvalue())
    as_json, document = shown_on(as_json=True)
    show(as_json, loaded, origin=True)
    assert json.loads(document.getvalue())["origins"][path] != "default"
    assert "hush" not in out.getvalue() + document.getvalue()
    assert "5f5f" not in out.getvalue() + document.getvalue()


def shown_on(*, as_json: bool) -> tuple[Screen, io.StringIO]:
    """A screen, and what is printed on it."""
    out = io.StringIO()
    return Screen(out, as_json=as_json), out


def test_what_is_missing_here_is_a_warning(tmp_path: Path) -> None:
    """Variables that are not set and files that are not there are named with the keys that need them."""
    file = tmp_path / "a.toml"
    (tmp_path / "secret").write_text("x")
    file.write_text(
        '[mcpServers.a]\ncommand = "a"\nenv = { KEY = "${A_KEY}", ZONE = "${ZONE:-utc}", T = "secretref:env:A_KEY" }\n'
        f'args = ["secretref:file:{tmp_path}/secret", "secretref:file:{tmp_path}/nothing"]\n'
    )
    done = call("config", "validate", "-c", file, A_KEY=None)
    assert done.exit_code == 0
    assert (
        "warning: the environment variable A_KEY is not set here; it is named by mcpServers.a.env.KEY and "
        "mcpServers.a.env.T\n" in done.stderr
    )
    assert f"mcpServers.a.args[1] needs the file {tmp_path}/nothing, which is not there" in done.stderr
    assert done.stdout.endswith(
        "the settings are right (1 server, 0 Python sources, 0 policy rules), but 2 referenced items are missing\n"
    )
    strict = call("config", "validate", "--strict", "--json", "-c", file, A_KEY=None)
    assert (strict.exit_code, json.loads(strict.stdout)["ok"], len(json.loads(strict.stdout)["warnings"])) == (
        1,
        False,
        2,
    )
    (tmp_path / "nothing").write_text("x")
    assert call("config", "validate", "--strict", "-c", file, A_KEY="x").exit_code == 0
