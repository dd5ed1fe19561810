"""The image that tests run programs in."""

from __future__ import annotations

from tests.tiers import missing

from toolexec.runtime.images.store import ImageStore, StoredImage

__all__ = ["TEST_IMAGE", "test_image"]

TEST_IMAGE = "toolexec-test"


def test_image() -> StoredImage:
    """The image `toolexec-test` of this user: Debian, Python, node and the package humanize.

    Where it was not built the test is skipped with the way to get it; in CI, which builds it, the test fails.
    """
    image = ImageStore().find(TEST_IMAGE)
    if image is None:
        missing(f"there is no image {TEST_IMAGE}", f"toolexec image build --name {TEST_IMAGE} --node --with humanize")
    return image


test_image.__test__ = False  # type: ignore[attr-defined]  # a name that pytest would take for a test
