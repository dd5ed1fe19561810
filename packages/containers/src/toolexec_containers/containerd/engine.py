"""Containers of containerd's, over its own API: runc's, or gVisor's and Kata's through their shims."""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from toolexec.containers import (
    OWNER_LABEL,
    Daemon,
    DaemonConfig,
    DaemonLauncher,
    ImageStore,
    JSONDict,
    mounted_controllers,
    this_owner,
)
from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.sandbox import Availability, Container, ContainerBackend, ContainerSpec, Image, checked, held_by
from toolexec_containers.containerd.checks import ask_daemon, look_at_runtime, look_at_socket, not_started
from toolexec_containers.containerd.runtimes import Runtime, Runtimes, bundle_for, find_runsc, runtime_named

if TYPE_CHECKING:
    from toolexec_containers.containerd.client import Client
    from toolexec_containers.containerd.resolver import Resolver
    from toolexec_containers.containerd.spec import Plan

DEFAULT_ADDRESS: Final = "/run/containerd/containerd.sock"


@checked("ContainerdConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerdConfig(DaemonConfig):
    """How the containerd sandbox is set up.

    `address` is the socket of the daemon, "" for CONTAINERD_ADDRESS or else /run/containerd/containerd.sock.
    `namespace` is where containers and images are kept apart from those of others. `runtime` is `runc`, `runsc`
    (gVisor), `kata`, or a name of containerd's such as `io.containerd.kata-fc.v2`; `runsc` is the path of gVisor's
    program, by default the one on the PATH. `snapshotter` keeps the root file systems. `pull` says when an image is
    fetched: `missing` takes it from the image store when containerd has none; `never` does so, too, as that is not a
    registry. containerd leaves pulling to its clients, and this one cannot: `always` is refused.

    Raises ConfigurationError, too, for an image with an invalid name, and for another policy.
    """

    address: str = ""
    namespace: str = "toolexec"
    runtime: str = "runc"
    runsc: str = ""
    snapshotter: str = "overlayfs"

    def __post_init__(self) -> None:
        DaemonConfig.__post_init__(self)
        if self.pull == "always":
            raise ConfigurationError(
                "containerd leaves pulling to its clients, and this one cannot: pull images with "
                f"`ctr -n {self.namespace} images pull NAME`, and use pull='missing'"
            )
        for name in ("namespace", "runtime", "snapshotter"):
            if not getattr(self, name):
                raise ConfigurationError(f"the containerd sandbox needs a {name}")

    @property
    def socket(self) -> str:
        """The path of the socket that is used."""
        given = self.address or os.environ.get("CONTAINERD_ADDRESS", "") or DEFAULT_ADDRESS
        return given.removeprefix("unix://")


class ContainerdEngine(DaemonLauncher["Client", "Resolver"]):
    """Runs containers through containerd; see `ContainerEngine`."""

    extra = "containerd"
    client = "grpcio"
    modules: ClassVar[tuple[str, ...]] = (
        "toolexec_containers.containerd.tasks",
        "toolexec_containers.containerd.resolver",
    )

    def __init__(self, config: ContainerdConfig | None = None, *, store: ImageStore | None = None) -> None:
        super().__init__()
        self.config: ContainerdConfig = config or ContainerdConfig()
        self._store = store
        self._held = held_by(mounted_controllers(), pids=False, disk=True)  # all it can write to is a tmpfs
        self._runtimes = Runtimes(self.config.runsc)

    @property
    def isolation(self) -> str:
        """What surrounds the code: `container`, `gvisor` or `vm`."""
        return runtime_named(self.config.runtime).isolation

    async def _check(self) -> Availability:
        self._held = held_by(mounted_controllers(), pids=False, disk=True)  # all it can write to is a tmpfs
        problem = await asyncio.to_thread(look_at_socket, self.config.socket)
        if problem is not None:
            return problem
        found = await ask_daemon((await self._connect()).client, self.config.snapshotter)
        self._version = found.version
        if found.ok:
            runtime = await self._runtimes.find(self.config.runtime, self.config.socket)
            problem = await look_at_runtime(self.config.socket, runtime)
        return problem or found

    async def start(self, image: Image, spec: ContainerSpec) -> Container:
        """Implement `ContainerEngine.start`."""
        from toolexec_containers.containerd.tasks import TaskContainer

        daemon = await self._connect()
        container = TaskContainer(daemon.client, await self._plan(daemon, image, spec), self._left)
        try:
            await container.open()
        except BaseException as error:
            await container.aclose()
            if not isinstance(error, SandboxUnavailableError | OSError):
                raise
            daemon.images.forget(image)  # it may be gone
            raise not_started(error, image.name) from error
        return container

    async def configure(self, spec: ContainerSpec, runtime: Runtime, cgroup: str) -> JSONDict:
        """Return config.json of a container; raises InvalidRequestError and ConfigurationError as `oci_config` does."""
        return await asyncio.to_thread(bundle_for, runtime, spec, cgroup)

    async def _plan(self, daemon: Daemon[Client, Resolver], image: Image, spec: ContainerSpec) -> Plan:
        from toolexec_containers.containerd.spec import Plan

        runtime = await self._runtimes.find(spec.runtime or self.config.runtime, self.config.socket)
        id = f"toolexec-{this_owner()}-{secrets.token_hex(6)}"
        try:
            bundle = await self.configure(spec, runtime, f"/{id}")
        except ConfigurationError as error:
            raise SandboxUnavailableError(error.message) from error
        user = bundle["process"]["user"]
        return Plan(
            id=id,
            image=image.reference,
            parent=await daemon.images.parent(image),
            snapshotter=self.config.snapshotter,
            runtime=runtime,
            spec=bundle,
            directory=await self._runtimes.directory(),
            cgroup=f"/{id}",
            user=(user["uid"], user["gid"]),
            labels={**spec.labels, OWNER_LABEL: this_owner()},
        )

    async def aclose(self) -> None:
        """Implement `ContainerEngine.aclose`."""
        await super().aclose()
        await self._runtimes.aclose()

    async def _sweep(self) -> None:
        from toolexec_containers.containerd.removal import sweep

        client = (await self._connect()).client
        await sweep(client, self.config.snapshotter, await asyncio.to_thread(find_runsc, self.config.runsc))
        await self._remove_all(client, self._left)

    async def _open(self) -> Daemon[Client, Resolver]:
        from toolexec_containers.containerd.client import Client
        from toolexec_containers.containerd.resolver import Resolver

        client = Client(self.config.socket, self.config.namespace)
        return Daemon(client, Resolver(client, self.config.snapshotter, self.config.pull, self._store))

    async def _hang_up(self, client: Client) -> None:
        client.close()

    async def _remove(self, client: Client, id: str) -> bool:
        from toolexec_containers.containerd.removal import remove_container

        return not await remove_container(client, id, self.config.snapshotter)


@checked("ContainerdBackend")
class ContainerdBackend(ContainerBackend):
    """Code in containers of containerd's; with `runtime="runsc"` in gVisor's, which share no kernel with the host."""

    def __init__(self, config: ContainerdConfig | None = None, *, store: ImageStore | None = None) -> None:
        config = config or ContainerdConfig()
        engine = ContainerdEngine(config, store=store)
        super().__init__(engine, config, kind="containerd", isolation=engine.isolation)
