"""Random sequences of putting into queues, taking, ending, dying, and clocks that jump: as the reference does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.durable.postgres import Server, server
from tests.durable.queue_model import Clock, play

from toolexec.durable.postgres import PostgresJournal
from toolexec.durable.sqlite import SQLiteJournal

_NUMBERS = count()


def _play_in_file(path: Path, seeds: range) -> None:
    clock = Clock()
    with SQLiteJournal(path / "runs.db", clock=clock, keep=None) as store:
        for seed in seeds:
            play(store, clock, seed)


def test_a_few_sequences(tmp_path: Path) -> None:
    """The store in a file takes what the reference takes."""
    _play_in_file(tmp_path, range(12))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 2250, 250))
def test_many_sequences(first: int, tmp_path: Path) -> None:
    """The store in a file does so for more than a thousand other ones."""
    _play_in_file(tmp_path, range(first, first + 250))


class _Clocked(PostgresJournal):
    """Has the clock of the test."""

    clock: Clock

    def _now(self) -> float:
        return self.clock()


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    with server() as started:
        yield started


def _play_in_postgres(database: Server, seeds: range) -> None:
    with _Clocked(database.dsn, schema=f"q{next(_NUMBERS)}", keep=None) as store:
        store.clock = Clock()
        for seed in seeds:
            play(store, store.clock, seed)


@pytest.mark.full
def test_a_few_sequences_in_postgres(database: Server) -> None:
    """The store in PostgreSQL does the same."""
    _play_in_postgres(database, range(100, 110))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(3000, 4000, 100))
def test_many_sequences_in_postgres(first: int, database: Server) -> None:
    """The store in PostgreSQL does so for a thousand."""
    _play_in_postgres(database, range(first, first + 100))
