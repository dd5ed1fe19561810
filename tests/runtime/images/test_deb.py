"""Packages of Debian, from the mirror that a tree was installed from."""

from __future__ import annotations

import hashlib
import io
import lzma
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from toolexec.errors import ConfigurationError, MissingExtraError
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


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("6.1.9-1", "6.1.10-1"),
        ("2.0", "1:1.0"),
        ("9:1", "10:0"),
        ("6.12~rc3-1", "6.12-1"),
        ("6.12~~", "6.12~"),
        ("1.0~beta1~svn1", "1.0~beta1"),
        ("1.0", "1.0+deb12u1"),
        ("1.0a", "1.0+"),
        ("1.0-1", "1.0-1.1"),
        ("1.0-1~bpo12+1", "1.0-1"),
        ("1.0.4-9", "1.0.4.1-1"),
        ("1.2-a-1", "1.2-b-0"),
    ],
)
def test_versions_are_ordered_as_dpkg_does(tmp_path: Path, mirror: Path, older: str, newer: str) -> None:
    """Epochs count first, a tilde sorts before the end, letters before other characters, digits by their value."""
    for number, versions in enumerate(((older, newer), (newer, older))):
        root = make_root(tmp_path / str(number), mirror, *versions)
        assert Packages(root).find("tool").version == newer


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="apt-get install dpkg")
@pytest.mark.parametrize(("older", "newer"), [("2.0", "1:1.0"), ("6.12~rc3-1", "6.12-1"), ("1.0a", "1.0+")])
def test_dpkg_agrees(older: str, newer: str) -> None:
    """The real dpkg orders some of the same versions alike."""
    subprocess.run(["dpkg", "--compare-versions", older, "lt", newer], check=True, timeout=60)


def test_packages_without_the_extra(tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `images` the error is the command that installs it."""
    monkeypatch.setitem(sys.modules, "debian.debian_support", None)
    with pytest.raises(MissingExtraError, match=r"toolexec\[images\]"):
        Packages(make_root(tmp_path, mirror, "1"))


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
