"""The distributions of this repository."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent


class ReleaseError(Exception):
    """A release cannot be made like this; each of the `problems` is one line."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Project:
    """One directory with a `pyproject.toml`; its `module` is what it installs."""

    directory: Path
    module: str
    has_sdist: bool = True

    @property
    def settings(self) -> dict[str, Any]:
        """Its `pyproject.toml`."""
        return tomllib.loads((self.directory / "pyproject.toml").read_text(encoding="utf-8"))

    @property
    def name(self) -> str:
        """What an index calls it."""
        return self.settings["project"]["name"]

    @property
    def stem(self) -> str:
        """How the names of its files begin."""
        return self.name.replace("-", "_")


def projects(root: Path = ROOT) -> tuple[Project, ...]:
    """Return all of them, the core first. The code of the sandbox has no sources: it is made with the core's wheel."""
    packages = sorted(path.parent for path in (root / "packages").glob("*/pyproject.toml"))
    return (
        Project(root, "toolexec"),
        Project(root / "sandbox-wheel", "toolexec_sandbox", has_sdist=False),
        *(Project(path, f"toolexec_{path.name}".replace("-", "_")) for path in packages),
    )


def version(root: Path = ROOT) -> str:
    """Return the version that all of them have."""
    found = re.search(r'^__version__ = "([^"]+)"$', (root / "src/toolexec/version.py").read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise ReleaseError("src/toolexec/version.py has no line with __version__")
    return found[1]


def source_url(root: Path = ROOT) -> str:
    """Return where the repository is: what the core's metadata calls Source."""
    return projects(root)[0].settings["project"]["urls"]["Source"]
