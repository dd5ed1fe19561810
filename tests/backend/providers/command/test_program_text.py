"""Templates that would make an argument of a call code, or the name of a program, are refused; the others are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolexec.backend.providers.command.interpreters import INTERPRETERS, LAUNCHERS
from toolexec.backend.providers.kinds import source_of
from toolexec.errors import ConfigurationError

CODE: list[list[Any]] = [
    ["python", "-c", "{x}"], ["/usr/bin/python3.11", "-c", "print({x})"], ["python3", "-Ic", "{x}"], ["python", "-c{x}"],
    ["python", "-W", "error", "-c", "{x}"], ["python", "-{x}"], ["python", "{x?-c}", "{y}"], ["pypy3", "-c", "{x}"],
    ["python", ["-c", "{x}"]], ["python", "-c", "{x...}"],
    ["sh", "-c", "{x}"], ["/bin/bash", "-ec", "ls {x}"], ["bash", "-c", "-x", "{x}"], ["zsh", "-o", "x", "-c", "{x}"],
    ["awk", "{x}"], ["gawk", "-F", ":", "{x}"], ["mawk", "-v", "a={y}", "$1 == {x}"], ["awk", "--", "{x}"],
    ["gawk", "-e", "{x}"], ["gawk", "--source={x}"], ["awk", ["-f", "{file}"], "{x}"],
    ["sed", "s/{x}/y/"], ["sed", "-n", "{x}p"], ["sed", "-e", "{x}"], ["sed", "-ne", "{x}"], ["sed", "--expression={x}"],
    ["sed", "s/a/b/", "-e", "{x}"], ["sed", "-i.bak", "{x}", "file"],
    ["perl", "-e", "{x}"], ["perl", "-lane", "{x}"], ["perl", "-Mstrict", "-E", "{x}"], ["perl5.36", "-e", "1", "-e", "{x}"],
    ["node", "-e", "{x}"], ["node", "--eval={x}"], ["nodejs", "-pe", "{x}"], ["node", "-r", "m", "--print", "{x}"],
    ["ruby", "-e", "{x}"], ["ruby", "-rjson", "-ne", "{x}"], ["php", "-r", "{x}"], ["php8.2", "-d", "a=b", "--run", "{x}"],
    ["lua", "-e", "{x}"], ["Rscript", "-e", "{x}"], ["julia", "--eval={x}"], ["pwsh", "-Command", "ls", "{x}"],
    ["find", ".", "-exec", "sh", "-c", "{x}", ";"], ["find", ".", "-name", "a", "-execdir", "perl", "-e", "{x}", "+"],
    ["xargs", "sh", "-c", "{x}"], ["xargs", "-n", "1", "awk", "{x}"],
    ["env", "python", "-c", "{x}"], ["env", "-i", "A=b", "sh", "-c", "{x}"], ["env", "-S", "python -c", "{x}"],
    ["timeout", "-k", "1", "5", "python", "-c", "{x}"], ["nice", "-n", "5", "sudo", "-u", "a", "bash", "-c", "{x}"],
    ["busybox", "sh", "-c", "{x}"], ["nohup", "env", "awk", "{x}"], ["flock", "f", "-c", "{x}"],
    ["ssh", "host", "ls", "{x}"], ["watch", "ls", "{x}"], ["su", "me", "-c", "{x}"],
]  # fmt: skip

PROGRAM: list[list[Any]] = [
    ["env", "{x}"], ["env", "A={y}", "{x}"], ["env", "-S", "{x}"], ["xargs", "{x}"], ["timeout", "5", "{x}"],
    ["find", ".", "-exec", "{x}", ";"], ["nice", "{x...}"], ["nice", "-{x}", "ls"],
]  # fmt: skip

DATA: list[list[Any]] = [
    ["python", "-c", "import sys; print(sys.argv)", "{x}"], ["python", "-c", "1", "-c", "{x}"], ["python", "a.py", "-c", "{x}"],
    ["python", "-m", "module", "-c", "{x}"], ["python", "{x}"], ["python", "-W", "{x}", "a.py"],
    ["sh", "-c", 'ls -- "$1"', "sh", "{x}"], ["bash", "a.sh", "-c", "{x}"], ["sh", "-e", "a.sh", "{x}"],
    ["awk", "-v", "name={x}", "$1 == name", "{file}"], ["awk", "-f", "a.awk", "{x}"], ["awk", "-F{x}", "{{print $1}}"],
    ["sed", "s/a/b/", "{x}"], ["sed", "-n", "-e", "1p", "--", "{x}"], ["sed", "-f", "a.sed", "{x}"],
    ["perl", "-e", "print @ARGV", "--", "{x}"], ["perl", "-pie", "{x}"], ["perl", "-e", "1", "a", "-e", "{x}"],
    ["node", "-e", "1", "--", "{x}"], ["node", "a.js", "-e", "{x}"], ["ruby", "a.rb", "{x}"], ["php", "-f", "a.php", "{x}"],
    ["find", "{x}", "-name", "{y}"], ["find", ".", "-exec", "grep", "-e", "{x}", "{{}}", ";"], ["xargs", "grep", "-e", "{x}"],
    ["env", "A={x}", "sh", "a.sh"], ["env", "-u", "A", "git", "log", "{x}"], ["timeout", "{x}", "git", "log"],
    ["grep", "-e", "{x}"], ["git", "-c", "{x}"], ["ssh", "{x}"], ["pythonic", "-c", "{x}"],
]  # fmt: skip


def _add(argv: list[Any], **settings: Any) -> None:
    source_of("command", "cmd", {"tools": {"t": {"argv": argv, **settings}}})


@pytest.mark.parametrize("argv", CODE, ids=lambda argv: " ".join(map(str, argv)))
def test_an_argument_never_becomes_code(argv: list[Any]) -> None:
    """The error names the argument and says how to pass it."""
    with pytest.raises(ConfigurationError, match=r"'[xy]' would be code for .*; write the code without .* give "):
        _add(argv)


@pytest.mark.parametrize("argv", PROGRAM, ids=" ".join)
def test_an_argument_never_names_the_program(argv: list[Any]) -> None:
    """A program that runs another one gets its name from the template."""
    with pytest.raises(ConfigurationError, match="'x' would decide which program runs"):
        _add(argv)


@pytest.mark.parametrize("argv", DATA, ids=" ".join)
def test_an_argument_may_be_data(argv: list[Any]) -> None:
    """Values after the code, for its variables, or of a program that is not in the table are data."""
    _add(argv)


@pytest.mark.parametrize(
    "argv", [["sh"], ["bash", "-s", "a"], ["python", "-"], ["python3", "-u"], ["env", "node"], ["xargs", "sh", "-c"],
             ["xargs", "-I", "%", "sh", "-c", "ls %"], ["sed", "-f", "-"]], ids=" ".join,
)  # fmt: skip
def test_what_a_program_reads_never_becomes_code(argv: list[str]) -> None:
    """An interpreter without a script takes the code from stdin, and `xargs` makes arguments of it."""
    with pytest.raises(ConfigurationError, match="'x' would be code for"):
        _add(argv, stdin="{x}")
    _add(argv, stdin="echo 1")


def test_what_a_program_reads_may_be_data() -> None:
    """A script, code in the template, and other programs read data."""
    for argv in (["python", "a.py"], ["python", "-c", "1"], ["awk", "1"], ["sh", "-c", "cat"], ["xargs", "ls", "--"]):
        _add(argv, stdin="{x}")


def test_an_option_in_dashes_could_be_code() -> None:
    """A value that may begin with a dash stands before nothing that an interpreter reads as options."""
    for argv in (["python", "{x}", "a.py"], ["sed", "s/a/b/", "{x}"], ["node", "{x...}"]):
        with pytest.raises(ConfigurationError, match="would be code for"):
            _add(argv, dashes=["x"])
    with pytest.raises(ConfigurationError, match="an -exec of find"):
        _add(["find", "{x}"], dashes=["x"])
    _add(["python", "a.py", "{x}"], dashes=["x"])


def test_the_tables_are_documented() -> None:
    """Each program of the tables is in the page about commands."""
    page = (Path(__file__).parents[4] / "docs/providers.md").read_text()
    section = page[page.index("\n## Programs\n") : page.index("\n## gRPC services\n")]
    missing = [name for name in (*INTERPRETERS, *LAUNCHERS) if f"`{name}`" not in section]
    assert missing == []
