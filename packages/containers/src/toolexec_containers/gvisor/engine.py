"""gVisor: containers whose system calls reach a kernel of their own, in user space, and not the host's."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from toolexec.containers import ImageStore, Watch, run_trial, uncut
from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.machines import Cgroups, Group, Hold, find_cgroups
from toolexec.sandbox import (
    Availability,
    Child,
    ChildContainer,
    ContainerBackend,
    ContainerConfig,
    ContainerSpec,
    Image,
    Launcher,
    checked,
    held_by,
)
from toolexec_containers.gvisor.checks import (
    SECONDS,
    TRIAL,
    check_cgroups,
    find_runsc,
    runsc_environment,
    version_of,
    why_not,
    wrong_machine,
)
from toolexec_containers.gvisor.runsc import Bundle, bundle_config, host_bounds, remove_orphans, runsc_command
from toolexec_containers.rootfs import RootFilesystems

logger: logging.Logger = logging.getLogger(__name__)

_PLATFORMS: Final = ("systrap", "ptrace", "kvm")
_LOOK: Final = 0.2
_GRACE: Final = 1.0
_SELDOM: Final = 3600.0


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


class _Starving:
    """Ends a sandbox whose memory is used up and that goes on: where the kernel has killed the process of the host that
    runs the code, and not gVisor's own kernel, that one waits for it without end."""

    def __init__(self, group: Group) -> None:
        self._group = group

    async def broken(self) -> str:
        while not self._group.oom_kills():  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(_LOOK)
        await asyncio.sleep(_GRACE)
        return "memory"

    async def cpu_seconds(self) -> float | None:
        return None


class GvisorEngine(Launcher):
    """Starts sandboxes of gVisor, each one a child process; see `ContainerEngine`. There is no daemon.

    Enforced for every user: processes and disk space, which are counted inside. Memory and CPU hold where control
    groups can be made; there memory is that of the whole sandbox, with 32 MiB more for gVisor itself, and CPU time
    includes what gVisor uses. A container that starts more processes than it may have receives the error itself.
    """

    def __init__(self, config: GvisorConfig | None = None, *, store: ImageStore | None = None) -> None:
        super().__init__()
        self.config: GvisorConfig = config or GvisorConfig()
        self._held = held_by((), pids=True, disk=True)  # all it can write to is a tmpfs
        self._roots = RootFilesystems(store)
        self._runsc = ""
        self._cgroups: Cgroups | None = None
        self._looked = False

    @property
    def rootless(self) -> bool:
        """Whether it runs as an ordinary user."""
        return os.geteuid() != 0 if self.config.rootless is None else self.config.rootless

    async def _check(self) -> Availability:
        """Run a program in a sandbox and look at the kernel that it sees."""
        if (problem := wrong_machine()) is not None:
            return problem
        runsc = find_runsc(self.config.runsc)
        self._version = await version_of(runsc)
        self._runsc = runsc
        await asyncio.to_thread(self._look)
        return await self._trial(await self.resolve(self.config.image))

    async def resolve(self, image: str) -> Image:
        """Implement `ContainerEngine.resolve`."""
        return await asyncio.to_thread(self._roots.resolve, image)

    async def start(self, image: Image, spec: ContainerSpec) -> ChildContainer:
        """Implement `ContainerEngine.start`. Whether runsc can make the container shows only later, by its end.

        Raises InvalidRequestError and ConfigurationError, too, see `oci_config`.
        """
        return await uncut(self._start(image, spec), undo=ChildContainer.aclose)

    async def aclose(self) -> None:
        """Implement `ContainerEngine.aclose`; there is nothing to release."""

    def _look(self) -> None:
        """Find out where control groups can be made."""
        if not self._looked and self.config.cgroups is not False:
            self._cgroups = find_cgroups()
        self._looked = True
        controllers = self._cgroups.controllers if self._cgroups is not None else ()
        self._held = held_by(controllers, pids=True, disk=True)
        if self.config.cgroups:
            check_cgroups(self._cgroups)

    async def _trial(self, image: Image) -> Availability:
        container = await self.start(image, TRIAL)
        output, code = await run_trial(container, SECONDS)
        if "Linux version" in output:
            return Availability(ok=True)
        why = f"it did not end within {SECONDS:g} s"
        if code is not None:
            why = container.said().strip()[-500:] or f"it ended with {code}"
        return why_not(why, self.config.platform, rootless=self.rootless)

    async def _start(self, image: Image, spec: ContainerSpec) -> ChildContainer:
        bundle, group, hold = await asyncio.to_thread(self._prepare, image, spec)
        command = runsc_command(
            self._runsc,
            bundle,
            platform=self.config.platform,
            rootless=self.rootless,
            groups=group.directories if group is not None else (),
        )
        try:
            child = Child(command, env=runsc_environment())
        except OSError as error:
            await asyncio.to_thread(_remove, bundle, group, hold)
            raise SandboxUnavailableError(f"{self._runsc} cannot be started: {error.strerror or error}") from error
        # Without a control group the CPU time is that of the tree. Memory cannot be seen so: the sandbox maps little.
        watch = _Starving(group) if group is not None else Watch(child.tree, period=_SELDOM)
        return ChildContainer(child, group, id=bundle.name, watch=watch, remove=partial(_remove, bundle, None, hold))

    def _prepare(self, image: Image, spec: ContainerSpec) -> tuple[Bundle, Group | None, Hold | None]:
        """Everything that is there before runsc."""
        self._runsc = self._runsc or find_runsc(self.config.runsc)
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

    async def _sweep(self) -> None:
        with suppress(SandboxUnavailableError):
            await asyncio.to_thread(self._look)
        if self._cgroups is not None:
            await asyncio.to_thread(self._cgroups.sweep)  # first, as it ends what may still use the directories
        await asyncio.to_thread(remove_orphans)


@checked("GvisorBackend")
class GvisorBackend(ContainerBackend):
    """The sandbox `gvisor`; see `GvisorEngine`."""

    def __init__(self, config: GvisorConfig | None = None, *, store: ImageStore | None = None) -> None:
        config = config or GvisorConfig()
        super().__init__(GvisorEngine(config, store=store), config, kind="gvisor", isolation="gvisor")


def _remove(bundle: Bundle, group: Group | None, hold: Hold | None) -> None:
    """What the kernel has is removed first, with all that runs."""
    if group is not None:
        group.remove()
    try:
        bundle.remove()
    except OSError as error:
        logger.error("the directory %s of a container cannot be removed: %s", bundle.directory, error)
    if hold is not None:
        hold.close()
