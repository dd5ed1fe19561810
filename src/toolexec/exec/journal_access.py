"""The journal of an `Exec`, or the engine in its place: opened when it is needed, and asked off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from toolexec.durable.engine import DurableEngine, QueuedEngine
from toolexec.durable.journal import Journal
from toolexec.durable.journals import DATABASES, is_journal_kind, make_journal
from toolexec.durable.queues import Queue, QueueStore
from toolexec.durable.recorder import RecordingStore, recording_store
from toolexec.errors import ConfigurationError
from toolexec.exec.home import closed_error
from toolexec.exec.stores import JournalQueues, JournalStore

if TYPE_CHECKING:
    from toolexec.exec.options import Options

T = TypeVar("T")


class JournalAccess:
    """Opens what the options name as the journal, and closes it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._journal: Journal | None = None
        self._made: Journal | DurableEngine | None = None
        self._is_closed = False

    @property
    def _given(self) -> Journal | DurableEngine | str | Path | None:
        """What the options name, made where that is a kind of journal. Raises ConfigurationError once it is closed."""
        if self._is_closed:
            raise closed_error()
        given = self._options.journal
        if isinstance(given, str) and is_journal_kind(given):
            if self._made is None:
                self._made = make_journal(given)
            return self._made
        return given

    @property
    def journal(self) -> Journal:
        """The journal of the options. Raises ConfigurationError without one, and once the Exec is closed; JournalError
        for a file that cannot be used, and MissingExtraError for a kind whose package is absent."""
        if self._journal is None:
            given = self._given
            if given is None:
                raise ConfigurationError(
                    "a durable run needs a journal: Exec(journal='runs.db'), or journal in the block [durable] of "
                    "toolexec.toml",
                    details={"setting": "journal"},
                )
            if isinstance(given, DurableEngine):
                raise ConfigurationError("the runs of this Exec are on an engine of their own; ask that one for this")
            self._journal = _opened(given) if isinstance(given, str | Path) else given
        return self._journal

    @property
    def engine(self) -> DurableEngine | None:
        """What runs the durable runs elsewhere, if the options name one in place of a journal."""
        given = self._given
        return given if isinstance(given, DurableEngine) else None

    @property
    def queues(self) -> Mapping[str, Queue]:
        """The queues of the options, by name."""
        return self._options.queues

    @property
    def queue_store(self) -> QueueStore:
        """The journal, where it keeps queues and schedules for the workers of it. Raises ConfigurationError where it
        does not."""
        if self.engine is not None:
            raise not_on_engine("to take from queues and make the runs of schedules", "its workers do that")
        if not isinstance(self.journal, QueueStore):
            raise ConfigurationError("this journal keeps no queues and schedules; a file or PostgreSQL does")
        return self.journal

    @property
    def queueing(self) -> QueuedEngine | JournalQueues:
        """What can be asked for queues and schedules: the engine, or the journal. Raises ConfigurationError where it
        keeps none."""
        engine = self.engine
        if engine is None:
            return JournalQueues(self.queue_store, self.do)
        if not isinstance(engine, QueuedEngine):
            raise not_on_engine("a queue or schedule", "it has none; a file or PostgreSQL does")
        return engine

    @property
    def recording_store(self) -> RecordingStore:
        """The journal, where it keeps runs that are recorded while they are made. Raises ConfigurationError where it
        does not."""
        return recording_store(self.engine or self.journal)

    @property
    def store(self) -> DurableEngine | JournalStore:
        """What can be asked for runs: the engine, or the journal. Raises as `journal` does."""
        return self.engine or JournalStore(self.journal, self.do)

    def close(self) -> None:
        """Close the journal, if it was opened here."""
        self._is_closed = True
        journal, self._journal = self._journal, None
        if journal is not None and isinstance(self._options.journal, str | Path):
            journal.close()

    async def aclose(self) -> None:
        """Close the journal as `close` does, and the connection of an engine."""
        self.close()
        engine, self._made = self._made or self._options.journal, None
        if isinstance(engine, DurableEngine):
            await engine.aclose()

    async def do(self, method: Callable[..., T], *args: Any) -> T:
        """Call a method of the journal, and do not hold up the event loop."""
        return await asyncio.to_thread(method, *args) if self.journal.is_remote else method(*args)


def not_on_engine(what: str, why: str) -> ConfigurationError:
    """Return the error of what makes no sense for runs of an engine."""
    return ConfigurationError(f"{what} is for runs in a journal, and those of this Exec are on an engine: {why}")


def _opened(given: str | Path) -> Journal:
    """Return the journal of a file, or of a database in PostgreSQL."""
    if isinstance(given, str) and given.startswith(DATABASES):
        from toolexec.backend.secrets import SecretResolver
        from toolexec.durable.postgres import PostgresJournal

        return PostgresJournal(SecretResolver().resolve(given, "the journal"))
    from toolexec.durable.sqlite import SQLiteJournal

    return SQLiteJournal(given)
