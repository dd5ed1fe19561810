"""Calls whose server was silent for a while: either it does them, or another one says that nothing was done."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from toolexec.run.results import ResultStore
from toolexec.server.kept_results import KeptResults
from toolexec.server.kept_streams import CallName, KeptEvents, KeptStreams
from toolexec.server.state import FileState

CALL = CallName("a session", "7", "ada")


class Clock:
    """The time of a file, which a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


@pytest.fixture
async def servers(tmp_path: Path, clock: Clock) -> AsyncGenerator[tuple[KeptStreams, KeptStreams]]:
    """Two servers over one file."""
    file = FileState(tmp_path / "state.db", clock=clock)
    results = KeptResults(ResultStore(), lambda: file, 1 << 20, ())
    yield KeptStreams(lambda: file, results), KeptStreams(lambda: file, results)
    await file.aclose()


async def test_a_call_that_was_given_up_is_not_begun(servers: tuple[KeptStreams, KeptStreams], clock: Clock) -> None:
    """A server that slept longer than others wait does nothing for a call of which another one has said that."""
    slept, other = servers
    assert await slept.mark(CALL, begun=False)
    assert await other.standing(CALL) == "at_work"
    clock.now += 60
    assert await other.standing(CALL) == "not_run"
    assert not await slept.begin(CALL)
    await slept.beat()
    assert await other.standing(CALL) == "not_run"


async def test_a_call_that_was_begun_is_never_called_not_run(
    servers: tuple[KeptStreams, KeptStreams], clock: Clock
) -> None:
    """A server that slept, and begins before another one has looked, may; the outcome is unknown from then on."""
    slept, other = servers
    assert await slept.mark(CALL, begun=False)
    clock.now += 60
    assert await slept.begin(CALL)
    assert await other.standing(CALL) == "unknown"


async def test_a_call_whose_mark_was_not_kept_can_be_begun(servers: tuple[KeptStreams, KeptStreams]) -> None:
    """The store was away as the call was marked, and is back: that it begins is kept."""
    slept, other = servers
    assert await other.standing(CALL) == "unknown"
    assert await slept.begin(CALL)
    await slept.end()
    assert await other.standing(CALL) == "unknown"


async def test_open_questions_are_known_to_others(
    servers: tuple[KeptStreams, KeptStreams], clock: Clock, tmp_path: Path
) -> None:
    """Another server knows which questions of a call are open, for its caller, and of none once they are closed; of many
    long ones it knows the first. The file does not have them in clear."""
    asks, other = servers
    await asks.ask(CALL, [(2, "a secret question"), (3, "another")])
    assert await other.questions(CALL) == KeptEvents(asks.server, [(2, "a secret question"), (3, "another")], [])
    assert await other.questions(CallName(CALL.session, CALL.request, "bob")) is None
    assert await other.answer(CALL) is None
    assert b"secret" not in b"".join(each.read_bytes() for each in tmp_path.iterdir())
    await asks.ask(CALL, [(2, "x" * (100 << 10)), (3, "y" * (100 << 10)), (4, "z")])
    found = await other.questions(CALL)
    assert found is not None
    assert [number for number, _ in found.events] == [2]
    await asks.ask(CALL, [])
    assert await other.questions(CALL) == KeptEvents(asks.server, [], [])
    clock.now += 2
    assert await other.questions(CALL) is None
