"""What was approved for longer than one call, and how that is kept."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
from collections.abc import Collection, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from toolexec.discovery.index import Registered
from toolexec.errors import ConfigurationError
from toolexec.model.id_patterns import IDPatterns
from toolexec.model.origin import Caller
from toolexec.model.settings import checked
from toolexec.process.atomic import replace_files

__all__ = ["ApprovalMemory", "Approved", "approved"]

logger: logging.Logger = logging.getLogger(__name__)
_FORMAT: Final = 1
_MAX_BYTES: Final = 16 << 20
_LOCK_SECONDS: Final = 10.0
_Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Approved:
    """One caller may call one tool, as it is defined now and where it lives now, with any arguments."""

    tenant: str
    caller: str
    tool_id: str
    digest: str


def approved(entry: Registered, caller: Caller) -> Approved:
    """Return what it means to approve the tool for *caller*. The digest changes with the tool's definition and
    backend."""
    definition = {"tool": entry.tool.to_dict(), "binding": entry.binding.to_dict()}
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Approved(tenant=caller.realm, caller=caller.id, tool_id=entry.tool.id, digest=digest)


@checked("ApprovalMemory")
class ApprovalMemory:
    """Keeps permanent approvals in the JSON file *path*, which only its owner may read.

    The file is replaced as a whole, so that it is never half written; what another process adds to it or forgets is
    seen at the next question. Who writes locks the file of the same name with `.lock`, where the system has locks, so
    that no process brings back what another one forgets at that instant.

    Raises ConfigurationError when the file cannot be read, is damaged, or can be written by others.
    """

    def __init__(self, path: str | Path) -> None:
        self.path: Path = Path(path)
        self._stamp: _Stamp | None = None
        self._known: frozenset[Approved] = frozenset()
        self._read()

    def __contains__(self, wanted: Approved) -> bool:
        """Return whether this was approved; a file that has become unreadable approves nothing."""
        return wanted in self._refreshed()

    def entries(self) -> list[Approved]:
        """Return all that was approved, in order."""
        return sorted(self._refreshed())

    def add(self, new: Approved) -> None:
        """Remember *new*. Raises OSError when the file cannot be written."""
        with self._locked():
            self._write(self._refreshed() | {new})

    def forget(self, tools: str = "*", *, caller: str | None = None) -> int:
        """Ask again about the tools that the pattern *tools* means, of one caller or of all; gives how many were
        forgotten. Raises OSError when the file cannot be written."""
        meant = IDPatterns("tools to forget", [tools])
        with self._locked():
            known = self._refreshed()
            kept = {
                one for one in known if not meant.match(one.tool_id) or (caller is not None and one.caller != caller)
            }
            if len(kept) < len(known):
                self._write(kept)
            return len(known) - len(kept)

    # -- the file -----------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Generator[None]:
        """Keep other writers out, from reading the file on. Raises OSError where that cannot be."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            from toolexec.process.lock import lock
        except ImportError:  # on Windows
            yield
            return
        file = os.open(f"{self.path.resolve()}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if not lock(file, within=_LOCK_SECONDS, pause=0.01):
                raise TimeoutError(f"{self.path}.lock stayed locked by another process for {_LOCK_SECONDS:g} s")
            yield
        finally:
            os.close(file)

    def _refreshed(self) -> frozenset[Approved]:
        try:
            self._read()
        except ConfigurationError as error:
            logger.warning("nothing counts as approved: %s", error)
            self._known, self._stamp = frozenset(), None
        return self._known

    def _read(self) -> None:
        """Take over the file, if it is another than last time."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
                if stamp == self._stamp:
                    return
                self._check(status)
                data = json.loads(file.read(_MAX_BYTES))
        except FileNotFoundError:
            self._known, self._stamp = frozenset(), None
            return
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"cannot read the approvals in {self.path}: {error}; repair or delete it"
            ) from error
        self._known, self._stamp = self._entries(data), stamp

    def _check(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o022 or status.st_uid != os.geteuid():
            raise ConfigurationError(
                f"the approvals in {self.path} could have been written by others; make it a file of your own "
                f"that only you can write: chmod 600 {self.path}"
            )

    def _entries(self, data: Any) -> frozenset[Approved]:
        try:
            if data["version"] != _FORMAT:
                raise ValueError(f"its version is {data['version']!r}, not {_FORMAT}")
            found = [Approved(**one) for one in data["always"]]
            if not all(isinstance(value, str) for one in found for value in asdict(one).values()):
                raise ValueError("an entry has something else than text in it")
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"the approvals in {self.path} are damaged: {error}; repair or delete it"
            ) from error
        return frozenset(found)

    def _write(self, entries: Collection[Approved]) -> None:
        data = {"version": _FORMAT, "always": [asdict(one) for one in sorted(entries)]}
        replace_files({self.path: json.dumps(data, indent=1)}, mode=0o600)
        self._refreshed()
