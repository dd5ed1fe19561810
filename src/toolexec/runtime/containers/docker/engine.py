"""Containers of a Docker daemon, or of Podman's socket, which speaks the same."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.errors import ConfigurationError, MissingExtraError, SandboxUnavailableError
from toolexec.model.settings import checked
from toolexec.process.child import to_the_end, uncut
from toolexec.process.owner import is_orphan
from toolexec.runtime.base import Availability
from toolexec.runtime.containers.backend import ContainerBackend
from toolexec.runtime.containers.config import ContainerConfig
from toolexec.runtime.containers.docker.attach import AttachedStream
from toolexec.runtime.containers.docker.checks import (
    Isolation,
    enforced,
    isolation_of,
    not_started,
    problem,
    runtime_of,
)
from toolexec.runtime.containers.docker.host import DockerHost, explain, find_host
from toolexec.runtime.containers.docker.spec import create_body
from toolexec.runtime.containers.engine import Image
from toolexec.runtime.containers.spec import ContainerSpec
from toolexec.runtime.images.resolver import POLICIES, PullPolicy, parse_reference
from toolexec.runtime.images.store import ImageStore

if TYPE_CHECKING:
    from toolexec.runtime.containers.docker.api import DockerAPI
    from toolexec.runtime.containers.docker.container import DockerContainer
    from toolexec.runtime.containers.docker.images import DockerImages

__all__ = ["DockerBackend", "DockerConfig", "DockerEngine", "isolation_of"]

logger: logging.Logger = logging.getLogger(__name__)
_NOTHING: Final = LimitsEnforced()


@checked("DockerConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class DockerConfig(ContainerConfig):
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
    pull: PullPolicy = "missing"
    platform: str = ""

    def __post_init__(self) -> None:
        ContainerConfig.__post_init__(self)
        parse_reference(self.image)
        if self.pull not in POLICIES:
            raise ConfigurationError(f"unknown pull policy {self.pull!r}; use {', '.join(POLICIES)}")


class DockerEngine:
    """Runs containers through a Docker daemon; see `ContainerEngine`."""

    def __init__(self, config: DockerConfig | None = None, *, store: ImageStore | None = None) -> None:
        self.config: DockerConfig = config or DockerConfig()
        self._store = store
        self._connecting = asyncio.Lock()
        self._api: DockerAPI | None = None
        self._images: DockerImages | None = None
        self._enforced = _NOTHING
        self._seccomp: dict[str, str] = {}
        self._left: set[str] = set()
        self._details: dict[str, str] = {}
        self._drops: tuple[str, ...] = ()

    @property
    def isolation(self) -> Isolation:
        """What surrounds the code."""
        return isolation_of(self.config.runtime)

    @property
    def details(self) -> Mapping[str, str]:
        """What a result can say about the daemon, from the last `check`."""
        return self._details

    async def check(self) -> Availability:
        """Implement `ContainerEngine.check`."""
        try:
            api = await self._connect()
            info = await _info(api)
        except MissingExtraError as error:
            return Availability(ok=False, reason="aiodocker is not installed", remedy=error.message)
        except ConfigurationError as error:
            return Availability(ok=False, reason=error.message)
        except SandboxUnavailableError as error:
            return Availability(ok=False, reason=error.details["reason"], remedy=error.details["remedy"])
        except Exception as error:
            return Availability(ok=False, reason=f"the Docker daemon does not say what it is: {error}")
        version = str(info.get("ServerVersion") or "")
        found = problem(info, self.config.runtime, version=api.version, podman=api.podman)
        if found is not None:
            return replace(found, version=version)
        self._enforced = enforced(info, self.config.runtime)
        filtered = any("seccomp" in str(option) for option in info.get("SecurityOptions") or ())
        self._drops = () if filtered or self.isolation != "container" else ("landlock", "seccomp")
        await self._remove(api, {*self._left})
        self._details = {
            "engine": "podman" if api.podman else "docker",
            "server": version,
            "storage": str(info.get("Driver") or ""),
            "runtime": runtime_of(info, self.config.runtime),
            "isolation": self.isolation,
        }
        return Availability(ok=True, version=version)

    @property
    def drops(self) -> tuple[str, ...]:
        """See `ContainerEngine.drops`: a daemon without seccomp filters nothing."""
        return self._drops

    def enforces(self, limits: Limits) -> LimitsEnforced:
        """Implement `ContainerEngine.enforces`."""
        return self._enforced

    async def resolve(self, image: str) -> Image:
        """Implement `ContainerEngine.resolve`."""
        api = await self._connect()
        assert self._images is not None
        return await self._images.resolve(api, image)

    async def start(self, image: Image, spec: ContainerSpec) -> DockerContainer:
        """Implement `ContainerEngine.start`."""
        from toolexec.runtime.containers.docker.container import SETTLE, DockerContainer

        api = await self._connect()
        assert self._images is not None
        runtime = spec.runtime or self.config.runtime
        if api.podman and runtime:
            await _check_runtime(api, runtime)
        body = create_body(
            image.reference,
            spec,
            runtime=runtime,
            seccomp=await self._profile(api, spec.security.seccomp),
            volumes=self._images.volumes(image),
            podman=api.podman,
        )
        name = f"toolexec-{secrets.token_hex(8)}"
        stream: AttachedStream | None = None
        try:
            await uncut(api.create(name, body), seconds=SETTLE)
            stream = await api.attach(name)
            await uncut(api.start(name), seconds=SETTLE)
        except BaseException as error:
            self._left.add(name)
            await to_the_end(asyncio.create_task(self._give_up(api, name, stream, error)))
            if isinstance(error, Exception):
                if getattr(error, "status", 0) == 404:
                    self._images.forget(image)
                raise not_started(error, api.host, image.name, runtime) from error
            raise
        return DockerContainer(api, name, stream, self._left)

    async def _give_up(self, api: DockerAPI, name: str, stream: AttachedStream | None, error: BaseException) -> None:
        from toolexec.runtime.containers.docker.container import give_up

        if await give_up(api, name, stream, error):
            self._left.discard(name)

    @property
    def left(self) -> frozenset[str]:
        """See `ContainerEngine.left`."""
        return frozenset(self._left)

    async def sweep(self) -> None:
        """Implement `ContainerEngine.sweep`. What this engine itself could not remove, its daemon being gone, goes
        too.
        """
        try:
            api = await self._connect()
            orphans = [each.id for each in await api.owned() if is_orphan(each.owner)]
        except Exception as error:
            logger.warning("what dead hosts have left in Docker cannot be looked for: %s", error)
            return
        await self._remove(api, {*orphans, *self._left})

    async def _remove(self, api: DockerAPI, names: Collection[str]) -> None:
        from toolexec.runtime.containers.docker.container import remove

        async def one(name: str) -> None:
            if await remove(api, name):
                self._left.discard(name)

        await asyncio.gather(*map(one, names))

    async def aclose(self) -> None:
        """Implement `ContainerEngine.aclose`."""
        async with self._connecting:
            api, self._api = self._api, None
        if api is not None:
            await self._remove(api, {*self._left})
            await api.aclose()

    async def _connect(self) -> DockerAPI:
        """The daemon. Raises ConfigurationError, MissingExtraError and SandboxUnavailableError."""
        async with self._connecting:
            if self._api is not None:
                return self._api
            try:
                await asyncio.to_thread(_import_client)
            except ImportError as error:
                raise MissingExtraError("docker", needed_for="the docker sandbox") from error
            from toolexec.runtime.containers.docker.api import DockerAPI
            from toolexec.runtime.containers.docker.images import DockerImages

            host = await asyncio.to_thread(find_host, self.config.host)
            try:
                self._api = await DockerAPI.connect(host)
            except OSError as error:
                raise _unreachable(host, error) from error
            self._images = DockerImages(self.config.pull, self.config.platform, self._store)
            return self._api

    async def _profile(self, api: DockerAPI, seccomp: str) -> str:
        """The form in which the daemon takes a profile for system calls: Docker its text, Podman its path."""
        if seccomp in ("default", "unconfined"):
            return "" if seccomp == "default" else seccomp
        if api.podman:
            return seccomp
        if seccomp not in self._seccomp:
            try:
                text = await asyncio.to_thread(Path(seccomp).read_text, "utf-8")
                self._seccomp[seccomp] = json.dumps(json.loads(text), separators=(",", ":"))
            except (OSError, ValueError) as error:
                raise SandboxUnavailableError(
                    f"the seccomp profile {seccomp} cannot be read: {error}; name a file in Docker's JSON format"
                ) from error
        return self._seccomp[seccomp]


async def _info(api: DockerAPI) -> Mapping[str, Any]:
    try:
        return await api.info()
    except OSError as error:
        raise _unreachable(api.host, error) from error


def _unreachable(host: DockerHost, error: OSError) -> SandboxUnavailableError:
    reason, remedy = explain(host, error)
    return SandboxUnavailableError(f"{reason}; {remedy}", details={"reason": reason, "remedy": remedy})


async def _check_runtime(api: DockerAPI, runtime: str) -> None:
    """Raises SandboxUnavailableError where a container would get another runtime than the one it is to have."""
    found = problem(await _info(api), runtime, version=api.version, podman=api.podman)
    if found is not None:
        raise SandboxUnavailableError(f"{found.reason}; {found.remedy}")


def _import_client() -> None:
    """In a thread: it takes a while."""
    importlib.import_module("toolexec.runtime.containers.docker.container")
    importlib.import_module("toolexec.runtime.containers.docker.images")


@checked("DockerBackend")
class DockerBackend(ContainerBackend):
    """Code in containers of a Docker or Podman daemon. See `DockerConfig`."""

    def __init__(self, config: DockerConfig | None = None) -> None:
        config = config or DockerConfig()
        super().__init__(DockerEngine(config), config, kind="docker", isolation=isolation_of(config.runtime))
