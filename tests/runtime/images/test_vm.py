"""Images that virtual machines boot: the same packages make the same files."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.images import VM_IMAGE, test_vm_image
from tests.runtime.images.test_build import require_debootstrap
from tests.runtime.images.trees import make_tree
from tests.tiers import missing

from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.runtime.images import vm
from toolexec.runtime.images.build import Recipe, build_image
from toolexec.runtime.images.store import Facts, ImageStore, StoredImage
from toolexec.runtime.images.vm_files import VM_DIRECTORY, VmFiles

RECIPE = Recipe(packages=("humanize",), node=True, kind="vm")


@pytest.fixture(scope="session")
def built() -> Iterator[StoredImage]:
    """The image of the tests, built once more in a store of its own before the clock of a single test runs."""
    require_debootstrap()
    if shutil.which("mksquashfs") is None:
        missing("mksquashfs is not installed", "sudo apt-get install -y --no-install-recommends squashfs-tools")
    directory = Path(tempfile.mkdtemp(prefix="vm"))
    try:
        old = os.umask(0o077)
        try:
            image = build_image(ImageStore(directory / "images"), "again", RECIPE)[0]
        finally:
            os.umask(old)  # before the tests: it is that of the whole process
        yield image
    finally:
        shutil.rmtree(directory)


def archived(data: bytes) -> dict[str, bytes]:
    """The files in an archive of cpio."""
    found: dict[str, bytes] = {}
    place = 0
    while True:
        fields = [int(data[place + 6 + 8 * number : place + 14 + 8 * number], 16) for number in range(13)]
        size, length = fields[6], fields[11]
        name = data[place + 110 : place + 109 + length].decode()
        start = -(-(place + 110 + length) // 4) * 4
        if name == "TRAILER!!!":
            return found
        found[name] = data[start : start + size]
        place = -(-(start + size) // 4) * 4


@pytest.mark.full
def test_two_builds_are_the_same(built: StoredImage) -> None:
    """Byte for byte: the kernel, the first file system and the root."""
    before = test_vm_image()
    if (before.system, before.packages, before.recipe["vm"]) != (built.system, built.packages, built.recipe["vm"]):
        pytest.skip(
            f"there are other packages now; bring it up to date: toolexec image build --kind vm --name {VM_IMAGE} "
            "--node --with humanize --replace"
        )
    assert (built.digest, built.vm_digest) == (before.digest, before.vm_digest)


@pytest.mark.full
def test_what_is_in_it(built: StoredImage) -> None:
    """A kernel in two forms, the modules that it needs, a root that has a first process; and all that an image has."""
    files = ImageStore(built.root.parents[2]).vm_files(built)
    assert VmFiles.in_directory(files.kernel.parent).digest == built.vm_digest == files.digest
    assert (built.kernel, f"linux-image-{built.kernel}" in built.system) == (built.kernel, True)
    assert files.vmlinux.read_bytes()[:5] == b"\x7fELF\x02"
    assert b"Linux version " + built.kernel.encode() in files.vmlinux.read_bytes()
    assert struct.unpack_from("<4s", files.kernel.read_bytes(), 0x202) == (b"HdrS",)
    found = archived(files.initrd.read_bytes())
    order = found["modules/order"].decode().split()
    assert {"virtio_mmio.ko", "virtio_blk.ko", "virtio_console.ko", "squashfs.ko", "vsock.ko"} <= {*order}
    assert all(found[f"modules/{name}"].startswith(b"\x7fELF") for name in order)
    listed = subprocess.run(
        ["unsquashfs", "-lln", files.rootfs], capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()
    assert any(
        row.endswith("squashfs-root/usr/sbin/toolexec-init") and row.startswith("-rwxr-xr-x 0/0") for row in listed
    )
    assert not any("zygote" in row for row in listed)
    assert os.access(built.root / "usr/sbin/toolexec-init", os.X_OK)


def test_building_needs_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names it, with the command that installs it, before anything is fetched."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="needs mksquashfs; install it with: apt-get install squashfs-tools"):
        build_image(ImageStore(tmp_path / "images"), "vm", RECIPE)


def test_another_first_process_is_another_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image of a former version is built again; one without a kernel has no need to."""
    before = RECIPE.to_json()
    monkeypatch.setattr(vm, "_RUN", "another")
    vm.init_digest.cache_clear()
    try:
        assert RECIPE.to_json() != before
    finally:
        vm.init_digest.cache_clear()
    assert "vm" not in Recipe().to_json()


def test_the_store_keeps_the_files(tmp_path: Path) -> None:
    """The files are found with the image, counted in its size, and go with it."""
    store = ImageStore(tmp_path / "images")
    with store.scratch() as work:
        (work / VM_DIRECTORY).mkdir()
        for name in ("vmlinuz", "vmlinux", "initrd.img", "rootfs.squashfs"):
            (work / VM_DIRECTORY / name).write_bytes(name.encode() * 9999)
        files = VmFiles.in_directory(work / VM_DIRECTORY)
        made = store.add("machine", make_tree(work / "rootfs"), Facts(kernel="6.1"), vm=files)
    found = store.find("machine")
    assert found == made
    assert found is not None
    kept = store.vm_files(found)
    assert (kept.digest, found.kernel, kept.rootfs.read_bytes()[:15]) == (files.digest, "6.1", b"rootfs.squashfs")
    assert kept.rootfs.parent == found.root.with_name(VM_DIRECTORY)
    assert store.remove("machine") == made.size_bytes > 200_000
    assert not kept.rootfs.exists()


def test_an_image_without_them(tmp_path: Path) -> None:
    """The error has the command that makes one."""
    store = ImageStore(tmp_path / "images")
    with store.scratch() as work:
        made = store.add("small", make_tree(work / "rootfs"), Facts())
    with pytest.raises(SandboxUnavailableError, match=r"has no kernel.*toolexec image build --kind vm"):
        store.vm_files(made)
