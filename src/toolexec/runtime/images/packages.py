"""Packages from PyPI in a root file system: fetched with this Python's pip for the Python in there."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONValue
from toolexec.process.steps import OnStep, run_command
from toolexec.runtime.images.debian import build_environment, in_tree
from toolexec.runtime.images.tree import open_to_all

DIRECTORY: Final = "usr/lib/python3/dist-packages"
"""Where Debian's Python looks for packages, at any version of it."""

_SCRIPTS: Final = "usr/local/bin"
_USUAL_SECONDS: Final = 6.0
_COMPILE_SECONDS: Final = 5.0
_CAP_SECONDS: Final = 900.0
_OLDEST_GLIBC: Final = 5
_KEPT: Final = re.compile(
    "PIP_(?:CACHE_DIR|CERT|CLIENT_CERT|CONFIG_FILE|CONSTRAINT|EXTRA_INDEX_URL|FIND_LINKS|INDEX_URL|NO_CACHE_DIR"
    "|NO_INDEX|PRE|PROXY|RETRIES|TIMEOUT|DEFAULT_TIMEOUT|TRUSTED_HOST)"
)
_NOT_FOUND: Final = re.compile(r"(?:No matching distribution found for|satisfies the requirement) ([^\s(]+)")
# pip decides by the Python that runs it which packages others need on the Python in the image.
_MISSING: Final = """
import json, sys
from importlib.metadata import distributions
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name
directory, version = sys.argv[1:]
found = {canonicalize_name(d.name): d for d in distributions(path=[directory])}
environment = {"python_version": version, "python_full_version": version + ".0", "extra": ""}
needed = (Requirement(text) for d in found.values() for text in d.requires or ())
missing = {str(r).split(";")[0].strip() for r in needed
           if canonicalize_name(r.name) not in found and (not r.marker or r.marker.evaluate(environment))}
print(json.dumps(sorted(missing)))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One version of a package, and the SHA-256 of its wheel."""

    version: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What packages are fetched for: a version of Python such as `3.11`, and one of glibc such as `2.36`."""

    python: str
    glibc: str


def install_packages(
    root: Path,
    requirements: Sequence[str],
    target: Target,
    *,
    pins: Mapping[str, Pin] | None = None,
    work: Path,
    progress: OnStep | None,
) -> dict[str, Pin]:
    """Fetch *requirements* and what they need into the tree *root*; gives name → version of all.

    With *pins*, those and nothing else. Only wheels get in: they are unpacked, and none of their code runs. *work* is a
    directory for logs. Raises ConfigurationError that names the package which cannot be had.
    """
    if not requirements and not pins:
        return {}
    made = work / "packages"
    if pins:
        lines = [f"{name}=={pin.version} --hash=sha256:{pin.sha256}" for name, pin in sorted(pins.items())]
        (work / "pins.txt").write_text("\n".join(lines) + "\n")
        found = fetch(["--no-deps", "--require-hashes", "-r", str(work / "pins.txt")], made, target, work, progress)
    else:
        wanted = [*requirements]
        found = fetch(["--", *wanted], made, target, work, progress)
        while missing := set(_missing(made, target, work, progress)) - {*wanted}:
            wanted += sorted(missing)
            shutil.rmtree(made)
            found = fetch(["--", *wanted], made, target, work, progress)
    _move_in(made, root)
    return found


def fetch(words: Sequence[str], made: Path, target: Target, work: Path, progress: OnStep | None) -> dict[str, Pin]:
    """Have pip put what *words* ask for into the new directory *made*; gives name → version of all."""
    if find_spec("pip") is None:
        raise ConfigurationError(
            f"adding packages to an image needs pip, which {sys.executable} does not have; install it with: "
            f"{sys.executable} -m ensurepip"
        )
    report = work / "report.json"
    command = [sys.executable, "-m", "pip", "install", "--target", str(made), "--only-binary=:all:", "--no-compile"]
    command += ["--python-version", target.python, "--implementation", "cp", *_platforms(target.glibc)]
    command += ["--no-input", "--disable-pip-version-check", "--no-warn-conflicts", "--quiet", "--report", str(report)]
    code, output = run_command(
        [*command, *words],
        directory=work,
        environment=_pip_environment(),
        name="packages",
        message="fetching packages from PyPI",
        usual_seconds=_USUAL_SECONDS,
        cap_seconds=_CAP_SECONDS,
        progress=progress,
    )
    if code != 0:
        raise _refusal(output, target)
    return _pins(json.loads(report.read_text("utf-8")))


def compile_packages(root: Path, *, work: Path, progress: OnStep | None) -> None:
    """Compile the packages in the tree *root* with its own Python, so that programs that import them start faster.

    What comes out depends on nothing but the sources. Raises ConfigurationError when the Python does not run.
    """
    options = ["-q", "--invalidation-mode", "unchecked-hash"]
    code, output = run_command(
        in_tree(root, ["/usr/bin/python3", "-S", "-m", "compileall", *options, f"/{DIRECTORY}"]),
        directory=work,
        environment={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
        name="packages",
        message="compiling packages",
        usual_seconds=_COMPILE_SECONDS,
        cap_seconds=_CAP_SECONDS,
        progress=progress,
    )
    if code not in (0, 1):  # 1 says that some file is not Python of this version, as packages have them
        raise ConfigurationError(f"the Python of the image does not run: {output[-600:] or f'exit code {code}'}")


def _pip_environment() -> dict[str, str]:
    """Return where packages come from stays the user's choice; other settings would put them elsewhere."""
    return build_environment(**{key: value for key, value in os.environ.items() if _KEPT.fullmatch(key)})


def _platforms(glibc: str) -> list[str]:
    """Return the names of all platforms whose wheels run with this glibc on this kind of processor."""
    arch = platform.machine()
    minor = int(glibc.partition(".")[2] or 17)
    names = [f"manylinux_2_{number}_{arch}" for number in range(minor, _OLDEST_GLIBC - 1, -1)]
    names += [f"manylinux{year}_{arch}" for year in ("2014", "2010", "1")]
    return [word for name in (*names, f"linux_{arch}") for word in ("--platform", name)]


def _missing(made: Path, target: Target, work: Path, progress: OnStep | None) -> list[str]:
    if target.python == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return []
    code, output = run_command(
        [sys.executable, "-I", "-c", _MISSING, str(made), target.python],
        directory=work,
        environment=_pip_environment(),
        name="packages",
        message="looking for what packages need",
        usual_seconds=1,
        cap_seconds=60,
        progress=progress,
    )
    return json.loads(output) if code == 0 else []


def _pins(report: JSONValue) -> dict[str, Pin]:
    found: dict[str, Pin] = {}
    for item in report["install"]:
        name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        hashes = item["download_info"].get("archive_info", {}).get("hashes", {})
        found[name] = Pin(version=item["metadata"]["version"], sha256=hashes.get("sha256", ""))
    return dict(sorted(found.items()))


def _move_in(made: Path, root: Path) -> None:
    """Move what pip has unpacked to where Debian's Python finds it, and its programs to where a shell does."""
    for script in sorted((made / "bin").glob("*")):
        script.write_bytes(_first_line(sys.executable).sub(b"#!/usr/bin/python3\n", script.read_bytes(), count=1))
        script.chmod(0o755)
        place = root / _SCRIPTS / script.name
        place.parent.mkdir(parents=True, exist_ok=True)
        script.rename(place)
    shutil.rmtree(made / "bin", ignore_errors=True)
    for record in made.glob("*.dist-info/RECORD"):  # it has the hash of programs as pip made them for this machine
        lines = record.read_text("utf-8").splitlines(keepends=True)
        record.write_text("".join(line for line in lines if not line.startswith(("../../bin/", "bin/"))), "utf-8")
    open_to_all(made)
    for path in sorted(made.iterdir()):
        place = root / DIRECTORY / path.name
        if place.exists():
            raise ConfigurationError(f"PyPI packages bring {path.name}, which Debian's Python has already")
        path.rename(place)


def _first_line(python: str) -> re.Pattern[bytes]:
    """Return how a script begins that pip has made for *python*; the second form is for long paths."""
    path = re.escape(python.encode())
    return re.compile(rb"\A#!(?:" + path + rb"|/bin/sh\n'''exec' \"?" + path + rb"\"? [^\n]*\n' ''')\n")


def _refusal(output: str, target: Target) -> ConfigurationError:
    match = _NOT_FOUND.search(output)
    if match is None:
        return ConfigurationError(f"cannot fetch the packages; pip said: {output or 'nothing'}")
    return ConfigurationError(
        f"there is no wheel of {match[1]} for Python {target.python} on Linux, or no such name or version",
        details={"output": output},
    )
