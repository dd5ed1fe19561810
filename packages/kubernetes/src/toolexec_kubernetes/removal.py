"""How pods, and what has made them, are removed: as a rule by their node, in the last resort by the API alone."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from toolexec_kubernetes.client import KubeClient
from toolexec_kubernetes.failures import KubeError
from toolexec_kubernetes.spec import AGENTS

logger: logging.Logger = logging.getLogger(__name__)
_GRACE: Final = 1
_LOOKS: Final = 24
_LOOK: Final = 0.5
_GROUPS: Final = {"jobs": "batch/v1", "sandboxclaims": "extensions.agents.x-k8s.io/v1beta1", "sandboxes": AGENTS}


async def remove_object(client: KubeClient, id: str, pod: str = "") -> bool:
    """Have the object *id* (`pods/…`) removed, and the *pod* that it has made; whether one of them was there.

    Raises KubeError.
    """
    kind, _, name = id.partition("/")
    was_there = False
    if kind != "pods":  # first what would make another pod; the garbage collector would take its time with this one
        was_there = await client.delete(client.path(_GROUPS[kind], kind, name))
        name = pod
    if name:
        was_there |= await client.delete(client.path("v1", "pods", name), grace=_GRACE)
    return was_there


async def remove_for_good(client: KubeClient, id: str) -> bool:
    """Remove what could not be removed before: a pod whose node does not answer is forgotten. False, with a line in the
    log, if even that cannot be done."""
    try:
        if not await remove_object(client, id) or not id.startswith("pods/"):
            return True
        path = client.path("v1", "pods", id.partition("/")[2])
        for _ in range(_LOOKS):
            await asyncio.sleep(_LOOK)
            await client.get(path)
        await client.delete(path, grace=0)
    except KubeError as error:
        if error.status == 404:
            return True
        logger.warning("%s is not removed: %s", id, error)
        return False
    return True
