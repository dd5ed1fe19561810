"""Durable runs that a tool of another one begins: Temporal's child workflows of it.

Only a workflow can begin a child. So the activity of the call that begins a run asks the workflow of its own run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from temporalio import activity, workflow
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from toolexec_temporal.attributes import first_attributes
from toolexec_temporal.messages import BEGIN_CHILD, KINDS, Child, read_record
from toolexec_temporal.settings import TemporalSettings


class Children:
    """The runs that the calls of one run have begun, by the IDs of their workflows."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names: list[str] = [*names]

    async def begin(self, child: Child) -> bool:
        """Begin a run; return False for one that is there already. It goes on when its parent has ended."""
        record = read_record(child.given.record)
        try:
            await workflow.start_child_workflow(
                KINDS[record.kind],
                child.given,
                id=child.id,
                task_queue=child.task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                memo=child.memo,
                search_attributes=first_attributes(record) if child.given.rules.attributes else None,
            )
        except WorkflowAlreadyStartedError:
            return False
        self.names.append(child.id)
        return True

    async def cancel(self) -> None:
        """Cancel those that have not ended."""
        asked = [workflow.get_external_workflow_handle(name).cancel() for name in self.names]
        await asyncio.gather(*asked, return_exceptions=True)  # one that has ended cannot be cancelled


def parent_of_call(settings: TemporalSettings) -> WorkflowHandle[Any, Any] | None:
    """Return the workflow of the run whose call this is, where the runs of *settings* are beside it; else None."""
    if not activity.in_activity():
        return None
    info, client = activity.info(), activity.client()
    is_ours = info.workflow_type in KINDS.values() and (info.workflow_id or "").startswith(settings.prefix)
    is_there = (client.namespace, client.service_client.config.target_host) == (settings.namespace, settings.address)
    if not (is_ours and is_there):
        return None
    return client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)


async def begin_child(parent: WorkflowHandle[Any, Any], child: Child) -> bool | None:
    """Have a run begun by *parent*: return whether it is new, and None where the worker of the parent is of an
    older version, which begins none."""
    try:
        return await parent.execute_update(BEGIN_CHILD, child, result_type=bool)
    except WorkflowUpdateFailedError as error:
        if isinstance(error.cause, ApplicationError) and BEGIN_CHILD in error.cause.message:  # it has no such update
            return None
        raise
