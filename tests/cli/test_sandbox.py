"""The commands for sandboxes: build, list, check, remove."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from toolexec.cli import sandbox as command
from toolexec.runtime.wasm import engine
from toolexec.runtime.wasm.cache import CachedComponent, ComponentCache, _component_name

Cli = Callable[..., Any]


@pytest.fixture
def cache(sandbox: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of the test's own, with the built component and nothing compiled."""
    real = ComponentCache()
    own = tmp_path / "cache" / "sandbox"
    own.mkdir(parents=True, mode=0o700)
    current = real.directory / _component_name(())  # other versions of toolexec keep theirs there, too
    for path in (current, current.with_name(f"{current.name}.json")):
        shutil.copy(path, own / path.name)
    monkeypatch.setenv("TOOLEXEC_CACHE", str(own.parent))
    return own


def test_a_sandbox_that_is_there_is_not_built_again(cli: Cli, sandbox: None) -> None:
    """Reports that the sandbox exists, and where."""
    done = cli("sandbox", "build")
    assert done.exit_code == 0
    assert "plain is ready, it was built before: Python 3." in done.stdout
    assert str(ComponentCache().directory) in done.stdout.replace("\n", "")
    data = json.loads(cli("sandbox", "build", "--json").stdout)
    assert (data["built"], data["sandbox"]["current"], data["sandbox"]["requirements"]) == (False, True, [])


@pytest.mark.full
def test_a_sandbox_is_built(cli: Cli, cache: Path) -> None:
    """The steps on stderr, what came of it on stdout; then it is listed, and can be removed."""
    assert "not compiled yet" in cli("sandbox", "list").stdout
    done = cli("sandbox", "build")
    assert done.exit_code == 0
    assert "compiling the sandbox for this machine" in done.stderr
    assert "plain is ready, after " in done.stdout
    assert f"in {cache}" in done.stdout.replace("\n", "")
    listed = json.loads(cli("sandbox", "list", "--json").stdout)
    assert listed["directory"] == str(cache)
    assert [(entry["compiled"], entry["current"]) for entry in listed["sandboxes"]] == [(1, True)]
    assert "ready" in cli("sandbox", "list").stdout
    freed = json.loads(cli("sandbox", "remove", "--json").stdout)["freedBytes"]
    assert freed == listed["sandboxes"][0]["bytes"]
    assert "no sandbox has been built yet" in cli("sandbox", "list").stderr


def test_all_are_removed(cli: Cli, cache: Path) -> None:
    """Whatever packages they have."""
    assert "MB set free" in cli("sandbox", "remove", "--all").stdout
    assert list(cache.glob("*.wasm")) == []


def test_what_is_not_there_cannot_be_removed(cli: Cli, cache: Path) -> None:
    """Reports which sandboxes exist."""
    done = cli("sandbox", "remove", "--with", "Rich")
    assert done.exit_code == 2
    assert "there is no sandbox rich to remove; there is: plain" in done.stderr
    assert cli("sandbox", "remove", "--all", "--with", "rich").exit_code == 2


@pytest.mark.parametrize("command", [["build"], ["remove"]])
def test_what_is_no_package_is_refused(cli: Cli, command: list[str]) -> None:
    """Nothing is fetched."""
    done = cli("sandbox", *command, "--with", "../evil")
    assert done.exit_code == 2
    assert "is not a package for the sandbox" in done.stderr


@pytest.mark.full
def test_a_terminal_sees_bars(cli: Cli, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars stay on the screen, for the record; what is compiled here is not optimised, which would take half a minute."""
    monkeypatch.setattr(engine, "compile_component", partial(engine.compile_component, quick=True))
    done = cli("sandbox", "build", FORCE_COLOR="1")
    assert "100%" in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("words", [["build"], ["list"], ["check"], ["remove"], []])
def test_every_command_has_help(cli: Cli, words: list[str]) -> None:
    """Every command has help and JSON."""
    text = cli("sandbox", *words, "--help").stdout
    assert ("--json" in text) == bool(words)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3, "just now"), (60, "1 minute ago"), (7300, "2 hours ago"), (86_400, "1 day ago"), (None, "never")],
)
def test_last_used(seconds: int | None, text: str) -> None:
    """In words."""
    moment = datetime.now(UTC) - timedelta(seconds=seconds) if seconds is not None else None
    assert command._ago(moment) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "ready"),
        ({"current": False}, "outdated"),
        ({"compiled": 0}, "not compiled yet"),
        ({"shipped": True}, "ready, with the wheel"),
    ],
)
def test_states(changes: dict[str, Any], text: str) -> None:
    """Reports which sandboxes would be used, and which not."""
    facts: dict[str, Any] = {
        "requirements": (),
        "packages": {},
        "python": "3.14.0",
        "sha256": "",
        "shipped": False,
        "current": True,
        "compiled": 1,
        "size": 1,
        "used": None,
    }
    assert command._state(CachedComponent(**{**facts, **changes})).plain == text
