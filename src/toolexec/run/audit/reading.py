"""Read the records of an audit log, whatever kind of file they are in: from the first one on, or the last ones."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from toolexec.errors import AuditError
from toolexec.model.json_value import JSONDict
from toolexec.process.database import open_for_reading
from toolexec.run.audit.chain import unsealed
from toolexec.run.audit.jsonl import older_files
from toolexec.run.settings import AuditFormat

Wanted: TypeAlias = Callable[[JSONDict], bool]

_BLOCK: Final = 256 * 1024
_MAX_LINE: Final = 8 * 1024 * 1024
_SQLITE: Final = (".db", ".sqlite", ".sqlite3")


def format_of(path: Path) -> AuditFormat:
    """Return the format that a file's name asks for."""
    return "sqlite" if path.suffix.lower() in _SQLITE else "jsonl"


def audit_lines(path: Path, kind: AuditFormat | None = None) -> Iterator[tuple[str, int, bytes]]:
    """Yield every line with its file's name and its number, the oldest first; raises AuditError when a file cannot be
    read."""
    try:
        if (kind or format_of(path)) == "sqlite":
            yield from _numbered_rows(path)
            return
        for file in [*(file for _, file in reversed(older_files(path))), path]:
            with file.open("rb") as lines:
                number = 0
                while line := lines.readline(_MAX_LINE):
                    number += 1
                    yield file.name, number, line
    except (OSError, sqlite3.Error) as error:
        raise AuditError(f"the audit log {path} cannot be read: {error}", op="audit") from error


def _numbered_rows(path: Path) -> Iterator[tuple[str, int, bytes]]:
    with closing(open_for_reading(path)) as database:
        for seq, line in database.execute("SELECT seq, line FROM records ORDER BY seq"):
            yield path.name, int(seq) + 1, str(line).encode(errors="surrogatepass") + b"\n"


def read_last(path: str | Path, count: int, wanted: Wanted = lambda _: True) -> list[JSONDict]:
    """Return the last *count* records that are *wanted*, the oldest first; lines that are not records are left out.

    Raises AuditError when the log cannot be read.
    """
    return list(islice(filter(wanted, _backwards(Path(path))), count))[::-1]


def read_all(path: str | Path) -> Iterator[JSONDict]:
    """Yield all records, the youngest first; lines that are not records are left out.

    Raises AuditError when the log cannot be read.
    """
    yield from _backwards(Path(path))


class AuditReader:
    """Gives the records that come into the log in *path* after *seq*, also over a rotation."""

    def __init__(self, path: str | Path, seq: int) -> None:
        self._path = Path(path)
        self._seq = seq

    def more(self) -> list[JSONDict]:
        """Return those since the last time, the oldest first. Raises AuditError when the log cannot be read."""
        found: list[JSONDict] = []
        for data in _backwards(self._path):
            if data["seq"] <= self._seq:
                break
            found.append(data)
        if found:
            self._seq = found[0]["seq"]
        return found[::-1]


def _backwards(path: Path) -> Iterator[JSONDict]:
    """Yield all records, the youngest first."""
    try:
        for line in _rows(path) if format_of(path) == "sqlite" else _lines(path):
            tail, _ = unsealed(line, None, check=False)
            if tail is not None:
                yield tail.data
    except (OSError, sqlite3.Error) as error:
        raise AuditError(f"the audit log {path} cannot be read: {error}", op="audit") from error


def _rows(path: Path) -> Iterator[bytes]:
    with closing(open_for_reading(path)) as database:
        for (line,) in database.execute("SELECT line FROM records ORDER BY seq DESC"):
            yield str(line).encode(errors="surrogatepass") + b"\n"


def _lines(path: Path) -> Iterator[bytes]:
    for file in [path, *(older for _, older in older_files(path))]:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield from _lines_of(fd)
        finally:
            os.close(fd)


def _lines_of(fd: int) -> Iterator[bytes]:
    """Yield the whole lines of a file, the last one first."""
    at = os.fstat(fd).st_size
    rest = b""
    while at > 0:
        start = max(at - _BLOCK, 0)
        block = os.pread(fd, at - start, start) + rest
        at = start
        rest, *lines = block.splitlines(keepends=True)
        if not at and rest:
            lines.insert(0, rest)
        yield from (line for line in reversed(lines) if line.endswith(b"\n"))
