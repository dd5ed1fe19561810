"""Runs that wait in a queue until a worker takes them: put them there, and see what there is."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from toolexec.durable.journal import RunRecord
from toolexec.durable.queues import Queue, QueueRecord
from toolexec.errors import ConfigurationError, RunError
from toolexec.errors.hints import did_you_mean
from toolexec.exec.chain import Step
from toolexec.exec.code import CodeSettings, WorkflowSettings
from toolexec.exec.program import Program, check_run_id, check_same
from toolexec.model.json_value import JSONObject
from toolexec.model.settings import check_ranges, check_settings, checked

if TYPE_CHECKING:
    from toolexec.exec.durable import DurableRuns

_KINDS: Final = ("code", "workflow", "chain")
_MOST_PRIORITY: Final = 2**31


class ProgramSettings(CodeSettings, total=False):
    """What a run is to be of: one of `code`, `workflow` (with its `inputs`) and `chain`, and the settings of such a
    run; those of a chain are `on_error` and `dry_run`."""

    code: str
    workflow: str
    inputs: JSONObject
    chain: Sequence[Step | JSONObject]


class QueuedRuns:
    """What `Runs` has for queues."""

    def __init__(self, durable: Callable[[], DurableRuns]) -> None:
        self._durable = durable

    @checked("runs.enqueue")
    async def enqueue(
        self,
        queue: str,
        *,
        run_id: str = "",
        priority: int = 0,
        delay: float = 0.0,
        **program: Unpack[ProgramSettings],
    ) -> RunRecord:
        """Put a run into a queue, and return it at once: workers (`Runs.work`) take it by the limits of the queue.

        *program* is one of `code="..."`, `workflow="..."` (with `inputs`) and `chain=[...]`, with the settings of
        `execute_code`, `run_workflow` and `run_chain`. Of the runs that wait the lowest *priority* begins next, then
        the one that was put there first; not before *delay* seconds have passed. Without a *run_id* it has a new one;
        put there again under its ID it is the same run, and nothing happens.

        Raises ConfigurationError for a queue that the options do not have, and RunError with the code `run_changed` for
        an ID that another run has, or the same run in another queue.
        """
        durable = self._durable()
        queueing = durable.queueing
        check_ranges("runs.enqueue", least={"delay": delay})
        check_priority(priority)
        limits = find_queue(queue, durable)
        run_id = run_id or uuid.uuid4().hex
        check_run_id(run_id)
        made = await program_of("enqueue", durable, program)
        wanted = made.record(run_id, queue=queue, priority=priority)
        run = await queueing.enqueue(wanted, limits, delay=delay)
        check_same(run, wanted)
        if run.queue != queue:
            where = f"in the queue {run.queue}" if run.queue else "in no queue"
            raise RunError(
                f"there is a run {run_id} already, {where}; an ID is one run in all queues: take another one",
                code="run_changed",
                op="enqueue",
                details={"run_id": run_id, "queue": run.queue},
            )
        return run

    async def queues(self) -> dict[str, tuple[Queue | None, QueueRecord]]:
        """Return the queues by name: their limits here, and what there is in them. One that has runs, and that the
        options do not have, has no limits: no worker of these options takes from it."""
        durable = self._durable()
        found = {record.name: record for record in await durable.queueing.queues()}
        names = sorted({*found, *durable.queues})
        return {name: (durable.queues.get(name), found.get(name) or QueueRecord(name=name)) for name in names}


async def program_of(what: str, durable: DurableRuns, given: ProgramSettings) -> Program:
    """Return the program that *what* is asked to run, once the gate has admitted it. Raises ConfigurationError."""
    settings: Any = dict(given)
    kinds = [kind for kind in _KINDS if settings.get(kind) is not None]
    if len(kinds) != 1:
        raise ConfigurationError(f"{what} needs one of code, workflow and chain, not {' and '.join(kinds) or 'none'}")
    (kind,) = kinds
    program, inputs = settings.pop(kind), settings.pop("inputs", None)
    if inputs is not None and kind != "workflow":
        raise ConfigurationError(f"{what}: only a workflow has inputs; {kind} does not")
    settings = {name: value for name, value in settings.items() if name not in _KINDS}
    if kind == "chain":
        on_error, dry_run = settings.pop("on_error", "stop"), settings.pop("dry_run", False)
        if settings:
            raise ConfigurationError(f"{what}: a chain has no setting {next(iter(settings))}; give it in its steps")
        return await durable.programs.chain(program, on_error=on_error, dry_run=dry_run)
    if kind == "workflow":
        check_settings(what, WorkflowSettings, settings)
        settings = {"language": "workflow", "metadata": {"inputs": dict(inputs or {})}, **settings}
    return await durable.programs.code(program, settings)


def find_queue(name: str, durable: DurableRuns) -> Queue:
    """Return the limits of a queue. Raises ConfigurationError for one that the options do not have."""
    if name not in durable.queues:
        hint = did_you_mean(name, durable.queues) if durable.queues else ""
        raise ConfigurationError(
            f"there is no queue {name!r}; {hint or f'write one as [queues.{name}], or Exec(queues={{...}})'}",
            details={"setting": "queues"},
        )
    return durable.queues[name]


def check_priority(priority: int) -> None:
    """Raise ConfigurationError for a priority that no store can have."""
    if not -_MOST_PRIORITY <= priority < _MOST_PRIORITY:
        raise ConfigurationError(f"a priority must be an integer of at most 32 bits, not {priority!r}")
