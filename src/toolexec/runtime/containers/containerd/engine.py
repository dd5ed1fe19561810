"""Containers of containerd's, over its own API: runc's, or gVisor's and Kata's through their shims."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.model.json_value import JSONDict
from toolexec.model.settings import checked
from toolexec.process.cgroup import mounted_controllers
from toolexec.process.owner import OWNER_LABEL, this_owner
from toolexec.runtime.base import Availability
from toolexec.runtime.containers.backend import ContainerBackend
from toolexec.runtime.containers.containerd.checks import ask_daemon, look_at_runtime, look_at_socket, not_started
from toolexec.runtime.containers.containerd.runtimes import (
    Runtime,
    bundle_for,
    find_runsc,
    find_runtime,
    runtime_named,
    write_wrapper,
)
from toolexec.runtime.containers.daemon import DaemonConfig, DaemonLauncher
from toolexec.runtime.containers.engine import Container, Image
from toolexec.runtime.containers.launcher import held_by
from toolexec.runtime.containers.spec import ContainerSpec
from toolexec.runtime.images.store import ImageStore

if TYPE_CHECKING:
    from toolexec.runtime.containers.containerd.client import Client
    from toolexec.runtime.containers.containerd.resolver import Resolver
    from toolexec.runtime.containers.containerd.tasks import Plan

__all__ = ["DEFAULT_ADDRESS", "ContainerdBackend", "ContainerdConfig", "ContainerdEngine"]

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


class _Connection(NamedTuple):
    client: Client
    resolver: Resolver


class ContainerdEngine(DaemonLauncher[_Connection]):
    """Runs containers through containerd; see `ContainerEngine`."""

    extra = "containerd"
    client = "grpcio"
    modules = ("toolexec.runtime.containers.containerd.sweep", "toolexec.runtime.containers.containerd.resolver")

    def __init__(self, config: ContainerdConfig | None = None, *, store: ImageStore | None = None) -> None:
        super().__init__()
        self.config: ContainerdConfig = config or ContainerdConfig()
        self._store = store
        self._held = held_by(mounted_controllers())
        self._directory: Path | None = None
        self._runtimes: dict[str, Runtime] = {}

    @property
    def isolation(self) -> str:
        """What surrounds the code: `container`, `gvisor` or `vm`."""
        return runtime_named(self.config.runtime).isolation

    async def _check(self) -> Availability:
        self._held = held_by(mounted_controllers())
        problem = await asyncio.to_thread(look_at_socket, self.config.socket)
        if problem is not None:
            return problem
        found = await ask_daemon((await self._connect()).client, self.config.snapshotter)
        self._version = found.version
        if found.ok:
            problem = await look_at_runtime(self.config.socket, await self._runtime(self.config.runtime))
        return problem or found

    async def resolve(self, image: str) -> Image:
        """Implement `ContainerEngine.resolve`."""
        return await (await self._connect()).resolver.resolve(image)

    async def start(self, image: Image, spec: ContainerSpec) -> Container:
        """Implement `ContainerEngine.start`."""
        from toolexec.runtime.containers.containerd.tasks import TaskContainer

        connection = await self._connect()
        container = TaskContainer(connection.client, await self._plan(connection, image, spec), self._left)
        try:
            await container.open()
        except BaseException as error:
            await container.aclose()
            if not isinstance(error, SandboxUnavailableError | OSError):
                raise
            connection.resolver.forget(image)  # it may be gone
            raise not_started(error, image.name) from error
        return container

    async def configure(self, spec: ContainerSpec, runtime: Runtime, cgroup: str) -> JSONDict:
        """Return config.json of a container; raises InvalidRequestError and ConfigurationError as `oci_config` does."""
        return await asyncio.to_thread(bundle_for, runtime, spec, cgroup)

    async def _plan(self, connection: _Connection, image: Image, spec: ContainerSpec) -> Plan:
        from toolexec.runtime.containers.containerd.tasks import Plan

        runtime = await self._runtime(spec.runtime or self.config.runtime)
        id = f"toolexec-{this_owner()}-{secrets.token_hex(6)}"
        try:
            bundle = await self.configure(spec, runtime, f"/{id}")
        except ConfigurationError as error:
            raise SandboxUnavailableError(error.message) from error
        user = bundle["process"]["user"]
        return Plan(
            id=id,
            image=image.reference,
            parent=await connection.resolver.parent(image),
            snapshotter=self.config.snapshotter,
            runtime=runtime,
            spec=bundle,
            directory=await self._private_directory(),
            cgroup=f"/{id}",
            user=(user["uid"], user["gid"]),
            labels={**spec.labels, OWNER_LABEL: this_owner()},
        )

    async def aclose(self) -> None:
        """Implement `ContainerEngine.aclose`."""
        await super().aclose()
        self._runtimes.clear()
        directory, self._directory = self._directory, None
        if directory is not None:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    async def _sweep(self) -> None:
        from toolexec.runtime.containers.containerd.sweep import sweep

        connection = await self._connect()
        await sweep(connection.client, self.config.snapshotter, await asyncio.to_thread(find_runsc, self.config.runsc))
        await self._remove_all(connection, self._left)

    async def _open(self) -> _Connection:
        from toolexec.runtime.containers.containerd.client import Client
        from toolexec.runtime.containers.containerd.resolver import Resolver

        client = Client(self.config.socket, self.config.namespace)
        return _Connection(client, Resolver(client, self.config.snapshotter, self.config.pull, self._store))

    async def _hang_up(self, connection: _Connection) -> None:
        connection.client.close()

    async def _remove(self, connection: _Connection, id: str) -> bool:
        from toolexec.runtime.containers.containerd.tasks import remove_container

        return not await remove_container(connection.client, id, self.config.snapshotter)

    async def _runtime(self, name: str) -> Runtime:
        """The runtime *name*, looked for once. Raises SandboxUnavailableError."""
        if name not in self._runtimes:
            runtime = await asyncio.to_thread(find_runtime, name, self.config.socket, self.config.runsc)
            if runtime.binary:
                wrapper = await self._private_directory() / "runsc"
                await asyncio.to_thread(write_wrapper, wrapper, runtime.binary)
                runtime = replace(runtime, binary=str(wrapper))
            self._runtimes[name] = runtime
        return self._runtimes[name]

    async def _private_directory(self) -> Path:
        """A directory of this engine's own."""
        async with self._turn:
            if self._directory is None:
                self._directory = Path(tempfile.mkdtemp(prefix=f"toolexec-containerd-{this_owner()}-"))
            return self._directory


@checked("ContainerdBackend")
class ContainerdBackend(ContainerBackend):
    """Code in containers of containerd's; with `runtime="runsc"` in gVisor's, which share no kernel with the host."""

    def __init__(self, config: ContainerdConfig | None = None, *, store: ImageStore | None = None) -> None:
        config = config or ContainerdConfig()
        engine = ContainerdEngine(config, store=store)
        super().__init__(engine, config, kind="containerd", isolation=engine.isolation)
