"""Whether the cluster really keeps pods from the network, found out by two pods that try to reach out.

A NetworkPolicy is a wish: without a network plugin that honours it, nothing happens. The pod under the policy must
reach nothing; the other one, without the policy, shows that there was something to reach.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import Final, Literal, NamedTuple, TypeAlias

from toolexec.containers import JSONDict, spec_for
from toolexec.errors import SandboxUnavailableError
from toolexec.sandbox import Limits
from toolexec_kubernetes.client import KubeClient
from toolexec_kubernetes.config import KubernetesConfig
from toolexec_kubernetes.pod import PodContainer
from toolexec_kubernetes.spec import SANDBOX_LABEL, Made, job_body, labels_of, pod_body, pod_spec, with_one_user
from toolexec_kubernetes.watch import PodWatch

NetworkState: TypeAlias = Literal["closed", "open", "unknown"]
"""`closed`: the policy was seen to hold; `open`: it does not; `unknown`: nothing could be reached without it either."""


class NetworkFinding(NamedTuple):
    """What the pods have found out, and why where that is not `closed`."""

    state: NetworkState
    reason: str = ""


_OPEN: Final = "the cluster does not enforce NetworkPolicies: a pod that must reach nothing reached the API server"
_UNKNOWN: Final = "it is not known whether the cluster enforces NetworkPolicies"
_SECONDS: Final = 30.0
_LIFETIME: Final = 300
_LIMITS: Final = Limits(memory_bytes=64 << 20, disk_bytes=4 << 20)
_PROGRAM: Final = """\
import os, socket, sys, time
sys.stdin.buffer.read(1)  # what is written before we are attached is lost
places = [(os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT_HTTPS")
  or os.environ.get("KUBERNETES_SERVICE_PORT"))]
def reached():
    for host, port in places:
        try:
            socket.create_connection((host, int(port)), 1.5).close()
            return True
        except (OSError, TypeError, ValueError):
            pass
    return False
# A network plugin may take a moment to connect a new pod, or to apply a policy to it: the last try counts.
found, tries = False, 3
if sys.argv[1] == "reach":
    tries = 8
for number in range(tries):
    if number:
        time.sleep(0.3)
    found = reached()
    if found and sys.argv[1] == "reach":
        break
print("reached" if found else "nothing", flush=True)
"""


async def probe_network(
    client: KubeClient, watch: PodWatch, config: KubernetesConfig, owner: str, left: set[str]
) -> NetworkFinding:
    """Return what two pods have found out. Raises SandboxUnavailableError and SandboxDeniedError where none runs."""
    inside, outside = (_make(client, watch, config, owner, left, held=held) for held in (True, False))
    try:
        problem, other = await asyncio.gather(
            *(each.open(config.start_seconds) for each in (inside, outside)), return_exceptions=True
        )
        if problem is not None:
            raise problem
        # The one outside comes first: once it has a network, so has the other one, if it is to have any.
        was_reached = other is None and await _reaches(outside)
        if await _reaches(inside):
            return NetworkFinding("open", _OPEN)
        if was_reached:
            return NetworkFinding("closed")
        if other is not None:  # such a pod may be forbidden
            return NetworkFinding("unknown", f"{_UNKNOWN}: the pod without the policy did not run: {other}")
        return NetworkFinding("unknown", f"{_UNKNOWN}: the pod without the policy did not reach the API server either")
    finally:
        await asyncio.gather(inside.aclose(), outside.aclose())


def _make(
    client: KubeClient, watch: PodWatch, config: KubernetesConfig, owner: str, left: set[str], *, held: bool
) -> PodContainer:
    """Return a pod that tries to reach something, under the policy (*held*) or without it."""
    run = f"probe-{secrets.token_hex(6)}"
    spec = spec_for(
        image=config.image,
        command=("python3", "-I", "-c", _PROGRAM, "stay" if held else "reach"),
        limits=_LIMITS,
        profile="standard",
        config=replace(config, limits=_LIMITS),
        kind="kubernetes",
    )
    labels = labels_of(spec, owner, run, config.labels)
    if not held:
        del labels[SANDBOX_LABEL]
    alone = replace(config, volumes=(), sidecars=())
    pod = pod_spec(config.image, with_one_user(spec, config), alone, seconds=_LIFETIME, linked=False)
    name, group, kind = f"toolexec-{run}", "v1", "pods"
    body: JSONDict = pod_body(name, labels, pod, config.annotations)
    if config.jobs:  # then there may be no right to make pods
        body, group, kind = job_body(name, labels, pod, config.annotations, ttl=config.job_ttl), "batch/v1", "jobs"
    own = config.user_namespaces
    made = Made(group=group, kind=kind, body=body, run=run, image=config.image, own_users=own, linked=False)
    return PodContainer(client, watch, made, left)


async def _reaches(container: PodContainer) -> bool:
    """Return whether the pod reaches something."""
    output = b""
    try:
        async with asyncio.timeout(_SECONDS):
            await container.stream.write(b"\n")
            while b"\n" not in output and (piece := await container.stream.read()):
                output += piece
    except (TimeoutError, OSError) as error:
        raise SandboxUnavailableError(f"the network of pods could not be tried: {error!r}", retryable=True) from error
    if output.strip() not in (b"reached", b"nothing"):
        raise SandboxUnavailableError(f"the network of pods could not be tried: {container.said()[-500:]}")
    return output.strip() == b"reached"
