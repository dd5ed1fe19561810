"""Images as files: what is written is taken in again on another machine, whole, and what was changed is not."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.images.trees import make_tree

from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.runtime.images.archive import DESCRIPTION, VM_MEMBERS
from toolexec.runtime.images.export import export_image
from toolexec.runtime.images.import_ import import_image
from toolexec.runtime.images.store import Facts, ImageStore, StoredImage
from toolexec.runtime.images.verify import verify_image
from toolexec.runtime.images.vm_files import VM_DIRECTORY, VM_NAMES, VmFiles

pytestmark = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root gives files to their owners")
RECIPE = {"suite": "bookworm", "node": True, "packages": ["rich"]}
Rewrite = Callable[[dict[str, bytes]], None]


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    """A store of the test's own."""
    return ImageStore(tmp_path / "images")


@pytest.fixture
def other(tmp_path: Path) -> ImageStore:
    """The store of another machine."""
    return ImageStore(tmp_path / "other")


def keep(store: ImageStore, *, vm: bool) -> StoredImage:
    """Keep an image with directories that an import makes otherwise, and an owner who is not root."""
    with store.scratch() as work:
        root = make_tree(work / "rootfs")
        for name, mode in (("dev", 0o755), ("proc", 0o700), ("tmp", 0o1777), ("var/mail", 0o2775)):
            (root / name).mkdir(parents=True, exist_ok=True)
            (root / name).chmod(mode)
            os.utime(root / name, (1_700_000_000, 1_700_000_000))
        os.chown(root / "var/mail", 0, 8)
        (root / "var/mail").chmod(0o2775)
        files = None
        if vm:
            (work / VM_DIRECTORY).mkdir()
            for name in VM_NAMES:
                (work / VM_DIRECTORY / name).write_bytes(name.encode() * 999)
            files = VmFiles.in_directory(work / VM_DIRECTORY)
        facts = Facts(recipe=RECIPE, kernel="6.1.0-50-cloud-amd64" if vm else "")
        return store.add("team/tools", root, facts, vm=files)


@pytest.mark.parametrize("vm", [False, True])
def test_an_image_goes_to_another_machine(store: ImageStore, other: ImageStore, tmp_path: Path, vm: bool) -> None:
    """With its digests, its recipe and what machines boot, under any name; the same image gives the same file."""
    image = keep(store, vm=vm)
    digest = export_image(store, image, tmp_path / "image.tar")
    assert export_image(store, image, tmp_path / "again.tar") == digest
    made = import_image(other, tmp_path / "image.tar", "mine", digest=digest)
    assert (made.name, made.digest, made.vm_digest) == ("mine", image.digest, image.vm_digest)
    assert (made.recipe, made.kernel) == (RECIPE, image.kernel)
    assert verify_image(other, made).ok
    assert bool(made.vm_digest) == vm
    if vm:
        files = other.vm_files(made)
        assert files.kernel.read_bytes() == b"vmlinuz" * 999
        assert {path.stat().st_mode & 0o777 for path in files.paths()} == {0o644}
    export_image(other, replace(made, name="team/tools"), tmp_path / "third.tar")
    assert (tmp_path / "third.tar").read_bytes() == (tmp_path / "image.tar").read_bytes()


def test_what_was_changed_is_not_exported(store: ImageStore, tmp_path: Path) -> None:
    """Neither files nor what machines boot; nothing is left of the try, and a file that exists stays."""
    for change in ("rootfs/etc/motd", "vm/initrd.img"):
        image = keep(store, vm=True)
        (image.root.parent / change).write_text("other")
        with pytest.raises(SandboxUnavailableError, match="was changed on the disk"):
            export_image(store, image, tmp_path / "image.tar")
    (tmp_path / "there").write_text("mine")
    with pytest.raises(ConfigurationError, match="exists"):
        export_image(store, keep(store, vm=False), tmp_path / "there")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        export_image(store, keep(store, vm=False), tmp_path / "no/image.tar")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images", "there"]
    assert (tmp_path / "there").read_text() == "mine"


def about(**changes: Any) -> Rewrite:
    def change(members: dict[str, bytes]) -> None:
        members[DESCRIPTION] = json.dumps({**json.loads(members[DESCRIPTION]), **changes}).encode()

    return change


def without(name: str) -> Rewrite:
    def change(members: dict[str, bytes]) -> None:
        del members[name]

    return change


def other_kernel(members: dict[str, bytes]) -> None:
    members[f"{VM_MEMBERS}vmlinuz"] = b"mine"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (other_kernel, "what machines boot is another one"),
        (without(f"{VM_MEMBERS}vmlinux"), "vmlinux is missing"),
        (about(digest="sha256:" + "0" * 64), "its description is of another image"),
        (about(directories=[["proc", 0o755, 1]]), "has the digest"),
        (about(directories=[["../../x", 0o777, 0]]), "another version"),
        (about(directories=[["bin/sh", 0o777, 0]]), "cannot be imported"),
        (about(directories=[["proc", "x", 0]]), "another version"),
        (about(directories={"proc": 1}), "another version"),
        (about(recipe="x"), "another version"),
        (about(form=2), "another version"),
        (about(kernel=7), "another version"),
        (lambda members: members.update({DESCRIPTION: b"{"}), "is not JSON"),
    ],
)
def test_what_was_changed_is_not_imported(
    store: ImageStore, other: ImageStore, tmp_path: Path, change: Rewrite, why: str
) -> None:
    """Each part is compared with the digest that it was exported with; the store is as before."""
    export_image(store, keep(store, vm=True), tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as tar:
        members = {entry.name: file.read() for entry in tar if (file := tar.extractfile(entry)) is not None}
    change(members)
    with tarfile.open(tmp_path / "changed.tar", "w") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, BytesIO(data))
    with pytest.raises(ConfigurationError, match=why):
        import_image(other, tmp_path / "changed.tar", "mine")
    assert other.list() == []


def test_another_file_than_that_of_the_digest(store: ImageStore, other: ImageStore, tmp_path: Path) -> None:
    """Refuse it before anything of it is read, and a file that is not there."""
    export_image(store, keep(store, vm=False), tmp_path / "image.tar")
    for path, why in ((tmp_path / "image.tar", "not sha256:0"), (tmp_path / "none.tar", "cannot be read")):
        with pytest.raises(ConfigurationError, match=why):
            import_image(other, path, "mine", digest="sha256:0")
    assert not other.directory.exists()
