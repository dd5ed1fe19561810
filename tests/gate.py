"""Run what the full tier has above the fast one, add its coverage to that of the fast tier, and check every package's."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

FLOOR = 90.0


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "coverage.json"
        command = [sys.executable, "-m", "pytest", "--tier=above", "--cov", "--cov-branch", "--cov-append"]
        # A virtual machine's image is built in two minutes here, and in five where other work goes on beside it.
        options = [f"--cov-report=json:{report}", "--durations=60", "--durations-min=5", "-ofaulthandler_timeout=600"]
        options += sys.argv[1:]
        code = subprocess.run([*command, *options], check=False).returncode
        return code or _gate(json.loads(report.read_text()))


def _gate(data: dict[str, Any]) -> int:
    covered: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for name, file in data["files"].items():
        package = _package(Path(name).parts)
        numbers = file["summary"]
        for key in (package, "all"):
            covered[key] += numbers["covered_lines"] + numbers["covered_branches"]
            total[key] += numbers["num_statements"] + numbers["num_branches"]
    shares = {package: 100 * covered[package] / total[package] for package in total if total[package]}
    print("\nCoverage of lines and branches:")
    for package, share in sorted(shares.items(), key=lambda item: item[1]):
        print(f"  {share:6.1f} %  {package}{'' if share >= FLOOR else f'   below {FLOOR:g} %'}")
    return int(any(share < FLOOR for share in shares.values()))


def _package(parts: tuple[str, ...]) -> str:
    """Return the package that a file is part of: a directory of toolexec, or one of `packages/`."""
    if "toolexec" not in parts:
        return "/".join(parts[:2])
    after = parts[parts.index("toolexec") + 1 :]
    return after[0] if len(after) > 1 else "(top)"


if __name__ == "__main__":
    sys.exit(main())
