"""Images are kept in full or not at all, and stay for those who use them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.runtime.images.trees import make_tree

from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.runtime.images import store as module
from toolexec.runtime.images.store import Facts, ImageStore, StoredImage, default_directory

Keep = Callable[..., StoredImage]


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    """A store of the test's own."""
    return ImageStore(tmp_path / "images")


@pytest.fixture
def keep(store: ImageStore) -> Keep:
    """Puts a small image into the store."""

    def do(name: str = "small", facts: Facts | None = None, **files: str) -> StoredImage:
        with store.scratch() as work:
            return store.add(name, make_tree(work / "rootfs", **files), facts or Facts())

    return do


def generations(store: ImageStore) -> list[str]:
    return sorted(os.listdir(store.directory / "generations"))


def test_what_is_added_is_found(store: ImageStore, keep: Keep) -> None:
    """With all that is known about it; nothing of its making stays."""
    facts = Facts(
        packages={"rich": "15"},
        system={"bash": "5"},
        python="3.11.2",
        node="18",
        go="1.27",
        env={"A": "b"},
        recipe={"x": 1},
    )
    made = keep("team/py-tools:2", facts, motd="hello")
    found = store.find("team/py-tools:2")
    assert found == made
    assert (made.root / "etc/motd").read_text() == "hello"
    assert (made.packages, made.python, made.node, made.go) == ({"rich": "15"}, "3.11.2", "18", "1.27")
    assert (made.system, made.env, made.recipe) == ({"bash": "5"}, {"A": "b"}, {"x": 1})
    assert made.digest.startswith("sha256:")
    assert made.size_bytes > 0
    assert store.list() == [made]
    assert os.listdir(store.directory / "new") == []
    assert store.directory.stat().st_mode & 0o777 == 0o700


def test_a_name_means_the_latest(store: ImageStore, keep: Keep) -> None:
    """With and without `:latest` it is the same image, and a digest pins it."""
    made = keep("small:latest")
    assert made.name == "small"
    assert store.find("small") == store.find("small:latest") == store.find(f"small@{made.digest}") == made
    assert store.find(f"small@sha256:{'0' * 64}") is None


@pytest.mark.parametrize(
    "name", ["", "../x", "Big", "a b", "/root", "a//b", "a:", "x" * 300, "host:5000/x", "a@sha256:1"]
)
def test_what_is_no_name_is_not_found(store: ImageStore, keep: Keep, name: str) -> None:
    """Refuses such a name where an image would get it."""
    keep()
    assert store.find(name) is None
    with pytest.raises(ConfigurationError):
        keep(name)
    with pytest.raises(ConfigurationError):
        store.remove(name)


def test_an_empty_store(store: ImageStore) -> None:
    """Has nothing, and asking does not make it."""
    assert (store.find("small"), store.list(), store.remove("small")) == (None, [], 0)
    assert not store.directory.exists()


@pytest.mark.parametrize("name", ["absent", "absent@sha256:" + "0" * 64])
def test_a_missing_image(store: ImageStore, name: str) -> None:
    """Report where images were looked for, that other users have theirs, and what makes one."""
    assert store.find(name) is None
    error = store.missing(name, "--kind vm ")
    assert str(store.directory) in error.message
    assert "root and other users have their own" in error.message
    assert "toolexec image build --kind vm --name absent" in error.details.values()


def test_a_new_image_takes_the_place_of_the_old_one(store: ImageStore, keep: Keep) -> None:
    """Whose files are deleted."""
    old = keep(motd="old")
    new = keep(motd="new")
    assert store.find("small") == new
    assert new.digest != old.digest
    assert not old.root.exists()
    assert len(generations(store)) == 1


def test_what_is_held_stays(store: ImageStore, keep: Keep) -> None:
    """Until the last one releases it, and the next one tidies up."""
    old = keep(motd="old")
    with store.hold(old) as one, store.hold(old) as two:
        keep(motd="new")
        store.remove("small")
        one.close()
        one.close()
        keep("another")
        assert (two.root / "etc/motd").read_text() == "old"
    keep("another")
    assert not old.root.exists()
    with pytest.raises(SandboxUnavailableError, match="removed or replaced"):
        store.hold(old)


def test_another_process_holds_an_image(store: ImageStore, keep: Keep) -> None:
    """Its death, of whatever kind, releases it."""
    old = keep()
    hold = "import sys; from toolexec.runtime.images.store import *; from pathlib import Path\n"
    hold += (
        "s = ImageStore(Path(sys.argv[1])); h = s.hold(s.find('small')); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(store.directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert store.remove("small") == old.size_bytes
        assert old.root.is_dir()
        process.kill()
    keep("another")
    assert not old.root.exists()


def test_readers_never_see_half(store: ImageStore, keep: Keep) -> None:
    """A held entry is whole, whatever is replaced meanwhile."""
    keep(motd="0")
    over = threading.Event()
    seen: set[str] = set()
    wrong: list[object] = []

    def read() -> None:
        while not over.is_set():
            image = store.find("small")
            if image is None:
                wrong.append("nothing")
                continue
            try:
                with store.hold(image) as hold:
                    seen.add((hold.root / "etc/motd").read_text())
            except SandboxUnavailableError:
                continue
            except OSError as error:
                wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 15):
        keep(motd=str(number))
    over.set()
    for reader in readers:
        reader.join()
    assert wrong == []
    assert seen


def test_what_a_dead_maker_left_is_swept_up(store: ImageStore, keep: Keep) -> None:
    """By the next one; what a living one makes stays."""
    make = "import os, sys; from toolexec.runtime.images.store import *; from pathlib import Path\n"
    make += "s = ImageStore(Path(sys.argv[1])); w = s.scratch(); p = w.__enter__(); (p / 'half').write_text('x'); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", make, str(store.directory)], check=False).returncode == 9
    assert len(os.listdir(store.directory / "new")) == 1
    with store.scratch() as ours:
        (ours / "half").write_text("ours")
        keep()
        assert os.listdir(store.directory / "new") == [ours.name]
    assert os.listdir(store.directory / "new") == []


def test_a_failed_making_leaves_all_as_it_was(store: ImageStore, keep: Keep) -> None:
    """The old image stays, and what was made goes."""
    old = keep(motd="old")
    with pytest.raises(ZeroDivisionError), store.scratch() as work:
        make_tree(work / "rootfs", motd="new")
        raise ZeroDivisionError
    assert store.find("small") == old
    assert os.listdir(store.directory / "new") == []


def test_a_tree_with_something_odd_is_not_kept(store: ImageStore) -> None:
    """A pipe, say."""
    with store.scratch() as work:
        root = make_tree(work / "rootfs")
        os.mkfifo(root / "etc/pipe")
        with pytest.raises(ConfigurationError, match="/etc/pipe is not a file, directory or link"):
            store.add("small", root, Facts())
    assert store.list() == []


def test_hostile_modes_are_no_hindrance(store: ImageStore, keep: Keep) -> None:
    """Removes directories that cannot be entered or written to."""
    made = keep()
    deep = made.root / "etc"
    for _ in range(50):
        deep /= "inner"
        deep.mkdir()
    (deep / "file").touch(mode=0)
    for path in (deep, *deep.parents[:51]):
        path.chmod(0)
    assert store.remove("small") > 0
    assert generations(store) == []


def test_descriptions_of_something_else_do_not_count(store: ImageStore, keep: Keep) -> None:
    """Descriptions of another version, or that lead elsewhere, do not count."""
    keep()
    [file] = store.directory.glob("*.json")
    about = json.loads(file.read_text())
    for changes in ({"generation": "../../etc"}, {"created": 1}, {"generation": "0" * 24}):
        file.write_text(json.dumps({**about, "about": {**about["about"], **changes}}))
        assert store.find("small") is None
        assert store.list() == []
    del about["about"]["digest"]
    file.write_text(json.dumps(about))
    assert store.find("small") is None


def test_the_archive_is_made_once(store: ImageStore, keep: Keep) -> None:
    """The archive goes with the image."""
    made = keep()
    archive = store.archive(made)
    assert store.archive(made) == archive
    size = archive.stat().st_size
    assert size > made.layer_bytes
    assert not [name for name in os.listdir(archive.parent) if name.startswith(".")]
    assert store.remove("small") == made.size_bytes + size
    assert not archive.exists()
    with pytest.raises(SandboxUnavailableError):
        store.archive(made)


def test_an_image_that_was_changed_has_no_archive(store: ImageStore, keep: Keep) -> None:
    """Such an image has no archive, not even half of one."""
    made = keep()
    (made.root / "etc/new").write_text("changed")
    with pytest.raises(SandboxUnavailableError, match="changed on the disk"):
        store.archive(made)
    assert sorted(os.listdir(made.root.parent)) == ["lease", "rootfs"]


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    """Names the directory, and an alternative."""
    (tmp_path / "file").write_text("")
    store = ImageStore(tmp_path / "file")
    with pytest.raises(ConfigurationError, match="TOOLEXEC_CACHE"), store.scratch():
        pass
    with pytest.raises(ConfigurationError, match="TOOLEXEC_CACHE"):
        store.find("small")


def test_where_images_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Beside the other things in the cache."""
    monkeypatch.setenv("TOOLEXEC_CACHE", str(tmp_path))
    assert default_directory() == ImageStore().directory == tmp_path / "images"
    monkeypatch.delenv("TOOLEXEC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "toolexec" / "images"


def test_what_still_writes_does_not_keep_a_directory(store: ImageStore) -> None:
    """A program that was killed may write for a moment: the directory is gone nevertheless."""
    over = threading.Event()

    def write(directory: Path) -> None:
        while not over.is_set():
            with suppress(OSError):
                directory.mkdir(exist_ok=True)
                for number in range(50):
                    (directory / str(number)).touch()

    with store.scratch() as work:
        writer = threading.Thread(target=write, args=(work / "busy",))
        (work / "busy").mkdir()
        writer.start()
        timer = threading.Timer(0.5, over.set)
        timer.start()
    writer.join()
    timer.join()
    assert os.listdir(store.directory / "new") == []


def test_what_cannot_be_removed_is_said(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing removal does not hide the exception in the directory."""
    monkeypatch.setattr(module, "_PATIENCE", 0)
    with pytest.raises(ZeroDivisionError), store.scratch() as work:
        monkeypatch.setattr(module, "remove_tree", lambda _: os.mkdir("/"))
        raise ZeroDivisionError
    monkeypatch.undo()
    assert f"the directory {work} cannot be removed now" in caplog.text
    shutil.rmtree(work)
