"""What is in the repository: nothing of one machine, few dependencies, one version."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.workspace import APART, packages

from toolexec import __version__

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Written in pieces, so that this file does not find itself.
MACHINE = re.compile(r"(?<![\w.])/(?:home(?!/me\b)|root|work/(?:main|shared)|Users|private|var/directories)/[\w.-]+")
REGISTRY = re.compile(
    r"(?:files\.python"
    r"hosted\.org|pypi\."
    r"org/simple|registry\.npm"
    r"js\.org|index"
    r"-url|https?://[^\s/]*artifact)",
    re.IGNORECASE,
)


def _files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def strings() -> dict[str, str]:
    """Every text file of the repository."""
    found: dict[str, str] = {}
    for path in _files():
        data = path.read_bytes()
        if b"\0" not in data[:8000]:
            found[str(path.relative_to(ROOT))] = data.decode("utf-8")
    assert "pyproject.toml" in found
    return found


def _hits(strings: dict[str, str], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {match[0]}"
        for name, text in strings.items()
        for number, line in enumerate(text.splitlines(), 1)
        if (match := pattern.search(line))
    ]


def test_no_path_of_one_machine(strings: dict[str, str]) -> None:
    """No file names a directory of the machine that it was written on."""
    assert _hits(strings, MACHINE) == []


@pytest.mark.full
def test_no_registry(strings: dict[str, str]) -> None:
    """The index of packages is the installing user's choice."""
    assert _hits(strings, REGISTRY) == []


def test_nothing_large(strings: dict[str, str]) -> None:
    """No file is larger than 500 KB."""
    assert [str(path) for path in _files() if path.stat().st_size > 500_000] == []


def test_constraints_are_exact(strings: dict[str, str]) -> None:
    """Each line is a name and one version, and all are in order, once."""
    lines = [line for line in strings["constraints.txt"].splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []
    names = [line.partition("==")[0].lower().replace("_", "-") for line in lines]
    assert len(names) == len(set(names))


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", requirement)[0].lower() for requirement in requirements}


def _dependencies() -> list[str]:
    """Return what toolexec, its extras and the packages beside it need, but for each other."""
    extras = [entry for group in PROJECT["optional-dependencies"].values() for entry in group]
    projects = [package.settings["project"] for package in packages()]
    beside = [entry for project in projects for entry in project["dependencies"]]
    extras += [
        entry for project in projects for group in project.get("optional-dependencies", {}).values() for entry in group
    ]
    return [entry for entry in (*PROJECT["dependencies"], *extras, *beside) if not entry.startswith("toolexec")]


def test_dependencies_are_bounded() -> None:
    """Each has a lower and an upper bound, so that a new major version breaks no user."""
    assert [entry for entry in _dependencies() if "<" not in entry] == []


def test_dependencies_are_constrained(strings: dict[str, str]) -> None:
    """Each direct dependency has its version in constraints.txt."""
    known = {line.partition("==")[0].lower().replace("_", "-") for line in strings["constraints.txt"].splitlines()}
    assert _names(_dependencies()) <= known


def test_all_is_all_extras() -> None:
    """The extra `all` names every other one, but for those that are apart."""
    extras = PROJECT["optional-dependencies"]
    named = {name for entry in extras["all"] for name in re.findall(r"toolexec\[([\w,-]+)\]", entry)}
    assert {part for name in named for part in name.split(",")} == set(extras) - {"all"} - APART


def test_the_version_is_semantic() -> None:
    """Three numbers, and perhaps a pre-release."""
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+|\.dev\d+)?", __version__)


def test_the_changelog_begins_with_this_version(strings: dict[str, str]) -> None:
    """Its first heading is the version, or says that it is not released yet."""
    headings = re.findall(r"^## \[?([^\]\s]+)", strings.get("CHANGELOG.md", f"## {__version__}"), re.MULTILINE)
    assert headings[0].lower() in (__version__, "unreleased")


def test_licence_and_readme() -> None:
    """Files that pyproject.toml names exist."""
    assert PROJECT["license"] == "MIT"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (fragment,) = settings["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["fragments"]
    assert (ROOT / fragment["path"]).is_file()
    assert all((ROOT / name).is_file() for name in PROJECT["license-files"])
