"""A directory that only its owner can write to, holding files that are checked in full before anything uses them.

A compiled sandbox is native code, so a file counts only if it is ours, no other user can write to it, and it is what
the description beside it states. All is done relative to the open directory and the open file: what is swapped under
their names in the meantime is not what was checked, and so not what is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.process.lock import lock, try_lock
from toolexec.process.steps import BuildStep, OnStep

_CHUNK: Final = 1 << 20
_MAX_DESCRIPTION: Final = 1 << 20
_LOCK: Final = ".lock"
_TEMPORARY: Final = ".new-"
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in its place must not block


class _UnusableError(Exception):
    """This file is not to be used; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of the directory by its description, which has been checked, unlike the file itself."""

    name: str
    used: float
    """When it was last used, in seconds since 1970."""
    size: int
    """In bytes, with the description."""
    about: JSONObject
    """What it was stored with."""


class OpenFile:
    """A file that was checked and is held open, as a context manager; `path` leads to this very file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        near = f"/proc/self/fd/{descriptor}"
        self.path: str = near if os.path.exists(near) else f"/dev/fd/{descriptor}"  # noqa: PTH110 - not a real path

    def read(self) -> bytes:
        """Return all that the file holds."""
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            return file.read()

    def close(self) -> None:
        """Release the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PrivateDirectory:
    """The directory *path*, made if it is missing, as a context manager; used by one thread.

    One that others could write to is emptied and closed to them. With *shared* it is root's, and all users may read
    what root keeps there; one that others could write to is refused. Raises ConfigurationError when it cannot be made,
    belongs to another user, or is a link: it says what it is *called*, and the *fix*.
    """

    def __init__(
        self,
        path: Path,
        *,
        shared: bool = False,
        called: str = "cache directory of the sandbox",
        fix: str = "give one of your own with TOOLEXEC_CACHE=/path",
    ) -> None:
        self.path = path
        self._called = called
        self._fix = fix
        self._shared = shared
        self._owner = 0 if shared else os.geteuid()
        try:
            missing = [each for each in (path, *path.parents) if shared and not each.exists()]
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for each in missing:
                each.chmod(0o755)  # whatever the umask is
            self._directory = os.open(path, _OPEN | os.O_DIRECTORY)
        except OSError as error:
            link = " (it is a link)" if path.is_symlink() else ""
            raise self._refusal(f"cannot be used: {error.strerror or error}{link}", foreign=bool(link)) from error
        try:
            self._secure()
        except BaseException:
            os.close(self._directory)
            raise

    def _secure(self) -> None:
        status = os.fstat(self._directory)
        if status.st_uid != self._owner:
            raise self._refusal(f"belongs to another user (number {status.st_uid})", foreign=True)
        if self._shared:
            if status.st_mode & _OTHERS_MAY_WRITE:
                raise self._refusal("can be written to by other users", foreign=True)
            return
        if status.st_mode & 0o077:
            os.fchmod(self._directory, 0o700)
            if status.st_mode & _OTHERS_MAY_WRITE:
                for name in self._names():
                    self._delete(name)

    def _refusal(self, why: str, *, foreign: bool = False) -> ConfigurationError:
        """Return the error of a directory that cannot be used; *foreign* says that others may have put it there."""
        return ConfigurationError(
            f"the {self._called}, {self.path}, {why}; {self._fix}",
            details={"directory": str(self.path), **({"foreign": True} if foreign else {})},
        )

    def close(self) -> None:
        """Release the directory."""
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def locked(self, progress: OnStep | None = None) -> Generator[None]:
        """Hold the directory alone, among all processes and threads; the end of a process frees it, too.

        Raises ConfigurationError when the directory cannot be written to.
        """
        try:
            file = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._directory)
        except OSError as error:
            raise self._refusal(f"cannot be written to: {error.strerror or error}") from error
        try:
            wait = BuildStep(name="wait", fraction=None, message="another process is building the sandbox")
            lock(file, on_wait=None if progress is None else partial(progress, wait))
            yield
        finally:
            os.close(file)

    @contextmanager
    def claimed(self, name: str) -> Generator[bool]:
        """Hold the claim *name* among all processes, or give False at once where another one holds it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            claim = os.open(f"{_LOCK}-{name}", flags, 0o600, dir_fd=self._directory)
        except OSError as error:
            raise self._refusal(f"cannot be written to: {error.strerror or error}") from error
        try:
            yield try_lock(claim)
        finally:
            os.close(claim)

    def store(self, name: str, data: bytes, about: JSONObject) -> None:
        """Keep *data* and *about* (JSON) as *name*; to be done while `locked`.

        The description comes last, and both appear complete or not at all. Raises ConfigurationError when they cannot
        be written; what was there may be lost then, and is never mixed up.
        """
        text = json.dumps({"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "about": dict(about)})
        try:
            self._write(name, data)
            self._write(f"{name}.json", text.encode())
            os.fsync(self._directory)
        except OSError as error:
            raise self._refusal(f"cannot be written to: {error.strerror or error}") from error

    def _write(self, name: str, data: bytes) -> None:
        new = f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(new, flags, 0o600, dir_fd=self._directory), "wb") as file:
                os.fchmod(file.fileno(), 0o644 if self._shared else 0o600)  # whatever the umask is
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(new, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except BaseException:
            self._delete(new)
            raise

    def open(self, name: str) -> OpenFile | None:
        """Open the file *name* if it is there, ours and as it was stored; None if not. Checks every byte."""
        descriptor = -1
        try:
            description = self._describe(name)
            descriptor = self._open_ours(name)
            if os.fstat(descriptor).st_size != description["size"] or _digest(descriptor) != description["sha256"]:
                raise _UnusableError("it is damaged")
        except (_UnusableError, OSError):
            if descriptor >= 0:
                os.close(descriptor)
            return None
        with suppress(OSError):
            os.utime(descriptor)  # pruning keeps what is in use
        return OpenFile(descriptor)

    def about(self, name: str) -> JSONObject | None:
        """Return what the file *name* was stored with, without a look at the file; None if there is none of ours."""
        try:
            return self._describe(name)["about"]
        except (_UnusableError, OSError):
            return None

    def files(self) -> list[StoredFile]:
        """List all files that have a description of ours, last used first."""
        found: list[StoredFile] = []
        for name in self._names():
            about = None if name.endswith(".json") or name.startswith(".") else self.about(name)
            if about is not None:
                with suppress(OSError):
                    status = os.stat(name, dir_fd=self._directory, follow_symlinks=False)
                    beside = os.stat(f"{name}.json", dir_fd=self._directory, follow_symlinks=False)
                    size = status.st_size + beside.st_size
                    found.append(StoredFile(name=name, used=status.st_mtime, size=size, about=about))
        return sorted(found, key=lambda file: (-file.used, file.name))

    def remove(self, name: str) -> None:
        """Forget the file *name*; to be done while `locked`. A process that has it open keeps it."""
        self._delete(f"{name}.json")
        self._delete(name)

    def tidy(self) -> None:
        """Delete what writers that died have left, and files without a description; to be done while `locked`."""
        names = set(self._names())
        for name in names:
            whole = name.removesuffix(".json")
            if name.startswith(_LOCK):
                continue
            if name.startswith(_TEMPORARY) or not {whole, f"{whole}.json"} <= names:
                self._delete(name)

    def _names(self) -> list[str]:
        return os.listdir(self._directory)  # noqa: PTH208 - a descriptor

    def _delete(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(name, dir_fd=self._directory)

    def _describe(self, name: str) -> JSONDict:
        descriptor = self._open_ours(f"{name}.json")
        with os.fdopen(descriptor, "rb") as file:
            text = file.read(_MAX_DESCRIPTION)
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise _UnusableError("its description is damaged") from error
        if not isinstance(data, dict) or not isinstance(data.get("about"), dict):
            raise _UnusableError("its description is damaged")
        if not isinstance(data.get("sha256"), str) or type(data.get("size")) is not int:
            raise _UnusableError("its description is damaged")
        return data

    def _open_ours(self, name: str) -> int:
        descriptor = os.open(name, _OPEN, dir_fd=self._directory)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == self._owner and not status.st_mode & _OTHERS_MAY_WRITE:
            return descriptor
        os.close(descriptor)
        raise _UnusableError("it is not a file that only we can write")


def _digest(descriptor: int) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_CHUNK))
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
    return digest.hexdigest()
