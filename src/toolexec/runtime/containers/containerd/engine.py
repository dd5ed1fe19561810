"""Containers of containerd's, over its own API: runc's, or gVisor's and Kata's through their shims."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.errors import ConfigurationError, MissingExtraError, SandboxUnavailableError, ToolExecError
from toolexec.model.settings import checked
from toolexec.process.cgroup import mounted_controllers
from toolexec.process.owner import OWNER_LABEL, this_owner
from toolexec.runtime.base import Availability
from toolexec.runtime.containers.backend import ContainerBackend
from toolexec.runtime.containers.config import ContainerConfig
from toolexec.runtime.containers.containerd.checks import ask_daemon, has_program, look_at_runtime, look_at_socket
from toolexec.runtime.containers.containerd.runtimes import (
    RUNTIMES,
    Runtime,
    find_runsc,
    program_directories,
    runtime_named,
    shim_name,
    write_wrapper,
)
from toolexec.runtime.containers.engine import Container, Image, held_by
from toolexec.runtime.containers.gvisor.runsc import bundle_config, host_bounds
from toolexec.runtime.containers.oci import oci_config
from toolexec.runtime.containers.spec import ContainerSpec
from toolexec.runtime.images.resolver import POLICIES, PullPolicy, parse_reference
from toolexec.runtime.images.store import ImageStore
from toolexec.runtime.outcome import engine_error

if TYPE_CHECKING:
    from toolexec.runtime.containers.containerd.client import Client
    from toolexec.runtime.containers.containerd.resolver import Resolver
    from toolexec.runtime.containers.containerd.tasks import Plan

__all__ = ["DEFAULT_ADDRESS", "ContainerdBackend", "ContainerdConfig", "ContainerdEngine"]

logger: logging.Logger = logging.getLogger(__name__)
DEFAULT_ADDRESS: Final = "/run/containerd/containerd.sock"

_EXTRA: Final = "containerd"
_ROOT: Final = "rootfs"


@checked("ContainerdConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerdConfig(ContainerConfig):
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
    pull: PullPolicy = "missing"

    def __post_init__(self) -> None:
        ContainerConfig.__post_init__(self)
        parse_reference(self.image)
        if self.pull not in POLICIES:
            raise ConfigurationError(f"unknown pull policy {self.pull!r}; use {', '.join(POLICIES)}")
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


@dataclass(frozen=True, slots=True)
class _Connection:
    client: Client
    resolver: Resolver


class ContainerdEngine:
    """Runs containers through containerd; see `ContainerEngine`."""

    def __init__(self, config: ContainerdConfig | None = None, *, store: ImageStore | None = None) -> None:
        self.config: ContainerdConfig = config or ContainerdConfig()
        self._store = store
        self._turn = asyncio.Lock()
        self._connection: _Connection | None = None
        self._directory: Path | None = None
        self._runtimes: dict[str, Runtime] = {}
        self._controllers = mounted_controllers()
        self._left: set[str] = set()

    @property
    def isolation(self) -> str:
        """What surrounds the code: `container`, `gvisor` or `vm`."""
        return runtime_named(self.config.runtime).isolation

    async def check(self) -> Availability:
        """Implement `ContainerEngine.check`."""
        self._controllers = mounted_controllers()
        problem = await asyncio.to_thread(look_at_socket, self.config.socket)
        if problem is not None:
            return problem
        try:
            connection = await self._connect()
            found = await ask_daemon(connection.client, self.config.snapshotter)
            if found.ok:
                runtime = await self._runtime(self.config.runtime)
                problem = await look_at_runtime(self.config.socket, runtime)
        except MissingExtraError as error:
            return Availability(ok=False, reason="grpcio is not installed", remedy=error.message)
        except SandboxUnavailableError as error:
            return Availability(ok=False, reason=error.message, remedy=str(error.details.get("remedy", "")))
        except Exception as error:
            return Availability(ok=False, reason=f"containerd cannot be used: {error}")
        return replace(problem, version=found.version) if problem is not None else found

    @property
    def drops(self) -> tuple[str, ...]:
        """See `ContainerEngine.drops`: nothing is left to the guest."""
        return ()

    def enforces(self, limits: Limits) -> LimitsEnforced:
        """Implement `ContainerEngine.enforces`."""
        return held_by(self._controllers)

    async def resolve(self, image: str) -> Image:
        """Implement `ContainerEngine.resolve`."""
        return await (await self._connect()).resolver.resolve(image)

    async def start(self, image: Image, spec: ContainerSpec) -> Container:
        """Implement `ContainerEngine.start`."""
        from toolexec.runtime.containers.containerd.resolver import is_missing_parent
        from toolexec.runtime.containers.containerd.tasks import TaskContainer

        connection = await self._connect()
        container = TaskContainer(connection.client, await self._plan(connection, image, spec), self._left)
        try:
            await container.open()
        except BaseException as error:
            await container.aclose()
            if isinstance(error, SandboxUnavailableError) and is_missing_parent(error):
                connection.resolver.forget(image)
                raise SandboxUnavailableError(
                    f"the image {image.name} was removed from containerd meanwhile; fetch it, or build it, again",
                    details={"image": image.name},
                ) from error
            if isinstance(error, SandboxUnavailableError | OSError):
                raise _not_started(error, image.name) from error
            raise
        return container

    @property
    def left(self) -> frozenset[str]:
        """See `ContainerEngine.left`."""
        return frozenset(self._left)

    async def sweep(self) -> None:
        """Implement `ContainerEngine.sweep`."""
        try:
            connection = await self._connect()
            from toolexec.runtime.containers.containerd.sweep import sweep

            runsc = await asyncio.to_thread(find_runsc, self.config.runsc)
            await sweep(connection.client, self.config.snapshotter, runsc)
            await self._remove_left(connection)
        except Exception as error:
            logger.warning("what dead hosts have left in containerd cannot be removed: %s", error)

    async def aclose(self) -> None:
        """Implement `ContainerEngine.aclose`."""
        async with self._turn:
            connection, self._connection = self._connection, None
            directory, self._directory = self._directory, None
            self._runtimes.clear()
        if connection is not None:
            await self._remove_left(connection)
            connection.client.close()
        if directory is not None:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    async def configure(self, spec: ContainerSpec, runtime: Runtime, cgroup: str) -> dict[str, Any]:
        """Return config.json of a container; raises InvalidRequestError and ConfigurationError as `oci_config` does."""
        make = _gvisor_config if runtime.isolation == "gvisor" else _config
        return await asyncio.to_thread(make, spec, cgroup)

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

    async def _connect(self) -> _Connection:
        """The daemon. Raises MissingExtraError."""
        if self._connection is not None:
            return self._connection
        async with self._turn:
            if self._connection is None:
                try:
                    await asyncio.to_thread(_import_client)
                except ImportError as error:
                    raise MissingExtraError(_EXTRA, needed_for="the containerd sandbox") from error
                from toolexec.runtime.containers.containerd.client import Client
                from toolexec.runtime.containers.containerd.resolver import Resolver

                client = Client(self.config.socket, self.config.namespace)
                resolver = Resolver(client, self.config.snapshotter, self.config.pull, self._store)
                self._connection = _Connection(client, resolver)
            return self._connection

    async def _runtime(self, name: str) -> Runtime:
        """The runtime *name*; for gVisor the shim that there is. Raises SandboxUnavailableError."""
        if name not in self._runtimes:
            runtime = runtime_named(name)
            if name == "runsc":
                runtime = await self._gvisor(runtime)
            self._runtimes[name] = runtime
        return self._runtimes[name]

    async def _gvisor(self, runtime: Runtime) -> Runtime:
        """gVisor by its own shim if there is one, else by that of runc, which is made to run it."""
        directories = await asyncio.to_thread(program_directories, self.config.socket)
        if has_program(shim_name(runtime.name), directories):
            return runtime
        runsc = await asyncio.to_thread(find_runsc, self.config.runsc)
        if not runsc:
            remedy = "install gVisor's runsc (https://gvisor.dev/docs/user_guide/install), or give its path"
            raise SandboxUnavailableError(
                f"gVisor is not installed: there is no {self.config.runsc or 'runsc on the PATH'}; {remedy}",
                details={"remedy": remedy},
            )
        wrapper = await self._private_directory() / "runsc"
        await asyncio.to_thread(write_wrapper, wrapper, runsc)
        return replace(RUNTIMES["runc"], isolation="gvisor", binary=str(wrapper))

    async def _private_directory(self) -> Path:
        """A directory of this engine's own."""
        async with self._turn:
            if self._directory is None:
                self._directory = Path(tempfile.mkdtemp(prefix=f"toolexec-containerd-{this_owner()}-"))
            return self._directory

    async def _remove_left(self, connection: _Connection) -> None:
        """Try once more what could not be removed when it was closed."""
        from toolexec.runtime.containers.containerd.tasks import remove_container

        for id in [*self._left]:
            if not await remove_container(connection.client, id, self.config.snapshotter):
                self._left.discard(id)


@checked("ContainerdBackend")
class ContainerdBackend(ContainerBackend):
    """Code in containers of containerd's; with `runtime="runsc"` in gVisor's, which share no kernel with the host."""

    def __init__(self, config: ContainerdConfig | None = None, *, store: ImageStore | None = None) -> None:
        config = config or ContainerdConfig()
        engine = ContainerdEngine(config, store=store)
        super().__init__(engine, config, kind="containerd", isolation=engine.isolation)


def _import_client() -> None:
    """In a thread: it takes a while."""
    importlib.import_module("toolexec.runtime.containers.containerd.sweep")
    importlib.import_module("toolexec.runtime.containers.containerd.resolver")


def _config(spec: ContainerSpec, cgroup: str) -> dict[str, Any]:
    return oci_config(spec, _ROOT, cgroups_path=cgroup)


def _gvisor_config(spec: ContainerSpec, cgroup: str) -> dict[str, Any]:
    """The same for gVisor, which counts the processes of the code by itself: the host's bounds are for all of it."""
    bounded = replace(spec, resources=replace(spec.resources, **host_bounds(spec.resources)))
    config = bundle_config(spec, _ROOT)
    config["linux"]["resources"] = oci_config(bounded, _ROOT)["linux"]["resources"]
    config["linux"]["cgroupsPath"] = cgroup
    config["root"]["readonly"] = spec.security.read_only_root  # it belongs to this container alone
    return config


def _not_started(error: ToolExecError | OSError, image: str) -> SandboxUnavailableError:
    """Why a container of *image* could not be started, and what to do about it."""
    said = str(error.details.get("said") or error.message) if isinstance(error, ToolExecError) else str(error)
    known = engine_error(said, kind="containerd", image=image)
    if isinstance(known, SandboxUnavailableError):
        return known
    text = known.message if known is not None else f"no container of the image {image} can be started: {said}"
    return SandboxUnavailableError(text, details={"image": image, "said": said})
