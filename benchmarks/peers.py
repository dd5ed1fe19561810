"""The environment with the peers: made when it is missing, or when `peers.txt` has changed."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".bench" / "peers"
RECORD = FOLDER / "installed.json"
REQUIREMENTS = Path(__file__).with_name("peers.txt")


@dataclass(frozen=True, slots=True)
class Peers:
    """The peers' interpreter, and why a peer is not there (by requirement)."""

    python: Path
    problems: dict[str, str] = field(default_factory=dict[str, str])


def prepare_peers() -> Peers:
    """Make the environment, install what is missing, and say what could not be installed."""
    python = FOLDER / "bin" / "python"
    wanted = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    if RECORD.exists():
        record = json.loads(RECORD.read_text())
        if record == {"wanted": wanted, "python": sys.version}:
            return Peers(python)
    print(f"Installing the peers into {FOLDER.relative_to(ROOT)} ...", flush=True)
    problems: dict[str, str] = {}
    try:
        venv.create(FOLDER, with_pip=True, clear=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return Peers(python, dict.fromkeys(wanted, f"no environment: {error}"))
    for requirement in wanted:
        problem = install(python, requirement)
        if problem:
            problems[requirement] = problem
    if not problems:
        RECORD.write_text(json.dumps({"wanted": wanted, "python": sys.version}))
    return Peers(python, problems)


def install(python: Path, requirement: str) -> str:
    """Install one requirement; what went wrong, or nothing."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]
    done = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
    return "" if done.returncode == 0 else lines[-1].removeprefix("ERROR: ")[:200]
