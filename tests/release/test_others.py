"""The promises on the Pythons between the oldest and the newest, and what one that is too old says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import ClassVar

from tests.release.environments import OLDEST, ROOT, pythons, supported
from tests.release.promises import Promises
from tests.tiers import missing


class TestBetween(Promises):
    """Only the bare package is installed here."""

    versions: ClassVar[list[tuple[int, int]]] = supported()[1:-1]


def test_an_older_python_is_refused_in_words(wheel: Path, tmp_path: Path) -> None:
    """pip and make both say which Python is needed, in a sentence."""
    older = [python for version, python in pythons().items() if version < OLDEST]
    if not older:
        missing("no Python older than 3.11 is here", "pyenv install 3.10")
    python = older[-1]
    pip = [python, "-m", "pip", "download", "--no-deps", "-d", str(tmp_path), str(wheel)]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode != 0
    assert re.search(r"requires a different Python: 3\.\d+\.\d+ not in '>=3\.11'", done.stderr)
    for target in ("demo", "test"):
        make = ["make", target, f"PYTHON={python}", f"VENV={tmp_path / 'env'}"]
        done = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0
        assert "toolexec needs Python 3.11 or newer; this is Python 3." in done.stdout + done.stderr
        assert "PYTHON=" in done.stdout + done.stderr
        assert not (tmp_path / "env").exists()
