"""The command `skill`: list, plan, run, test, add."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec.process.atomic import replace_files

Cli = Callable[..., Any]

SUM = """+++
name = "sum"
description = "Adds up"
+++
input a: integer
input b: integer = 2
x := run("math:add", {a: a, b: b})
if x > 10 { run("text:plain", {words: "large"}) }
return x

# test: small
#   inputs := {a: 1}
#   calls := [{tool: "math:add", args: {a: 1, b: 2}, result: 3}]
#   returns := 3
"""


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    """Return the file of a skill over the tools of the tests."""
    path = tmp_path / "sum.workflow"
    path.write_text(SUM)
    return path


def test_a_skill_is_a_tool_of_the_command_line(cli: Cli, tools_file: Path, skill: Path) -> None:
    """A skill is found and run as any tool when `-c` names its file."""
    found = cli("search", "skill sum", "-c", tools_file, "-c", skill, "--json")
    assert json.loads(found.stdout)["tools"][0]["id"] == "skill:sum"
    done = cli("run", "skill:sum", "a=5", "-c", tools_file, "-c", skill)
    assert (done.exit_code, done.stdout) == (0, "7\n")


def test_skills_of_the_settings(cli: Cli, tools_file: Path, skill: Path) -> None:
    """Take all files of a directory that end with .workflow."""
    settings = skill.with_name("toolexec.toml")
    settings.write_text(f'[sources]\nskills = ["."]\npython = ["{tools_file}"]\n')
    listed = json.loads(cli("skill", "list", "-c", settings, "--json").stdout)
    assert listed["skills"] == [
        {
            "id": "skill:sum",
            "description": "Adds up",
            "inputs": ["a", "b"],
            "tools": ["math:add", "text:plain"],
            "tests": 1,
        }
    ]
    assert "a, b?" in cli("skill", "list", "-c", settings).stdout
    assert cli("skill", "run", "sum", "a=1", "-c", settings).stdout == "3\n"
    settings.write_text('[sources]\nskills = ["nowhere"]\n')
    done = cli("skill", "list", "-c", settings)
    assert done.exit_code == 2
    assert "cannot read" in done.stderr
    assert "no such file or directory" in done.stderr


def test_without_skills(cli: Cli, tools_file: Path) -> None:
    """Say how to have some; refuse an unknown name."""
    assert 'skills = ["skills"]' in cli("skill", "list", "-c", tools_file).stderr
    done = cli("skill", "run", "sun", "-c", tools_file)
    assert done.exit_code == 2
    assert "there is no skill 'sun'" in done.stderr


def test_a_plan_calls_nothing(cli: Cli, skill: Path) -> None:
    """Print what is known, and name what a run decides."""
    done = cli("skill", "plan", skill, "a=1")
    assert done.stdout.splitlines() == [
        "   7  math:add(a: 1, b: 2)",
        '   8  text:plain(words: "large")  if x > 10',
    ]
    assert "2 tool calls in the source; nothing was called" in done.stderr
    data = json.loads(cli("skill", "plan", skill, "a=1", "--json").stdout)
    assert data["calls"][1]["under"] == ["if x > 10"]
    assert cli("skill", "plan", skill, "a=x").exit_code == 3


def test_files_need_no_configuration(cli: Cli, skill: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans and tests of files do not look at what is in the current directory."""
    monkeypatch.chdir(skill.parent)
    (skill.parent / "toolexec.toml").write_text("wrong = 1\n")
    assert cli("skill", "test", skill).exit_code == 0
    assert cli("skill", "plan", skill, "a=1").exit_code == 0
    assert cli("skill", "list").exit_code == 2


def test_a_skill_of_a_file_is_run(cli: Cli, tools_file: Path, skill: Path) -> None:
    """Run it, though it is not in the settings."""
    assert cli("skill", "run", skill, "a=1", "b=4", "-c", tools_file).stdout == "5\n"
    done = cli("skill", "run", skill, "a=1")
    assert done.exit_code == 1
    assert "there is no tool math:add" in done.stderr


def test_tests_are_run(cli: Cli, tools_file: Path, skill: Path) -> None:
    """Run those of files or of all skills; show a problem, and give the exit code 1."""
    done = cli("skill", "test", "-c", tools_file, "-c", skill)
    assert (done.exit_code, done.stdout) == (0, "✓ skill:sum small\n")
    skill.write_text(SUM.replace("returns := 3", "returns := 4"))
    done = cli("skill", "test", skill)
    assert (done.exit_code, done.stdout) == (1, "✗ skill:sum small: it gave 3 and not 4\n")
    assert "1 test of 1 skill, 1 failed" in done.stderr
    (found,) = json.loads(cli("skill", "test", skill, "--json").stdout)["tests"]
    assert (found["skill"], found["ok"], found["line"]) == ("skill:sum", False, 11)


def test_a_skill_is_kept(cli: Cli, tools_file: Path, skill: Path, tmp_path: Path) -> None:
    """Check it against the tools, test it, and copy it; once more does no harm."""
    kept = tmp_path / "kept"
    for _ in range(2):
        done = cli("skill", "add", skill, "--to", kept, "-c", tools_file)
        assert done.exit_code == 0, done.stderr
    assert (kept / skill.name).read_text() == SUM
    assert cli("skill", "run", "sum", "a=1", "-c", tools_file, "-c", kept / skill.name).stdout == "3\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("math:add", "math:ad", "there is no tool math:ad"),
        ("{a: a, b: b}", "{a: a, c: b}", "math:add has no c"),
        ("returns := 3", "returns := 4", "its test 'small' fails: it gave 3 and not 4"),
        ("+++\nname", "++\nname", ""),
    ],
)
def test_a_wrong_skill_is_not_kept(
    cli: Cli, tools_file: Path, skill: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    """Refuse it, and write nothing."""
    skill.write_text(SUM.replace(old, new))
    done = cli("skill", "add", skill, "--to", tmp_path / "kept", "-c", tools_file)
    assert done.exit_code != 0
    assert message in done.stderr
    assert not (tmp_path / "kept").exists()


def test_two_files_of_one_name_are_refused(cli: Cli, tools_file: Path, skill: Path, tmp_path: Path) -> None:
    """Keep neither: one would be lost."""
    other = tmp_path / "other"
    other.mkdir()
    (other / skill.name).write_text(SUM)
    done = cli("skill", "add", skill, other / skill.name, "--to", tmp_path / "kept", "-c", tools_file)
    assert done.exit_code == 2
    assert "the same name" in done.stderr
    assert not (tmp_path / "kept").exists()


def test_another_skill_is_not_overwritten(cli: Cli, tools_file: Path, skill: Path, tmp_path: Path) -> None:
    """Keep a file that is there and differs, and all else."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / skill.name).write_text("mine")
    done = cli("skill", "add", skill, "--to", kept, "-c", tools_file)
    assert done.exit_code == 2
    assert "is there already and differs" in done.stderr
    assert (kept / skill.name).read_text() == "mine"


def test_a_full_disk_leaves_what_was_there(
    cli: Cli, tools_file: Path, skill: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No skill is added where one of them cannot be written, and nothing is left behind."""
    other = tmp_path / "other.workflow"
    other.write_text(SUM.replace('name = "sum"', 'name = "other"'))
    kept = tmp_path / "kept"
    done: list[int] = []

    def full(descriptor: int) -> None:
        done.append(descriptor)
        if len(done) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("toolexec.process.atomic.os.fsync", full)
    failed = cli("skill", "add", skill, other, "--to", kept, "-c", tools_file)
    assert failed.exit_code == 2
    assert "No space left on device" in failed.stderr
    assert list(kept.iterdir()) == []


def test_a_file_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    """Only its text is another one."""
    file, link = tmp_path / "a", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    replace_files({link: "new"})
    assert (file.read_text(), file.stat().st_mode & 0o777, link.is_symlink()) == ("new", 0o640, True)
    with pytest.raises(OSError):
        replace_files({file: "newer", tmp_path / "none" / "b": "x"})
    assert (file.read_text(), sorted(path.name for path in tmp_path.iterdir())) == ("new", ["a", "link"])
