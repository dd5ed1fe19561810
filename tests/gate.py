"""Run the fast tier and then the rest of the full one, with coverage; check that every package keeps its branch coverage."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

FLOOR = 90.0


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "coverage.json"
        command = [sys.executable, "-m", "pytest", "--cov=toolexec", "--cov-branch", "--cov-report="]
        # In two parts, whose coverage adds up. The second runs after failures of the first, too, to report all at once.
        parts = (["--tier=fast"], ["--tier=above", "--cov-append", f"--cov-report=json:{report}"])
        codes = [subprocess.run([*command, *options, *sys.argv[1:]], check=False).returncode for options in parts]
        return max(codes, key=abs) or _gate(json.loads(report.read_text()))


def _gate(data: dict) -> int:
    covered: dict[str, int] = defaultdict(int)
    total: dict[str, int] = defaultdict(int)
    for name, file in data["files"].items():
        parts = Path(name).parts
        after = parts[parts.index("toolexec") + 1 :]
        package = after[0] if len(after) > 1 else "(top)"
        numbers = file["summary"]
        for key in (package, "all"):
            covered[key] += numbers["covered_lines"] + numbers["covered_branches"]
            total[key] += numbers["num_statements"] + numbers["num_branches"]
    shares = {package: 100 * covered[package] / total[package] for package in total if total[package]}
    print("\nCoverage of lines and branches:")
    for package, share in sorted(shares.items(), key=lambda item: item[1]):
        print(f"  {share:6.1f} %  {package}{'' if share >= FLOOR else f'   below {FLOOR:g} %'}")
    return int(any(share < FLOOR for share in shares.values()))


if __name__ == "__main__":
    sys.exit(main())
