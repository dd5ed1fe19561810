"""The image that tests run programs in."""

from __future__ import annotations

import os

import pytest

from toolexec.runtime.image.store import ImageStore, StoredImage

__all__ = ["TEST_IMAGE", "test_image"]

TEST_IMAGE = "toolexec-test"


def test_image() -> StoredImage:
    """The image `toolexec-test` of this user: Debian, Python, node and the package humanize.

    Where it was not built the test is skipped with the way to get it; in CI, which builds it, the test fails.
    """
    image = ImageStore().find(TEST_IMAGE)
    if image is not None:
        return image
    reason = f"build it with: toolexec image build --name {TEST_IMAGE} --node --with humanize"
    if os.environ.get("CI") == "true":
        pytest.fail(f"there is no image {TEST_IMAGE}; {reason}")
    pytest.skip(f"there is no image {TEST_IMAGE}; {reason}")


test_image.__test__ = False  # type: ignore[attr-defined]  # a name that pytest would take for a test
