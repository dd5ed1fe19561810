"""Runs survive the sudden end of their process: the exact result, and every effect once."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.durable.host import opened
from tests.durable.nursery import Nursery, nursery, wait_for

KINDS = ["chain", "workflow", "code"]
EXPECTED: dict[str, Any] = {
    "chain": 99,
    "workflow": [number + 100 for number in range(40)],
    "code": [[*range(10), *(number + 100 for number in range(10, 30))], 20],
}
EFFECTS = {
    "chain": [*range(100)],
    "workflow": [*range(40), *(number + 100 for number in range(40))],
    "code": [*range(30), *(number + 100 for number in range(10, 30))],
}
LONGEST = {"chain": 0.5, "workflow": 0.15, "code": 0.25}
"""About as many seconds as a run takes that is not killed."""
SLOW = {"chain": "0.06", "workflow": "0.4", "code": "2.5"}
"""How many seconds a call takes in a run that is killed many times."""
SLOW_LONGEST = 5.0
"""Such a run takes longer than that."""


def nothing() -> None:
    """Do nothing."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Nursery]:
    """Fork the hosts."""
    with nursery() as found:
        yield found


def host(hosts: Nursery, directory: Path, kind: str, seconds: float | None, *more: str) -> str:
    """Run a host and kill it after so many seconds, if it is not done by then; return what it has printed."""
    pipe = directory / "printed"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    pid = hosts.fork(pipe, str(directory), kind, *more)
    with pipe.open() as printed:
        begun = printed.readline()
        assert begun == "begun\n"
        if seconds is not None:
            time.sleep(seconds)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        output = printed.read()
    wait_for(pid)
    return output


def survive(hosts: Nursery, directory: Path, kind: str, kills: int, seed: int = 9) -> None:
    """Kill hosts of one run, until one ends, and begin new runs until *kills* were in time."""
    chance = random.Random(f"{kind} {seed}")
    done = 0
    for number in range(200):
        place = directory / str(number)
        place.mkdir()
        output = ""
        while not output and done < kills:
            output = host(hosts, place, kind, chance.uniform(0, LONGEST[kind]))
            done += not output
        check(place, kind, output or host(hosts, place, kind, None))
        if done >= kills:
            return
    raise AssertionError("the hosts were too quick to be killed")


def check(place: Path, kind: str, output: str) -> None:
    """Require the exact result, and each effect once."""
    assert json.loads(output) == {"value": EXPECTED[kind], "error": None}
    effects = Counter(map(int, (place / "effects").read_text().split()))
    assert effects == Counter(EFFECTS[kind])


def survive_all(
    hosts: Nursery, directory: Path, kind: str, kills: int, *more: str, half_way: Callable[[], None] = nothing
) -> None:
    """Kill hosts of one and the same run at random moments, *kills* times; *half_way* is done between two of them."""
    chance = random.Random(f"{kind} {kills}")
    done = 0
    while done < kills:
        if done == kills // 2:
            half_way()
        output = host(hosts, directory, kind, chance.uniform(0, SLOW_LONGEST / kills), SLOW[kind], *more)
        assert not output, f"it was done before the last {kills - done} kills: {output}"
        done += 1
    check(directory, kind, host(hosts, directory, kind, None, SLOW[kind], *more))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_survives_two_kills(tmp_path: Path, hosts: Nursery, kind: str) -> None:
    """A process is killed at a random moment, another one goes on, and what came of it can be replayed."""
    survive(hosts, tmp_path, kind, 2)
    before = (tmp_path / "0" / "effects").read_text()
    async with opened(tmp_path / "0") as ex:
        report = await ex.runs.replay("run")
    assert report.same, report.error
    assert (tmp_path / "0" / "effects").read_text() == before


@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_survives_twenty_kills(tmp_path: Path, hosts: Nursery, kind: str, seed: int) -> None:
    """Twenty processes are killed at random moments; each run has its exact result, and no effect is doubled."""
    survive(hosts, tmp_path, kind, 4, seed)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_one_run_survives_twenty_kills(tmp_path: Path, hosts: Nursery, kind: str) -> None:
    """The same run is killed twenty times before it ends."""
    survive_all(hosts, tmp_path, kind, 20)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_one_run_survives_kills_and_a_restart_of_the_database(tmp_path: Path, hosts: Nursery, kind: str) -> None:
    """The hosts of one run are killed, and the server that has the journal crashes and starts again."""
    survive_on_postgres(hosts, tmp_path, kind, 4)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_one_run_survives_twenty_kills_and_a_restart_of_the_database(tmp_path: Path, hosts: Nursery, kind: str) -> None:
    """The same with twenty kills."""
    survive_on_postgres(hosts, tmp_path, kind, 20)


def survive_on_postgres(hosts: Nursery, directory: Path, kind: str, kills: int) -> None:
    """Do the same with a journal in PostgreSQL, whose server crashes once."""
    from tests.durable.postgres import server

    with server() as database:

        def crash() -> None:
            database.stop(signal.SIGQUIT)
            database.start()

        address = f"postgresql://tests@/postgres?host={database.directory}"
        survive_all(hosts, directory, kind, kills, address, half_way=crash)
