"""The guide to reading names the files that a call passes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def passed(kind: str) -> list[str]:
    """List the files that a warm call passes, counted in a process where nothing else runs, threads included."""
    command = [sys.executable, "-m", "tests.files_per_call", "--list", kind]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return re.findall(r"^ *\d+  (\S+)$", done.stdout, re.MULTILINE)


@pytest.mark.full
@pytest.mark.parametrize(("kind", "heading"), [("local", "One call"), ("code", "One run of code")])
def test_the_reading_guide_names_the_files(kind: str, heading: str) -> None:
    """Compare the tables of docs/reading.md with what a real call passes."""
    section = (ROOT / "docs" / "reading.md").read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\S+)` \|", section, re.MULTILINE)
    files = {*passed(kind)}
    assert {*listed} - files == set(), "the call does not pass these"
    prewarming = {name for name in files if name.startswith("runtime/wasm/")}  # the next guest, at the same time
    assert files - prewarming - {*listed} == set(), "the guide does not name these"
