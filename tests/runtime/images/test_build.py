"""Images from Debian's packages: the same packages make the same image, and a build that is stopped leaves nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.engines.images import TEST_IMAGE, test_image
from tests.runtime.images.trees import make_tree
from tests.tiers import missing

from toolexec.errors import ConfigurationError
from toolexec.process.steps import BuildStep
from toolexec.runtime.images.build import Recipe, build_image
from toolexec.runtime.images.clean import make_small, settle
from toolexec.runtime.images.debian import build_environment, in_tree, install_debian, upstream
from toolexec.runtime.images.lock import Lock
from toolexec.runtime.images.store import Facts, ImageStore, StoredImage

RECIPE = Recipe(packages=("humanize",), node=True)
Built = tuple[StoredImage, Lock, list[str]]


def require_debootstrap() -> None:
    """Only root can run it."""
    if os.geteuid() != 0:
        missing("only root can build images with debootstrap", "sudo -E bash .ci/run")
    for program in ("debootstrap", "unshare"):
        if shutil.which(program) is None:
            missing(f"{program} is not installed", "sudo apt-get install -y --no-install-recommends debootstrap")


@pytest.fixture(scope="session")
def built() -> Iterator[Built]:
    """The image of the tests, built once more in a store of its own before the clock of a single test runs."""
    require_debootstrap()
    directory = Path(tempfile.mkdtemp(prefix="im"))
    steps: list[str] = []

    def hear(step: BuildStep) -> None:
        if step.message not in steps:
            steps.append(step.message)

    try:
        old = os.umask(0o077)
        try:
            image, lock = build_image(ImageStore(directory / "images"), "again", RECIPE, progress=hear)
        finally:
            os.umask(old)
        assert lock is not None
        yield image, lock, steps
    finally:
        shutil.rmtree(directory)


@pytest.mark.full
def test_two_builds_are_the_same(built: Built) -> None:
    """Another day, another directory, another umask: byte for byte."""
    before, (image, _, steps) = test_image(), built
    assert steps[:3] == ["installing Debian", "fetching packages from PyPI", "compiling packages"]
    if (before.system, before.packages) != (image.system, image.packages):
        pytest.skip(
            f"there are other packages now; bring it up to date: toolexec image build --name {TEST_IMAGE} "
            "--node --with humanize --replace"
        )
    assert image.digest == before.digest
    assert image.image_id == replace(before, name="again").image_id


def test_what_is_in_an_image(built: Built) -> None:
    """An image is small, has what a sandbox needs, and nothing of the machine that it was built on."""
    image, _, _ = built
    assert (image.python[:2], bool(image.node), image.go) == ("3.", True, "")
    assert image.packages.keys() == {"humanize"}
    assert {"python3", "procps", "nodejs", "ca-certificates"} <= image.system.keys()
    assert image.size_bytes < 300_000_000
    root = image.root
    for name in ("dev", "proc", "sys", "tmp", "run", "var/log", "var/cache", "root"):
        assert os.listdir(root / name) == []
    assert (root / "etc/resolv.conf").read_text() == ""
    assert not (root / "etc/hostname").exists()
    assert "nobody:x:65534:65534:" in (root / "etc/passwd").read_text()
    for path in root.rglob("*"):
        status = path.lstat()
        assert path.is_symlink() or not path.is_file() or not status.st_mode & 0o6000, path


def test_programs_run_in_it(built: Built) -> None:
    """As an unprivileged user; compiled files need no compiling, neither Python itself nor the packages."""
    if shutil.which("bwrap") is None:
        missing("bwrap is not installed", "sudo apt-get install -y --no-install-recommends bubblewrap")
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", str(built[0].root), "/", "--proc", "/proc"]
    words += ["--dev", "/dev", "--tmpfs", "/tmp", "--clearenv", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]
    program = "import humanize, json, asyncio; print(humanize.naturalsize(1_000_000))"
    done = subprocess.run(
        [*words, "/usr/bin/python3", "-I", "-v", "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "1.0 MB\n"
    assert "humanize/__pycache__" in done.stderr
    assert "bytecode is stale" not in done.stderr
    assert "# wrote" not in done.stderr
    node = [*words, "/usr/bin/node", "-e", "console.log(1 + 1)"]
    assert subprocess.run(node, capture_output=True, text=True, check=True, timeout=60).stdout == "2\n"


def test_what_was_built_is_not_built_again(built: Built, tmp_path: Path) -> None:
    """With the lock that came of it neither; and something else must be wanted in so many words."""
    image, lock, _ = built
    store = ImageStore(image.root.parents[2])
    lock.write(tmp_path / "image.lock")
    locked = replace(RECIPE, lock=Lock.read(tmp_path / "image.lock"), mirror="file:///nowhere")
    assert locked.lock == lock
    assert build_image(store, "again", RECIPE) == (image, None)
    assert build_image(store, "again", locked) == (image, None)
    other = replace(lock, system={})
    for recipe in (Recipe(), replace(RECIPE, lock=other), replace(RECIPE, mirror="file:///nowhere")):
        with pytest.raises(ConfigurationError, match="--replace"):
            build_image(store, "again", recipe)


def test_a_lock_that_debian_has_moved_on_from(built: Built) -> None:
    """Names the packages that have another version now."""
    _, lock, _ = built
    lock.check_system(lock.system)
    with pytest.raises(ConfigurationError, match=r"bash 9 is .* now, new 1 is none now; give a mirror of that time"):
        replace(lock, system={**lock.system, "bash": "9", "new": "1"}).check_system(lock.system)
    with pytest.raises(ConfigurationError, match=r"and 100 more|and [0-9]+ more"):
        lock.check_system({})


class _StopError(Exception):
    pass


def test_a_build_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    """No process, no mount, no directory; the image that was there stays."""
    require_debootstrap()
    store = ImageStore(tmp_path / "images")
    with store.scratch() as work:
        old = store.add("small", make_tree(work / "rootfs"), Facts())

    def stop(_: BuildStep) -> None:
        if any((work / "rootfs/debootstrap").exists() for work in (store.directory / "new").iterdir()):
            raise _StopError

    with pytest.raises(_StopError):
        build_image(store, "small", Recipe(), replace=True, progress=stop)
    assert store.list() == [old]
    assert os.listdir(store.directory / "new") == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def test_a_release_that_is_none(tmp_path: Path) -> None:
    """Passes on debootstrap's message."""
    require_debootstrap()
    with pytest.raises(ConfigurationError, match=r"could not be installed; .*nonsense"):
        build_image(ImageStore(tmp_path / "images"), "small", Recipe(suite="nonsense"))
    assert ImageStore(tmp_path / "images").list() == []


def test_programs_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names the missing programs, and the fix."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(ConfigurationError, match="apt-get install debootstrap"):
        install_debian(tmp_path / "root", "bookworm", "", (), work=tmp_path, progress=None)
    (tmp_path / "debootstrap").write_text("#!/bin/sh\n")
    (tmp_path / "debootstrap").chmod(0o755)
    with pytest.raises(ConfigurationError, match="apt-get install util-linux"):
        install_debian(tmp_path / "root", "bookworm", "", (), work=tmp_path, progress=None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigurationError, match=r"run it as root .* apt-get install mmdebstrap uidmap"):
        install_debian(tmp_path / "root", "bookworm", "", (), work=tmp_path, progress=None)


def test_anybody_builds_with_mmdebstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacks the tar of mmdebstrap; a stand-in makes a small one, as the real one takes a minute."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "share/mmdebstrap/hooks/merged-usr").mkdir(parents=True)
    make_tree(tmp_path / "tree", motd="hello")
    program = tmp_path / "bin/mmdebstrap"
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/words\nfor word; do case $word in *.tar) tar -C {tmp_path}/tree -cf $word .; esac; done\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "work").mkdir()
    install_debian(tmp_path / "root", "bookworm", "file:///m", ("python3", "x"), work=tmp_path / "work", progress=None)
    assert (tmp_path / "root/etc/motd").read_text() == "hello"
    words = (tmp_path / "words").read_text().split()
    assert words[0] == "--mode=unshare"
    assert f"--hook-dir={tmp_path}/share/mmdebstrap/hooks/merged-usr" in words
    assert words[-4:] == ["--include=python3,x,usr-is-merged", "bookworm", f"{tmp_path}/work/debian.tar", "file:///m"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"suite": "../x"}, "not a release"),
        ({"suite": "--foreign"}, "not a release"),
        ({"mirror": "--arch=x"}, "no mirror"),
        ({"mirror": "http://user:password@host/debian"}, "without a user's name or password"),
        ({"packages": ("--target=x",)}, "not a package"),
        ({"lock": Lock(suite="sid", node=False, go=False, requirements=(), system={}, packages={})}, "something else"),
    ],
)
def test_recipes_that_make_no_sense(changes: dict[str, Any], why: str) -> None:
    """Nothing of them gets into a command."""
    with pytest.raises(ConfigurationError, match=why) as caught:
        Recipe(**changes)
    assert "password@" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2}',
        '{"version": 1, "suite": 5}',
        '{"version": 1, "suite": "a", "node": true, "go": 1}',
    ],
)
def test_what_is_no_lock(tmp_path: Path, text: str) -> None:
    """Refuses what is not a lock with a reason."""
    (tmp_path / "lock").write_text(text)
    with pytest.raises(ConfigurationError, match="is no lock"):
        Lock.read(tmp_path / "lock")


def test_locks_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    """With the reason."""
    with pytest.raises(ConfigurationError, match=r"cannot read .*No such file"):
        Lock.read(tmp_path / "none")
    with pytest.raises(ConfigurationError, match=r"cannot write .*directory"):
        Lock(suite="a", node=False, go=False, requirements=(), system={}, packages={}).write(tmp_path)


def test_what_is_not_needed_is_taken_away(tmp_path: Path) -> None:
    """Removes what is not needed, and what would identify the machine or the day."""
    root = make_tree(tmp_path / "root", shadow="root:*:20413:0:99999:7:::\n", hostname="mine", hosts="mine", motd="hi")
    for name in (
        *(
            "usr/share/doc/a/copyright",
            "usr/share/doc/a/README",
            "usr/share/man/man1/a.1",
            "usr/share/locale/locale.alias",
        ),
        *("usr/share/locale/de/x.mo", "var/log/dpkg.log", "var/cache/apt/a.deb", "var/lib/apt/lists/x/y", "var/tmp/x"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    (root / "dev").mkdir()
    (root / "dev/link").symlink_to("/etc/passwd")
    (root / "etc/resolv.conf").symlink_to("/etc/hosts")
    (root / "run").symlink_to("/nowhere")
    make_small(root)
    found = sorted(
        path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert found == [
        *("etc/hosts", "etc/motd", "etc/resolv.conf", "etc/shadow", "usr/bin/dash", "usr/bin/sh"),
        *("usr/share/doc/a/copyright", "usr/share/locale/locale.alias"),
    ]
    assert (root / "etc/shadow").read_text() == "root:*:1:0:99999:7:::\n"
    assert not (root / "etc/resolv.conf").is_symlink()
    assert os.listdir(root / "dev") == []
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert (root / "work").is_dir()


def test_times_tell_nothing_of_the_build(tmp_path: Path) -> None:
    """Older times are kept, later ones are cut to the latest of those; no program runs as another user."""
    root = make_tree(tmp_path / "root", old="1", new="2")
    began = 2_000_000_000
    for path in root.rglob("*"):
        os.utime(path, (began + 0.5, began + 0.5), follow_symlinks=False)
    os.utime(root / "etc/old", (1000, 1000))
    os.utime(root / "bin", (1500, 1500), follow_symlinks=False)
    (root / "usr/bin/sh").chmod(0o4755)
    settle(root, began)
    assert (root / "etc/old").stat().st_mtime == 1000
    assert {path.lstat().st_mtime for path in root.rglob("*") if path.name != "old"} == {1500}
    assert (root / "usr/bin/sh").stat().st_mode & 0o7777 == 0o755


def test_versions_without_what_debian_adds() -> None:
    """Drops Debian's suffixes and the epoch."""
    system = {"a": "1:18.20.4+dfsg-1~deb12u1", "b": "3.11.2-1+b1", "c": "odd"}
    assert [upstream(system, name) for name in "abcd"] == ["18.20.4", "3.11.2", "", ""]


def test_secrets_do_not_reach_the_programs_that_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that name the source of packages do reach them."""
    monkeypatch.setenv("MY_TOKEN", "secret")
    monkeypatch.setenv("https_proxy", "http://proxy")
    found = build_environment(MORE="x")
    assert "MY_TOKEN" not in found
    assert (found["https_proxy"], found["MORE"], found["PYTHONHASHSEED"]) == ("http://proxy", "x", "0")


def test_commands_in_a_tree_as_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of an ordinary user get a user namespace."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert in_tree(Path("/x"), ["true"])[:3] == ["unshare", "--user", "--map-root-user"]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--user" not in in_tree(Path("/x"), ["true"])
