"""How the kubernetes sandbox is set up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from toolexec.containers import NOBODY, DaemonConfig, parse_reference
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.sandbox import checked
from toolexec_kubernetes.brought import BRINGER
from toolexec_kubernetes.metadata import check_annotations, check_labels
from toolexec_kubernetes.sidecars import Sidecar, read_sidecars
from toolexec_kubernetes.volumes import Volume, read_volumes
from toolexec_kubernetes.workspace import Workspace, read_workspace

Isolation: TypeAlias = Literal["container", "gvisor", "vm"]

CONTAINER: Final = "guest"
"""The container of each pod that the code runs in."""
LINK_QUIET: Final = 120
"""How many seconds a pod goes on without a word of ours: longer than we try to reach it."""

_LONGEST_RECONNECT: Final = 100.0
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAMESPACE_USERS: Final = 1 << 16
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def isolation_of(runtime: str) -> Isolation:
    """Return what surrounds a pod whose runtime class, or the handler of one, has this name."""
    name = runtime.lower()
    if name.startswith(("runsc", "gvisor")):
        return "gvisor"
    return "vm" if name.startswith("kata") else "container"


@checked("KubernetesConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesConfig(DaemonConfig):
    """How the kubernetes sandbox is set up.

    `kubeconfig` is a path ("" for what `kubectl` would use, and for the ServiceAccount where toolexec itself runs in a
    pod), `context` one of its contexts, `namespace` where pods are made ("" for that of the context). `runtime_class`
    names a RuntimeClass of the cluster: one whose handler is gVisor's or Kata's makes the sandbox fit for the profile
    `hardened`. `service_account`, `node_selector`, `tolerations`, `pull_secrets` and `priority_class` go into each pod;
    no token is mounted. With `jobs` each pod is made by a Job, which the cluster removes by itself
    `job_ttl` seconds after its end. `lifetime` is how many seconds a pod may live at most, as a guest of a session or a
    pre-warmed one, and `start_seconds` how long one may take until it runs. `network` says what to do in a cluster
    that was not seen to enforce NetworkPolicies: `require` refuses to run code there, `report` runs it, and says in
    each result that the network was `open`, or `unknown`. `agent_sandbox` allows pods to be claimed from a
    SandboxWarmPool that was made by `toolexec sandbox kubernetes manifest --pool`. `cpu_request` is how many cores a
    pod asks the scheduler for, where its limits name none. `run_as_user` is the number of the user in all pods, for
    clusters that prescribe one; 0 gives each pod a user of its own, by whom its processes are counted and held.
    `seccomp` is "default" (RuntimeDefault, and our own filter in the guest), or a profile in the directory of the
    kubelet. With `user_namespaces` each pod has users of its own (`hostUsers: false`): a number in it is another one to
    the node. It needs Kubernetes 1.33 or later, and nodes that have them; a pod that was made without is not used.
    `labels` and `annotations` go onto each pod, for the cost centres, schedulers and admission rules of a cluster;
    those of toolexec, and those that would change what surrounds the code, are not to be set there.
    `volumes` are tables with a `target`, the path in each pod, and either the name of a PersistentVolumeClaim as
    `claim` (with `read_only` and `sub_path`), which all pods share and which outlives them, or a `size` for an empty
    one of each pod, by its `storage_class` or on the disk of the node. A claim that can be written needs
    `run_as_user`.
    `workspace` is a table with the `size` of a PersistentVolumeClaim that each identified caller gets of its own: it is
    `/work` in all pods of that caller, and in no others. It can have a `storage_class`, an `access` (ReadWriteOnce,
    ReadWriteOncePod, ReadWriteMany), `keep_seconds`, after which an unused one is removed (30 days; 0: never), and a
    `scope` that distinguishes it from those of other services in the namespace. With `suspend_seconds` the pod of a
    session that has been idle for so long is removed; the next program of the session gets another one, with its files.
    `sidecars` are tables with the `name`, `image` and `memory` of other containers in each pod, and if need be
    `command`, `env`, `cpus`, and as `scratch` the sizes of their directories in memory, by path. Code reaches them on
    127.0.0.1; they have its rights and no more of a network.
    `runtime_image` names an image with a Python for an `image` that has none: a first container of each pod copies it,
    with its packages, to where the guest runs it, and nothing of the image needs to fit it. It has to be a Python for
    the C library glibc, as of Debian or Fedora, of 512 MB at most.
    `reconnect_seconds` (100 at most) is how long the connection to a pod is made again when it breaks, as in a restart
    of the API server: the program goes on meanwhile, and nothing that it or a tool says is lost or doubled.

    Raises ConfigurationError, too, for invalid names, labels and annotations.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    runtime_class: str = ""
    service_account: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: Sequence[Mapping[str, Any]] = ()
    pull_secrets: Sequence[str] = ()
    priority_class: str = ""
    jobs: bool = False
    job_ttl: int = 60
    lifetime: int = 86_400
    start_seconds: float = 120.0
    network: Literal["require", "report"] = "require"
    agent_sandbox: bool = True
    cpu_request: float = 0.1
    run_as_user: int = 0
    user_namespaces: bool = False
    reconnect_seconds: float = 60.0
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    volumes: Sequence[Mapping[str, Any]] = ()
    workspace: Mapping[str, Any] = field(default_factory=dict[str, Any])
    suspend_seconds: float = 0.0
    sidecars: Sequence[Mapping[str, Any]] = ()
    runtime_image: str = ""

    def __post_init__(self) -> None:
        DaemonConfig.__post_init__(self)
        if self.namespace and not _NAME.fullmatch(self.namespace):
            raise ConfigurationError(f"{self.namespace!r} is not a name of a namespace")
        names = {
            "runtime_class": self.runtime_class,
            "service_account": self.service_account,
            "priority_class": self.priority_class,
            **{f"pull_secrets[{number}]": name for number, name in enumerate(self.pull_secrets)},
        }
        for setting, name in names.items():
            if name and not _SUBDOMAIN.fullmatch(name):
                raise ConfigurationError(f"{setting}: {name!r} is not a name of an object of Kubernetes")
        check_labels(self.labels)
        check_annotations(self.annotations)
        self.all_sidecars  # noqa: B018 - reads them
        if self.runtime_image:
            try:
                parse_reference(self.runtime_image)
            except ToolExecError as error:
                raise ConfigurationError(f"runtime_image: {error.message}") from error
        writable = [each.target for each in self.all_volumes if each.claim and not each.read_only]
        if writable and not self.run_as_user:
            raise ConfigurationError(
                f"volumes: {', '.join(writable)} is written by all pods, and each has a user of its own: set "
                "run_as_user to a number for all of them, or read_only"
            )
        for setting, least in (
            ("job_ttl", 0),
            ("lifetime", 60),
            ("start_seconds", 1),
            ("cpu_request", 0),
            ("run_as_user", 0),
            ("reconnect_seconds", 0),
            ("suspend_seconds", 0),
        ):
            if getattr(self, setting) < least:
                raise ConfigurationError(f"{setting} must be {least} or more, not {getattr(self, setting)!r}")
        self._check_workspace()
        if not self.reconnect_seconds <= _LONGEST_RECONNECT:
            raise ConfigurationError(
                f"reconnect_seconds must be {_LONGEST_RECONNECT:g} or less, not {self.reconnect_seconds!r}"
            )
        if self.user_namespaces and self.run_as_user >= _NAMESPACE_USERS:
            raise ConfigurationError(
                f"run_as_user must be below {_NAMESPACE_USERS} with user_namespaces, not {self.run_as_user!r}"
            )

    def _check_workspace(self) -> None:
        workspace = self.own_workspace
        if workspace is None:
            if self.suspend_seconds:
                raise ConfigurationError("suspend_seconds needs a workspace: without one, files would go with the pod")
        elif workspace.keep_seconds and workspace.keep_seconds <= self.lifetime:
            raise ConfigurationError(
                f"workspace: keep_seconds must be above lifetime, {self.lifetime}, as a pod may use it for so long"
            )

    @property
    def own_workspace(self) -> Workspace | None:
        """The setting `workspace`, read; None where there is none."""
        return read_workspace(self.workspace)

    @property
    def all_volumes(self) -> tuple[Volume, ...]:
        """The setting `volumes`, read."""
        return read_volumes(self.volumes)

    @property
    def all_sidecars(self) -> tuple[Sidecar, ...]:
        """The setting `sidecars`, read."""
        return read_sidecars(self.sidecars, taken=(CONTAINER, BRINGER))

    @property
    def one_user(self) -> int:
        """The number of the user in all pods; 0 where each has another one. A user namespace has few, and each of them
        is another one to the node."""
        return self.run_as_user or (int(NOBODY.partition(":")[0]) if self.user_namespaces else 0)

    @property
    def guest_drops(self) -> tuple[str, ...]:
        """What a guest gives up by itself: RuntimeDefault is another filter with each runtime and version, and ours
        refuses what the profiles promise, on top of it. A profile of the operator's stands alone."""
        return ("seccomp",) if self.isolation == "container" and self.seccomp == "default" else ()

    @property
    def isolation(self) -> Isolation:
        """What surrounds the code, by the name of the runtime class; the check compares it with the class's handler."""
        return isolation_of(self.runtime_class)
