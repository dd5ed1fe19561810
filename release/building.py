"""Build everything that is published, from one tree: sources first, and the wheels from these."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from release.projects import ROOT, Project, ReleaseError, projects

_QUIET: Final = ("--quiet", "--disable-pip-version-check")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_sdist(project: Project, into: Path) -> Path:
    """Build the archive of its sources. Raises ReleaseError with what the build printed when it fails."""
    into.mkdir(parents=True, exist_ok=True)
    _run(["build", "--sdist", "--outdir", str(into), str(project.directory)], {})
    (found,) = into.glob(f"{project.stem}-[0-9]*.tar.gz")
    return found


def build_wheels(sources: list[Path], into: Path, environment: dict[str, str] | None = None) -> None:
    """Build a wheel of each directory or archive of sources. Raises ReleaseError as above."""
    _run(["pip", "wheel", *_QUIET, "--no-deps", "--wheel-dir", str(into), *map(str, sources)], environment or {})


def build_all(dist: Path, root: Path = ROOT) -> list[str]:
    """Build all distributions into the directory *dist*, in place of what is there; returns what differs when the
    wheels are built once more, from the tree. That takes minutes. Raises ReleaseError when a build fails.
    """
    with tempfile.TemporaryDirectory(prefix="toolexec-release-") as name:
        work = Path(name)
        kept = {"TOOLEXEC_COMPONENT": str(work / "component"), "TOOLEXEC_COMPILED": str(work / "compiled")}
        every = projects(root)
        archives = [build_sdist(project, work / "dist") for project in every if project.has_sdist]
        others = [project.directory for project in every if not project.has_sdist]
        build_wheels([*archives, *others], work / "dist", kept)
        build_wheels([project.directory for project in every], work / "again", kept)
        problems = unlike(work / "dist", work / "again")
        shutil.rmtree(dist, ignore_errors=True)
        shutil.move(work / "dist", dist)
    return problems


def unlike(first: Path, second: Path) -> list[str]:
    """Return a line for each wheel of two directories that is not in both with the same bytes."""
    one, two = ({path.name: digest(path) for path in each.glob("*.whl")} for each in (first, second))
    differing = [name for name in sorted({*one, *two}) if one.get(name) != two.get(name)]
    return [f"{name} is not the same when it is built again" for name in differing]


def _run(arguments: list[str], environment: dict[str, str]) -> None:
    env = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), **os.environ, **environment}
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} failed:", *(done.stdout + done.stderr).splitlines()[-30:])
