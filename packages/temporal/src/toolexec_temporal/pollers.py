"""Who takes work from a task queue, as the server knows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

logger: logging.Logger = logging.getLogger(__name__)
_CALL_TIMEOUT: Final = timedelta(seconds=5)
_PATIENCE: Final = 10.0
_PAUSES: Final = (0.01, 0.25)
"""The first and the longest pause between two questions, in seconds."""


def _poll_kinds(*, workflows: bool) -> Sequence[TaskQueueType.ValueType]:
    """Return what a worker takes: activities, and with *workflows* the tasks of these."""
    activities = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
    return (TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW, activities) if workflows else (activities,)


async def known_pollers(
    client: Client, queue: str, kind: TaskQueueType.ValueType = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
) -> set[str]:
    """Return the identities of the workers that took work of *kind* from *queue* lately, or wait for some now.

    Raises RPCError when the server does not answer within 5 seconds, or has another error.
    """
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=queue), task_queue_type=kind
    )
    found = await client.workflow_service.describe_task_queue(request, timeout=_CALL_TIMEOUT)
    return {poller.identity for poller in found.pollers}


async def wait_until_known(
    client: Client, queue: str, identity: str, *, workflows: bool = False, patience: float = _PATIENCE
) -> bool:
    """Wait until the server knows the worker *identity* of *queue*, and return whether it does.

    A worker is running some time before its first request for work has reached the server, and a caller that asks in
    between would find none. After *patience* seconds, or when the server refuses to answer, it
    is false: the worker goes on all the same, as it does when the connection is lost later.
    """
    pause, longest = _PAUSES
    try:
        async with asyncio.timeout(patience):
            for kind in _poll_kinds(workflows=workflows):
                while identity not in await known_pollers(client, queue, kind):
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, longest)
    except (TimeoutError, RPCError) as error:
        reason = str(error) or f"not within {patience:g} s"
        logger.warning("the server does not confirm the worker %s of the task queue %s: %s", identity, queue, reason)
        return False
    return True
