"""The command line itself: options, help, mistakes, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from toolexec import __version__
from toolexec.cli import app as app_module
from toolexec.cli.exit_codes import TABLE, exit_code
from toolexec.errors import (
    ConfigurationError,
    HandlerError,
    InvalidChainError,
    MissingExtraError,
    OutputValidationError,
    ToolExecError,
    ToolNotFoundError,
)

Cli = Callable[..., Any]
COMMANDS = ("search", "describe", "run", "chain", "list", "backends", "code", "doctor", "stubs", "export", "demo")


def test_help_lists_the_commands_and_exit_codes(cli: Cli) -> None:
    """Help lists them for -h as well."""
    for option in ("--help", "-h"):
        done = cli(option)
        assert done.exit_code == 0
        assert all(command in done.stdout for command in COMMANDS)
        assert all(text.split("(")[0] in done.stdout for _, text in TABLE)


def test_the_module_tells_the_same_exit_codes() -> None:
    """Its docstring has the table of --help."""
    assert app_module.__doc__ is not None
    for code, text in TABLE:
        assert f"| {code} | {text} |" in app_module.__doc__


@pytest.mark.full
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json(cli: Cli, command: str) -> None:
    """Every command takes --json and says so in its help."""
    assert "--json" in cli(command, "--help").stdout


def test_the_version(cli: Cli) -> None:
    """On its own."""
    assert cli("--version").stdout == f"toolexec {__version__}\n"


def test_help_loads_nothing_heavy() -> None:
    """Neither the MCP SDK nor pydantic nor the schema library."""
    program = (
        "import sys\n"
        "from toolexec.cli.app import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('mcp', 'pydantic', 'jsonschema_rs', 'toolexec.exec') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.full
@pytest.mark.parametrize(
    "words", [["nonsense"], ["run"], ["list", "--nope"], ["search", "x", "-n", "0"], ["describe", "x", "--level", "y"]]
)
def test_mistakes_exit_with_2(cli: Cli, words: list[str]) -> None:
    """On stderr for people, as JSON for programs."""
    done = cli(*words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Error" in done.stderr
    done = cli(*words, "--json")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"]["code"] == "usage"


def test_commands_that_have_another_place_now(cli: Cli) -> None:
    """The error has the command to type; words after it that may be anything are left out."""
    for words, typed in ((["kube", "manifest", "--secret", "x"], "kube manifest"), (["kube"], "kube")):
        done = cli(*words)
        assert done.exit_code == 2
        shown = " ".join(done.stderr.replace("│", " ").split())
        assert f"toolexec {typed} is now toolexec sandbox kubernetes{typed.removeprefix('kube')}" in shown
    data = json.loads(cli("kube", "manifest", "--json").stdout)
    assert data["error"]["message"] == "toolexec kube manifest is now toolexec sandbox kubernetes manifest"


def test_json_without_a_command_is_the_overview(cli: Cli) -> None:
    """Alone, the command shows what is set up; with --json as one document."""
    done = cli("--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["next"] == "toolexec init"


def test_a_word_after_two_dashes_is_no_option(cli: Cli, tools_file: Path) -> None:
    """`--json` there is an argument like any other."""
    done = cli("run", "-c", tools_file, "text:plain", "--", "--json")
    assert done.exit_code == 2
    assert "cannot read the argument '--json'" in done.stderr


def test_help_wins_over_json(cli: Cli) -> None:
    """The help that was asked for is printed."""
    done = cli("list", "--json", "--help")
    assert done.exit_code == 0
    assert "Usage" in done.stdout


def test_options_may_stand_before_the_command(cli: Cli, tools_file: Path) -> None:
    """Files before and after it are taken together."""
    assert json.loads(cli("-c", tools_file, "--json", "run", "math:add", "a=1").stdout)["value"] == 2


def test_the_environment_may_name_the_files(cli: Cli, tools_file: Path) -> None:
    """As TOOLEXEC_CONFIG."""
    assert cli("run", "math:add", "a=1", TOOLEXEC_CONFIG=str(tools_file)).stdout == "2\n"


def test_a_file_found_in_the_directory_is_mentioned(cli: Cli, tmp_path: Path) -> None:
    """On stderr, and not with --json."""
    (tmp_path / "toolexec.json").write_text('{"mcpServers": {}}')
    done = cli("list")
    assert done.stderr.startswith("using toolexec.json (override with -c)\n")
    assert cli("list", "--json").stderr == ""


def test_without_tools_it_says_where_to_get_them(cli: Cli) -> None:
    """Exit code 2."""
    done = cli("list")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no tools: say where they come from with -c app.py")
    assert json.loads(cli("list", "--json").stdout)["error"]["code"] == "configuration"


def test_a_broken_file_exits_with_2(cli: Cli, tmp_path: Path) -> None:
    """With its own line."""
    (tmp_path / "bad.py").write_text("import json\nprint('noise')\nboom()\n")
    done = cli("list", "-c", "bad.py", "--json")
    assert done.exit_code == 2
    error = json.loads(done.stdout)["error"]
    assert error["message"] == "bad.py, line 3: NameError: name 'boom' is not defined (in: boom())"
    assert error["details"] == {"file": "bad.py", "line": 3, "type": "NameError"}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HandlerError("x"), 1),
        (OutputValidationError([]), 1),
        (ConfigurationError("x"), 2),
        (MissingExtraError("mcp", needed_for="x"), 2),
        (InvalidChainError("x"), 2),
        (ToolNotFoundError("x"), 3),
        (ToolExecError("x"), 3),
    ],
)
def test_an_error_has_its_exit_code(error: ToolExecError, code: int) -> None:
    """By what kind it is."""
    assert exit_code(error) == code


def test_an_error_of_ours_is_told_as_such(cli: Cli, tools_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a traceback for people and JSON for programs."""

    async def broken(*_: object) -> int:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("toolexec.cli.finding.backends", broken)
    done = cli("backends", "-c", tools_file)
    assert done.exit_code == 3
    assert "ZeroDivisionError: oops; this is a bug of toolexec, please report it" in done.stderr
    assert json.loads(cli("backends", "-c", tools_file, "--json").stdout)["error"]["code"] == "internal"


def test_an_error_of_the_parser_itself_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only mistakes of the user become JSON."""
    from typer.core import TyperGroup

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(TyperGroup, "main", broken)
    with pytest.raises(ZeroDivisionError):
        app_module.app(["--json"])


def test_a_command_alone_is_the_command_among_all() -> None:
    """Only the parameters of the command that is called are read; its name, help and options are those of the whole."""
    whole = typer.main.get_group(app_module.app)
    assert len(whole.commands) > 20
    for name, command in whole.commands.items():
        alone = typer.main.get_group(app_module._app_for([name, "--json"])).commands
        assert list(alone) == [name]
        assert alone[name].help == command.help
        assert [each.name for each in alone[name].params] == [each.name for each in command.params]


@pytest.mark.parametrize("words", [[], ["nonsense"], ["--help"], ["--version", "run"]])
def test_other_words_reach_all_commands(words: list[str]) -> None:
    """The parser that has all commands answers what does not begin with one."""
    assert app_module._app_for(words) is app_module.app
