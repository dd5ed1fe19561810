"""One container of bubblewrap: how it is started within its bounds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from toolexec.process.cgroup import Cgroups, Group
from toolexec.process.child import Child
from toolexec.process.watch import Watch
from toolexec.runtime.containers.bubblewrap.args import HOST
from toolexec.runtime.containers.bubblewrap.host_user import HostUsers, Stage
from toolexec.runtime.containers.child import ChildContainer
from toolexec.runtime.containers.spec import ContainerSpec

__all__ = ["Identity", "Start", "has_shell"]

_OWN_PROCESSES: Final = 2  # bwrap itself, and the first process in the container


class Identity:
    """The user of the host that one container runs as, and the stage that this user finds everything on.

    A stage of the container's own (*own*) is closed with it.
    """

    def __init__(self, users: HostUsers, stage: Stage, *, own: bool = False) -> None:
        self._users = users
        self._stage = stage
        self._own = own
        self.number: int = users.take()

    def becoming(self, command: Sequence[str]) -> list[str]:
        """Return a command that becomes that user and then *command*."""
        return self._users.becoming(self.number, command, self._stage)

    def close(self) -> None:
        """Note that nothing runs as this user any more."""
        self._users.leave(self.number)
        if self._own:
            self._stage.close()


class Start:
    """The start of one container, without a pause in it, so that no cancellation can come in between. *bwrap* is the
    program, *args* are its arguments, and *seccomp* is the filter of system calls, b"" for none. With *shell* there is
    one in the image; within a control group unless *cgroups* is None; as the user *identity* unless that is None.
    """

    def __init__(
        self,
        spec: ContainerSpec,
        *,
        bwrap: str,
        args: Sequence[str],
        seccomp: bytes,
        shell: bool,
        cgroups: Cgroups | None,
        identity: Identity | None,
    ) -> None:
        self._spec = spec
        self._shell = shell
        self._identity = identity
        self._bwrap = bwrap
        self._args = args
        self._seccomp = seccomp
        self._cgroups = cgroups
        self._child: Child | None = None
        self._group: Group | None = None

    def run(self) -> ChildContainer:
        """Return the container. Raises OSError, and then, or whatever is raised, `undo` must be called."""
        asked, cgroups = self._spec.resources, self._cgroups
        if cgroups is not None:
            pids = asked.pids + _OWN_PROCESSES if asked.pids else 0
            self._group = cgroups.create(memory_bytes=asked.memory_bytes, pids=pids, cpus=asked.cpus)
        child = self._spawn()
        remove = self._identity.close if self._identity is not None else None
        return ChildContainer(child, self._group, watch=self._watch(child), remove=remove)

    async def undo(self) -> None:
        """Leave nothing of a start that has failed."""
        if self._child is not None:
            await self._child.aclose()
        if self._group is not None:
            await asyncio.to_thread(self._group.remove)
        if self._identity is not None:
            self._identity.close()

    def _spawn(self) -> Child:
        opened: list[int] = []
        try:
            opened.append(_memory_file(b"".join(os.fsencode(arg) + b"\0" for arg in self._args)))
            command = [self._bwrap, "--args", str(opened[0])]
            if self._seccomp:
                opened.append(_memory_file(self._seccomp))
                command += ["--seccomp", str(opened[1])]
            command += ["--", *self._command()]
            if self._identity is not None:
                command = self._identity.becoming(command)
            if self._group is not None:
                command = self._group.joining(command, first=self._file_bounds())
            # It sees to its end by itself, and would pass on what it is given to the container.
            child = self._child = Child(command, env={}, fds=opened, lifeline=False)
        finally:
            for descriptor in opened:
                os.close(descriptor)
        return child

    def _command(self) -> Sequence[str]:
        """The command, under the kernel's own bounds where no control group has one: on the number of processes in the
        user namespace, and on the memory of each process, which bounds what one of them can take before a look."""
        asked, held = self._spec.resources, self._held()
        if not self._shell or {"memory", "pids"} <= held:
            return self._spec.command
        bounds = [self._file_bounds()]
        if asked.memory_bytes and "memory" not in held:
            bounds.append(f"ulimit -d {asked.memory_bytes >> 10}")
        if asked.pids and "pids" not in held:  # each shell has a letter of its own; the first process counts
            bounds.append(f"{{ ulimit -u {asked.pids + 1} 2>/dev/null || ulimit -p {asked.pids + 1}; }}")
        return ["/bin/sh", "-c", f'{" && ".join(bounds)} && exec "$@"', "sh", *self._spec.command]

    def _file_bounds(self) -> str:
        """For a shell: no core files, and a bound on open files."""
        import resource

        wanted, (_, most) = self._spec.resources.open_files, resource.getrlimit(resource.RLIMIT_NOFILE)
        bound = min(wanted, most) if most != resource.RLIM_INFINITY else wanted
        return f"ulimit -c 0 && ulimit -n {bound}" if bound else "ulimit -c 0"

    def _held(self) -> frozenset[str]:
        return self._cgroups.controllers if self._cgroups is not None else frozenset()

    def _watch(self, child: Child) -> Watch | None:
        """What looks after the bounds that no control group holds."""
        held = self._held()
        if {"memory", "pids", "cpuacct"} <= held:
            return None
        asked = self._spec.resources
        memory = 0 if "memory" in held else asked.memory_bytes
        pids = 0 if "pids" in held else asked.pids
        return Watch(child.tree, memory_bytes=memory, pids=pids, own=_OWN_PROCESSES, shared_once=True)


def has_shell(root: str) -> bool:
    """Return whether there is a shell in the root file system *root*."""
    top = Path("/") if root == HOST else Path(root)
    return any(os.path.lexists(top / name) for name in ("bin/sh", "usr/bin/sh"))


def _memory_file(data: bytes) -> int:
    """A descriptor that *data* can be read from."""
    descriptor = os.memfd_create("toolexec")
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
