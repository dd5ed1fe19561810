"""Collections of garbage stay short in a server, and nothing of that is left when it ends."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from toolexec.server import short_steps as steps_module
from toolexec.server.short_steps import short_steps


@pytest.fixture(scope="module", autouse=True)
def all_thawed() -> Iterator[None]:
    """Take back what the tests of this process have frozen, which is so much that it is collected here once."""
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.collect()
    yield
    if was_frozen:
        gc.freeze()


@pytest.fixture(autouse=True)
def unfrozen(all_thawed: None) -> Iterator[None]:
    """Have nothing frozen before a test, and find nothing after it."""
    callbacks = [*gc.callbacks]
    gc.unfreeze()
    yield
    assert gc.get_freeze_count() == 0
    assert gc.callbacks == callbacks


class Node:
    """A part of a cycle; the class counts those that are there."""

    there = 0

    def __init__(self) -> None:
        self.me = self
        Node.there += 1

    def __del__(self) -> None:
        Node.there -= 1


def test_what_is_there_is_not_looked_at_again() -> None:
    """Freeze it once, also for a server beside the first."""
    with short_steps():
        frozen = gc.get_freeze_count()
        assert frozen > 1000
        with short_steps():
            assert gc.get_freeze_count() > frozen // 2  # some may have been freed meanwhile
        assert gc.get_freeze_count() > frozen // 2


@pytest.mark.parametrize(("slow", "grows"), [(0.0, True), (3600.0, False)])
def test_what_survives_a_slow_collection(monkeypatch: pytest.MonkeyPatch, slow: float, grows: bool) -> None:
    """Freeze it, too, and nothing after a quick one."""
    monkeypatch.setattr(steps_module, "SLOW", slow)
    with short_steps():
        before = gc.get_freeze_count()
        kept = [Node() for _ in range(2000)]
        gc.collect()
        # Half of them: some of what was frozen before may end meanwhile.
        assert (gc.get_freeze_count() >= before + len(kept) // 2) is grows


def test_steps_are_small_ones() -> None:
    """Collect after fewer objects than a command does, which ends soon, and change between threads more often; as
    before once no server is left."""
    before, seconds = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(50_000, *before[1:])
    try:
        with short_steps():
            with short_steps():
                assert gc.get_threshold()[0] <= 1000
            assert gc.get_threshold()[0] <= 1000
            assert sys.getswitchinterval() < seconds / 2
        assert (gc.get_threshold()[0], sys.getswitchinterval()) == (50_000, seconds)
    finally:
        gc.set_threshold(*before)


async def test_all_objects_are_looked_at_after_a_few_thousand_new_ones() -> None:
    """Do it at the next turn of the event loop, and before there are so many that it takes long."""
    found: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            found.append(info["generation"])

    with short_steps():
        gc.callbacks.append(note)
        try:
            kept = [[] for _ in range(30 * steps_module.OBJECTS)]  # type: ignore[var-annotated]
            assert 2 not in found
            await asyncio.sleep(0.01)
            assert found.count(2) == 1
            assert kept
        finally:
            gc.callbacks.remove(note)


@pytest.mark.parametrize("is_due", [False, True])
async def test_a_server_goes_on_without_the_loop_of_the_first(is_due: bool) -> None:
    """Leave to the interpreter when to look at all objects where the loop that did it has ended, also before it did."""
    before = gc.get_threshold()
    with ExitStack() as stack:
        await asyncio.to_thread(asyncio.run, _enter(stack))
        steps_module._shared._is_due = is_due
        assert gc.get_threshold()[2] > before[2]
        kept = [[] for _ in range(30 * steps_module.OBJECTS)]  # type: ignore[var-annotated]
        assert gc.get_threshold()[1:] == before[1:]
        assert kept


async def test_a_server_goes_on_beside_a_loop_that_stands_still() -> None:
    """Leave it to the interpreter, too, where the loop of the first one was not closed, and runs no more."""
    before = gc.get_threshold()
    with closing(asyncio.new_event_loop()) as loop, ExitStack() as stack:
        await asyncio.to_thread(loop.run_until_complete, _enter(stack))
        kept = [[] for _ in range(30 * steps_module.OBJECTS)]  # type: ignore[var-annotated]
        assert gc.get_threshold()[1:] == before[1:]
        assert kept


async def _enter(stack: ExitStack) -> None:
    stack.enter_context(short_steps())


@pytest.mark.full
def test_cycles_are_freed_once_much_more_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a server that goes on for months from growing with what it dropped."""
    monkeypatch.setattr(steps_module, "SLOW", 0.0)
    monkeypatch.setattr(steps_module, "GROWTH", 1.1)
    gc.collect()  # the nodes of other tests, which would be frozen
    with short_steps():
        gc.collect()
        before = Node.there
        dropped = [Node() for _ in range(1000)]
        gc.collect()
        del dropped
        gc.collect()
        assert Node.there == before + 1000
        kept = [[] for _ in range(sys.getallocatedblocks() // 5)]  # type: ignore[var-annotated]
        gc.collect()  # finds that there is so much more
        gc.collect()
        assert Node.there == before
        assert kept


def test_a_program_that_freezes_is_left_alone() -> None:
    """Leave frozen what it has frozen."""
    gc.freeze()
    try:
        with short_steps():
            gc.collect()
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()
