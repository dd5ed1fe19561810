"""Packages of Debian from the mirror that a root file system was installed from: found in its lists, fetched, read."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.errors.extras import extra_needed
from toolexec.process.steps import OnStep, run_work

_LISTS: Final = "var/lib/apt/lists"
_SOURCE: Final = re.compile(r"deb\s+(?:\[[^\]]*\]\s+)?(?:[a-z]+://)?(\S+?)/*\s")
_ADDRESS: Final = re.compile(r"deb\s+(?:\[[^\]]*\]\s+)?(\S+?)/*\s")
_MAX_BYTES: Final = 400 << 20
_TIMEOUT: Final = 60.0
_USUAL_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One package of a list: where it is fetched from, and the hash that it must have."""

    name: str
    version: str
    address: str
    sha256: str
    depends: str = ""


class Packages:
    """What the mirrors of the tree *root* have, as the tool that installed it has verified and left there.

    Raises MissingExtraError without the extra `images`, which knows the order of Debian's versions.
    """

    def __init__(self, root: Path) -> None:
        with extra_needed("images", "reading the packages of Debian"):
            from debian.debian_support import NativeVersion
        self._known: dict[str, Package] = {}
        sources = _sources(root)
        for path in sorted((root / _LISTS).glob("*_Packages")):
            address = next((address for place, address in sources.items() if path.name.startswith(place)), "")
            if not address and len(sources) == 1:  # debootstrap names the list of a local mirror otherwise
                address = next(iter(sources.values()))
            for package in _packages(path, address):
                known = self._known.get(package.name)
                if known is None or NativeVersion(known.version) < NativeVersion(package.version):
                    self._known[package.name] = package

    def find(self, name: str) -> Package:
        """Return the latest version of a package. Raises ConfigurationError when the mirror has none."""
        found = self._known.get(name)
        if found is None or not found.address:
            raise ConfigurationError(f"the mirror has no package {name}; give another release with --suite")
        return found

    def fetch(
        self, package: Package, wanted: Callable[[str], bool], *, progress: OnStep | None = None
    ) -> dict[str, bytes]:
        """Return path → content of those files in *package* that are *wanted*.

        Raises ConfigurationError when it cannot be fetched, or is not what the list of the mirror says.
        """

        def work() -> dict[str, bytes]:
            return _files(package, _download(package), wanted)

        return run_work(
            work,
            name="packages",
            message=f"fetching {package.name}",
            usual_seconds=_USUAL_SECONDS,
            progress=progress,
        )


def _sources(root: Path) -> dict[str, str]:
    """Return how the names of lists begin → the address of their mirror, the longest names first."""
    text = (root / "etc/apt/sources.list").read_text("utf-8") if (root / "etc/apt/sources.list").is_file() else ""
    found: dict[str, str] = {}
    for row in text.splitlines():
        place, address = _SOURCE.match(row), _ADDRESS.match(row)
        if place is not None and address is not None:
            found[place[1].replace("_", "%5f").replace("/", "_") + "_dists_"] = address[1]
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def _packages(path: Path, address: str) -> Iterator[Package]:
    for part in path.read_text("utf-8", "replace").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in part.splitlines() if ": " in line and line[0] != " ")
        if {"Package", "Version", "Filename", "SHA256"} <= fields.keys():
            yield Package(
                name=fields["Package"],
                version=fields["Version"],
                address=f"{address}/{fields['Filename']}" if address else "",
                sha256=fields["SHA256"],
                depends=fields.get("Depends", ""),
            )


def _download(package: Package) -> bytes:
    try:
        with urllib.request.urlopen(package.address, timeout=_TIMEOUT) as answer:  # noqa: S310 - the user's mirror
            data = answer.read(_MAX_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{package.address} cannot be fetched: {error}") from error
    if hashlib.sha256(data).hexdigest() != package.sha256:
        raise ConfigurationError(
            f"{package.address} is not what the list of the mirror says; try again later, or give another --mirror"
        )
    return data


def _files(package: Package, data: bytes, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    try:
        member = next((body for name, body in _members(data) if name.startswith("data.tar")), b"")
        with tarfile.open(fileobj=io.BytesIO(member)) as tar:
            found: dict[str, bytes] = {}
            for entry in tar:
                name = entry.name.removeprefix("./")
                file = tar.extractfile(entry) if entry.isreg() and wanted(name) else None
                if file is not None:
                    found[name] = file.read()
            return found
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise ConfigurationError(f"the package {package.name} cannot be read: {error}") from error


def _members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the members of an `ar` archive."""
    if not data.startswith(b"!<arch>\n"):
        raise ValueError("it is not an archive")
    place = 8
    while place + 60 <= len(data):
        name, size = data[place : place + 16].decode("ascii").strip().rstrip("/"), int(data[place + 48 : place + 58])
        if place + 60 + size > len(data):
            raise ValueError("it is cut off")
        yield name, data[place + 60 : place + 60 + size]
        place += 60 + size + size % 2
