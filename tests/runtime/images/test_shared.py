"""Images that root shares: found by every user of the machine, verified, and written by root only."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.images.trees import make_tree

from toolexec.errors import ConfigurationError
from toolexec.runtime.images import store as module
from toolexec.runtime.images.shared import share_image
from toolexec.runtime.images.store import Facts, ImageStore, StoredImage
from toolexec.runtime.images.verify import verify_image

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root shares images, and can become another user"
)
ORDINARY = """
import json, os, sys
from pathlib import Path
from toolexec.errors import ConfigurationError
from toolexec.runtime.images import store as module
from toolexec.runtime.images.store import ImageStore
from toolexec.runtime.images.verify import verify_image
module.MACHINE_DIRECTORY = Path(sys.argv[1])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.environ["TOOLEXEC_CACHE"] = sys.argv[2]
store = ImageStore()
image = store.find("team/tools")
with store.hold(image):
    said = [image.digest, (image.root / "etc/motd").read_text(), verify_image(store, image).ok]
said += [store.archive(image).stat().st_size > 0, store.owns(image), [each.name for each in store.list()]]
try:
    (image.root / "etc/motd").write_text("mine")
except PermissionError:
    said.append("refused")
print(json.dumps(said))
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for the images of the machine, which all users can look into."""
    top = Path(tempfile.mkdtemp(prefix="tx-shared-", dir="/var/tmp"))
    top.chmod(0o755)
    monkeypatch.setattr(module, "MACHINE_DIRECTORY", top / "images")
    monkeypatch.setenv("TOOLEXEC_CACHE", str(top / "root"))
    yield top / "images"
    shutil.rmtree(top)


def keep(**files: str) -> StoredImage:
    """Keep an image of root's own."""
    store = ImageStore()
    with store.scratch() as work:
        return store.add("team/tools", make_tree(work / "rootfs", **files), Facts(python="3.11.2"))


def test_an_ordinary_user_finds_what_root_has_shared(machine: Path) -> None:
    """The user gets it as it was kept, with its archive, and cannot write to it, whatever the umask of root was."""
    image = keep(motd="hello")
    before = os.umask(0o077)
    try:
        shared = share_image(ImageStore(), image)
    finally:
        os.umask(before)
    (machine.parent / "user").mkdir()
    os.chown(machine.parent / "user", 65534, 65534)
    done = subprocess.run(
        [sys.executable, "-c", ORDINARY, str(machine), str(machine.parent / "user")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [shared.digest, "hello", True, True, False, ["team/tools"], "refused"]


def test_an_image_of_the_user_comes_first(machine: Path) -> None:
    """The shared one is used again when it is gone; a pin finds the one that it means."""
    store = ImageStore()
    shared = share_image(store, keep(motd="shared"))
    own = keep(motd="own")
    assert store.find("team/tools") == own
    assert store.find(f"team/tools@{shared.digest}") == shared
    assert store.list() == [own]
    store.remove("team/tools")
    assert store.find("team/tools") == shared
    assert store.list() == [shared]
    assert verify_image(store, shared).ok


def test_what_was_changed_is_not_shared(machine: Path) -> None:
    """Nothing is there then."""
    image = keep(motd="hello")
    (image.root / "etc/motd").write_text("other")
    with pytest.raises(ConfigurationError, match="was changed on the disk"):
        share_image(ImageStore(), image)
    assert not machine.exists()


@pytest.mark.parametrize("change", [lambda path: path.chmod(0o777), lambda path: os.chown(path, 65534, 65534)])
def test_what_others_could_have_written_is_not_used(machine: Path, change: Callable[[Path], None], caplog: Any) -> None:
    """Left out with a word in the log."""
    share_image(ImageStore(), keep())
    ImageStore().remove("team/tools")
    change(machine)
    assert ImageStore().find("team/tools") is None
    assert ImageStore().list() == []
    assert "are left out" in caplog.text
