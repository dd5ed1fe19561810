"""A home that nothing can be written to, as in a container: a command works, or says what to set."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.skipif(not Path("/dev/null").exists(), reason="this system has no /dev/null")


@pytest.fixture
def run(tools_file: Path, tmp_path: Path) -> Run:
    """Call toolexec with a home below which nothing can be made, not by root either."""
    (tmp_path / "toolexec.toml").write_text(f'[sources]\npython = ["{tools_file.name}"]\n')
    (tmp_path / "program.py").write_text("return 1\n")

    def call(words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "HOME": os.devnull, "XDG_CACHE_HOME": "", "XDG_STATE_HOME": "", "TOOLEXEC_CACHE": ""}
        return subprocess.run(
            [sys.executable, "-m", "toolexec", *words.split()],
            cwd=tools_file.parent,
            env=env | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


def test_tools_need_no_home(run: Run) -> None:
    """A tool is called, as it is elsewhere."""
    done = run("run math:add a=1 b=2 -c app.py --raw")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "3"


REFUSED = {
    "serve -c toolexec.toml": (2, "XDG_STATE_HOME"),
    "runs list -c toolexec.toml": (3, "name a file in a directory that can be written to"),
    "sandbox list": (2, "TOOLEXEC_CACHE"),
    "install cursor --yes -c toolexec.toml": (2, "cannot write /dev/null/"),
}
"""The exit code of each command that must keep something, and what its message says."""


@pytest.mark.parametrize("words", REFUSED)
def test_what_must_be_kept_is_refused_in_a_sentence(run: Run, words: str) -> None:
    """The place, the reason and what to set; never a traceback, and never a bug to report."""
    done = run(words)
    code, said = REFUSED[words]
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: "), done.stderr
    assert said in last
    assert "/dev/null" in last
    assert "Not a directory" in last
    assert "Traceback" not in done.stderr
    assert "bug" not in last
    assert done.returncode == code


def test_another_place_is_enough(run: Run, tmp_path: Path) -> None:
    """With the variable that the message names, the same command works."""
    done = run("sandbox list", TOOLEXEC_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    done = run("runs list -c toolexec.toml", XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.returncode == 0, done.stderr
