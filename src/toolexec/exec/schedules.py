"""`Exec.schedules`: programs that make a durable run at each of their times."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Unpack

import toolexec.durable.clock as host_clock
from toolexec.durable.schedules import Missed, Schedule, Timing, check_fields, firing_id
from toolexec.errors import ConfigurationError, JournalError, RunError
from toolexec.exec.program import MAX_ID, Program
from toolexec.exec.queued import ProgramSettings, check_priority, find_queue, program_of
from toolexec.exec.stores import first_second
from toolexec.model.settings import checked

if TYPE_CHECKING:
    from toolexec.exec.durable import DurableRuns

logger: logging.Logger = logging.getLogger(__name__)
_MAX_NAME: Final = MAX_ID - 30
_ALWAYS_LATE: Final = 3
"""How many looks in a row must be late until a schedule is reported as always late."""


class Schedules:
    """The schedules in the journal of an `Exec`; its workers (`Runs.work`) make their runs.

    Every method raises ConfigurationError without a journal that keeps schedules, and JournalError when it cannot be
    used.
    """

    def __init__(self, durable: Callable[[], DurableRuns]) -> None:
        self._durable = durable

    @checked("schedules.add")
    async def add(
        self,
        name: str,
        *,
        cron: str = "",
        tz: str = "UTC",
        every: float = 0.0,
        missed: Missed = "once",
        most: int = 10,
        queue: str = "",
        priority: int = 0,
        replace: bool = False,
        **program: Unpack[ProgramSettings],
    ) -> Schedule:
        """Have a program run by a line of *cron* in the time zone *tz*, or each *every* seconds, and return that.

        *program* is as for `Runs.enqueue`; each run has the ID `NAME@TIME`, so that no time makes two. With a *queue*
        its runs wait there. *missed* says what becomes of times that passed while no worker looked: the latest of them
        makes a run (`once`), the last *most* do (`all`), or none does that is more than a minute late (`skip`). The
        same again changes nothing.

        Raises ConfigurationError for times that make no sense or never come, MissingExtraError for *cron* without the
        extra `schedules`, and RunError with the code `run_changed` for a name that another schedule has, unless it is
        to be *replaced* (`replace=True`).
        """
        durable = self._durable()
        queueing = durable.queueing
        if not name or len(name) > _MAX_NAME or not name.isprintable():
            raise ConfigurationError(
                f"the name of a schedule has 1 to {_MAX_NAME} printable characters, not {name[:50]!r}"
            )
        check_priority(priority)
        limits = find_queue(queue, durable) if queue else None
        timing = Timing(cron=cron, tz=tz, every=every, missed=missed, most=most)
        if cron:
            check_fields(cron)
        made = await program_of("schedules.add", durable, program)
        kept = made.to_dict() | {"queue": queue, "priority": priority}
        due = timing.first(first_second())
        wanted = Schedule(name=name, timing=timing, program=kept, due=due, created=host_clock.now())
        run = made.record(name, queue=queue, priority=priority)
        found = await queueing.add_schedule(wanted, run, limits, replace=replace)
        if (found.timing.to_dict(), found.program) != (timing.to_dict(), kept):
            raise RunError(
                f"there is a schedule {name} already, with other times, another program or another caller; say "
                "replace=True, or --replace, to have this one in its place",
                code="run_changed",
                op="schedule",
                details={"schedule": name},
            )
        return found

    async def list(self) -> list[Schedule]:
        """Return the schedules, by name: when each is due, what it has made and missed, how late it is."""
        return [*await self._durable().queueing.schedules()]

    @checked("schedules.remove")
    async def remove(self, name: str) -> bool:
        """Forget a schedule; return whether there was one. Its runs go on."""
        return await self._durable().queueing.remove_schedule(name)

    @checked("schedules.pause")
    async def pause(self, name: str, paused: bool = True) -> bool:
        """Have a schedule make no runs, or again (*paused* false), from its next time on; return whether there is
        one."""
        return await self._durable().queueing.pause_schedule(name, paused)


async def fire_due(durable: DurableRuns) -> None:
    """Make the runs of all schedules that are due. Two processes never make one of them twice: its ID says its time."""
    store = durable.queue_store
    now = host_clock.now()
    for schedule in await durable.do(store.schedules):
        if schedule.paused or schedule.due > now:
            continue
        try:
            await _fire(durable, schedule, now)
        except (ConfigurationError, JournalError) as error:  # of this one: a time zone that is not here
            logger.warning("the schedule %s makes no runs: %s", schedule.name, error)


async def _fire(durable: DurableRuns, schedule: Schedule, now: float) -> None:
    store = durable.queue_store
    look = schedule.timing.look(schedule.due, now)
    program = Program.from_dict(schedule.program)
    queue, priority = schedule.program["queue"], schedule.program["priority"]
    runs = [program.record(firing_id(schedule.name, each), queue=queue, priority=priority) for each in look.times]
    last = look.times[-1] if look.times else None
    fired = await durable.do(
        lambda: store.fire(schedule.name, schedule.due, runs, then=look.then, missed=look.missed, last=last)
    )
    if fired and look.is_late and schedule.late + 1 == _ALWAYS_LATE:
        logger.warning(
            "the schedule %s is always late: each time that a worker looks, times of it have passed unseen; let it be "
            "due less often, or have workers look more often",
            schedule.name,
        )
