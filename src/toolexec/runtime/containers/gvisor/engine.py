"""gVisor: containers whose system calls reach a kernel of their own, in user space, and not the host's."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal

from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.model.settings import checked
from toolexec.process.cgroup import Cgroups, Group, find_cgroups
from toolexec.process.child import Child, run_child, to_the_end
from toolexec.process.stream import Pipes
from toolexec.runtime.base import Availability
from toolexec.runtime.containers.backend import ContainerBackend
from toolexec.runtime.containers.config import ContainerConfig
from toolexec.runtime.containers.engine import Exit, Image
from toolexec.runtime.containers.gvisor.runsc import (
    Bundle,
    bundle_config,
    host_bounds,
    orphans,
    read_version,
    runsc_command,
)
from toolexec.runtime.containers.rootfs import RootFilesystems
from toolexec.runtime.containers.spec import ContainerSpec, Mount, Resources
from toolexec.runtime.images.store import Hold, ImageStore

__all__ = ["GvisorBackend", "GvisorConfig", "GvisorContainer", "GvisorEngine"]

logger: logging.Logger = logging.getLogger(__name__)

_PLATFORMS: Final = ("systrap", "ptrace", "kvm")
_LOOK: Final = 0.2
_GRACE: Final = 1.0
_MACHINES: Final = ("x86_64", "aarch64")
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INSTALL: Final = (
    "apt-get install -t bookworm-backports runsc (Debian 12), apt-get install runsc (Debian 13), or the release of "
    "https://gvisor.dev/docs/user_guide/install/"
)
_NO_NAMESPACES: Final = (
    "run as root, or let users have user namespaces: sysctl -w kernel.unprivileged_userns_clone=1 (Debian), "
    "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)"
)
_SECONDS: Final = 30.0
_TRIAL: Final = ContainerSpec(
    image="",
    command=("python3", "-I", "-S", "-c", "print(open('/proc/version').read())"),
    working_dir="/",
    mounts=(Mount(type="tmpfs", target="/tmp", size_bytes=1 << 20),),  # noqa: S108 - inside of a container
    resources=Resources(memory_bytes=64 << 20, pids=16, cpus=1, disk_bytes=1 << 20),
)


@checked("GvisorConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class GvisorConfig(ContainerConfig):
    """How the gvisor sandbox is set up.

    `image` is an image of the store, or the path of an unpacked root file system. `runsc` is the path of that program,
    by default the one on the PATH. `platform` is how it catches system calls: `systrap`, `ptrace` where that does not
    work (slower), or `kvm`. There is no network but `none`. `rootless` is how an ordinary user runs it, by default if
    this is one. With `cgroups` False no control groups are made, and memory, CPU time and rate have no bounds; with
    True there have to be some; by default they are made where this user can make them.

    Raises ConfigurationError, too, for another platform or network.
    """

    runsc: str = ""
    platform: Literal["systrap", "ptrace", "kvm"] = "systrap"
    network: Literal["none"] = "none"
    rootless: bool | None = None
    cgroups: bool | None = None

    def __post_init__(self) -> None:
        ContainerConfig.__post_init__(self)
        if self.platform not in _PLATFORMS:
            raise ConfigurationError(f"gVisor has no platform {self.platform!r}; use {', '.join(_PLATFORMS)}")
        if self.network != "none":
            raise ConfigurationError(f"code in gVisor cannot have the network {self.network!r}; use none")


class GvisorContainer:
    """A sandbox of gVisor as a `Container`: runsc as a child process of ours, in a control group if there are any."""

    def __init__(self, child: Child, bundle: Bundle, group: Group | None, hold: Hold | None) -> None:
        self._child = child
        self._bundle = bundle
        self._group = group
        self._hold = hold
        self._used: float | None = None
        self._ended = asyncio.create_task(self._watch())
        self._closing: asyncio.Task[None] | None = None

    @property
    def id(self) -> str:
        """What it is called, as is its directory."""
        return self._bundle.name

    @property
    def pid(self) -> int:
        """The number of the process of runsc."""
        return self._child.pid

    @property
    def stream(self) -> Pipes:
        """Stdin and stdout of its first process."""
        return self._child.stream

    def said(self) -> str:
        """Implement `Container.said`; what runsc has to say is in it, too."""
        return self._child.stderr_tail().decode("utf-8", "replace")

    async def wait(self) -> Exit:
        """Implement `Container.wait`. A refused process is not reported: only the code in the sandbox sees it."""
        return await asyncio.shield(self._ended)

    async def _watch(self) -> Exit:
        if self._group is None:
            return Exit(code=await self._child.wait())
        starving = asyncio.create_task(self._end_of_memory(self._group))
        ended = Exit(code=await self._child.wait())
        starving.cancel()
        await asyncio.wait({starving})
        return replace(ended, oom=self._group.oom_kills() > 0, oom_told=True, pids=self._group.refusals() > 0)

    async def _end_of_memory(self, group: Group) -> None:
        """End a sandbox whose memory is used up and that goes on: where the kernel has killed the process of the host
        that runs the code, and not gVisor's own kernel, that one waits for it without end."""
        while not group.oom_kills():  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(_LOOK)
        await asyncio.sleep(_GRACE)
        self._child.kill()

    async def cpu_seconds(self) -> float | None:
        """Implement `Container.cpu_seconds`; what gVisor itself has used is in it, a tenth of a second for its
        start.
        """
        if self._group is not None and self._closing is None:
            self._used = self._group.cpu_seconds()
        return self._used

    def kill(self) -> None:
        """Implement `Killable.kill`."""
        self._child.kill()

    async def aclose(self) -> None:
        """Implement `Container.aclose`."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await to_the_end(self._closing)

    async def _close(self) -> None:
        if self._group is not None:
            self._used = self._group.cpu_seconds()
        await self._child.aclose()
        await self._ended
        await asyncio.to_thread(_remove, self._bundle, self._group)
        if self._hold is not None:
            self._hold.close()


class GvisorEngine:
    """Starts sandboxes of gVisor, each one a child process; see `ContainerEngine`. There is no daemon.

    Enforced for every user: processes and disk space, which are counted inside. Memory and CPU hold where control
    groups can be made; there memory is that of the whole sandbox, with 32 MiB more for gVisor itself, and CPU time
    includes what gVisor uses. A container that starts more processes than it may have receives the error itself.
    """

    def __init__(self, config: GvisorConfig | None = None, *, store: ImageStore | None = None) -> None:
        self.config: GvisorConfig = config or GvisorConfig()
        self._roots = RootFilesystems(store)
        self._runsc = ""
        self._cgroups: Cgroups | None = None
        self._looked = False

    @property
    def rootless(self) -> bool:
        """Whether it runs as an ordinary user."""
        return os.geteuid() != 0 if self.config.rootless is None else self.config.rootless

    async def check(self) -> Availability:
        """Implement `ContainerEngine.check`: runs a program in a sandbox and looks at the kernel that it sees."""
        if sys.platform != "linux" or platform.machine() not in _MACHINES:
            return Availability(
                ok=False,
                reason=f"gVisor runs on Linux on {' and '.join(_MACHINES)} only",
                remedy="use the wasm sandbox, or docker with a remote daemon",
            )
        version = ""
        try:
            version = await self._version()
            await asyncio.to_thread(self._look)
            image = await self.resolve(self.config.image)
            return replace(await self._trial(image), version=version)
        except SandboxUnavailableError as error:
            remedy = str(error.details.get("remedy", ""))
            return Availability(ok=False, reason=error.message, remedy=remedy, version=version)
        except Exception as error:
            logger.exception("the check of gVisor has failed")
            return Availability(ok=False, reason=f"gVisor cannot be tried: {error}", version=version)

    @property
    def drops(self) -> tuple[str, ...]:
        """See `ContainerEngine.drops`: nothing is left to the guest."""
        return ()

    def enforces(self, limits: Limits) -> LimitsEnforced:
        """Implement `ContainerEngine.enforces`."""
        held = self._cgroups.controllers if self._cgroups is not None else frozenset[str]()
        return LimitsEnforced(memory="memory" in held, cpu="cpuacct" in held, cpus="cpu" in held, pids=True, disk=True)

    async def resolve(self, image: str) -> Image:
        """Implement `ContainerEngine.resolve`."""
        return await asyncio.to_thread(self._roots.resolve, image)

    async def start(self, image: Image, spec: ContainerSpec) -> GvisorContainer:
        """Implement `ContainerEngine.start`. Whether runsc can make the container shows only later, by its end.

        Raises InvalidRequestError and ConfigurationError, too, see `oci_config`.
        """
        starting = asyncio.create_task(self._start(image, spec))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            await to_the_end(asyncio.create_task(_undo(starting)))
            raise

    @property
    def left(self) -> tuple[str, ...]:
        """See `ContainerEngine.left`: there is no daemon that could be away."""
        return ()

    async def sweep(self) -> None:
        """Implement `ContainerEngine.sweep`."""
        try:
            await asyncio.to_thread(self._sweep)
        except Exception:
            logger.exception("what dead processes have left of gVisor's containers cannot be removed")

    async def aclose(self) -> None:
        """Implement `ContainerEngine.aclose`; there is nothing to release."""

    async def _version(self) -> str:
        """That of runsc; raises SandboxUnavailableError when there is none."""
        command = self._find()
        try:
            async with asyncio.timeout(_SECONDS):
                code, said = await run_child([command, "--version"], env=_environment())
        except TimeoutError:
            code, said = -1, f"it did not end within {_SECONDS:g} s"
        version = read_version(said)
        if code != 0 or not version:
            raise SandboxUnavailableError(
                f"{command} does not work: {said.strip()[:200] or f'exit code {code}'}", details={"remedy": _INSTALL}
            )
        self._runsc = command
        return version

    def _find(self) -> str:
        asked = self.config.runsc or "runsc"
        found = shutil.which(asked) or shutil.which(asked, path=_PATH)
        if found is None:
            where = "is not there" if self.config.runsc else "is not on the PATH"
            raise SandboxUnavailableError(f"{asked} {where}", details={"remedy": _INSTALL})
        return found

    def _look(self) -> None:
        """Find out where control groups can be made."""
        if not self._looked and self.config.cgroups is not False:
            self._cgroups = find_cgroups()
        self._looked = True
        if self.config.cgroups and (self._cgroups is None or "memory" not in self._cgroups.controllers):
            raise SandboxUnavailableError(
                "this user can make no control groups that bound memory",
                details={
                    "remedy": "run as root, or have a group delegated: systemd-run --user --scope -p Delegate=yes"
                },
            )

    async def _trial(self, image: Image) -> Availability:
        container = await self.start(image, _TRIAL)
        said = b""
        try:
            async with asyncio.timeout(_SECONDS):
                while data := await container.stream.read():
                    said = (said + data)[:4096]
                ended = await container.wait()
            why = container.said().strip()[-500:] or f"it ended with {ended.code}"
        except TimeoutError:
            why = f"it did not end within {_SECONDS:g} s"
        finally:
            await container.aclose()
        if b"Linux version" in said:
            return Availability(ok=True)
        if "unknown platform" in why or "flag provided but not defined" in why:
            return Availability(ok=False, reason=f"this runsc is too old: {why}", remedy=_INSTALL)
        hint = "" if self.config.platform == "ptrace" else '; the platform "ptrace" works where another one does not'
        return Availability(
            ok=False,
            reason=f"no sandbox can be started with the platform {self.config.platform}: {why}",
            remedy=(_NO_NAMESPACES if self.rootless else "look at the message of runsc") + hint,
        )

    async def _start(self, image: Image, spec: ContainerSpec) -> GvisorContainer:
        bundle, group, hold = await asyncio.to_thread(self._prepare, image, spec)
        command = runsc_command(
            self._runsc,
            bundle,
            platform=self.config.platform,
            rootless=self.rootless,
            groups=group.directories if group is not None else (),
        )
        try:
            child = Child(command, env=_environment())
        except OSError as error:
            await asyncio.to_thread(_remove, bundle, group)
            if hold is not None:
                hold.close()
            raise SandboxUnavailableError(f"{self._runsc} cannot be started: {error.strerror or error}") from error
        return GvisorContainer(child, bundle, group, hold)

    def _prepare(self, image: Image, spec: ContainerSpec) -> tuple[Bundle, Group | None, Hold | None]:
        """Everything that is there before runsc."""
        self._runsc = self._runsc or self._find()
        self._look()
        hold = self._roots.hold(image)
        group: Group | None = None
        try:
            config = bundle_config(spec, image.reference)
            if self._cgroups is not None:
                group = self._cgroups.create(**host_bounds(spec.resources))
            return Bundle.make(config), group, hold
        except BaseException as error:
            if group is not None:
                group.remove()
            if hold is not None:
                hold.close()
            if isinstance(error, OSError):
                raise SandboxUnavailableError(f"a sandbox cannot be prepared: {error.strerror or error}") from error
            raise

    def _sweep(self) -> None:
        with suppress(SandboxUnavailableError):
            self._look()
        if self._cgroups is not None:
            self._cgroups.sweep()  # first, as it ends what may still use the directories
        for bundle in orphans():
            try:
                bundle.remove()
            except OSError as error:
                logger.warning("the directory %s of a dead process cannot be removed: %s", bundle.directory, error)


@checked("GvisorBackend")
class GvisorBackend(ContainerBackend):
    """The sandbox `gvisor`; see `GvisorEngine`."""

    def __init__(self, config: GvisorConfig | None = None, *, store: ImageStore | None = None) -> None:
        config = config or GvisorConfig()
        super().__init__(GvisorEngine(config, store=store), config, kind="gvisor", isolation="gvisor")


def _remove(bundle: Bundle, group: Group | None) -> None:
    """What the kernel has is removed first, with all that runs."""
    if group is not None:
        group.remove()
    try:
        bundle.remove()
    except OSError as error:
        logger.error("the directory %s of a container cannot be removed: %s", bundle.directory, error)


async def _undo(starting: asyncio.Task[GvisorContainer]) -> None:
    await asyncio.wait({starting})
    if not starting.cancelled() and starting.exception() is None:
        await starting.result().aclose()


def _environment() -> Mapping[str, str]:
    """For runsc, which looks for programs such as newuidmap."""
    return {"PATH": f"{os.environ.get('PATH', '')}:{_PATH}".lstrip(":")}
