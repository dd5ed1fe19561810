"""Work that is dropped half-way, with its event loop, ends without an error: it is collected in another context.

Temporal drops the runs of a worker that ends.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

import pytest
from tests.waiting import until
from tests.workflow.running import tools_of

from toolexec import Exec, Step

SKILL = '+++\nname = "pause"\ndescription = "Pauses"\n+++\nreturn run("t:pause")'


def _exec(entered: Callable[[], None]) -> Exec:
    ex = Exec()

    async def pause() -> None:
        entered()
        await asyncio.get_running_loop().create_future()

    ex.add(pause, "t:pause")
    ex.add_skill(SKILL)
    return ex


async def _streamed(ex: Exec) -> None:
    async for _ in ex.stream_tool("t:pause"):
        pass


WORK: dict[str, Callable[[Exec], Coroutine[Any, Any, Any]]] = {
    "call": lambda ex: ex.run_tool("t:pause"),
    "stream": _streamed,
    "chain": lambda ex: ex.run_chain([Step("t:pause")]),
    "workflow": lambda ex: ex.run_workflow('return run("t:pause")'),
    "branches": lambda ex: ex.run_workflow('return parallel { one: run("t:pause"), other: run("t:pause") }'),
    "skill": lambda ex: ex.run_tool("skill:pause"),
}


async def _left(name: str) -> tuple[Exec, asyncio.Task[Any]]:
    """Return work that has come to its call."""
    entered = asyncio.Event()
    ex = _exec(entered.set)
    task = asyncio.create_task(WORK[name](ex))
    await asyncio.wait([task, waiting := asyncio.ensure_future(entered.wait())], return_when=asyncio.FIRST_COMPLETED)
    assert waiting.done(), task.result()
    return ex, task


@pytest.mark.parametrize("name", WORK)
def test_it_ends_quietly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work of each kind raises nothing in the collector, where it would only be printed."""
    raised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda given: raised.append(given.exc_value))
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it says that a task was still pending
    loop.run_until_complete(_left(name))
    loop.close()
    del loop
    gc.collect()
    assert raised == []


@pytest.mark.parametrize("name", sorted(WORK.keys() - {"stream"}))  # Python closes a generator in a task of its own
async def test_it_can_be_closed(name: str) -> None:
    """A coroutine sees no error in place of its end: what awaits it may be collected after it."""
    entered = asyncio.Event()
    async with _exec(entered.set) as ex:
        work, context = WORK[name](ex), copy_context()
        await until(lambda: context.run(work.send, None) is not None, pause=0)  # up to the first that it waits for
        await entered.wait()
        work.close()


async def test_a_call_of_a_program_can_be_closed() -> None:
    """A call ends without an error before its program, where it is collected first."""
    entered = asyncio.Event()
    async with _exec(entered.set) as ex:
        work, context = tools_of(ex).run_tool("t:pause"), copy_context()
        await until(lambda: context.run(work.send, None) is not None, pause=0)
        await entered.wait()
        work.close()
