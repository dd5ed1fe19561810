"""Packages of Debian, from the mirror that a tree was installed from."""

from __future__ import annotations

import hashlib
import io
import lzma
import tarfile
from pathlib import Path

import pytest

from toolexec.errors import ConfigurationError
from toolexec.runtime.images.deb import Packages


def deb(**files: str) -> bytes:
    """A package with these files."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"./usr/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    found = b"!<arch>\n"
    for name, body in (("debian-binary", b"2.0"), ("data.tar.xz", lzma.compress(tar.getvalue()))):
        found += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(body):<10}`\n".encode() + body + b"\n" * (len(body) % 2)
    return found


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A directory with the package `tool`."""
    (tmp_path / "mirror/pool").mkdir(parents=True)
    (tmp_path / "mirror/pool/tool.deb").write_bytes(deb(tool="1", other="2"))
    return tmp_path / "mirror"


def make_root(tmp_path: Path, mirror: Path, *versions: str, damaged: bool = False) -> Path:
    """A tree whose lists have `tool` in these versions."""
    root = tmp_path / "root"
    lists = root / "var/lib/apt/lists"
    lists.mkdir(parents=True)
    (root / "etc/apt").mkdir(parents=True)
    (root / "etc/apt/sources.list").write_text(f"# mine\ndeb [trusted=yes] file://{mirror} bookworm main\n")
    data = (mirror / "pool/tool.deb").read_bytes() + (b"x" if damaged else b"")
    rows = [
        f"Package: tool\nVersion: {version}\nDepends: libc6 (>= 2),\n more\nFilename: pool/tool.deb\nSHA256: "
        f"{hashlib.sha256(data).hexdigest()}\n"
        for version in versions
    ]
    name = str(mirror).replace("/", "_") + "_dists_bookworm_main_binary-amd64_Packages"
    (lists / name).write_text("\n".join(rows))
    return root


def test_the_latest_version_is_fetched(tmp_path: Path, mirror: Path) -> None:
    """Only the wanted files are read."""
    packages = Packages(make_root(tmp_path, mirror, "6.1.9-1", "6.1.10-2", "6.1.10-1"))
    found = packages.find("tool")
    assert (found.version, found.depends) == ("6.1.10-2", "libc6 (>= 2),")
    assert packages.fetch(found, lambda path: path == "usr/tool") == {"usr/tool": b"1"}


def test_a_package_that_is_not_there(tmp_path: Path, mirror: Path) -> None:
    """The name, and what to do."""
    packages = Packages(make_root(tmp_path, mirror, "1"))
    with pytest.raises(ConfigurationError, match="no package linux; give another release with --suite"):
        packages.find("linux")
    found = packages.find("tool")
    (mirror / "pool/tool.deb").unlink()
    with pytest.raises(ConfigurationError, match="cannot be fetched"):
        packages.fetch(found, lambda _: True)


def test_a_package_that_is_another_one(tmp_path: Path, mirror: Path) -> None:
    """A package with another hash is not opened."""
    packages = Packages(make_root(tmp_path, mirror, "1", damaged=True))
    with pytest.raises(ConfigurationError, match="not what the list of the mirror says"):
        packages.fetch(packages.find("tool"), lambda _: True)


@pytest.mark.parametrize("data", [b"", b"PK", b"!<arch>\n", deb(tool="1")[:-40]])
def test_a_package_that_is_damaged(tmp_path: Path, mirror: Path, data: bytes) -> None:
    """The error names it."""
    (mirror / "pool/tool.deb").write_bytes(data)
    packages = Packages(make_root(tmp_path, mirror, "1"))
    with pytest.raises(ConfigurationError, match="the package tool cannot be read"):
        packages.fetch(packages.find("tool"), lambda _: True)
