"""Print the figures that show where the project grows: `make report`.

    python -m tests.figures [--quick]

Lines and the word `Any` by package, classes of errors, public names, dependencies, and lines of the engines for
containers; then the files that one warm call of each kind passes, which `--quick` leaves out.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests import files_per_call, launchers, workspace

import toolexec
from toolexec import errors

_ROOT = Path(toolexec.__file__).parent
_PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def packages() -> Iterator[str]:
    """Give a line for each package: its files, its lines, and how often `Any` stands in a thousand of them."""
    yield f"{'package':<14} files   lines  Any in 1,000"
    sources: dict[str, list[str]] = {}
    for path in sorted(_ROOT.rglob("*.py")):
        parts = path.relative_to(_ROOT).parts
        sources.setdefault(parts[0] if len(parts) > 1 else "(top)", []).append(path.read_text(encoding="utf-8"))
    for package in workspace.packages():
        sources[f"packages/{package.name}"] = [
            path.read_text(encoding="utf-8") for path in sorted(package.source.rglob("*.py"))
        ]
    sources["all"] = [text for group in sources.values() for text in group]
    for name, group in sources.items():
        lines = sum(text.count("\n") for text in group)
        found = sum(len(re.findall(r"\bAny\b", text)) for text in group)
        yield f"{name:<14} {len(group):5} {lines:7} {1000 * found / max(lines, 1):13.1f}"


def names() -> Iterator[str]:
    """Give the numbers of public names, of classes of errors, and of dependencies that everyone needs."""
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
    homes = (getattr(errors, name) for name in errors.__all__)
    kinds = [kind for kind in homes if isinstance(kind, type) and issubclass(kind, Exception)]
    yield f"names of the front door  {len(toolexec.__all__)}"
    yield f"classes of errors        {len(kinds)}"
    yield f"dependencies             {len(project['dependencies'])}"


def engines() -> Iterator[str]:
    """Give a line for each engine for containers: the lines of its launcher, and of what it has beside that."""
    for name in launchers.engines():
        launcher, beside = launchers.count(name)
        yield f"{name:12} launcher {launcher:5}  beside it {beside:5}"


def calls() -> Iterator[str]:
    """Give a line for each kind of call, counted in a process where nothing else runs."""
    for kind in files_per_call.KINDS:
        command = [sys.executable, "-m", "tests.files_per_call", kind]
        done = subprocess.run(command, cwd=_PROJECT.parent, capture_output=True, text=True, timeout=120, check=False)
        said = done.stdout.strip() or (done.stderr.strip().splitlines() or ["nothing"])[-1]
        yield f"a warm call ({kind:<6})  {said}"


def main(words: list[str]) -> None:
    """Print all parts."""
    for part in (packages, names, engines, *(() if "--quick" in words else (calls,))):
        print(*part(), "", sep="\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
