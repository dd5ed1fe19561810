"""The ledger of effects: what was begun, and how it ended, in a file that outlives the process."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from toolexec.errors import AuditError
from toolexec.errors.outcome import Outcome
from toolexec.model.origin import new_run_id
from toolexec.process.database import OwnDatabase, open_database, transaction, use_wal
from toolexec.process.owner import is_orphan, this_owner

__all__ = ["Effect", "EffectLedger", "EffectState", "new_effect", "state_of"]

EffectState: TypeAlias = Literal["begun", "done", "unread", "failed", "not_done", "unknown", "repeated"]
"""`done`, or `failed` where the tool said so; `unread` was done, and its caller could not read the answer; `not_done`
never began. An `unknown` one may have done its work; it is
`repeated` once it was made again knowingly. A `begun` one is under way, or its process died."""

_STATES: Final[dict[Outcome, EffectState]] = {
    Outcome.NOT_SENT: "not_done",
    Outcome.REFUSED: "failed",
    Outcome.DONE: "unread",
    Outcome.UNKNOWN: "unknown",
}
_DAY: Final = 86_400.0
_BETWEEN_PRUNINGS: Final = 1000
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS effects (id TEXT PRIMARY KEY, key TEXT NOT NULL, args TEXT NOT NULL, tool TEXT NOT NULL,
    run_id TEXT NOT NULL, parent TEXT NOT NULL, sent TEXT NOT NULL, owner TEXT NOT NULL, state TEXT NOT NULL,
    began REAL NOT NULL, ended REAL, value TEXT);
CREATE INDEX IF NOT EXISTS effects_by_key ON effects (key, began);
CREATE INDEX IF NOT EXISTS effects_by_sent ON effects (sent) WHERE sent <> id;
CREATE INDEX IF NOT EXISTS open_effects ON effects (key) WHERE state IN ('begun', 'unknown');
"""
_COLUMNS: Final = "id, key, args, tool, run_id, parent, sent, owner, state, began, ended, value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One call that may have changed something.

    `key` is the same for calls that are the same, `args` the digest of its arguments. `run_id` is the call's, `parent`
    that of the chain or code it belongs to. `sent` is the idempotency key that its backend got. `began` and `ended` are
    seconds since 1970; `value` is the answer as JSON where it is kept. `is_live` says that a call which has begun
    is still under way.
    """

    id: str
    key: str
    args: str
    tool: str
    run_id: str = ""
    parent: str = ""
    sent: str = ""
    owner: str = ""
    state: EffectState = "begun"
    began: float = 0.0
    ended: float | None = None
    value: str | None = None

    @property
    def is_live(self) -> bool:
        """Return whether its process still lives; one of another machine is taken for dead."""
        if self.state != "begun":
            return False
        here = this_owner()
        machine = here.partition("-")[0]
        return self.owner == here or (
            machine != "0" and self.owner.startswith(f"{machine}-") and not is_orphan(self.owner)
        )


class EffectLedger:
    """Keeps effects in the SQLite database *path*, which only its owner may read; several processes may share it. None
    is one in memory.

    Each is written before its call is made. A process that dies leaves it as `begun`. With *sync* a record is on the
    disk before it counts as written, so that it outlives a power failure, too. Effects whose outcome is known go after
    *keep* seconds; the others stay until `settle`. *clock* gives seconds since 1970. Raises AuditError when the file
    cannot be used.
    """

    def __init__(
        self,
        path: str | Path | None,
        *,
        sync: bool = False,
        keep: float = 30 * _DAY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path: Path | None = Path(path) if path is not None else None
        self.keep = keep
        self.clock = clock
        self._sync = sync
        self._written = 0
        try:
            self._database = OwnDatabase(self._connect)
        except (OSError, sqlite3.Error) as error:
            raise self._cannot(error) from error

    def begin(self, effect: Effect, may_begin: Callable[[Effect | None], bool]) -> Effect | None:
        """Write down that *effect* begins, and return None; or, with nothing written, the earlier one of its key
        that *may_begin* says no to. It is asked with the latest, with one of unknown outcome before all others, and
        before that with one that was sent the same and is done; with None where there is none. Raises AuditError."""
        with self._open() as database, transaction(database):
            earlier = self._done(database, effect) or self._earlier(database, effect.key)
            if not may_begin(earlier):
                return earlier
            self._insert(database, effect)
        return None

    def end(self, effect_id: str, state: EffectState, value: str | None = None) -> None:
        """Write down how an effect ended. Raises AuditError."""
        with self._open() as database:
            database.execute(
                "UPDATE effects SET state = ?, ended = ?, value = ? WHERE id = ?",
                (state, self.clock(), value, effect_id),
            )

    def settle(self, effect_id: str, *, done: bool, value: str | None = None) -> bool:
        """Write down what a person or a program has found out about an effect of unknown outcome: whether it was done,
        and what it answered, as JSON. Return whether there is such an effect. Raises AuditError."""
        found = self.get(effect_id)
        if found is None or found.state not in ("begun", "unread", "unknown") or found.is_live:
            return False
        self.end(effect_id, "done" if done else "not_done", value)
        return True

    def get(self, effect_id: str) -> Effect | None:
        """Return the effect with this ID. Raises AuditError."""
        found = self._select("WHERE id = ?", (effect_id,))
        return found[0] if found else None

    def unsettled(self) -> list[Effect]:
        """Return all effects whose outcome is unknown, the oldest first. Raises AuditError."""
        found = self._select("WHERE state IN ('begun', 'unknown') ORDER BY began, id", ())
        return [effect for effect in found if not effect.is_live]

    def close(self) -> None:
        """Write no more; closing twice is fine."""
        self._database.close()

    def _connect(self) -> sqlite3.Connection:
        database = open_database(self.path)
        try:
            use_wal(database, sync=self._sync)
            database.executescript(_SCHEMA)
        except BaseException:
            database.close()
            raise
        return database

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        try:
            with self._database as database:
                if database is None:
                    raise self._cannot("it is closed")
                yield database
        except (OSError, sqlite3.Error) as error:
            raise self._cannot(error) from error

    def _select(self, where: str, values: tuple[Any, ...]) -> list[Effect]:
        with self._open() as database:
            return [_effect(row) for row in database.execute(f"SELECT {_COLUMNS} FROM effects {where}", values)]  # noqa: S608

    def _done(self, database: sqlite3.Connection, effect: Effect) -> Effect | None:
        """Return the effect that was done under the key that this one's backend gets, unless that is of its own."""
        if effect.sent == effect.id:
            return None
        row = database.execute(
            f"SELECT {_COLUMNS} FROM effects WHERE sent = ? AND sent <> id AND key = ? "  # noqa: S608
            "AND state IN ('done', 'unread') LIMIT 1",
            (effect.sent, effect.key),
        ).fetchone()
        return _effect(row) if row is not None else None

    def _earlier(self, database: sqlite3.Connection, key: str) -> Effect | None:
        select = f"SELECT {_COLUMNS} FROM effects WHERE key = ?"  # noqa: S608
        rows = database.execute(f"{select} AND state IN ('begun', 'unknown') ORDER BY rowid DESC LIMIT 1000", (key,))
        found = [_effect(row) for row in rows]
        for effect in found:
            if not effect.is_live:
                return effect
        latest = database.execute(f"{select} ORDER BY began DESC, rowid DESC LIMIT 1", (key,)).fetchone()
        return found[0] if found else _effect(latest) if latest is not None else None

    def _insert(self, database: sqlite3.Connection, effect: Effect) -> None:
        marks = ", ".join("?" * 12)
        database.execute(
            f"INSERT INTO effects ({_COLUMNS}) VALUES ({marks})",  # noqa: S608
            (
                *(effect.id, effect.key, effect.args, effect.tool, effect.run_id, effect.parent, effect.sent),
                *(effect.owner, effect.state, effect.began, effect.ended, effect.value),
            ),
        )
        if self._written % _BETWEEN_PRUNINGS == 0:
            database.execute(
                "DELETE FROM effects WHERE state NOT IN ('begun', 'unknown') AND began < ?", (self.clock() - self.keep,)
            )
        self._written += 1

    def _cannot(self, why: Exception | str) -> AuditError:
        return AuditError(
            f"the ledger of effects {self.path} cannot be used: {why}; no call is made that cannot be recorded",
            op="ledger",
            code="ledger",
            outcome=Outcome.NOT_SENT,
        )


def new_effect(ledger: EffectLedger, *, sent: str = "", **facts: Any) -> Effect:
    """Return an effect of this process that begins now; its backend gets the key *sent*, or the effect's own ID."""
    effect_id = f"e-{new_run_id()}"
    return Effect(id=effect_id, sent=sent or effect_id, owner=this_owner(), began=ledger.clock(), **facts)


def state_of(outcome: Outcome) -> EffectState:
    """Return the state of an effect whose call failed with this outcome."""
    return _STATES[outcome]


def _effect(row: tuple[Any, ...]) -> Effect:
    return Effect(**dict(zip(_COLUMNS.split(", "), row, strict=True)))
