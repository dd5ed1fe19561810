"""The Lease of this process, by which others see that it lives, and the removal of what dead processes have left.

Its times are those of the API server, as clocks of machines differ.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from toolexec.containers import JSONDict, JSONObject, is_orphan
from toolexec_kubernetes.client import KubeClient
from toolexec_kubernetes.failures import KubeError
from toolexec_kubernetes.spec import AGENTS, MANAGED_LABEL, MANAGER, OWNED_LABEL

logger: logging.Logger = logging.getLogger(__name__)
LEASES: Final = ("coordination.k8s.io/v1", "leases")
_HOLDS: Final = 120
"""How many seconds a process may be silent until others take it for dead."""
_EVERY: Final = 20.0


class OwnLease:
    """The Lease of the process *owner*, kept for as long as this is not closed. Belongs to one event loop."""

    def __init__(self, client: KubeClient, owner: str) -> None:
        self._client = client
        self._owner = owner
        self._path = client.path(*LEASES)
        self._name = f"toolexec-{owner}"
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def hold(self) -> None:
        """Have the Lease there. Raises KubeError."""
        async with self._turn:
            if self._task is None:
                await self._make()
                self._task = asyncio.create_task(self._keep())

    async def _make(self) -> None:
        moment = timestamp(self._client.now())
        body: JSONDict = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "labels": {MANAGED_LABEL: MANAGER, OWNED_LABEL: self._owner}},
            "spec": {
                "holderIdentity": self._owner,
                "leaseDurationSeconds": _HOLDS,
                "acquireTime": moment,
                "renewTime": moment,
            },
        }
        try:
            await self._client.create(self._path, body)
        except KubeError as error:
            if error.reason != "AlreadyExists":  # of another engine of this process
                raise

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            try:
                renewed = {"spec": {"renewTime": timestamp(self._client.now())}}
                await self._client.merge(f"{self._path}/{self._name}", renewed)
            except KubeError as error:
                logger.warning("our Lease %s is not renewed: %s", self._name, error)
                if error.status == 404:
                    await self._again()

    async def _again(self) -> None:
        """Make it again when it was removed; without it others would remove our pods."""
        try:
            await self._make()
        except KubeError as error:
            logger.warning("our Lease %s cannot be made again: %s", self._name, error)

    async def aclose(self) -> None:
        """Give it up. Does not raise."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait({self._task})
        try:
            await self._client.delete(f"{self._path}/{self._name}")
        except KubeError as error:
            logger.warning("our Lease %s is not removed: %s", self._name, error)


def timestamp(moment: float) -> str:
    """Return a time (as of `time.time`) as the API spells it, in microseconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def orphans(client: KubeClient, own: str, *, jobs: bool, claims: bool, sandboxes: bool = False) -> set[str]:
    """Return what dead processes have left (not the process *own*), as `pods/…`: those of this machine that do not run,
    and those elsewhere whose Lease has run out, or that have none though they had time for one. Raises KubeError."""
    alive, dead = await _owners(client)
    found: set[str] = set()
    kinds = [("v1", "pods"), *([("batch/v1", "jobs")] if jobs else [])]
    if claims:
        kinds.append(("extensions.agents.x-k8s.io/v1beta1", "sandboxclaims"))
    if sandboxes:
        kinds.append((AGENTS, "sandboxes"))
    for group, kind in kinds:
        listed = await client.get(client.path(group, kind), labelSelector=OWNED_LABEL)
        for each in listed.get("items") or ():
            owner = str(each["metadata"]["labels"].get(OWNED_LABEL))
            if owner == own:
                continue
            made = read_timestamp(str(each["metadata"].get("creationTimestamp")))
            lost = owner in dead or (owner not in alive and client.now() - made > _HOLDS)
            if lost or is_orphan(owner):
                found.add(f"{kind}/{each['metadata']['name']}")
    return found


async def forget_dead(client: KubeClient) -> None:
    """Remove the Leases of dead processes, once nothing of them is left. Raises KubeError."""
    _, dead = await _owners(client)
    for owner in dead:
        await client.delete(f"{client.path(*LEASES)}/toolexec-{owner}")


async def _owners(client: KubeClient) -> tuple[set[str], set[str]]:
    """Return the processes that are alive by their Leases, and those that are not."""
    listed = await client.get(client.path(*LEASES), labelSelector=f"{MANAGED_LABEL}={MANAGER}")
    alive: set[str] = set()
    dead: set[str] = set()
    for owner, spec in _leases(listed):
        ends = read_timestamp(str(spec.get("renewTime"))) + float(spec.get("leaseDurationSeconds") or 0)
        (dead if ends < client.now() or is_orphan(owner) else alive).add(owner)
    return alive, dead


def _leases(listed: JSONObject) -> Iterator[tuple[str, JSONObject]]:
    for each in listed.get("items") or ():
        owner = str((each["metadata"].get("labels") or {}).get(OWNED_LABEL) or "")
        if owner:
            yield owner, each.get("spec") or {}


def read_timestamp(text: str) -> float:
    """Return the time that the API has spelled so; 0 for none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
