"""gVisor for tests: it has no daemon, only a program."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.engines.images import TEST_IMAGE, test_image
from tests.tiers import missing

__all__ = ["TEST_IMAGE", "require_runsc", "what_is_left"]


def require_runsc() -> str:
    """The path of runsc, with the image of the tests there.

    Where either is missing the test is skipped with the way to get it; in CI, which installs both, it fails.
    """
    found = shutil.which("runsc")
    if found is None:
        missing("runsc is not installed", "sudo bash .ci/engines")
    test_image()
    return found


def what_is_left(owner: str) -> set[str]:
    """The control groups and running sandboxes that belong to *owner*."""
    found = {str(path) for path in Path("/sys/fs/cgroup").glob(f"*/toolexec/{owner}-*")}
    found |= {str(path) for path in Path("/sys/fs/cgroup").glob(f"toolexec/{owner}-*")}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if any(f"toolexec-gvisor-{owner}-" in word for word in words):
            found.add(" ".join(words)[:200])
    return found
