"""Does an audit log hold together? Every record is read, and its place in the chain checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolexec.model.json_value import JSONDict
from toolexec.run.audit.anchor import Head, default_key, head_in, heads_of, state_directory
from toolexec.run.audit.chain import NO_HASH, Header, Tail, unsealed
from toolexec.run.audit.reading import audit_lines

_MAX_PROBLEMS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong, and where: `place` is the file's name and the line's number."""

    place: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a log's check found.

    `records` counts those that could be read, `first` and `last` are their times. `last_hash` stands for the whole log
    up to now: kept elsewhere, it shows later that nothing before it was changed or cut off. `unfinished` counts calls
    that began and have no end: they run just now, or their process was killed. `older_gone` says that the oldest files
    were deleted after a rotation. `anchored` says that the log's head was found outside of it, so that a tail that was
    cut off shows. `others` counts logs that were kept in this path before and are not there any more. At most 100
    `problems` are listed.
    """

    records: int
    first: str
    last: str
    last_hash: str
    unfinished: int
    files: tuple[str, ...]
    older_gone: bool
    problems: tuple[Problem, ...]
    anchored: bool = False
    others: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def to_dict(self) -> JSONDict:
        """Return the report as JSON-able data."""
        return {
            "ok": self.ok,
            "records": self.records,
            "first": self.first,
            "last": self.last,
            "lastHash": self.last_hash,
            "unfinished": self.unfinished,
            "files": list(self.files),
            "olderGone": self.older_gone,
            "anchored": self.anchored,
            "others": self.others,
            "problems": [{"place": p.place, "message": p.message} for p in self.problems],
        }


def verify(
    path: str | Path, key: bytes | None = None, *, expect: str = "", state: str | Path | None = None
) -> VerifyReport:
    """Check the log in *path* and the files that it was rotated to, the oldest first.

    *key* is the log's; None is the one that was made for this path, if there is one. Its head is looked for in the
    directory *state*; see `AuditLog.open`. *expect* is a `last_hash` of before: where no head is there, that a log was
    cut off shows only so. Raises AuditError when the log cannot be read.
    """
    place = Path(path)
    directory = state_directory(state)
    own = default_key(place, directory) if key is None else None
    heads = heads_of(place, directory)  # before the log is read: it may be written to just now
    check = _Check(own or key or None, expect.lower(), heads, is_own=own is not None)
    files: list[str] = []
    for name, number, line in audit_lines(place):
        if name not in files:
            files.append(name)
        check.line(f"{name}:{number}", line)
    if not files:
        check.wrong(place.name, "there is no record in it")
    check.end(files[-1] if files else place.name)
    if expect and not check.met:
        check.wrong(place.name, f"no record has the hash {expect}: it was cut off, or is another log")
    return check.report(tuple(files))


class _Check:
    def __init__(self, key: bytes | None, expect: str, heads: dict[str, bytes], *, is_own: bool) -> None:
        self._key = key
        self._heads = heads
        self._is_own = is_own
        self._keyed = False
        self._head: Head | None = None
        self._problems: list[Problem] = []
        self._last: Tail | None = None
        self._lost = False
        self._log = ""
        self._count = 0
        self._first = ""
        self._older_gone = False
        self._open: set[str] = set()
        self._expected = expect
        self.met = False
        """Whether the record was there whose hash is expected."""

    def wrong(self, place: str, message: str) -> None:
        """Note a problem."""
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(Problem(place=place, message=message))

    def line(self, place: str, line: bytes) -> None:
        """Check one line, which follows the one before."""
        if not line.strip(b" "):
            return  # room that was made for a line, which was not written any more
        tail, problem = unsealed(line, self._key)
        if problem:
            self.wrong(place, problem)
        if tail is None:
            self._lost = True
            return
        self._place_in_chain(place, tail)
        self._header(place, tail)
        self._against_head(place, tail)
        self._last, self._lost = tail, False
        self.met = self.met or tail.hash == self._expected
        data = tail.data
        self._first = self._first or str(data.get("time", ""))
        self._count += 1
        run = str(data.get("run_id", ""))
        if data.get("kind") == "start":
            self._open.add(run)
        else:
            self._open.discard(run)

    def _place_in_chain(self, place: str, tail: Tail) -> None:
        seq, prev = tail.following.seq - 1, tail.data.get("prev")
        before = self._last
        if self._lost:
            return  # said already, and what stood there cannot be compared
        if before is None:
            self._older_gone = seq != 0
            if seq == 0 and prev != NO_HASH:
                self.wrong(place, "the first record claims that there is one before it")
            return
        if seq != before.following.seq:
            self.wrong(place, f"record {seq} follows {before.following.seq - 1}: some were taken out, put in or moved")
        elif prev != before.hash:
            self.wrong(place, "it is not sealed to the record before it: one was put in, or the chain was begun again")

    def _header(self, place: str, tail: Tail) -> None:
        header = Header.read(tail.data)
        if header is None:
            if self._last is None and not self._lost:
                self.wrong(place, "the log does not begin with its header")
            return
        if self._log and header.log != self._log:
            self.wrong(place, "another log begins here")
        self._log = header.log
        self._keyed = header.keyed
        if self._key is not None or not header.keyed:  # else nothing can be compared
            self._head = head_in(self._heads, header.log, self._key)
        if header.keyed and self._key is None:
            self.wrong(place, "the log has a key; without it nothing can be verified")
        if self._key is not None and not header.keyed:
            self.wrong(place, "the log has no key, and should have one")

    def _against_head(self, place: str, tail: Tail) -> None:
        data, head = tail.data, self._head
        if data.get("kind") == "lost":
            self.wrong(place, f"{data.get('note')}: cut off between two runs, or lost when the machine failed")
        if head is not None and head.valid and tail.following.seq - 1 == head.seq and tail.hash != head.hash:
            self.wrong(place, f"record {head.seq} is another one than was written: the log was made again")

    def end(self, place: str) -> None:
        """Compare the end of the log with its head."""
        head, last = self._head, self._last
        if head is None:
            if self._is_own and self._keyed and last is not None:
                self.wrong(
                    place, "its head is gone, which stood outside of the log: nothing shows whether it was cut off"
                )
        elif not head.valid:
            self.wrong(place, "its head, which stands outside of the log, was changed")
        elif last is not None and last.following.seq - 1 < head.seq:
            end = last.following.seq - 1
            self.wrong(place, f"it ends with record {end}, and {head.seq} was written: its tail was cut off")

    def report(self, files: tuple[str, ...]) -> VerifyReport:
        """Return the report of what was found."""
        last = self._last
        return VerifyReport(
            records=self._count,
            first=self._first,
            last=str(last.data.get("time", "")) if last is not None else "",
            last_hash=last.hash if last is not None else "",
            unfinished=len(self._open),
            files=files,
            older_gone=self._older_gone,
            problems=tuple(self._problems),
            anchored=self._head is not None and self._head.valid,
            others=len(self._heads) - (self._head is not None),
        )
