"""Where logins are kept: the keyring of the system, or files that only their owner can read."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import stat
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol, Self

from toolexec.errors import ConfigurationError, LoginError, SecretError
from toolexec.errors.extras import unix_needed
from toolexec.process.atomic import replace_files
from toolexec.process.caches import state_directory
from toolexec.process.threads import WorkerThreads

_SERVICE: Final = "toolexec login"
_MOST: Final = 1 << 20
_LOCK_SECONDS: Final = 60.0
_threads: Final = WorkerThreads(
    8
)  # a keyring may wait for its owner for ever, and must not keep the process from ending


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A login to one server: its tokens, and all that renewing them takes. `until` is when the token ends, in seconds
    since 1970, None where that is unknown; `asked` are the scopes that were asked for, `scope` those that are given."""

    server: str
    issuer: str
    token_endpoint: str
    client_id: str
    method: str = "none"
    client_secret: str = field(default="", repr=False)
    access_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)
    until: float | None = None
    scope: str = ""
    asked: str = ""
    resource: str = ""
    revocation_endpoint: str = ""

    @property
    def secrets(self) -> set[str]:
        """What must not be shown."""
        return {each for each in (self.access_token, self.refresh_token, self.client_secret) if each}

    def to_json(self) -> str:
        """Return what is stored."""
        return json.dumps({"version": 1, **asdict(self)})

    @classmethod
    def from_json(cls, text: str, server: str) -> Self | None:
        """Return what was stored; None where it is damaged, or not a login to *server*."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(data, dict) or data.pop("version", None) != 1 or data.get("server") != server:
            return None
        fields = cls.__dataclass_fields__
        strings = {name: value for name, value in data.items() if name in fields and isinstance(value, str)}
        until = data.get("until")
        if not {"server", "issuer", "token_endpoint", "client_id"} <= strings.keys():
            return None
        return cls(**strings, until=float(until) if isinstance(until, int | float) else None)


def key_of(name: str, server: str, caller: str = "") -> str:
    """Return what the login of the server *name* at the URL *server* is kept under: another URL is another login, and
    so is that of another *caller* (empty: of all)."""
    parts = json.dumps([name, server, caller]) if caller else f"{name}\n{server}"  # no name begins with a bracket
    return hashlib.sha256(parts.encode()).hexdigest()[:40]


class Store(Protocol):
    """Keeps logins; see `LoginStore` for what each method does. `lasts` says whether it does so after this process."""

    lasts: bool

    async def load(self, name: str, server: str) -> Login | None:
        """Return the login to a server; None where there is none."""
        ...

    async def save(self, name: str, login: Login) -> None:
        """Keep a login in place of the one before."""
        ...

    def mark(self, name: str, server: str) -> int:
        """Return a number that is another one after each `save` and `delete`."""
        ...

    async def delete(self, name: str, server: str) -> bool:
        """Forget a login; return whether there was one."""
        ...

    def exclusively(self, name: str, server: str) -> AbstractAsyncContextManager[None]:
        """Hold a login alone."""
        ...


class MemoryStore:
    """Keeps the one `login` of one session, as long as the session is there."""

    lasts: bool = False

    def __init__(self, login: Login | None = None) -> None:
        self.login: Login | None = login
        self._saves = 0

    async def load(self, name: str, server: str) -> Login | None:
        """Implement `Store.load`."""
        return self.login

    async def save(self, name: str, login: Login) -> None:
        """Implement `Store.save`."""
        self.login, self._saves = login, self._saves + 1

    def mark(self, name: str, server: str) -> int:
        """Implement `Store.mark`."""
        return self._saves

    async def delete(self, name: str, server: str) -> bool:
        """Implement `Store.delete`."""
        found, self.login, self._saves = self.login, None, self._saves + 1
        return found is not None

    def exclusively(self, name: str, server: str) -> AbstractAsyncContextManager[None]:
        """Implement `Store.exclusively`: the session holds its login alone."""
        return nullcontext()


class LoginStore:
    """Keeps logins in the keyring of the system where the `keyring` extra and a keyring are there, else in *directory*,
    one file (mode 0600) each. Its default is `toolexec/logins` in the user's state directory.

    Raises ConfigurationError where the directory cannot be used safely, and SecretError where the keyring fails.
    """

    lasts: bool = True

    def __init__(self, directory: Path | None = None, *, environment: Mapping[str, str] = os.environ) -> None:
        self.directory: Path = directory or state_directory(environment) / "logins"
        self._in_files = directory is not None

    def _key(self, name: str, server: str) -> str:
        """Return what a login is kept under."""
        return key_of(name, server)

    async def load(self, name: str, server: str) -> Login | None:
        """Return the login to a server; None where there is none."""
        text = await _threads.run(partial(self._load, self._key(name, server)))
        return Login.from_json(text, server) if text else None

    async def save(self, name: str, login: Login) -> None:
        """Keep a login in place of the one before."""
        await _threads.run(partial(self._save, self._key(name, login.server), login.to_json()))

    def mark(self, name: str, server: str) -> int:
        """Return a number that is another one after each `save` and `delete`, by any process."""
        try:
            return (self.directory / f"{self._key(name, server)}.lock").stat().st_mtime_ns
        except OSError:
            return 0

    async def delete(self, name: str, server: str) -> bool:
        """Forget a login; return whether there was one."""
        return await _threads.run(partial(self._delete, self._key(name, server)))

    @asynccontextmanager
    async def exclusively(self, name: str, server: str) -> AsyncGenerator[None]:
        """Hold a login alone, among all processes: a refresh token can often be used only once.

        Raises LoginError where another process holds it for a minute.
        """
        opening = asyncio.ensure_future(_threads.run(partial(self._lock, self._key(name, server))))
        try:
            file = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_result)
            raise
        if file < 0:
            raise LoginError(f"another process is renewing the login to {name}, and does not end", retryable=True)
        try:
            yield
        finally:
            os.close(file)

    # -- in a thread --------------------------------------------------------------------------------------------

    def _load(self, key: str) -> str:
        ring = self._ring()
        if ring is not None:
            return asked_ring(partial(ring.get_password, _SERVICE, key)) or ""
        try:
            file = os.open(self.directory / f"{key}.json", os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise ConfigurationError(f"cannot read the logins in {self.directory}: {error.strerror}") from error
        with os.fdopen(file, "rb") as opened:
            state = os.fstat(file)
            if hasattr(os, "getuid") and (state.st_uid != os.getuid() or state.st_mode & (stat.S_IRWXG | stat.S_IRWXO)):
                raise ConfigurationError(
                    f"a login in {self.directory} may be read or written by others; remove it, and log in again"
                )
            return opened.read(_MOST).decode(errors="replace")

    def _save(self, key: str, text: str) -> None:
        self._prepare()
        self._write(key, text)
        self._mark_change(key)

    def _mark_change(self, key: str) -> None:
        with suppress(OSError):
            (self.directory / f"{key}.lock").touch(mode=0o600)

    def _write(self, key: str, text: str) -> None:
        ring = self._ring()
        if ring is not None:
            asked_ring(partial(ring.set_password, _SERVICE, key, text))
            return
        try:
            replace_files({self.directory / f"{key}.json": text}, mode=0o600)
        except OSError as error:
            raise ConfigurationError(f"cannot write to {self.directory}: {error.strerror}") from error

    def _delete(self, key: str) -> bool:
        found = self._forget(key)
        if found:
            self._mark_change(key)
        return found

    def _forget(self, key: str) -> bool:
        ring = self._ring()
        if ring is not None:
            if not asked_ring(partial(ring.get_password, _SERVICE, key)):
                return False
            asked_ring(partial(ring.delete_password, _SERVICE, key))
            return True
        try:
            (self.directory / f"{key}.json").unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigurationError(f"cannot write to {self.directory}: {error.strerror}") from error
        return True

    def _lock(self, key: str) -> int:
        with unix_needed("a login, which is locked among processes,"):
            from toolexec.process.lock import lock
        self._prepare()
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            file = os.open(self.directory / f"{key}.lock", flags, 0o600)
        except OSError as error:
            raise ConfigurationError(f"cannot write to {self.directory}: {error.strerror}") from error
        if lock(file, within=_LOCK_SECONDS):
            return file
        os.close(file)
        return -1

    def _prepare(self) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = self.directory.lstat()
        except OSError as error:
            raise ConfigurationError(f"cannot make {self.directory}: {error.strerror}") from error
        if hasattr(os, "getuid") and (state.st_uid != os.getuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
            raise ConfigurationError(f"{self.directory} may be written to by others; chmod 700 it")

    def _ring(self) -> ModuleType | None:
        """Return the keyring, if there is one that works; None where logins are kept in files."""
        return None if self._in_files else system_ring()


def system_ring() -> ModuleType | None:
    """Return the keyring of the system, if there is one that works."""
    try:
        ring = import_module("keyring")
        return ring if ring.get_keyring().priority >= 1 else None
    except Exception:  # not installed, or of a system without one
        return None


def asked_ring(ask: Any) -> Any:
    """Return what the keyring answers; raises SecretError, without its words."""
    try:
        return ask()
    except Exception as error:  # every keyring has errors of its own
        raise SecretError(f"the keyring cannot be used ({type(error).__name__})") from None


def _close_result(opening: asyncio.Future[int]) -> None:
    with suppress(BaseException):
        if (file := opening.result()) >= 0:
            os.close(file)
