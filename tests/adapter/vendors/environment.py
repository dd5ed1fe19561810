"""Virtual environments with the packages of vendors that cannot be installed beside everything else.

`python -m tests.adapter.vendors.environment` makes those that tests use, which takes minutes with an empty cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[3]
REQUIREMENTS = Path(__file__).parent / "requirements.txt"
FRAMEWORKS = ROOT / "tests" / "integrations" / "frameworks" / "requirements.txt"


def vendor_python(requirements: Path = REQUIREMENTS) -> Path:
    """Give the Python of the environment with these, made once per version in the user's cache directory."""
    wanted = [*_lines(requirements.read_text()), *_own_requirements()]
    digest = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolexec" / "vendors"
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / digest
    with (cache / "lock").open("w") as lock:  # several runs at once make it once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            shutil.rmtree(place, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
            command = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted]
            # The constraints of this project's own environment are what these packages do not resolve with.
            environment = {key: value for key, value in os.environ.items() if key != "PIP_CONSTRAINT"}
            subprocess.run(command, check=True, timeout=1800, env=environment)
            (place / "complete").touch()
    return place / "bin" / "python"


def _own_requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["mcp"]]


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


if __name__ == "__main__":
    for each in (REQUIREMENTS, FRAMEWORKS):
        vendor_python(each)
