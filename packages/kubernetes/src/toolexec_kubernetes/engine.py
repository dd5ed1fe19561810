"""Containers in pods of a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
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
from toolexec.sandbox import (
    Availability,
    CodeResult,
    ContainerBackend,
    ContainerSpec,
    ExecuteRequest,
    Image,
    LimitsEnforced,
    SandboxSession,
    checked,
)
from toolexec_kubernetes.config import Isolation, KubernetesConfig
from toolexec_kubernetes.spec import (
    AGENTS,
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
from toolexec_kubernetes.workspace import PlacedSpec, SessionPod, workspace_of, workspace_user

if TYPE_CHECKING:
    from toolexec_kubernetes.client import KubeClient
    from toolexec_kubernetes.lease import OwnLease
    from toolexec_kubernetes.pod import PodContainer
    from toolexec_kubernetes.probe import NetworkFinding, NetworkState
    from toolexec_kubernetes.sessions import IdleSession
    from toolexec_kubernetes.watch import PodWatch

logger: logging.Logger = logging.getLogger(__name__)
_OPENING: Final[ContextVar[SessionPod | None]] = ContextVar("toolexec_session_pod", default=None)
"""What the pods of the session share that is being opened."""
_UNPROVEN_HOLDS: Final = 60.0
"""How long it counts that the network was not seen to be closed; that it is closed counts permanently."""
_TIDIES: Final = 3600.0
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
        self._has_sandboxes = False
        self._tidy_at = 0.0
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
        config, cluster = self.config, (await self._connect()).client
        # Only now: `_connect` has imported the client in a thread, which holds the loop for half a second otherwise.
        from toolexec_kubernetes import checks
        from toolexec_kubernetes.pools import find_pools
        from toolexec_kubernetes.sandboxes import has_sandboxes

        client = cluster.client
        self._version, numbers = await checks.server_version(client)
        await checks.look_at_namespace(client)
        self._pools = await find_pools(client) if config.agent_sandbox else None
        suspends = config.agent_sandbox and config.suspend_seconds > 0
        self._has_sandboxes = suspends and await has_sandboxes(client)
        self._set_drops()
        needed = checks.permissions_for(
            jobs=config.jobs,
            claims=bool(self._pools),
            workspace=config.own_workspace,
            sandboxes=self._has_sandboxes,
        )
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
        await self._tidy(client)
        return Availability(ok=True)

    async def _tidy(self, client: KubeClient) -> None:
        """Remove the workspaces that were not used for long, once an hour."""
        from toolexec_kubernetes.failures import KubeError
        from toolexec_kubernetes.keeping import remove_unused

        workspace = self.config.own_workspace
        if workspace is None or monotonic() < self._tidy_at:
            return
        self._tidy_at = monotonic() + _TIDIES
        try:
            await remove_unused(client, workspace)
        except KubeError as error:
            logger.warning("unused workspaces are not removed: %s", error)

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
        from toolexec_kubernetes.keeping import have_workspace
        from toolexec_kubernetes.pod import PodContainer

        cluster = (await self._connect()).client
        await self._be_sure()
        await self._hold_lease(cluster)
        session = spec.session if isinstance(spec, PlacedSpec) else None
        workspace = self.config.own_workspace
        if workspace is not None and isinstance(spec, PlacedSpec):
            await have_workspace(cluster.client, spec.workspace, workspace)
        made = await self._plan(cluster, image, spec)
        patience = self.config.reconnect_seconds
        container = PodContainer(
            cluster.client, cluster.watch, made, self._left, reconnect_seconds=patience, session=session
        )
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
        from toolexec_kubernetes.sandboxes import sandbox_body

        config, owner, run = self.config, this_owner(), secrets.token_hex(8)
        session = spec.session if isinstance(spec, PlacedSpec) else None
        if session is not None and session.made is not None:
            return _resumed(session.made, timestamp(cluster.client.now() + config.lifetime))
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
        own = with_user(spec, config.one_user or _user_of(spec))
        pod = pod_spec(image.reference, own, config, seconds=seconds)
        if session is not None and self._has_sandboxes:
            ends = timestamp(cluster.client.now() + config.lifetime)
            body = sandbox_body(name, labels, pod, config.annotations, ends)
            return made(group=AGENTS, kind="sandboxes", body=body, keeps=config.lifetime)
        if config.jobs:
            body = job_body(name, labels, pod, config.annotations, ttl=config.job_ttl)
            return made(group="batch/v1", kind="jobs", body=body)
        return made(group="v1", kind="pods", body=pod_body(name, labels, pod, config.annotations))

    async def forget(self, session: SessionPod) -> None:
        """Remove what a suspended session has in the cluster; its workspace stays. Does not raise: what cannot be
        removed now is `left`."""
        made, session.made = session.made, None
        if made is not None:
            self._left.add(made.id)
            await self._remove_all((await self._connect()).client, {made.id})

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
        found = await orphans(
            cluster.client,
            this_owner(),
            jobs=self.config.jobs,
            claims=self._pools is not None,
            sandboxes=self._has_sandboxes,
        )
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


def _user_of(spec: ContainerSpec) -> int:
    """Return the number of the user in a pod: that of its workspace, else another one each time."""
    return workspace_user(spec.workspace) if isinstance(spec, PlacedSpec) else random_user()


def _resumed(made: Made, ends: str) -> Made:
    """Return what makes the pod of a suspended session again, which then lasts until *ends*."""
    return replace(made, body={**made.body, "spec": {**made.body["spec"], "shutdownTime": ends}})


@checked("KubernetesBackend")
class KubernetesBackend(ContainerBackend):
    """Code in pods of a Kubernetes cluster, one for each program. See `KubernetesConfig`."""

    def __init__(self, config: KubernetesConfig | None = None) -> None:
        config = config or KubernetesConfig()
        self._pods = KubernetesEngine(config)
        self._workspace = config.own_workspace
        self._seconds = config.suspend_seconds
        self._idle: set[IdleSession] = set()
        super().__init__(self._pods, config, kind="kubernetes", isolation=config.isolation)

    def spec_for_request(self, request: ExecuteRequest, spec: ContainerSpec) -> ContainerSpec:
        """Implement `ContainerBackend.spec_for_request`: an identified caller has a workspace of its own."""
        claim = workspace_of(request, self._workspace)
        if not claim:
            return spec
        own = {field.name: getattr(spec, field.name) for field in fields(spec)}
        return PlacedSpec(**own, workspace=claim, session=_OPENING.get())

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        """Implement `SandboxBackend.enforces`; a workspace is as large as its storage lets it become."""
        held = super().enforces(request)
        return replace(held, disk=False) if workspace_of(request, self._workspace) else held

    async def open_session(self, request: ExecuteRequest) -> SandboxSession:
        """Implement `SessionBackend.open_session`. With `suspend_seconds` the session of an identified caller is
        suspended while it is idle; see `IdleSession`."""
        if not (self._seconds and workspace_of(request, self._workspace)):
            return await super().open_session(request)
        from toolexec_kubernetes.sessions import IdleSession

        pod = SessionPod()
        session = IdleSession(
            self,
            request,
            await self._open_in(request, pod),
            pod,
            seconds=self._seconds,
            resume=self._open_in,
            whose=lambda each: workspace_of(each, self._workspace),
            forget=self._pods.forget,
            closed=self._idle.discard,
        )
        self._idle.add(session)
        return session

    async def _open_in(self, request: ExecuteRequest, pod: SessionPod) -> SandboxSession:
        """Return a session whose pods *pod* knows."""
        token = _OPENING.set(pod)
        try:
            return await super().open_session(request)
        finally:
            _OPENING.reset(token)

    async def aclose(self) -> None:
        """Implement `SandboxBackend.aclose`."""
        await asyncio.gather(*(session.aclose() for session in [*self._idle]))
        await super().aclose()

    def result(
        self, request: ExecuteRequest, run: Run, began: float, guest: ContainerGuest | None, *, warm: bool
    ) -> CodeResult:
        """Implement `ContainerBackend.result`; the details say when the network of the cluster is open."""
        made = super().result(request, run, began, guest, warm=warm)
        network = self._pods.details.get("network")
        if network != "closed" and made.backend is not None:
            made.backend = replace(made.backend, details={**made.backend.details, "network": network})
        return made
