"""What the workflow of a program gets, and what it may not have got when the program ends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from temporalio.client import WorkflowHandle
from tests.waiting import until

from toolexec_temporal.exchanges import Exchanges
from toolexec_temporal.messages import Exchange


class Workflow:
    """Takes exchanges, and answers each when it is let; to an answer belong those of all that was wanted."""

    def __init__(self) -> None:
        self.taken: list[Exchange] = []
        self.lets: list[asyncio.Event] = []

    async def execute_update(self, name: str, exchange: Exchange, **settings: Any) -> dict[str, Any]:
        """Take an exchange."""
        del name, settings
        let = asyncio.Event()
        self.taken.append(exchange)
        self.lets.append(let)
        await let.wait()
        return {step: {"value": step} for step in exchange.wanted}


async def asked(link: Exchanges, workflow: Workflow, step: str, *groups: list[str]) -> asyncio.Task[Any]:
    """Ask for a step, after these groups were delivered; return once the workflow has that."""
    link.delivered += groups
    count = len(workflow.taken)
    task = asyncio.create_task(link.ask(step, {"step": step}))
    await until(lambda: len(workflow.taken) > count, 0)
    return task


async def test_what_is_under_way_at_the_end_is_sent_again() -> None:
    """An exchange without an answer may be lost: its groups go along with the end."""
    workflow = Workflow()
    async with Exchanges(cast("WorkflowHandle[Any, Any]", workflow), 1) as link:
        link.known = 3
        first = await asked(link, workflow, "1", ["a"], ["b"])
        assert link.undelivered() == (3, [["a"], ["b"]])
        workflow.lets[0].set()
        assert await first == {"value": "1"}
        assert link.undelivered() == (5, [])
        second = await asked(link, workflow, "2", ["1"])
        link.delivered.append(["c"])
        second.cancel()
        await asyncio.wait([second])
        assert link.undelivered() == (5, [["1"], ["c"]])


async def test_a_later_exchange_does_not_stand_for_an_earlier_one() -> None:
    """Answers come in any order; what is sent again begins with the first exchange without one."""
    workflow = Workflow()
    async with Exchanges(cast("WorkflowHandle[Any, Any]", workflow), 1) as link:
        await asked(link, workflow, "1", ["a"])
        later = await asked(link, workflow, "2", ["b"])
        workflow.lets[1].set()
        await later
        assert link.undelivered() == (0, [["a"], ["b"]])
        workflow.lets[0].set()
        await until(lambda: link.undelivered() == (2, []), 0)
