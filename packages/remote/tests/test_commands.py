"""`toolexec runtime serve`: what it refuses to start with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.command_line import CliRunner

from toolexec.cli import app

KEYS = '[[runtime_server.keys]]\nid = "a"\ntoken = "{}"\n'


@pytest.mark.parametrize(
    ("settings", "words", "message"),
    [
        ("", (), "needs keys"),
        (KEYS.format("short"), (), "at least 16 characters"),
        (KEYS.format("secretref:env:NO_SUCH_TOKEN"), (), "NO_SUCH_TOKEN"),
        (KEYS.format("x" * 20).replace("token", "tokn"), (), "did you mean token"),
        (KEYS.format("x" * 20) + 'expires = "soon"\n', (), "2027-01-31"),
        (KEYS.format("x" * 20), ("--host", "0.0.0.0"), "without TLS"),
        (KEYS.format("x" * 20), ("--set", "runtime_server.tls_cert=no.pem"), "tls_cert"),
        (KEYS.format("x" * 20), ("--max-running", "0"), "runtime_server.max_running"),
    ],
    ids=["keys", "short", "reference", "name", "date", "tls", "certificate", "running"],
)
def test_settings_that_make_no_sense_end_it(
    tmp_path: Path, settings: str, words: tuple[str, ...], message: str
) -> None:
    """The exit code is that of usage, and the message says what to change."""
    file = tmp_path / "toolexec.toml"
    file.write_text(f'[runtime_server]\nport = 0\nstate_directory = "{tmp_path / "state"}"\n{settings}')
    result = CliRunner().invoke(app.app, ["-c", str(file), "runtime", "serve", *words])
    assert result.exit_code == 2, result.output
    assert message in result.stderr.replace("\n", " ")


def test_the_settings_can_be_checked_without_serving(tmp_path: Path) -> None:
    """The report has the keys, without their secrets, and the sandboxes of each profile."""
    file = tmp_path / "toolexec.toml"
    old = KEYS.format("y" * 20).replace('"a"', '"old"') + 'expires = "2020-01-31"\n'
    file.write_text(f'[sandboxes]\nuse = ["wasm"]\n{KEYS.format("x" * 20)}tenant = "team"\n{old}')
    result = CliRunner().invoke(app.app, ["-c", str(file), "runtime", "check", "--json"])
    report = json.loads(result.stdout)
    assert (result.exit_code, report["ok"], report["problems"]) == (0, True, [])
    assert report["keys"] == [
        {"id": "a", "tenant": "team", "expired": False},
        {"id": "old", "tenant": "old", "expired": True},
    ]
    assert report["profiles"] == {"standard": ["wasm"], "hardened": ["wasm"]}
    assert "x" * 20 not in result.stdout
    shown = CliRunner().invoke(app.app, ["-c", str(file), "runtime", "check"])
    assert "old of old (expired)" in shown.stdout
    assert "hardened: wasm" in shown.stdout


def test_a_server_without_sandboxes_or_keys_fails_the_check(tmp_path: Path) -> None:
    """The exit code is 1, and the report says what is lacking."""
    file = tmp_path / "toolexec.toml"
    file.write_text(f'[sandboxes]\nuse = ["unsafe_host"]\n{KEYS.format("x" * 20)}expires = "2020-01-31"\n')
    result = CliRunner().invoke(app.app, ["-c", str(file), "runtime", "check"])
    assert result.exit_code == 1
    assert "no sandbox is available for the profile standard" in result.stdout
    assert "every key has expired" in result.stdout
