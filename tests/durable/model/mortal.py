"""Processes that may die at any write: their journals, and the machine that they share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import pytest
from tests.durable.model.world import Life, Time

import toolexec.durable.clock as host_clock
import toolexec.durable.run as durable_run
import toolexec.durable.sql as durable_sql
from toolexec.durable.log import OwnedRun
from toolexec.durable.postgres import PostgresJournal
from toolexec.durable.runner import DurableRunner
from toolexec.durable.sql import Execute, SQLJournal
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.journal import RunRecord, Wait

PROCESS: ContextVar[str] = ContextVar("process", default="")
"""The process that the current task belongs to."""


class _Mortal(SQLJournal):
    """A journal in a process that may die at any write: before it, or after it was made."""

    life: Life
    clock: Callable[[], float]

    def _now(self) -> float:
        return self.clock()

    @contextmanager
    def _reading(self, op: str) -> Generator[Execute]:
        self.life.check()
        with super()._reading(op) as execute:  # type: ignore[safe-super]
            yield execute

    @contextmanager
    def _writing(self, op: str) -> Generator[Execute]:
        self.life.reach("before a write")
        with super()._writing(op) as execute:  # type: ignore[safe-super]
            yield execute
        self.life.reach("after a write")

    def create(self, run: RunRecord) -> RunRecord:
        made = super().create(run)
        self.life.has_run = bool(run.owner) and made.owner == run.owner
        return made

    def claim(self, run_id: str, owner: str, lease: float) -> RunRecord:
        claimed = super().claim(run_id, owner, lease)
        self.life.has_run = claimed.owner == owner
        return claimed

    def renew(self, run_id: str, owner: str, lease: float) -> None:
        super().renew(run_id, owner, lease)
        self.life.has_run = lease > 0

    def suspend(self, run_id: str, owner: str, waits: Sequence[Wait], delivered: Sequence[Sequence[str]] = ()) -> bool:
        suspended = super().suspend(run_id, owner, waits, delivered)
        self.life.has_run = not suspended
        return suspended


class MortalSQLite(_Mortal, SQLiteJournal):
    """Such a journal in a file."""


class MortalPostgres(_Mortal, PostgresJournal):
    """Such a journal on a server."""


class Machine:
    """The processes of one test, which share a clock: one that is dead is recognised as that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = Time(2_000_000_000.0)
        self.lives: dict[str, Life] = {}
        monkeypatch.setattr(host_clock, "now", lambda: self.time.time())
        monkeypatch.setattr(host_clock, "pause", lambda seconds: self.time.pause(seconds))
        monkeypatch.setattr(durable_run, "this_owner", lambda: PROCESS.get() or "machine-0-0")
        monkeypatch.setattr(durable_sql, "is_orphan", self._is_orphan)
        count = DurableRunner._count  # pyright: ignore[reportPrivateUsage]

        def counted(runner: DurableRunner, change: int) -> None:
            count(runner, change)
            log = runner._log.log  # pyright: ignore[reportPrivateUsage]
            if isinstance(log, OwnedRun) and (life := self.lives.get(log.owner.partition("/")[0])) is not None:
                life.in_flight = runner.in_flight

        monkeypatch.setattr(DurableRunner, "_count", counted)

    def _is_orphan(self, owner: str) -> bool:
        life = self.lives.get(owner)
        return life is not None and life.is_dead and life.same_machine
