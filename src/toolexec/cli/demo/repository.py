"""The Git repository that the demo works on: the one around the current folder, or a small one made for it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolexec.errors import ConfigurationError

__all__ = ["Repository", "some_repository"]

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


@dataclass(frozen=True, slots=True)
class Repository:
    """A Git repository with commits; `made` when it exists only for the demo."""

    root: Path
    made: bool = False


@contextmanager
def some_repository() -> Generator[Repository, None, None]:
    """The repository around the current folder if it has commits, else a temporary one that is deleted at the end.

    Raises ConfigurationError when git is not installed.
    """
    git = shutil.which("git")
    if git is None:
        raise ConfigurationError("the demo works on a Git repository and needs git; install it and try again")
    root = _git(git, Path.cwd(), "rev-parse", "--show-toplevel")
    if root and _git(git, Path(root), "rev-parse", "--verify", "HEAD"):
        yield Repository(Path(root))
        return
    with tempfile.TemporaryDirectory(prefix="toolexec-demo-") as folder:
        made = Path(folder).resolve()
        _fill(git, made)
        yield Repository(made, made=True)


def _fill(git: str, root: Path) -> None:
    _git(git, root, "init", "--quiet")
    person = ("-c", "user.name=Ada Demo", "-c", "user.email=ada@example.com")
    plain = ("-c", "commit.gpgsign=false", "-c", "core.hooksPath=/dev/null")  # nothing of the user's own set-up
    for name, text, message in _COMMITS:
        (root / name).write_text(text, encoding="utf-8")
        _git(git, root, "add", name)
        _git(git, root, *person, *plain, "commit", "--quiet", "--message", message)


def _git(git: str, folder: Path, *words: str) -> str:
    """What git prints, or nothing when it fails."""
    done = subprocess.run(  # noqa: S603 - a fixed command, without a shell
        [git, "-C", str(folder), *words], capture_output=True, text=True, errors="replace", check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""
