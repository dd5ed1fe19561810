"""Containers of a Docker daemon, or of Podman's socket, which speaks the same."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from toolexec.containers import Daemon, DaemonConfig, DaemonLauncher, ImageStore, JSONObject, unavailable
from toolexec.sandbox import Availability, ContainerBackend, ContainerSpec, Image, checked
from toolexec_containers.docker import checks
from toolexec_containers.docker.checks import Isolation, isolation_of, not_started, problem
from toolexec_containers.docker.filters import seccomp_option
from toolexec_containers.docker.host import find_host, unreachable
from toolexec_containers.docker.spec import create_body

if TYPE_CHECKING:
    from toolexec_containers.docker.api import DockerAPI
    from toolexec_containers.docker.container import DockerContainer
    from toolexec_containers.docker.images import DockerImages


@checked("DockerConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class DockerConfig(DaemonConfig):
    """How the docker sandbox is set up.

    `host` is the address of the daemon (`unix:///path` or `tcp://host:port`), by default where the `docker` command
    finds it. `runtime` is one of the daemon's OCI runtimes, "" its own default: `runsc` is gVisor, a name that starts
    with `kata` a virtual machine. `pull` says when an image is pulled from its registry: `missing` (when the daemon has
    none), `always` (once in the life of the engine) or `never`. `platform` is that of the images, as in
    `linux/arm64`; "" is the daemon's.

    Raises ConfigurationError, too, for an image with an invalid name, and for another policy.
    """

    host: str = ""
    runtime: str = ""
    platform: str = ""


class DockerEngine(DaemonLauncher["DockerAPI", "DockerImages"]):
    """Runs containers through a Docker daemon; see `ContainerEngine`."""

    extra = "docker"
    client = "aiodocker"
    modules: ClassVar[tuple[str, ...]] = (
        "toolexec_containers.docker.container",
        "toolexec_containers.docker.images",
    )

    def __init__(self, config: DockerConfig | None = None, *, store: ImageStore | None = None) -> None:
        super().__init__()
        self.config: DockerConfig = config or DockerConfig()
        self._store = store
        self._seccomp: dict[str, str] = {}
        self._details: dict[str, str] = {}

    @property
    def isolation(self) -> Isolation:
        """What surrounds the code."""
        return isolation_of(self.config.runtime)

    @property
    def details(self) -> Mapping[str, str]:
        """What a result can say about the daemon, from the last `check`."""
        return self._details

    async def _check(self) -> Availability:
        api = (await self._connect()).client
        info = await api.info()
        self._version = str(info.get("ServerVersion") or "")
        found = problem(info, self.config.runtime, version=api.version, podman=api.podman)
        if found is not None:
            return found
        self._held = checks.enforced(info, self.config.runtime)
        filtered = bool(await self._seccomp_of(api, self.config.seccomp, info))
        self.drops = checks.drops_of(info, self.config.runtime, filtered=filtered)
        self._details = checks.details_of(info, self.config.runtime, podman=api.podman)
        await self._remove_all(api, self._left)
        return Availability(ok=True)

    async def start(self, image: Image, spec: ContainerSpec) -> DockerContainer:
        """Implement `ContainerEngine.start`."""
        from toolexec_containers.docker.container import DockerContainer

        daemon = await self._connect()
        api, images = daemon.client, daemon.images
        runtime = spec.runtime or self.config.runtime
        if api.podman and runtime:  # which would use another one without a word
            found = problem(await api.info(), runtime, version=api.version, podman=True)
            if found is not None:
                raise unavailable(found.reason, found.remedy)
        body = create_body(
            image.reference,
            spec,
            runtime=runtime,
            seccomp=await self._seccomp_of(api, spec.security.seccomp),
            volumes=images.volumes(image),
            podman=api.podman,
        )
        container = DockerContainer(api, self._left)
        try:
            await container.open(body)
        except Exception as error:
            if getattr(error, "status", 0) == 404:
                images.forget(image)
            raise not_started(error, api.host, image.name, runtime) from error
        return container

    async def _seccomp_of(self, api: DockerAPI, setting: str, info: JSONObject | None = None) -> str:
        """Return what `seccomp_option` gives for a setting, found out once. Raises as it does."""
        if setting not in self._seccomp:
            info, local = info or await api.info(), bool(api.host.path)
            self._seccomp[setting] = await asyncio.to_thread(
                seccomp_option, setting, info, podman=api.podman, local=local
            )
        return self._seccomp[setting]

    async def _sweep(self) -> None:
        api = (await self._connect()).client
        await self._remove_all(api, self._left)  # first: a Podman that was killed may list none
        await self._remove_all(api, await api.orphans())

    async def _open(self) -> Daemon[DockerAPI, DockerImages]:
        """Raises ConfigurationError and SandboxUnavailableError."""
        from toolexec_containers.docker.api import DockerAPI
        from toolexec_containers.docker.images import DockerImages

        host = await asyncio.to_thread(find_host, self.config.host)
        try:
            api = await DockerAPI.connect(host)
        except OSError as error:
            raise unreachable(host, error) from error
        return Daemon(api, DockerImages(api, self.config.pull, self.config.platform, self._store))

    async def _hang_up(self, client: DockerAPI) -> None:
        await client.aclose()

    async def _remove(self, client: DockerAPI, id: str) -> bool:
        return await client.remove(id)


@checked("DockerBackend")
class DockerBackend(ContainerBackend):
    """Code in containers of a Docker or Podman daemon. See `DockerConfig`."""

    def __init__(self, config: DockerConfig | None = None) -> None:
        config = config or DockerConfig()
        super().__init__(DockerEngine(config), config, kind="docker", isolation=isolation_of(config.runtime))
