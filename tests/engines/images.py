"""The images that tests run programs in."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.tiers import missing

from toolexec.runtime.images.store import ImageStore, StoredImage

TEST_IMAGE = "toolexec-test"
VM_IMAGE = "toolexec-test-vm"
_SEE: Final = 'mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" && shift 2 && exec "$@"'


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


def seen_at(place: Path, image: StoredImage) -> list[str]:
    """Return the words before a command of root that let it, and what it starts, see the root of *image* at *place*.

    Root's own store is closed to others. Nothing is copied, and no other process sees it there; hold the image meanwhile.
    """
    place.mkdir()
    place.chmod(0o755)  # whatever the umask is
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", _SEE, "sh", str(image.root), str(place)]


test_vm_image.__test__ = False  # type: ignore[attr-defined]
test_image.__test__ = False  # type: ignore[attr-defined]  # a name that pytest would take for a test
