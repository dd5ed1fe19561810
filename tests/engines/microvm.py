"""Find what tests of virtual machines need: QEMU has no daemon, only a program, and the image is one of the store."""

from __future__ import annotations

import shutil

from tests.tiers import missing

from toolexec.runtime.images.store import ImageStore

TEST_VM_IMAGE = "toolexec-test-vm"


def require_qemu() -> str:
    """Return the name of the tests' image for virtual machines, where there is a QEMU.

    Where either is missing the test is skipped with the way to get it; in CI, which installs both, it fails.
    """
    if shutil.which("qemu-system-x86_64") is None:
        missing("QEMU is not installed", "sudo apt-get install --no-install-recommends qemu-system-x86")
    image = ImageStore().find(TEST_VM_IMAGE)
    if image is None or not image.vm_digest:
        command = f"toolexec image build --kind vm --name {TEST_VM_IMAGE} --node --with humanize"
        missing(f"there is no image {TEST_VM_IMAGE}", command)
    return TEST_VM_IMAGE
