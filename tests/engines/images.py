"""The images that tests run programs in."""

from __future__ import annotations

from tests.tiers import missing

from toolexec.runtime.images.store import ImageStore, StoredImage

__all__ = ["TEST_IMAGE", "VM_IMAGE", "test_image", "test_vm_image"]

TEST_IMAGE = "toolexec-test"
VM_IMAGE = "toolexec-test-vm"


def test_image() -> StoredImage:
    """The image `toolexec-test` of this user: Debian, Python, node and the package humanize.

    Where it was not built the test is skipped with the way to get it; in CI, which builds it, the test fails.
    """
    image = ImageStore().find(TEST_IMAGE)
    if image is None:
        missing(f"there is no image {TEST_IMAGE}", f"toolexec image build --name {TEST_IMAGE} --node --with humanize")
    return image


def test_vm_image() -> StoredImage:
    """Return the image `toolexec-test-vm` of this user: the same, and what virtual machines boot."""
    image = ImageStore().find(VM_IMAGE)
    if image is None or not image.vm_digest:
        command = f"toolexec image build --kind vm --name {VM_IMAGE} --node --with humanize"
        missing(f"there is no image {VM_IMAGE}", command)
    return image


test_vm_image.__test__ = False  # type: ignore[attr-defined]
test_image.__test__ = False  # type: ignore[attr-defined]  # a name that pytest would take for a test
