"""Set the version: every place that has it is named here, once."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from release.projects import ROOT, ReleaseError, version

_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_NUMBER = r"(\d+\.\d+\.\d+[a-z0-9.]*)"
_OPEN = "## [Unreleased]\n"


@dataclass(frozen=True, slots=True)
class Place:
    """A file, and a pattern whose only group is the version in it; it fits at least once."""

    path: Path
    pattern: str

    def found(self) -> list[str]:
        """Return the versions that are there. Raises ReleaseError where there are none."""
        found = re.findall(self.pattern, self.path.read_text(encoding="utf-8"), re.MULTILINE)
        if not found:
            raise ReleaseError(f"{self.path} has no version like {self.pattern}")
        return found

    def set(self, new: str) -> None:
        """Put *new* into each of them."""

        def replaced(match: re.Match[str]) -> str:
            start, end = match.start(1) - match.start(), match.end(1) - match.start()
            return match[0][:start] + new + match[0][end:]

        text = self.path.read_text(encoding="utf-8")
        self.path.write_text(re.sub(self.pattern, replaced, text, flags=re.MULTILINE), encoding="utf-8")


def places(root: Path = ROOT) -> Iterator[Place]:
    """Yield all places of the version, but for the changelog."""
    yield Place(root / "src/toolexec/version.py", rf'^__version__ = "{_NUMBER}"$')
    yield Place(root / "pyproject.toml", rf'"toolexec-[a-z-]+(?:\[[a-z,]+\])?=={_NUMBER}"')
    for path in sorted((root / "packages").glob("*/pyproject.toml")):
        yield Place(path, rf'^version = "{_NUMBER}"')
        yield Place(path, rf'"toolexec=={_NUMBER}"')
    yield Place(root / "server.json", rf'(?:"version": "|==){_NUMBER}"')
    yield from (Place(path, rf"^(?:appVersion|version): {_NUMBER}$") for path in root.glob("deploy/helm/*/Chart.yaml"))
    for path in sorted(root.glob("deploy/kubernetes/*.yaml")):
        yield Place(path, rf"image: \S+/toolexec(?:-runtime)?:{_NUMBER}$")


def unequal(root: Path = ROOT) -> list[str]:
    """Return a line for each place that has another version than version.py."""
    expected = version(root)
    return [
        f"{place.path.relative_to(root)} has the version {found}, not {expected}"
        for place in places(root)
        for found in place.found()
        if found != expected
    ]


def set_version(new: str, day: dt.date, root: Path = ROOT) -> list[Path]:
    """Give all files the version *new*, and the changelog its heading with the *day*; returns the files.

    Raises ReleaseError, and changes nothing, unless *new* is three numbers and later than the version now, all places
    have that, and the changelog says what is new.
    """
    old = version(root)
    if not _RELEASE.fullmatch(new):
        raise ReleaseError(f"a release has three numbers, such as 1.2.3, not {new!r}")
    if _numbers(new) <= _numbers(old):
        raise ReleaseError(f"{new} is not later than {old}")
    if problems := unequal(root):
        raise ReleaseError(*problems)
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    before, heading, after = text.partition(_OPEN)
    news = after.partition("\n## [")[0]
    if not heading or not re.search(r"^- ", news, re.MULTILINE):
        raise ReleaseError("CHANGELOG.md has nothing under [Unreleased]")
    for place in places(root):
        place.set(new)
    changelog.write_text(f"{before}{heading}\n## [{new}] - {day.isoformat()}\n{after}", encoding="utf-8")
    return sorted({changelog, *(place.path for place in places(root))})


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:3]))
