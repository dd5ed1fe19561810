"""The audit log: one object to write to, whatever kind of file is behind it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from toolexec.errors import AuditError, ConfigurationError
from toolexec.model.arguments import RefusedArgs
from toolexec.model.forks import forks
from toolexec.model.json_value import JSONObject
from toolexec.model.redaction import Redactor, redactor
from toolexec.run.audit.anchor import default_key, new_default_key, state_directory
from toolexec.run.audit.chain import Header, stamp, unsealed
from toolexec.run.audit.jsonl import JsonLines
from toolexec.run.audit.reading import audit_lines, format_of
from toolexec.run.audit.record import args_digest, inside, redacted_args
from toolexec.run.settings import ArgsMode, AuditFormat, AuditSettings, AuditSync

__all__ = ["ArgsMode", "AuditLog"]

logger: logging.Logger = logging.getLogger(__name__)
_LEFT: Final[list[_Lines]] = []
"""Files of parents: to close one in a child would take from the parent what it has locked."""


class _Lines(Protocol):
    header: Header

    def append(self, body: str, moment: str = "") -> None: ...
    def close(self) -> None: ...


class AuditLog:
    """An append-only log in which each record is sealed to the one before it.

    Make one with `open`. Several processes may write to one file, and several threads to one log.
    """

    def __init__(
        self, path: Path, lines: Callable[[], _Lines], key: bytes | None, args: ArgsMode, redact: Redactor
    ) -> None:
        """*lines* opens the file: now, and in a child that is forked later, which must not share it with its parent."""
        self.path = path
        self.redact = redact
        self.args = args
        self._open = lines
        self._lines: _Lines | None = lines()
        self._append = self._lines.append
        self._owed: list[tuple[str, str]] = []
        self._mutex = threading.Lock()
        self._opening = threading.Lock()
        self.digest_key: bytes = self._lines.header.digest_key(key)
        forks.renew(self)

    def renew(self) -> None:
        """Leave the file, its locks and what is owed to it to the parent, in a child that was forked just now."""
        if self._lines is None:
            return
        _LEFT.append(self._lines)
        self._lines, self._append = None, self._append_first
        self._owed, self._mutex, self._opening = [], threading.Lock(), threading.Lock()

    def _append_first(self, body: str, moment: str = "") -> None:
        with self._opening:
            if self._lines is None:
                self._lines = self._open()
                self._append = self._lines.append
        self._append(body, moment)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        args: ArgsMode = AuditSettings.args,
        format: AuditFormat | None = AuditSettings.format,
        redact: Redactor = redactor,
        key: bytes | None = None,
        sync: AuditSync = AuditSettings.sync,
        max_bytes: int = AuditSettings.max_bytes,
        keep: int = AuditSettings.keep,
        state: str | Path | None = None,
    ) -> AuditLog:
        """Open the log in *path*, or begin it; the file is for its owner alone.

        *args* says what is kept of arguments: a `digest` that shows which calls had the same, all but secrets
        (`redacted`), or `none`. *format* None goes by the name: `.db` and `.sqlite` are SQLite, others JSON lines.
        Records that verify can be made only with the log's *key*. None is a key that is made for this path at its
        first use; `b""` means without a key. It is kept in the directory *state*, with the head of the log, by which a
        tail that is cut off shows (default: `toolexec/audit` in the user's state directory). A log that was begun
        without a key goes on without one. *sync* `always` waits for the disk at each record. A file of JSON lines that
        would grow past *max_bytes* (0: no limit) is moved to `path.1`, and *keep* of those stay.

        A last line that a crash has torn is moved to `path.torn`, with a note in the log. Raises ConfigurationError for
        settings that make no sense, AuditError when the log cannot be written or does not verify at its end.
        """
        place = Path(path)
        kind = format or format_of(place)
        AuditSettings(args=args, format=format, sync=sync, max_bytes=max_bytes, keep=keep)  # checks them
        if max_bytes and kind == "sqlite":
            raise ConfigurationError(f"max_bytes of an audit log must be 0 for SQLite, not {max_bytes}")
        if key and len(key) < 16:
            raise ConfigurationError(f"the key of an audit log needs 16 bytes or more, not {len(key)}")
        directory = state_directory(state)
        if key is None:
            key = default_key(place, directory)
            if key is None and not _is_unkeyed(place, kind):
                key = new_default_key(place, directory)
        key = key or None
        if kind == "sqlite":
            from toolexec.run.audit.sqlite import SqliteLines

            sqlite = partial(SqliteLines, place, key, directory, sync=sync == "always")
            return cls(place, sqlite, key, args, redact)

        lines = partial(JsonLines, place, key, directory, sync=sync == "always", max_bytes=max_bytes, keep=keep)
        return cls(place, lines, key, args, redact)

    def append(self, record: JSONObject) -> None:
        """Write one record of your own; `v`, `seq`, `time`, `prev` and `hash` are added. Raises AuditError."""
        self.write(inside({"kind": "note", **record}))

    def write(self, body: str) -> None:
        """Write the inside of one record, JSON without its braces. Raises AuditError, with nothing written."""
        if self._owed:
            self.settle()
        self._append(body)

    def write_late(self, body: str) -> None:
        """Write about what has happened already, so that it cannot be refused any more.

        Never raises: what cannot be written now is kept and logged as an error, and `write` and `settle` raise until it
        is in the file.
        """
        try:
            self.write(body)
        except AuditError as error:
            with self._mutex:
                self._owed.append((stamp(), body))
            logger.error("a call was made and could not be logged; no more are made until it is: %s", error)

    def settle(self) -> None:
        """Write what is still owed to the log. Raises AuditError while that cannot be done."""
        with self._mutex:
            while self._owed:
                moment, body = self._owed[0]
                self._append(body, moment)
                del self._owed[0]

    @property
    def broken(self) -> bool:
        """Whether something that was done is not in the log yet."""
        return bool(self._owed)

    def args_part(self, args: JSONObject | None, schema: JSONObject | None) -> str:
        """Return what is kept of a call's arguments, as the inside of a record with a comma before it; *schema* marks
        secrets. Of arguments that are too much to be walked nothing is."""
        if type(args) is RefusedArgs:
            return ""
        if self.args == "digest":
            return f',"args_digest":"{args_digest(args, self.digest_key)}"'
        return f',"args":{redacted_args(args, self.redact, schema)}' if self.args == "redacted" else ""

    def close(self) -> None:
        """Close the file, with what is owed written if that can be done; closing twice is fine."""
        try:
            self.settle()
        except AuditError as error:
            logger.error("the audit log lacks %d records: %s", len(self._owed), error)
        if self._lines is not None:
            self._lines.close()


def _is_unkeyed(path: Path, kind: AuditFormat) -> bool:
    """Return whether there is a log already that was begun without a key."""
    try:
        for _, _, line in audit_lines(path, kind):
            tail, _ = unsealed(line, None, check=False)
            header = Header.read(tail.data) if tail is not None else None
            if header is not None and not header.keyed:
                logger.warning("the audit log %s has no key, and goes on without one; move it away for one with", path)
                return True
            return False
    except AuditError:
        pass
    return False
