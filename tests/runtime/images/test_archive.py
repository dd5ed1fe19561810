"""An image as one tar: the same bytes for the same tree, in the form that engines take."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import socket
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.images.trees import make_tree

from toolexec.runtime.images.archive import DIGEST_LABEL, describe, image_machine, write_archive
from toolexec.runtime.images.layer import measure_layer, write_layer


def layer(root: Path) -> bytes:
    """The tar of a tree."""
    made = io.BytesIO()
    write_layer(root, made)
    return made.getvalue()


def names(data: bytes) -> list[str]:
    """Return the names in a tar, in its order."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return tar.getnames()


def with_times(root: Path, moment: float) -> Path:
    """Give everything the same time."""
    for path in (*root.rglob("*"), root):
        os.utime(path, (moment, moment), follow_symlinks=False)
    return root


def test_the_same_tree_is_the_same_tar(tmp_path: Path) -> None:
    """Whatever order its files were made in, and fractions of a second do not count."""
    one = with_times(make_tree(tmp_path / "one", a="1", b="2"), 1_000_000_000.25)
    two = with_times(make_tree(tmp_path / "two", b="2", a="1"), 1_000_000_000.75)
    assert layer(one) == layer(two)
    digest, size = measure_layer(one)
    assert (digest, size) == (f"sha256:{hashlib.sha256(layer(one)).hexdigest()}", len(layer(one)))
    (two / "etc/a").write_text("3")
    os.utime(two / "etc/a", (1_000_000_000, 1_000_000_000))
    assert measure_layer(two)[0] != digest
    assert measure_layer(two)[1] == size


def test_what_is_in_the_tar(tmp_path: Path) -> None:
    """Everything, with its mode and time; hard links once; what is mine belongs to root."""
    root = with_times(make_tree(tmp_path / "root", **{"a" * 200: "long"}), 1_000_000_000)
    (root / "tmp").chmod(0o1777)
    with tarfile.open(fileobj=io.BytesIO(layer(root))) as tar:
        found = {entry.name: entry for entry in tar}
        assert tar.extractfile(found["usr/bin/dash"]).read() == b"#!shell\n" * 10  # type: ignore[union-attr]
    assert [*found] == sorted(found)
    assert found["bin"].linkname == "usr/bin"
    assert (found["usr/bin/sh"].islnk(), found["usr/bin/sh"].linkname) == (True, "usr/bin/dash")
    assert (found["tmp"].mode, found["usr/bin/dash"].mode) == (0o1777, 0o755)
    assert {(entry.uid, entry.gid, entry.uname, entry.gname) for entry in found.values()} == {(0, 0, "", "")}
    assert {entry.mtime for entry in found.values()} == {1_000_000_000}
    assert f"etc/{'a' * 200}" in found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_other_owners_stay(tmp_path: Path) -> None:
    """By their numbers."""
    root = make_tree(tmp_path / "root", a="1")
    os.chown(root / "etc/a", 1234, 4321)
    with tarfile.open(fileobj=io.BytesIO(layer(root))) as tar:
        found = tar.getmember("etc/a")
    assert (found.uid, found.gid) == (1234, 4321)


def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a socket, say, and name it."""
    root = make_tree(tmp_path / "root")
    monkeypatch.chdir(root / "etc")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")  # its whole path may be longer than the 107 bytes that an address holds
    with pytest.raises(ValueError, match="/etc/socket is not a file, directory or link"):
        measure_layer(root)


def test_a_link_is_not_a_tree(tmp_path: Path) -> None:
    """Nothing is followed."""
    make_tree(tmp_path / "root")
    (tmp_path / "link").symlink_to("root")
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        measure_layer(tmp_path / "link")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The archive of a small tree, with its layer beside it."""
    root = with_times(make_tree(tmp_path / "root", a="1"), 1_000_000_000)
    digest, size = measure_layer(root)
    parts = describe("team/tools:2", digest, size, env={"LANG": "C"}, labels={"toolexec.python": "3.11"})
    write_archive(tmp_path / "image.tar", root, digest, size, parts)
    assert parts.image_id.startswith("sha256:")
    (tmp_path / "layer.tar").write_bytes(layer(root))
    return tmp_path / "image.tar"


def read(archive: Path) -> dict[str, bytes]:
    """The files of an archive."""
    with tarfile.open(archive) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isreg()}  # type: ignore[union-attr]


def blob(files: dict[str, bytes], about: dict[str, Any]) -> bytes:
    """The content of a descriptor, which must be what it says."""
    found = files[f"blobs/{about['digest'].replace(':', '/')}"]
    assert (f"sha256:{hashlib.sha256(found).hexdigest()}", len(found)) == (about["digest"], about["size"])
    return found


def test_it_is_an_oci_layout(archive: Path) -> None:
    """Each part has the digest and size that the one before says; containerd finds the name in it."""
    files = read(archive)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    [described] = json.loads(files["index.json"])["manifests"]
    assert described["annotations"]["io.containerd.image.name"] == "docker.io/team/tools:2"
    manifest = json.loads(blob(files, described))
    config = json.loads(blob(files, manifest["config"]))
    [packed] = manifest["layers"]
    assert blob(files, packed) == archive.with_name("layer.tar").read_bytes()
    assert config["rootfs"] == {"type": "layers", "diff_ids": [packed["digest"]]}
    assert config["architecture"] == image_machine()
    assert config["config"]["User"] == "65534:65534"
    assert config["config"]["WorkingDir"] == "/work"
    assert config["config"]["Env"][0].startswith("PATH=")
    assert config["config"]["Env"][1:] == ["LANG=C"]
    assert config["config"]["Labels"] == {"toolexec.python": "3.11", DIGEST_LABEL: packed["digest"]}


def test_it_is_what_docker_loads(archive: Path) -> None:
    """The same parts, under the names that Docker looks for."""
    files = read(archive)
    [image] = json.loads(files["manifest.json"])
    assert image["RepoTags"] == ["team/tools:2"]
    assert json.loads(files[image["Config"]])["os"] == "linux"
    assert files[image["Layers"][0]] == archive.with_name("layer.tar").read_bytes()
    assert len(archive.read_bytes()) % 512 == 0


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("tools", "docker.io/library/tools:latest"),
        ("tools:1", "docker.io/library/tools:1"),
        ("team/tools", "docker.io/team/tools:latest"),
        ("my.host/tools", "my.host/tools:latest"),
    ],
)
def test_names_in_full(name: str, full: str) -> None:
    """As containerd spells them."""
    parts = describe(name, f"sha256:{'0' * 64}", 1, env={}, labels={})
    assert json.loads(parts.index)["manifests"][0]["annotations"]["io.containerd.image.name"] == full


def test_the_same_image_has_the_same_id() -> None:
    """Nothing in it tells when it was made; the digest, the variables and the labels make it another one."""

    def made(digest: str = "0", **more: dict[str, str]) -> str:
        return describe(
            "tools", f"sha256:{digest * 64}", 1, env=more.get("env", {}), labels=more.get("labels", {})
        ).image_id

    assert made() == made()
    assert len({made(), made("1"), made(env={"A": "b"}), made(labels={"a": "b"})}) == 4


def test_a_tree_that_has_changed_makes_no_archive(tmp_path: Path) -> None:
    """Refuses such a tree: the archive would not match the digest."""
    root = make_tree(tmp_path / "root")
    digest, size = measure_layer(root)
    parts = describe("tools", digest, size, env={}, labels={})
    shutil.copytree(root, tmp_path / "copy", symlinks=True)
    (root / "etc/more").write_text("x")
    with pytest.raises(ValueError, match="has changed"):
        write_archive(tmp_path / "image.tar", root, digest, size, parts)
