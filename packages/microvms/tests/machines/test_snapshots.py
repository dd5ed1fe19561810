"""Saved machines on the disk: made once, shared, checked, bounded; and files with holes."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path

import pytest

from toolexec.errors import SandboxUnavailableError
from toolexec_microvms.snapshots import SnapshotCache
from toolexec_microvms.sparse import copy_sparse, sparse_digest

pytestmark = pytest.mark.anyio
ABOUT = {"vmm": "x", "memory_mib": 128}


class Maker:
    """Makes machines, and counts them."""

    def __init__(self, content: bytes = b"ram") -> None:
        self.made = 0
        self.content = content

    async def __call__(self, directory: Path) -> None:
        self.made += 1
        (directory / "ram").write_bytes(self.content)
        await asyncio.sleep(0.01)


def places(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.is_dir())


async def test_a_machine_is_made_once(tmp_path: Path) -> None:
    """Tasks that ask at the same time, and later, in this process and in another one, get the same."""
    make = Maker()
    caches = [SnapshotCache(tmp_path / "m") for _ in range(3)]
    found = await asyncio.gather(*(cache.get(ABOUT, make) for cache in caches))
    assert make.made == 1
    assert {snapshot.directory for snapshot in found} == {found[0].directory}
    assert (found[0].directory / "ram").read_bytes() == b"ram"
    for snapshot in found:
        snapshot.close()
        snapshot.close()


@pytest.mark.parametrize("damage", ["byte", "cut", "gone", "description", "version", "open to others"])
async def test_a_damaged_machine_is_made_again(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    """A machine that was changed, cut off or written by another version is removed, which is logged."""
    make = Maker(b"ram" * 100_000)
    (await SnapshotCache(tmp_path).get(ABOUT, make)).close()
    place = tmp_path / places(tmp_path)[0]
    match damage:
        case "byte":
            with (place / "ram").open("r+b") as file:
                file.seek(200_000)
                file.write(b"!")
        case "cut":
            os.truncate(place / "ram", 1000)
        case "gone":
            (place / "ram").unlink()
        case "description":
            (place / "manifest.json").write_text("{")
        case "version":
            data = json.loads((place / "manifest.json").read_text())
            (place / "manifest.json").write_text(json.dumps({**data, "version": 0}))
        case _:
            place.chmod(0o777)
    snapshot = await SnapshotCache(tmp_path).get(ABOUT, make)
    assert make.made == 2
    assert (snapshot.directory / "ram").read_bytes() == make.content
    assert "made again" in caplog.text
    assert len(places(tmp_path)) == 1
    snapshot.close()


@pytest.mark.parametrize("kind", ["pipe", "directory", "link"])
@pytest.mark.parametrize("name", ["ram", "manifest.json", "lease"])
@pytest.mark.parametrize("known", [True, False])
async def test_what_is_no_file_is_refused(tmp_path: Path, kind: str, name: str, known: bool) -> None:
    """A pipe, a directory or a link in place of a file holds up nothing: the machine is made again."""
    make, cache = Maker(), SnapshotCache(tmp_path / "m")
    found = await cache.get(ABOUT, make)
    found.close()
    path = found.directory / name
    kept = path.rename(tmp_path / name)
    match kind:
        case "pipe":
            os.mkfifo(path, 0o600)
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to(kept)
    async with asyncio.timeout(30):
        again = await (cache if known else SnapshotCache(tmp_path / "m")).get(ABOUT, make)
    again.close()
    assert make.made == 2
    assert path.is_file()
    assert not path.is_symlink()


async def test_a_pipe_in_place_of_a_machine_is_removed(tmp_path: Path) -> None:
    """Removes it, and makes the machine there."""
    make, cache = Maker(), SnapshotCache(tmp_path / "m")
    found = await cache.get(ABOUT, make)
    found.close()
    found.directory.rename(tmp_path / "away")
    os.mkfifo(found.directory)
    async with asyncio.timeout(30):
        (await cache.get(ABOUT, make)).close()
    assert make.made == 2
    assert not [path for path in (tmp_path / "m").iterdir() if path.is_fifo()]


async def test_only_so_many_are_kept(tmp_path: Path) -> None:
    """The one that was not used for longest is removed, unless it is in use."""
    cache = SnapshotCache(tmp_path, most=2)
    first = await cache.get({"n": 1}, Maker())
    for number in (2, 3, 4):
        (await cache.get({"n": number}, Maker())).close()
        os.utime(tmp_path / places(tmp_path)[0])
    assert first.directory.is_dir()
    first.close()
    cache.prune()
    assert len(places(tmp_path)) == 2


async def test_a_maker_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """The error is raised as it is; a full disk is an error of its own, which can be retried."""

    async def full(directory: Path) -> None:
        (directory / "ram").write_bytes(b"part")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def slow(_: Path) -> None:
        await asyncio.Event().wait()

    cache = SnapshotCache(tmp_path)
    with pytest.raises(SandboxUnavailableError, match="No space left") as caught:
        await cache.get(ABOUT, full)
    assert caught.value.retryable
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await cache.get(ABOUT, slow)
    assert places(tmp_path) == []
    (await cache.get(ABOUT, Maker())).close()


def test_files_with_holes(tmp_path: Path) -> None:
    """A copy has the same bytes and takes no more room; the digest is of the bytes, not of the holes."""
    size = (1 << 20) + 5000
    source, copy, flat = (tmp_path / name for name in ("source", "copy", "flat"))
    with source.open("wb") as file:
        file.truncate(size)
        for place, data in ((70_000, b"a" * 10), (1 << 19, b"b" * 200_000), (size - 3, b"end")):
            file.seek(place)
            file.write(data)
    flat.write_bytes(source.read_bytes())
    with source.open("rb") as one, copy.open("w+b") as two, flat.open("rb") as three:
        written = copy_sparse(one.fileno(), two.fileno())
        assert copy.read_bytes() == source.read_bytes()
        assert 200_000 < written < 400_000
        digests = {sparse_digest(file.fileno()) for file in (one, two, three)}
        assert len(digests) == 1
    with flat.open("r+b") as changed:
        changed.seek(300_000)
        changed.write(b"x")
        changed.flush()
        assert sparse_digest(changed.fileno()) not in digests
