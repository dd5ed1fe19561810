"""The files of this directory are never run, only type-checked, as a strict user would check them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

HERE = Path(__file__).parent
PYRIGHT = Path(sys.executable).with_name("pyright")


@pytest.mark.skipif(not PYRIGHT.exists(), reason="pyright is not installed")
def test_user_code_passes_a_strict_type_checker() -> None:
    """Typed user code passes, and its mistakes are found."""
    done = subprocess.run(
        [PYRIGHT, "--project", HERE / "pyrightconfig.json", "--pythonpath", sys.executable, "--outputjson"],
        capture_output=True,
        text=True,
        check=False,
        timeout=85,
    )
    report = json.loads(done.stdout)
    found = [
        f"{Path(problem['file']).name}:{problem['range']['start']['line'] + 1}: {problem['message']}"
        for problem in report["generalDiagnostics"]
    ]
    assert found == []
    assert report["summary"]["filesAnalyzed"] >= len(list(HERE.glob("user_*.py")))
