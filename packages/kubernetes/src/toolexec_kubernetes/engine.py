"""Containers in pods of a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final

from toolexec.containers import (
    PROCESSES,
    ContainerGuest,
    Daemon,
    DaemonLauncher,
    Run,
    parse_reference,
    this_owner,
    unavailable,
)
from toolexec.errors import SandboxError, SandboxUnavailableError
from toolexec.sandbox import Availability, CodeResult, ContainerBackend, ContainerSpec, ExecuteRequest, Image, checked
from toolexec_kubernetes.config import Isolation, KubernetesConfig
from toolexec_kubernetes.spec import (
    Made,
    claim_body,
    job_body,
    labels_of,
    pod_body,
    pod_spec,
    random_user,
    spec_hash,
    with_one_user,
    with_user,
)

if TYPE_CHECKING:
    from toolexec_kubernetes.client import KubeClient
    from toolexec_kubernetes.lease import OwnLease
    from toolexec_kubernetes.pod import PodContainer
    from toolexec_kubernetes.probe import NetworkFinding, NetworkState
    from toolexec_kubernetes.watch import PodWatch

__all__ = ["KubernetesBackend", "KubernetesConfig", "KubernetesEngine"]

logger: logging.Logger = logging.getLogger(__name__)
_UNPROVEN_HOLDS: Final = 60.0
"""How long it counts that the network was not seen to be closed; that it is closed counts permanently."""
_REMEDIES: Final = {
    "open": "install a network plugin that enforces them, such as Calico or Cilium, or accept an open network with "
    "network='report'",
    "unknown": "let pods of the namespace {namespace} that lack the label toolexec.io/sandbox run and reach the API "
    "server, so that the check can compare, or accept an unproven network with network='report'",
}


class _ClusterImages:
    """Names of images, which the nodes of the cluster fetch by themselves when a pod needs them."""

    async def resolve(self, name: str) -> Image:
        """Return the image *name*; whether there is one, a pod finds out."""
        return Image(name=name, reference=name, digest=parse_reference(name).digest)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What one connection to a cluster consists of."""

    client: KubeClient
    watch: PodWatch
    lease: OwnLease


class KubernetesEngine(DaemonLauncher["_Cluster", _ClusterImages]):
    """Runs containers as pods; see `ContainerEngine`.

    A container's command is started before its streams are connected: it must read from stdin before it
    writes, as guests do. When the connection to it breaks, another one is made, and nothing is lost.
    """

    extra = "kubernetes"
    client = "kubernetes-asyncio"
    modules: ClassVar[tuple[str, ...]] = (
        "toolexec_kubernetes.probe",
        "toolexec_kubernetes.pools",
    )

    def __init__(self, config: KubernetesConfig | None = None) -> None:
        super().__init__()
        self.config: KubernetesConfig = config or KubernetesConfig()
        self._details: dict[str, str] = {}
        self._pools: dict[str, str] | None = None
        self._network: NetworkFinding | None = None
        self._network_until = 0.0
        self._examining = asyncio.Lock()
        self._set_drops()

    @property
    def isolation(self) -> Isolation:
        """What surrounds the code."""
        return self.config.isolation

    @property
    def details(self) -> Mapping[str, str]:
        """What a result can say about the cluster, from the last `check`: among it `network`, which is `closed` where
        the NetworkPolicy was seen to hold, `open` where it does not, `unknown` where there was nothing to reach."""
        return self._details

    def _set_drops(self) -> None:
        """Have guests filter their calls and bound their processes; the latter not where pods share a user, as those of
        a pool do, and in gVisor, whose kernel does not count."""
        counts = not self._pools and not self.config.run_as_user and self.isolation != "gvisor"
        self.drops = (*self.config.guest_drops, *((PROCESSES,) if counts else ()))

    async def _check(self) -> Availability:
        try:
            async with self._examining:
                return await self._examine()
        except SandboxError as error:
            if "remedy" in error.details:
                raise
            raise unavailable(error.message, "") from error

    async def _examine(self) -> Availability:
        """Try all that a pod needs. Raises SandboxError."""
        from toolexec_kubernetes import checks
        from toolexec_kubernetes.pools import find_pools

        config, cluster = self.config, (await self._connect()).client
        client = cluster.client
        self._version, numbers = await checks.server_version(client)
        await checks.look_at_namespace(client)
        self._pools = await find_pools(client) if config.agent_sandbox else None
        self._set_drops()
        needed = checks.permissions_for(jobs=config.jobs, claims=bool(self._pools))
        await checks.look_at_permissions(client, needed)
        handler = await checks.look_at_runtime_class(client, config)
        await checks.ensure_policy(client)
        await self._hold_lease(cluster)
        self._held = checks.held_by(numbers, pids=PROCESSES in self.drops)
        network = await self._look_at_network(cluster)
        self._details = {
            "cluster": client.host,
            "namespace": client.namespace,
            "server": self._version,
            "runtime_class": config.runtime_class,
            "handler": handler,
            "isolation": self.isolation,
            "network": network,
        }
        await self._remove_all(cluster, self._left)
        return Availability(ok=True)

    async def _look_at_network(self, cluster: _Cluster) -> NetworkState:
        """Return whether pods are kept from the network. Raises SandboxUnavailableError where that was not seen, and
        must be: a policy that was not proved to hold counts as one that does not."""
        from toolexec_kubernetes.probe import probe_network

        if self._network is None or monotonic() >= self._network_until:
            self._network = await probe_network(cluster.client, cluster.watch, self.config, this_owner(), self._left)
            holds = float("inf") if self._network.state == "closed" else _UNPROVEN_HOLDS
            self._network_until = monotonic() + holds
        state, reason = self._network
        if state != "closed":
            if self.config.network == "require":
                raise unavailable(reason, _REMEDIES[state].format(namespace=cluster.client.namespace))
            logger.warning("%s; code runs all the same, as network='report' says", reason)
        return state

    async def start(self, image: Image, spec: ContainerSpec) -> PodContainer:
        """Implement `ContainerEngine.start`. Raises SandboxDeniedError, too, where a rule of the cluster forbids the
        pod."""
        from toolexec_kubernetes.pod import PodContainer

        cluster = (await self._connect()).client
        await self._be_sure()
        await self._hold_lease(cluster)
        made = await self._plan(cluster, image, spec)
        patience = self.config.reconnect_seconds
        container = PodContainer(cluster.client, cluster.watch, made, self._left, reconnect_seconds=patience)
        await container.open(self.config.start_seconds)
        return container

    async def _be_sure(self) -> None:
        """Start nothing before it is known that pods are kept from the network, also without a check before.
        Raises SandboxUnavailableError."""
        if not self._may_start():
            async with self._examining:
                if not self._may_start():
                    await self._examine()

    def _may_start(self) -> bool:
        return self._network is not None and (self._network.state == "closed" or self.config.network == "report")

    async def _plan(self, cluster: _Cluster, image: Image, spec: ContainerSpec) -> Made:
        """Return what makes the pod: a claim of one that runs already, a Job, or nothing but ourselves."""
        from toolexec_kubernetes.lease import timestamp
        from toolexec_kubernetes.pools import EXTENSIONS

        config, owner, run = self.config, this_owner(), secrets.token_hex(8)
        name = f"toolexec-{run}"
        beside = tuple(each.name for each in config.all_sidecars)
        made = partial(Made, run=run, image=image.name, own_users=config.user_namespaces, beside=beside)
        labels = labels_of(spec, owner, run, config.labels)
        seconds = min(config.lifetime, spec.seconds or config.lifetime)
        alike = pod_spec(image.reference, with_one_user(spec, config), config)
        pool = (self._pools or {}).get(spec_hash(alike, config))
        if pool is not None:
            ends = timestamp(cluster.client.now() + config.lifetime)
            body = claim_body(name, pool, owner, run, ends)
            return made(group=EXTENSIONS, kind="sandboxclaims", body=body)
        own = with_user(spec, config.one_user or random_user())
        pod = pod_spec(image.reference, own, config, seconds=seconds)
        if config.jobs:
            body = job_body(name, labels, pod, config.annotations, ttl=config.job_ttl)
            return made(group="batch/v1", kind="jobs", body=body)
        return made(group="v1", kind="pods", body=pod_body(name, labels, pod, config.annotations))

    async def _hold_lease(self, cluster: _Cluster) -> None:
        from toolexec_kubernetes.failures import KubeError, refusal

        try:
            await cluster.lease.hold()
        except KubeError as error:
            found = refusal(error, "our Lease cannot be made")
            raise SandboxUnavailableError(found.message, retryable=found.retryable, details=found.details) from error

    async def _sweep(self) -> None:
        from toolexec_kubernetes.lease import forget_dead, orphans

        cluster = (await self._connect()).client
        found = await orphans(cluster.client, this_owner(), jobs=self.config.jobs, claims=self._pools is not None)
        await self._remove_all(cluster, found | self._left)
        await forget_dead(cluster.client)

    async def _open(self) -> Daemon[_Cluster, _ClusterImages]:
        """Raises ConfigurationError, and SandboxUnavailableError where no cluster was named: the current one
        of this user is not ours to use."""
        if not (self.config.kubeconfig or self.config.context or self.config.namespace):
            raise unavailable(
                "no cluster is named",
                "name a namespace: in a table of sandboxes.plugins, or KubernetesConfig(namespace=...)",
            )
        from toolexec_kubernetes.client import KubeClient
        from toolexec_kubernetes.lease import OwnLease
        from toolexec_kubernetes.watch import PodWatch

        client, owner = await KubeClient.connect(self.config), this_owner()
        return Daemon(_Cluster(client, PodWatch(client, owner), OwnLease(client, owner)), _ClusterImages())

    async def _hang_up(self, client: _Cluster) -> None:
        await asyncio.gather(client.watch.aclose(), client.lease.aclose())
        await client.client.aclose()

    async def _remove(self, client: _Cluster, id: str) -> bool:
        from toolexec_kubernetes.removal import remove_for_good

        return await remove_for_good(client.client, id)


@checked("KubernetesBackend")
class KubernetesBackend(ContainerBackend):
    """Code in pods of a Kubernetes cluster, one for each program. See `KubernetesConfig`."""

    def __init__(self, config: KubernetesConfig | None = None) -> None:
        config = config or KubernetesConfig()
        self._pods = KubernetesEngine(config)
        super().__init__(self._pods, config, kind="kubernetes", isolation=config.isolation)

    def result(
        self, request: ExecuteRequest, run: Run, began: float, guest: ContainerGuest | None, *, warm: bool
    ) -> CodeResult:
        """Implement `ContainerBackend.result`; the details say when the network of the cluster is open."""
        made = super().result(request, run, began, guest, warm=warm)
        network = self._pods.details.get("network")
        if network != "closed" and made.backend is not None:
            made.backend = replace(made.backend, details={**made.backend.details, "network": network})
        return made
