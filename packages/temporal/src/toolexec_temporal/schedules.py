"""Schedules of durable runs as Temporal's own: its server makes the runs, whether a worker is there or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

from temporalio.client import (
    Client,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleDescription,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.client import Schedule as TemporalSchedule
from temporalio.service import RPCError, RPCStatusCode

from toolexec.errors import ConfigurationError
from toolexec.journal import JSONDict, Schedule, Timing

_GRACE: Final = 60.0
"""How late a run of a schedule may be that makes none for times it has missed."""
_GAPS: Final = 60
"""How many times of a line of cron are looked at for the longest pause between two."""


async def add_schedule(
    client: Client, prefix: str, schedule: Schedule, action: ScheduleActionStartWorkflow, *, replace: bool
) -> Schedule:
    """Keep a schedule, and return it or the one that has its name. Raises ConfigurationError for times that Temporal
    does not know."""
    wanted = TemporalSchedule(action, spec_of(schedule), policy=policy_of(schedule), state=ScheduleState())
    memo: JSONDict = {
        "timing": schedule.timing.to_dict(),
        "program": dict(schedule.program),
        "created": schedule.created,
    }
    if replace:
        await remove_schedule(client, prefix, schedule.name)
    try:
        handle = await client.create_schedule(f"{prefix}{schedule.name}", wanted, memo=memo)
    except ScheduleAlreadyRunningError:
        handle = client.get_schedule_handle(f"{prefix}{schedule.name}")
    except RPCError as error:
        if error.status != RPCStatusCode.INVALID_ARGUMENT:
            raise
        raise ConfigurationError(
            f"Temporal cannot keep the schedule {schedule.name}: {error.message}", details={"schedule": schedule.name}
        ) from error
    return await _read(schedule.name, await handle.describe())


async def list_schedules(client: Client, prefix: str) -> list[Schedule]:
    """Return the schedules whose ID begins with *prefix*, by name."""
    names = [each.id.removeprefix(prefix) async for each in await client.list_schedules() if each.id.startswith(prefix)]
    found: list[Schedule] = []
    for name in sorted(names):
        described = await _described(client, f"{prefix}{name}")
        if described is not None and "timing" in await described.memo():  # else it is of another program
            found.append(await _read(name, described))
    return found


async def remove_schedule(client: Client, prefix: str, name: str) -> bool:
    """Forget a schedule; return whether there was one."""
    return await _done(client.get_schedule_handle(f"{prefix}{name}").delete())


async def pause_schedule(client: Client, prefix: str, name: str, *, paused: bool) -> bool:
    """Have a schedule make no runs, or again; return whether there is one."""
    handle = client.get_schedule_handle(f"{prefix}{name}")
    return await _done(handle.pause() if paused else handle.unpause())


def spec_of(schedule: Schedule) -> ScheduleSpec:
    """Return when a schedule is due, as Temporal writes it. Raises ConfigurationError for parts of a second.

    Where both day and weekday are named a line of cron is due on either, and for Temporal on days that are both: so
    that it gets two lines.
    """
    timing = schedule.timing
    if timing.every:
        if timing.every != int(timing.every):
            raise ConfigurationError(f"every must be whole seconds on Temporal, not {timing.every!r}")
        offset = timedelta(seconds=int(schedule.due) % int(timing.every))
        return ScheduleSpec(intervals=[ScheduleIntervalSpec(timedelta(seconds=timing.every), offset)])
    minute, hour, day, month, weekday = timing.cron.split()
    both = day.startswith("*") or weekday.startswith("*")
    days = [(day, weekday)] if both else [(day, "*"), ("*", weekday)]
    lines = [f"{minute} {hour} {one} {month} {other}" for one, other in days]
    return ScheduleSpec(cron_expressions=lines, time_zone_name=timing.tz)


def policy_of(schedule: Schedule) -> SchedulePolicy:
    """Return what becomes of times that passed while the server was away: those of so long ago make runs."""
    timing = schedule.timing
    if timing.missed == "skip":
        window = _GRACE
    else:
        window = _longest_pause(timing, schedule.due) * (timing.most if timing.missed == "all" else 1)
    return SchedulePolicy(overlap=ScheduleOverlapPolicy.ALLOW_ALL, catchup_window=timedelta(seconds=window))


def _longest_pause(timing: Timing, first: float) -> float:
    """Return how long it is from one time to the next at most, among the next ones."""
    if timing.every:
        return timing.every
    times = [first]
    for _ in range(_GAPS):
        times.append(timing.first(times[-1]))
    return max(after - before for before, after in pairwise(times))


async def _described(client: Client, schedule_id: str) -> ScheduleDescription | None:
    try:
        return await client.get_schedule_handle(schedule_id).describe()
    except RPCError as error:  # removed meanwhile
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return None


async def _done(work: Any) -> bool:
    """Wait for a change of a schedule; return whether there was one to change."""
    try:
        await work
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def _read(name: str, known: ScheduleDescription) -> Schedule:
    memo: Mapping[str, Any] = await known.memo()
    info = known.info
    recent: Sequence[Any] = info.recent_actions
    return Schedule(
        name=name,
        timing=Timing.from_dict(memo["timing"]),
        program=memo["program"],
        due=info.next_action_times[0].timestamp() if info.next_action_times else 0.0,
        created=memo["created"],
        paused=known.schedule.state.paused,
        last=recent[-1].scheduled_at.timestamp() if recent else None,
        fired=info.num_actions,
        missed=info.num_actions_missed_catchup_window,
    )
