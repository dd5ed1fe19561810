"""What may reach a terminal."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys

import pytest

from toolexec.cli.terminal import Screen, only_results_on_stdout, to_json
from toolexec.errors import HandlerError, InputValidationError, OutputValidationError, ToolNotFoundError, Violation


class Terminal(io.StringIO):
    """A text file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_json_is_plain_ascii() -> None:
    """Nothing in it can steer a terminal."""
    text = to_json({"a": "\x1b\x9b\u202eü", "odd": {1, 2} and object})
    assert text.isascii()
    assert text.isprintable() or "\n" in text
    assert json.loads(text)["a"] == "\x1b\x9b\u202eü"


def test_results_and_errors_go_separate_ways(capsys: pytest.CaptureFixture[str]) -> None:
    """An error is one line on stderr."""
    out = io.StringIO()
    screen = Screen(out)
    screen.error(ToolNotFoundError("a:b\n\x1b[1mc", close=["a:c"]))
    screen.exact("\x1b[1mexact")
    assert out.getvalue() == "\x1b[1mexact\n"
    assert capsys.readouterr().err == "error: no tool a:b \\x1b[1mc; did you mean a:c?\n"


def test_exact_text_is_cleaned_for_a_terminal() -> None:
    """A pipe gets the bytes as they are, a terminal does not."""
    out = Terminal()
    Screen(out).exact("a\x1b[2Jb\n")
    assert out.getvalue() == "a\\x1b[2Jb\n"


def test_a_person_at_a_terminal_sees_a_panel(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every violation on a line of its own, and where to look next."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen(io.StringIO())
    violations = [
        Violation(path="/a", keyword="type", message="not a number"),
        Violation(path="", keyword="x", message="odd"),
    ]
    screen.error(InputValidationError(violations, tool_id="m:add"))
    screen.error(OutputValidationError(violations))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().err)
    assert "arguments not valid" in shown
    assert "• /a: not a number" in shown
    assert "• (root): odd" in shown
    assert "toolexec describe m:add" in shown
    assert "The result of the tool is not valid:" in shown


def test_a_failed_handler_shows_its_own_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place that raised, if there is one."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    try:
        raise ValueError("no")
    except ValueError as error:
        failure = HandlerError("it raised")
        failure.__cause__ = error
    bare = HandlerError("it raised")
    bare.__cause__ = ValueError("never raised")
    Screen(io.StringIO()).error(failure)
    assert "test_a_failed_handler" in capsys.readouterr().err
    Screen(io.StringIO()).error(bare)
    assert "raised at" not in capsys.readouterr().err


def test_an_unexpected_error_asks_for_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal with the traceback, in JSON as an error like any other."""
    out = io.StringIO()
    Screen(out).crash(KeyError("x"))
    assert "KeyError" in capsys.readouterr().err
    Screen(out, as_json=True).crash(KeyError("x"))
    assert json.loads(out.getvalue())["error"]["code"] == "internal"


def test_prints_of_tools_do_not_reach_stdout() -> None:
    """Neither Python's own nor those of child processes; afterwards all is as it was."""
    program = """
import subprocess
from toolexec.cli.terminal import only_results_on_stdout
with only_results_on_stdout() as out:
    print("python", flush=True)
    subprocess.run(["echo", "child"])
    out.write("result\\n")
print("after")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "result\nafter\n"
    assert done.stderr == "python\nchild\n"


def test_log_records_are_cleaned(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that may quote a server are cleaned, but only on the terminal; a logging setup of the user's gets them as
    usual.
    """
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with only_results_on_stdout():
        logging.getLogger("toolexec.x").warning("left out %s", "a\x1b[31m\nb")
        assert capsys.readouterr().err == "warning: left out a\\x1b[31m b\n"
        monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
        logging.getLogger("toolexec.x").warning("again")
        assert capsys.readouterr().err == ""
    assert not logging.getLogger("toolexec").handlers


def test_nothing_is_left_open() -> None:
    """The descriptor that results go through is closed again."""
    with open(os.devnull, "w") as nowhere:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            with only_results_on_stdout():
                nowhere.write("x")
        assert len(os.listdir("/proc/self/fd")) <= before


def test_a_record_is_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A logger that has a handler already is left to that."""
    logger, own = logging.getLogger("toolexec"), logging.NullHandler()
    logger.addHandler(own)
    try:
        with only_results_on_stdout():
            logger.warning("a word")
    finally:
        logger.removeHandler(own)
    assert "a word" not in capsys.readouterr().err
