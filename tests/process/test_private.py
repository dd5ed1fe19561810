"""Only what is ours, closed to others and intact is ever opened."""

from __future__ import annotations

import json
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from toolexec.errors import ConfigurationError
from toolexec.process.private import PrivateDirectory
from toolexec.process.steps import BuildStep

DATA = b"machine code" * 1000
SOMEBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A directory with one stored file, `code`."""
    path = tmp_path / "cache"
    with PrivateDirectory(path) as directory, directory.locked():
        directory.store("code", DATA, {"for": "tests"})
    return path


def _open(path: Path) -> bytes | None:
    with PrivateDirectory(path) as directory:
        file = directory.open("code")
        if file is None:
            return None
        with file:
            return file.read()


def test_round_trip(stored: Path) -> None:
    """Stored values come back, by themselves and with their neighbours."""
    assert _open(stored) == DATA
    with PrivateDirectory(stored) as directory:
        assert directory.about("code") == {"for": "tests"}
        assert directory.open("other") is None
        assert directory.about("other") is None
        (file,) = directory.files()
    assert (file.name, file.about) == ("code", {"for": "tests"})
    assert file.size == sum((stored / name).stat().st_size for name in ("code", "code.json"))


def test_everything_is_ours_alone(tmp_path: Path) -> None:
    """Whatever the umask is, directory and files are closed to everybody else."""
    before = os.umask(0)
    try:
        with PrivateDirectory(tmp_path / "cache") as directory, directory.locked():
            directory.store("code", DATA, {})
    finally:
        os.umask(before)
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "cache").iterdir()} == {0}


def _rewrite(text: Callable[[dict[str, object]], object]) -> Callable[[Path], object]:
    def _change(path: Path) -> None:
        about = path / "code.json"
        about.write_text(json.dumps(text(json.loads(about.read_text()))))

    return _change


def _flip(path: Path) -> None:
    data = bytearray((path / "code").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "code").write_bytes(data)


def _replace_by_link(name: str) -> Callable[[Path], object]:
    def _change(path: Path) -> None:
        (path / name).rename(path.parent / name)
        (path / name).symlink_to(path.parent / name)

    return _change


def _replace(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def _change(path: Path) -> None:
        (path / name).unlink()
        make(path / name)

    return _change


HARM: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: os.truncate(path / "code", len(DATA) - 1),
    "empty": lambda path: (path / "code").write_bytes(b""),
    "longer": lambda path: (path / "code").write_bytes(DATA + b"\0"),
    "one bit": _flip,
    "gone": lambda path: (path / "code").unlink(),
    "group can write": lambda path: (path / "code").chmod(0o660),
    "others can write": lambda path: (path / "code").chmod(0o602),
    "a link": _replace_by_link("code"),
    "a pipe": _replace("code", os.mkfifo),
    "a directory": _replace("code", os.mkdir),
    "description gone": lambda path: (path / "code.json").unlink(),
    "description empty": lambda path: (path / "code.json").write_bytes(b""),
    "description is not UTF-8": lambda path: (path / "code.json").write_bytes(b"\xff\xfe"),
    "description is not an object": lambda path: (path / "code.json").write_text("[]"),
    "description is half": lambda path: os.truncate(path / "code.json", 20),
    "description too deep": lambda path: (path / "code.json").write_text("[" * 100_000),
    "description without about": _rewrite(lambda data: {**data, "about": None}),
    "description without digest": _rewrite(lambda data: {**data, "sha256": 1}),
    "description without size": _rewrite(lambda data: {**data, "size": True}),
    "description of another": _rewrite(lambda data: {**data, "sha256": "0" * 64}),
    "description others can write": lambda path: (path / "code.json").chmod(0o666),
    "description a link": _replace_by_link("code.json"),
    "description a pipe": _replace("code.json", os.mkfifo),
}


@pytest.mark.parametrize("harm", HARM)
def test_never_opened(stored: Path, harm: str) -> None:
    """A file that is damaged, not a plain file or open to others is not opened; storing it again heals it."""
    HARM[harm](stored)
    assert _open(stored) is None
    if harm == "a directory":
        (stored / "code").rmdir()
    with PrivateDirectory(stored) as directory, directory.locked():
        directory.store("code", DATA, {})
    assert _open(stored) == DATA


@needs_root
@pytest.mark.parametrize("name", ["code", "code.json"])
def test_of_somebody_else(stored: Path, name: str) -> None:
    """A file of another user is not opened, whatever it holds; storing it again replaces it."""
    os.chown(stored / name, SOMEBODY, SOMEBODY)
    assert _open(stored) is None
    with PrivateDirectory(stored) as directory, directory.locked():
        directory.store("code", DATA, {})
    assert (stored / name).stat().st_uid == os.geteuid()


def test_behind_a_link_stays(stored: Path) -> None:
    """Replacing a link does not touch what it points to."""
    victim = stored.parent / "victim"
    victim.write_bytes(b"precious")
    (stored / "code").unlink()
    (stored / "code").symlink_to(victim)
    with PrivateDirectory(stored) as directory, directory.locked():
        directory.store("code", DATA, {})
    assert victim.read_bytes() == b"precious"
    assert not (stored / "code").is_symlink()


def test_swapped_after_the_check(stored: Path) -> None:
    """Opens the checked file, even if another one takes its name at once."""
    with PrivateDirectory(stored) as directory:
        file = directory.open("code")
        assert file is not None
        (stored / "evil").write_bytes(b"evil")
        (stored / "evil").replace(stored / "code")
        with file:
            assert Path(file.path).read_bytes() == DATA
            assert file.read() == DATA


def test_swapped_directory(stored: Path) -> None:
    """Never looks into a directory that has taken the name of the open one."""
    with PrivateDirectory(stored) as directory:
        stored.rename(stored.with_name("moved"))
        stored.mkdir()
        (stored / "code").write_bytes(b"evil")
        file = directory.open("code")
        assert file is not None
        with file:
            assert file.read() == DATA


@needs_root
def test_directory_of_somebody_else(stored: Path) -> None:
    """A directory of another user is refused, with what to do."""
    os.chown(stored, SOMEBODY, SOMEBODY)
    with pytest.raises(ConfigurationError, match=r"belongs to another user \(number 65534\).*TOOLEXEC_CACHE"):
        PrivateDirectory(stored)


def test_directory_is_a_link(stored: Path) -> None:
    """A link in the place of the directory is refused."""
    stored.rename(stored.with_name("moved"))
    stored.symlink_to(stored.with_name("moved"))
    with pytest.raises(ConfigurationError, match="it is a link"):
        PrivateDirectory(stored)


@pytest.mark.parametrize("below", ["", "sub"])
def test_directory_is_a_file(tmp_path: Path, below: str) -> None:
    """A directory that cannot be made is refused."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match="cannot be used") as caught:
        PrivateDirectory(tmp_path / "file" / below)
    assert caught.value.details == {"directory": str(tmp_path / "file" / below)}


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_directory_others_could_write_to(stored: Path, mode: int) -> None:
    """A directory that others could write to is emptied and closed."""
    stored.chmod(mode)
    assert _open(stored) is None
    assert list(stored.iterdir()) == []
    assert stored.stat().st_mode & 0o777 == 0o700


def test_directory_others_could_read(stored: Path) -> None:
    """A directory that others could only read is closed and keeps what it has."""
    stored.chmod(0o755)
    assert _open(stored) == DATA
    assert stored.stat().st_mode & 0o777 == 0o700


def test_lock_waits(stored: Path) -> None:
    """A second owner waits, is notified of that, and goes on when the first is done."""
    waiting, steps, order = threading.Event(), list[BuildStep](), list[str]()

    def _hear(step: BuildStep) -> None:
        steps.append(step)
        waiting.set()

    def _second() -> None:
        with PrivateDirectory(stored) as directory, directory.locked(_hear):
            order.append("second")

    with PrivateDirectory(stored) as directory:
        with directory.locked():
            thread = threading.Thread(target=_second)
            thread.start()
            assert waiting.wait(60)
            order.append("first")
        thread.join(60)
    assert order == ["first", "second"]
    assert {(step.name, step.fraction) for step in steps} == {("wait", None)}


def test_lock_that_cannot_be_made(stored: Path) -> None:
    """A directory that cannot be written to is a configuration error."""
    (stored / ".lock").unlink()
    (stored / ".lock").mkdir()
    with (
        PrivateDirectory(stored) as directory,
        pytest.raises(ConfigurationError, match=r"cannot be written to: .*TOOLEXEC_CACHE"),
        directory.locked(),
    ):
        raise AssertionError


def test_full_disk(stored: Path) -> None:
    """When there is no room, the error says so, what was there stays, and nothing half-written is left."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with PrivateDirectory(stored) as directory, directory.locked():
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(DATA) // 2, limits[1]))
        try:
            with pytest.raises(ConfigurationError, match="cannot be written to: File too large"):
                directory.store("code", DATA, {})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(path.name for path in stored.iterdir()) == [".lock", "code", "code.json"]
    assert _open(stored) == DATA


def test_remove(stored: Path) -> None:
    """A removed file is gone, and who has it open keeps it."""
    with PrivateDirectory(stored) as directory, directory.locked():
        file = directory.open("code")
        directory.remove("code")
        directory.remove("code")
        assert file is not None
        with file:
            assert file.read() == DATA
        assert directory.files() == []


def test_tidy(stored: Path) -> None:
    """The rests of writers that died, and files without a description, are deleted."""
    for name in (".new-1-abc", "lonely", "lonely.json.json"):
        (stored / name).write_text("x")
    with PrivateDirectory(stored) as directory, directory.locked():
        directory.tidy()
    assert sorted(path.name for path in stored.iterdir()) == [".lock", "code", "code.json"]


def test_last_used_first(stored: Path) -> None:
    """Files are listed by their last use."""
    with PrivateDirectory(stored) as directory, directory.locked():
        for name in ("a", "b"):
            directory.store(name, b"x", {})
        for name, used in (("a", 100), ("b", 200), ("code", 50)):
            os.utime(stored / name, (used, used))
        assert [file.name for file in directory.files()] == ["b", "a", "code"]
        file = directory.open("code")
        assert file is not None
        file.close()
        file.close()
        assert [file.name for file in directory.files()] == ["code", "b", "a"]
