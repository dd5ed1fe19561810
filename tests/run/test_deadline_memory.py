"""What a time limit keeps of a call that has ended: nothing."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextvars import ContextVar

from toolexec.run.deadline import LeftBehind, with_deadline

KNOWN: ContextVar[object] = ContextVar("KNOWN")


class _Large:
    """What a call has been given."""


async def test_the_context_of_a_call_goes_with_the_call_and_not_with_its_limit() -> None:
    """A call that has waited under a limit of minutes leaves nothing behind when it ends, without the garbage collector
    and long before the limit."""
    left = LeftBehind()

    async def call() -> weakref.ref[_Large]:
        large = _Large()
        KNOWN.set(large)
        await with_deadline(asyncio.sleep(0.001), 600, left, "a:b")
        return weakref.ref(large)

    # A loop forgets a cancelled timer at once where no other one is due before it.
    earlier = asyncio.get_running_loop().call_later(300, id, None)
    gc.collect()
    gc.disable()
    try:
        known = await asyncio.create_task(call())
        await asyncio.sleep(0)
        assert known() is None
    finally:
        gc.enable()
        earlier.cancel()
