"""A call passes few enough files that a person can hold them in the head."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("kind", "most"), [("local", 8), ("served", 28), ("direct", 28)])
def test_a_warm_call_passes_few_files(kind: str, most: int) -> None:
    """The count is taken in a process of its own, where nothing else runs; its threads are counted, too."""
    command = [sys.executable, "-m", "tests.files_per_call", "--list", kind]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) <= most, done.stdout
