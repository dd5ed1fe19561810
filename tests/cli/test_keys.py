"""The command `keys`."""

from __future__ import annotations

import json
import re
import tomllib
from datetime import UTC, datetime

import pytest
import typer
from tests.command_line import CliRunner, Result

from toolexec.cli.keys import keys
from toolexec.server.auth import ApiKey
from toolexec.server.auth.credentials import ApiKeys, hash_key

app = typer.Typer()
app.add_typer(keys, name="keys")


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["keys", *words])


def test_the_key_is_on_stdout_and_its_settings_are_on_stderr() -> None:
    """Stdout has nothing but the key; the settings are TOML, have no key in them, and let it in."""
    done = run(
        "new",
        "ann",
        "--role",
        "ops",
        "--role",
        'a "b"',
        "--scope",
        "tools",
        "--tenant",
        "acme",
        "--expires",
        "2099-01-31",
    )
    assert done.exit_code == 0
    key = done.stdout.removesuffix("\n")
    assert key.startswith("txk_")
    assert "\n" not in key
    assert key not in done.stderr
    (settings,) = tomllib.loads(done.stderr)["auth"]["api_keys"]
    assert settings == {
        "id": "ann",
        "sha256": hash_key(key),
        "roles": ["ops", 'a "b"'],
        "scopes": ["tools"],
        "tenant": "acme",
        "expires": "2099-01-31",
    }
    assert ApiKeys([ApiKey(**settings)]).identify(key).caller.roles == ("ops", 'a "b"')


def test_what_is_not_set_is_not_shown() -> None:
    """The shortest settings are an ID and a hash; two keys are never the same."""
    first, second = run("new", "ann"), run("new", "ann")
    assert tomllib.loads(first.stderr)["auth"]["api_keys"][0].keys() == {"id", "sha256"}
    assert first.stdout != second.stdout


def test_as_json() -> None:
    """Both are in one document, and stderr is empty."""
    done = run("new", "ann", "--json")
    data = json.loads(done.stdout)
    assert data["settings"] == {"id": "ann", "sha256": hash_key(data["key"])}
    assert done.stderr == ""


@pytest.mark.parametrize("words", [["new", ""], ["new", "a\nb"], ["new", "ann", "--expires", "soon"]])
def test_what_makes_no_sense(words: list[str]) -> None:
    """Exit code 2, the reason on stderr, and no key."""
    done = run(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "error" in done.stderr.lower()
    as_json = run(*words, "--json")
    assert json.loads(as_json.stdout)["error"]["code"] == "configuration"


@pytest.mark.parametrize("moment", ["2001-01-01", "2001-01-01T12:00+02:00", "today"])
def test_a_key_that_would_never_work_is_not_made(moment: str) -> None:
    """A date that has passed, or begins today, is refused, and the date that the error gives in its place is taken."""
    done = run("new", "ci", "--expires", str(datetime.now(UTC).date()) if moment == "today" else moment)
    assert (done.exit_code, done.stdout) == (2, "")
    found = re.search(r"never\s+work.*such\s+as\s+(\d{4}-\d\d-\d\d)", done.stderr, re.DOTALL)
    assert found is not None
    assert run("new", "ci", "--expires", found[1]).exit_code == 0


def test_without_a_command_there_is_help() -> None:
    """Help lists the subcommands."""
    assert "new" in run().output
