"""A worker of durable runs: it executes workflows and tool calls, and code in the sandboxes that it has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from secrets import token_hex
from typing import Any, Final, Self

from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.worker import Worker, WorkerDeploymentConfig

from toolexec.journal import Host
from toolexec_temporal.activities import Activities
from toolexec_temporal.client import connect
from toolexec_temporal.host import hosted, unhosted
from toolexec_temporal.places import PlaceKeeper, places_of, rate_of
from toolexec_temporal.pollers import wait_until_known
from toolexec_temporal.sandbox import SandboxActivities, SandboxWorkflow
from toolexec_temporal.settings import TemporalSettings, queue_of_places, queue_of_slots
from toolexec_temporal.slots import QueueSlots
from toolexec_temporal.workflows import WORKFLOWS

_MAX_ACTIVITIES: Final = 200
_UNSAFE: Final = ("none", "process")
"""Isolations that are offered only where they are asked for by name."""


class TemporalWorker:
    """Works on the task queues of *settings* with the tools and sandboxes of *host*, as `async with`.

    The queue itself gets workflows and tool calls; for each isolation of the sandboxes, or of those in *isolations*,
    there is a queue for code; sandboxes without isolation must be asked for. From the queues of the host it takes runs,
    by their limits. The block begins when the server knows the worker, so that a caller finds it from then on; a server
    that does not confirm it within 10 seconds is not waited for. When the block ends, nothing new is taken, and what
    runs has *patience* seconds to end; then it is given back, for another worker to take. Raises JournalError when the
    server cannot be reached.
    """

    def __init__(
        self,
        host: Host,
        settings: TemporalSettings,
        *,
        client: Client | None = None,
        isolations: Sequence[str] | None = None,
        max_activities: int = _MAX_ACTIVITIES,
        patience: float = 10.0,
    ) -> None:
        self._host = host
        self.settings = settings
        self._client = client
        self._isolations = isolations
        self._max_activities = max_activities
        self._patience = patience
        self._stack = AsyncExitStack()
        self.queues: tuple[str, ...] = ()
        """The task queues that it works on."""

    async def __aenter__(self) -> Self:
        client = self._client or await connect(self.settings)
        await self._host.start()
        isolations = await self._offered()
        work, sandboxes = (
            Activities(self._host, client, keeps_large=bool(self.settings.large_directory)),
            SandboxActivities(self._host, client),
        )
        beat = timedelta(seconds=self.settings.heartbeat_timeout / 4)
        identity = f"{client.identity}-{token_hex(4)}"  # of this worker: an earlier one of the process is known still
        shared: dict[str, Any] = {
            "identity": identity,
            "graceful_shutdown_timeout": timedelta(seconds=self._patience),
            "max_heartbeat_throttle_interval": beat,
            "default_heartbeat_throttle_interval": beat,
            "deployment_config": _deployment(self.settings),
        }
        queue, most = self.settings.task_queue, self._max_activities
        slots = queue_of_slots(queue)
        hosted(queue, self._host)
        self._stack.callback(unhosted, queue, self._host)
        workers = [
            Worker(
                client,
                task_queue=queue,
                workflows=[*WORKFLOWS, SandboxWorkflow],
                activities=[work.call_tool, work.refuse_call, work.settle_call, work.record_run],
                max_concurrent_activities=most,
                **shared,
            )
        ]
        for isolation in isolations:
            activities = [sandboxes.run_sandbox, *([work.run_code] if isolation == "wasm" else [])]
            name = self.settings.queue_for(isolation)
            workers.append(
                Worker(client, task_queue=name, activities=activities, max_concurrent_activities=most, **shared)
            )
        if any(limits.concurrency for limits in self._host.queues.values()):  # of no version: all workers keep a limit
            unversioned: dict[str, Any] = {**shared, "deployment_config": None}
            workers.append(Worker(client, task_queue=slots, workflows=[QueueSlots], **unversioned))
        for name, limits in self._host.queues.items():
            workers.append(
                Worker(
                    client,
                    task_queue=queue_of_places(queue, name),
                    activities=[PlaceKeeper(client, slots, limits).hold_place],
                    max_task_queue_activities_per_second=rate_of(limits),
                    max_concurrent_activities=places_of(limits),
                    **shared,
                )
            )
        self.queues = tuple(worker.task_queue for worker in workers)
        try:
            for worker in workers:
                await self._stack.enter_async_context(worker)
            asked = (name for name in self.queues if name != slots)  # for which no caller looks
            known = (wait_until_known(client, name, identity, workflows=name == queue) for name in asked)
            await asyncio.gather(*known)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _offered(self) -> list[str]:
        """Return the isolations of the sandboxes that can run something here, of those that were asked for."""
        asked = self._isolations
        backends = [
            backend
            for backend in self._host.sandboxes().values()
            if (backend.isolation in asked if asked is not None else backend.isolation not in _UNSAFE)
        ]
        states = await asyncio.gather(*(backend.check() for backend in backends))
        return sorted({backend.isolation for backend, state in zip(backends, states, strict=True) if state.ok})

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()


def _deployment(settings: TemporalSettings) -> WorkerDeploymentConfig | None:
    """Return which version of the workers' deployment this one is, if the settings name one."""
    if not settings.build_id:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(settings.deployment, settings.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED if settings.pinned else VersioningBehavior.AUTO_UPGRADE,
    )
