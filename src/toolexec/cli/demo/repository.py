"""The Git repository that the demo works on: the one around the current directory, or a small one made for it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolexec.errors import ConfigurationError

_COMMITS: Final = (
    ("README.md", "# Weather station\n\nReads sensors and draws charts.\n", "Start the weather station"),
    ("station.py", 'def read(sensor):\n    """One value of a sensor."""\n    return sensor()\n', "Read sensors"),
    ("charts.py", "def chart(values):\n    for value in values:\n        print('#' * value)\n", "Draw charts"),
    (
        "test_station.py",
        "from station import read\n\n\ndef test_read():\n    assert read(lambda: 3) == 3\n",
        "Test sensors",
    ),
    ("README.md", "# Weather station\n\nReads sensors, draws charts, has tests.\n", "Mention the tests"),
)
_DAYS: Final = 43
"""So many readings follow, each a commit: enough of them for fifty tool calls."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A Git repository with commits; `made` when it exists only for the demo."""

    root: Path
    made: bool = False


@contextmanager
def some_repository() -> Generator[Repository, None, None]:
    """Yield the repository around the current directory if it has commits, else a temporary one that is deleted at the
    end.

    Raises ConfigurationError when git is not installed.
    """
    git = shutil.which("git")
    if git is None:
        raise ConfigurationError("the demo works on a Git repository and needs git; install it and try again")
    root = _git(git, Path.cwd(), "rev-parse", "--show-toplevel")
    if root and _git(git, Path(root), "rev-parse", "--verify", "HEAD"):
        yield Repository(Path(root))
        return
    with tempfile.TemporaryDirectory(prefix="toolexec-demo-") as directory:
        made = Path(directory).resolve()
        _fill(git, made)
        yield Repository(made, made=True)


def _fill(git: str, root: Path) -> None:
    """Make the history in one go; nothing of the user's own set-up, such as hooks or signing, has a part in it."""
    _git(git, root, "init", "--quiet")
    branch = _git(git, root, "symbolic-ref", "HEAD")
    _git(git, root, "fast-import", "--quiet", stdin="".join(_history(branch)))
    _git(git, root, "reset", "--hard", "--quiet")


def _history(branch: str) -> Iterator[str]:
    lines = "day,degrees\n"
    commits = list(_COMMITS)
    for day in range(1, _DAYS + 1):
        lines += f"{day},{12 + day * 7 % 11}\n"
        commits.append(("readings.csv", lines, f"Reading of day {day}"))
    began = int(time.time()) - len(commits) * 86_400
    for number, (name, text, message) in enumerate(commits):
        yield f"commit {branch}\ncommitter Ada Demo <ada@example.com> {began + number * 86_400} +0000\n"
        yield f"{_data(message)}M 644 inline {name}\n{_data(text)}"


def _data(text: str) -> str:
    return f"data {len(text.encode())}\n{text}\n"


def _git(git: str, directory: Path, *words: str, stdin: str = "") -> str:
    """Return what git prints, or nothing when it fails."""
    done = subprocess.run(  # noqa: S603 - a fixed command, without a shell
        [git, "-C", str(directory), *words], input=stdin, capture_output=True, text=True, errors="replace", check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""
