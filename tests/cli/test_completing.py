"""Completion of tools' IDs in a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main

from toolexec.cli.app import app
from toolexec.cli.completing import rejoin_words
from toolexec.cli.examples import EXAMPLES

Cli = Callable[..., Any]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins with nothing known."""
    monkeypatch.setenv("TOOLEXEC_CACHE", str(tmp_path / "cache"))


def complete(*words: str, number: int | None = None) -> list[str]:
    """What bash gets for a command line that it took apart."""
    env = {**os.environ, "_TOOLEXEC_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words)}
    env["COMP_CWORD"] = str(len(words) - 1 if number is None else number)
    command = [sys.executable, "-c", "from toolexec.cli.app import main; main()"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_ids_are_completed_from_what_was_listed(cli: Cli, tools_file: Path) -> None:
    """Only once a command had the tools, and without a connection; in bash, what stands before a colon is not
    repeated."""
    assert complete("toolexec", "run", "-c", "app.py", "ma") == []
    assert cli("list", "-c", tools_file.name).exit_code == 0
    tools_file.write_text("raise SystemExit('it was run')")
    os.utime(tools_file, (1, 1))
    assert complete("toolexec", "run", "-c", "app.py", "ma") == ["math:add"]
    assert complete("toolexec", "describe", "-c", "app.py", "text", ":", "p") == ["plain"]
    assert complete("toolexec", "run", "-c", "app.py", "slow", ":") == ["count", "forever", "pieces"]


@pytest.mark.parametrize(
    ("words", "number", "joined"),
    [
        (["toolexec", "run", "git", ":", "log"], 4, "toolexec\nrun\ngit:log"),
        (["toolexec", "run", "git", ":"], 3, "toolexec\nrun\ngit:"),
        (["toolexec", "run", "a", ":", "b", ":", "1"], 6, "toolexec\nrun\na:b:1"),
        (["toolexec", "run", ""], 2, "toolexec\nrun\n"),
        (["toolexec", "list", "--names"], 2, "toolexec\nlist\n--names"),
    ],
)
def test_words_are_put_together_again(words: list[str], number: int, joined: str) -> None:
    """Bash ends words at colons; what is left of the last one is up to its last colon."""
    environment = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(number)}
    rejoin_words(environment)
    assert environment["COMP_WORDS"] == joined
    assert int(environment["COMP_CWORD"]) == joined.count("\n")


def test_another_shell_is_left_alone() -> None:
    """Without a command line of bash nothing changes."""
    environment = {"_TYPER_COMPLETE_ARGS": "toolexec run git:"}
    rejoin_words(environment)
    assert environment == {"_TYPER_COMPLETE_ARGS": "toolexec run git:"}


def every_command() -> dict[str, Any]:
    """Every command and group, by its words."""
    found: dict[str, Any] = {}

    def walk(group: Any, words: str) -> None:
        for name, command in getattr(group, "commands", {}).items():
            found[f"{words} {name}".strip()] = command
            walk(command, f"{words} {name}".strip())

    walk(typer.main.get_command(app), "")
    return found


def test_every_command_has_an_example_that_the_parser_takes(tmp_path: Path) -> None:
    """The line begins with the command, and its options and arguments are those that the command has."""
    import shlex

    (tmp_path / "tests" / "agents").mkdir(parents=True)
    for words, command in every_command().items():
        line = EXAMPLES.get(words, "")
        assert line.startswith(f"toolexec {words} ") or line == f"toolexec {words}" or hasattr(command, "commands"), (
            words
        )
        given = shlex.split(line.removeprefix(f"toolexec {words}"))
        if not hasattr(command, "commands"):
            command.make_context(words, given, resilient_parsing=False).close()
    assert set(EXAMPLES) - {""} == set(every_command())


@pytest.mark.parametrize("words", ["", "run", "audit tail", "workflow graph", "config"])
def test_help_ends_with_the_example(cli: Cli, words: str) -> None:
    """Of commands, of groups, and of commands in groups."""
    shown = " ".join(cli(*words.split(), "--help", COLUMNS="80").stdout.split())
    assert words == "" or f"Example: {EXAMPLES[words]}" in shown
