"""Saved machines on the disk: each kept in full or not at all, shared by the processes of a user, and checked."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
import os
import secrets
import shutil
import stat
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from toolexec.containers import JSONDict, JSONObject, is_orphan, this_owner
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import PrivateDirectory, cache_directory, lock, other_host, try_lock
from toolexec_microvms.sparse import sparse_digest

logger: logging.Logger = logging.getLogger(__name__)
_VERSION: Final = 1
_MANIFEST: Final = "manifest.json"
_HOST: Final = "host"
_LEASE: Final = "lease"
_NEW: Final = "new."
_TRASH: Final = "trash."
_LOCK: Final = ".lock-"
_PAUSE: Final = 0.05
_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class Snapshot:
    """A saved machine in *directory*, which stays as long as this is not closed."""

    def __init__(self, directory: Path, lease: int) -> None:
        self.directory = directory
        self._lease = lease

    def close(self) -> None:
        """Release it. Twice is fine."""
        if self._lease >= 0:
            os.close(self._lease)
            self._lease = -1


class SnapshotCache:
    """The *most* saved machines that were used last, in *directory* (default: `machines` in the user's cache).

    One that is not what its description says, or that was made by something else, is removed and made again, which is
    logged. Used by one event loop.
    """

    def __init__(self, directory: Path | None = None, *, most: int = 6) -> None:
        self._directory = directory
        self._most = most
        self._checked: set[tuple[str, int, int]] = set()

    @property
    def directory(self) -> Path:
        """Where they are. Raises ConfigurationError when there is no cache."""
        self._directory = self._directory or cache_directory("machines")
        return self._directory

    async def get(
        self, about: JSONObject, make: Callable[[Path], Awaitable[None]], host: JSONObject | None = None
    ) -> Snapshot:
        """Return the machine that was saved for *about*, which has all that must be the same; to be closed.

        If there is none, *make* saves one in an empty directory; other processes wait for it. Those that were saved on
        a *host* with other facts (see `host_facts`) are not taken, which is logged; hosts that share the directory keep
        one each. Raises what *make* raises, ConfigurationError when the directory cannot be used, and
        SandboxUnavailableError, retryable, for a full disk. Cancelling leaves nothing behind.
        """
        about = {**about, _HOST: dict(host or {})}
        name = _name_of(about)
        found = await asyncio.to_thread(self._open, name, about)
        if found is not None:
            return found
        async with self._locked(name):
            found = await asyncio.to_thread(self._open, name, about)
            if found is not None:  # another process has made it meanwhile
                return found
            await asyncio.to_thread(self._log_other_hosts, about)
            new = self._make_new()  # not in a thread: cancelling would leave it behind
            try:
                await make(new)
                await asyncio.to_thread(self._keep, new, name, about)
            except OSError as error:
                raise SandboxUnavailableError(
                    f"a machine cannot be saved in {self.directory}: {error.strerror or error}; free some space, or "
                    "set TOOLEXEC_CACHE=/path",
                    retryable=True,
                ) from error
            finally:
                await asyncio.to_thread(shutil.rmtree, new, ignore_errors=True)
            found = await asyncio.to_thread(self._open, name, about)
        if found is None:
            raise SandboxUnavailableError(f"{self.directory} does not keep what is written to it", retryable=True)
        await asyncio.to_thread(self.prune)
        return found

    def discard(self, snapshot: Snapshot, why: str) -> None:
        """Remove one that is of no use; those that are being restored from it go on. Blocks."""
        snapshot.close()
        self._remove(snapshot.directory, why)

    def prune(self) -> None:
        """Remove what was not used for longest, and what dead processes have left. Blocks; never raises."""
        kept: list[tuple[float, Path]] = []
        for place in _directories(self.directory):
            if place.name.startswith((_NEW, _TRASH)):
                if is_orphan(place.name.split(".")[1]):
                    shutil.rmtree(place, ignore_errors=True)
                continue
            with suppress(OSError):
                kept.append(((place / _LEASE).stat().st_mtime, place))
        for _, place in sorted(kept, reverse=True)[self._most :]:
            with suppress(OSError):
                lease = _open_file(place / _LEASE)
                try:
                    if try_lock(lease):
                        self._throw_away(place)
                finally:
                    os.close(lease)

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncGenerator[None]:
        """Be the one process that makes *name*."""
        await asyncio.to_thread(self._secure)
        file = os.open(self.directory / f"{_LOCK}{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not try_lock(file):  # noqa: ASYNC110 - another process holds it
                await asyncio.sleep(_PAUSE)
            yield
        finally:
            os.close(file)

    def _log_other_hosts(self, about: JSONObject) -> None:
        """Log why a machine that was saved on another host, or on this one before it was changed, is not taken."""
        for place in _directories(self.directory):
            if place.name.startswith((_NEW, _TRASH)):
                continue
            with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                saved = _described(place)["about"]
                if {**saved, _HOST: about[_HOST]} == about and (why := other_host(saved[_HOST], about[_HOST])):
                    logger.warning(
                        "the saved machine %s is not restored, and one is made again for this host: it was saved on "
                        "another one: %s",
                        place,
                        why,
                    )

    def _secure(self) -> None:
        with PrivateDirectory(self.directory):
            pass

    def _make_new(self) -> Path:
        new = self.directory / f"{_NEW}{this_owner()}.{secrets.token_hex(6)}"
        new.mkdir(mode=0o700)
        return new

    def _keep(self, new: Path, name: str, about: JSONObject) -> None:
        files = {path.name: _measure(path) for path in sorted(new.iterdir())}
        (new / _LEASE).touch(mode=0o600)
        manifest = new / _MANIFEST
        manifest.write_text(json.dumps({"version": _VERSION, "about": dict(about), "files": files}), "utf-8")
        with manifest.open("rb") as written:
            os.fsync(written.fileno())
        target = self.directory / name
        if target.exists():
            self._throw_away(target)
        new.rename(target)
        self._checked.add(_mark(target))

    def _open(self, name: str, about: JSONObject) -> Snapshot | None:
        """Open the machine *name* if it is there and whole. What is not whole is removed."""
        place = self.directory / name
        if not place.exists():
            return None
        lease = -1
        try:
            self._secure()
            lease = _open_file(place / _LEASE)
            lock(lease, shared=True)
            why = self._problem(place, about)
            if not why:
                os.utime(lease)
                return Snapshot(place, lease)
        except OSError as error:
            why = f"it cannot be read: {error.strerror or error}"
        if lease >= 0:
            os.close(lease)
        self._remove(place, why)
        return None

    def _problem(self, place: Path, about: JSONObject) -> str:
        """Why a saved machine cannot be used; "" if it can."""
        status = place.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _OTHERS:
            return "others could have written to it"
        for path in place.iterdir():  # also where all was checked before: who opens a pipe waits for ever
            if not stat.S_ISREG(path.lstat().st_mode):
                return f"{path.name} is not a regular file"
        mark = _mark(place)
        if mark in self._checked:
            return ""
        try:
            manifest = _described(place)
            if manifest["version"] != _VERSION or manifest["about"] != dict(about):
                return "it was made by another version"
            files = manifest["files"]
            for name, measured in files.items():
                if _measure(place / name) != measured:
                    return f"{name} is damaged"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return "its description is damaged"
        self._checked.add(mark)
        return ""

    def _remove(self, place: Path, why: str) -> None:
        logger.warning("the saved machine %s is removed, and is made again when it is needed: %s", place, why)
        try:
            self._throw_away(place)
        except FileNotFoundError:
            pass
        except OSError as error:
            logger.error("the saved machine %s cannot be removed: %s", place, error)

    def _throw_away(self, place: Path) -> None:
        """Remove it for all others at once."""
        trash = self.directory / f"{_TRASH}{this_owner()}.{secrets.token_hex(6)}"
        place.rename(trash)
        if stat.S_ISDIR(trash.lstat().st_mode):
            shutil.rmtree(trash, ignore_errors=True)
        else:
            trash.unlink()


def _name_of(about: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(dict(about), sort_keys=True).encode()).hexdigest()[:24]


def _described(place: Path) -> Any:
    """Return the description of a saved machine, whatever is in it. Raises OSError and ValueError."""
    with os.fdopen(_open_file(place / _MANIFEST), "rb") as file:
        return json.load(file)


def _mark(place: Path) -> tuple[str, int, int]:
    status = (place / _MANIFEST).stat()
    return str(place), status.st_ino, status.st_mtime_ns


def _measure(path: Path) -> JSONDict:
    file = _open_file(path)
    try:
        return {"size": os.fstat(file).st_size, "sha256": sparse_digest(file)}
    finally:
        os.close(file)


def _open_file(path: Path) -> int:
    """Open a regular file to read it. Raises OSError for anything else, such as a link or a pipe, and never waits."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, f"{path.name} is not a regular file")
    return file


def _directories(directory: Path) -> list[Path]:
    try:
        return [entry for entry in directory.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    except OSError:
        return []
