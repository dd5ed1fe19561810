"""The journal in a real PostgreSQL."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from tests.durable.postgres import Server, server

from toolexec.durable.journal import CallRecord, RunRecord
from toolexec.durable.postgres import PostgresJournal
from toolexec.errors import ConfigurationError, JournalError, MissingExtraError
from toolexec.testing.journal_suite import JOURNAL_CHECKS, MakeStore

pytestmark = pytest.mark.full
_NUMBERS = count()


@pytest.fixture(scope="module")
def database() -> Iterator[Server]:
    with server() as started:
        yield started


@pytest.fixture
def schema() -> str:
    return f"s{next(_NUMBERS)}"


def _run(run_id: str = "r") -> RunRecord:
    return RunRecord(id=run_id, kind="code", source="1", digest="d", settings={})


@pytest.mark.parametrize("check", JOURNAL_CHECKS, ids=lambda check: check.__name__)
def test_postgres_keeps_the_contract(check: Callable[[MakeStore], None], database: Server) -> None:
    """The store in PostgreSQL passes each check."""

    def make() -> Callable[[], PostgresJournal]:
        name = f"s{next(_NUMBERS)}"
        return lambda: PostgresJournal(database.dsn, schema=name)

    check(make)


def test_a_newer_version_is_refused(database: Server, schema: str) -> None:
    """Tables of a newer toolexec are not touched."""
    import psycopg

    PostgresJournal(database.dsn, schema=schema).close()
    with psycopg.connect(database.dsn) as connection:
        connection.execute(f"UPDATE {schema}.version SET version = 99".encode())
    with pytest.raises(JournalError, match=r"version 99, and this toolexec knows 2; use a newer"):
        PostgresJournal(database.dsn, schema=schema)


def test_many_open_a_new_store_at_once(database: Server, schema: str) -> None:
    """Processes that make the tables at once do not get in each other's way."""
    program = (
        "import sys; from toolexec.durable.postgres import PostgresJournal\n"
        "PostgresJournal(sys.argv[1], schema=sys.argv[2]).close()"
    )
    command = [sys.executable, "-c", program, database.dsn, schema]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0] * 4, errors


def test_a_lost_connection_is_made_again() -> None:
    """A server that was killed has lost nothing, and the journal goes on when it is back."""
    with server() as own, PostgresJournal(own.dsn) as journal:
        journal.create(_run())
        journal.claim("r", "me", 60)
        journal.begin("r", "me", CallRecord(step="1", tool="t", definition="", args=""))
        own.stop(signal.SIGQUIT)
        with pytest.raises(JournalError, match="PostgreSQL cannot be used") as caught:
            journal.end("r", "me", "1", "done", {"value": 1})
        assert caught.value.retryable
        own.start()
        journal.end("r", "me", "1", "done", {"value": 1})
        assert [call.outcome for call in journal.calls("r")] == [{"value": 1}]


def test_an_unreachable_server_is_an_error() -> None:
    """A server that is not there is named."""
    with pytest.raises(JournalError, match="/nowhere"):
        PostgresJournal("host=/nowhere")


def test_text_that_postgres_cannot_hold_is_refused(database: Server, schema: str) -> None:
    """A zero byte in a program is an error, with nothing written."""
    with PostgresJournal(database.dsn, schema=schema) as journal:
        with pytest.raises(JournalError):
            journal.create(RunRecord(id="r", kind="code", source="a\0b", digest="d", settings={}))
        assert journal.runs() == []


def test_settings_are_checked() -> None:
    """A schema is a plain name, and a journal has a connection."""
    with pytest.raises(ConfigurationError, match="plain name"):
        PostgresJournal("", schema='a"; DROP')
    with pytest.raises(ConfigurationError, match="at least one"):
        PostgresJournal("", connections=0)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg the error says what to install."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError, match=r"toolexec\[postgres\]"):
        PostgresJournal("")
