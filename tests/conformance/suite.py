"""The official conformance suite, in its last stable version and in its newest, as the tests run it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from tests.servers import require_modern_node, require_npm_entry, server_environment

Version = Literal["stable", "newest"]
VERSIONS: tuple[Version, ...] = ("stable", "newest")
_ENTRIES = {
    "stable": "conformance-stable/dist/index.js",
    "newest": "@modelcontextprotocol/conformance/dist/index.js",
}
_LINE = re.compile(r"^[✓✗] (\S+): (\d+) passed, (\d+) failed", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What the suite said: checks passed and failed by scenario, and whether all is as expected."""

    as_expected: bool
    scenarios: dict[str, tuple[int, int]]
    text: str


def run_suite(version: Version, role: Literal["client", "server"], *more: str) -> Outcome:
    """Run all scenarios of a role; the suite itself compares with the expected failures, in both directions."""
    command = [
        require_modern_node(),
        str(require_npm_entry(_ENTRIES[version])),
        role,
        "--suite",
        "all",
    ]
    if (version, role) != ("stable", "server"):
        command += ["--timeout", "240000"]
    command += ["--expected-failures", str(expected_file(version)), *more]
    with tempfile.TemporaryDirectory() as state:
        done = subprocess.run(
            command,
            env=server_environment(XDG_STATE_HOME=state),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            errors="replace",
        )
    text = f"{done.stdout}\n{done.stderr}"
    scenarios = {name: (int(passed), int(failed)) for name, passed, failed in _LINE.findall(text)}
    return Outcome(done.returncode == 0, scenarios, text)


def expected_file(version: Version) -> Path:
    """The file with the failures that are expected."""
    return Path(__file__).parent / "expected" / f"{version}.yml"


def expected_failures(version: Version, role: Literal["client", "server"]) -> set[str]:
    """The scenarios that are expected to fail."""
    return set(yaml.safe_load(expected_file(version).read_text())[role])
