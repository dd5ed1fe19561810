"""Durable runs in PostgreSQL, a server of Debian's on this machine: a call in the journal, a list of 10,000 runs."""

from __future__ import annotations

from time import perf_counter

from tests.durable.postgres import server

from benchmarks.meter import Meter, run_program
from benchmarks.programs.durable import OUTCOME, call, fill, listing, run
from toolexec.durable.postgres import PostgresJournal


def calls(meter: Meter, journal: PostgresJournal) -> None:
    """One call, begun and ended."""
    journal.create(run("r"))
    for number in range(100 if meter.quick else 1000):
        started = perf_counter()
        journal.begin("r", "me", call(str(number)))
        journal.end("r", "me", str(number), "done", OUTCOME)
        meter.record("durable.postgres.call", perf_counter() - started)


async def main(meter: Meter) -> None:
    """All of it, each in a schema of its own."""
    with server() as started:
        with PostgresJournal(started.dsn, schema="calls") as journal:
            calls(meter, journal)
        with PostgresJournal(started.dsn, schema="lists") as journal:
            fill(journal)
            listing(meter, journal, "durable.postgres")


if __name__ == "__main__":
    run_program(main)
