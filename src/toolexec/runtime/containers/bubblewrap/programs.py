"""Programs that are tools, each call in a container of bubblewrap."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from toolexec.backend.providers.command.running import Program
from toolexec.backend.providers.command.sandbox import SandboxRules
from toolexec.errors import ConfigurationError
from toolexec.process.stream import Pipes
from toolexec.runtime.containers.bubblewrap.args import HOST, HOST_PATHS
from toolexec.runtime.containers.bubblewrap.checks import TRIAL_TIME, why_not
from toolexec.runtime.containers.bubblewrap.engine import BubblewrapEngine
from toolexec.runtime.containers.builder import tmpfs_mounts
from toolexec.runtime.containers.config import DEFAULT_LIMITS
from toolexec.runtime.containers.engine import Image
from toolexec.runtime.containers.launcher import ChildContainer, refused, run_trial
from toolexec.runtime.containers.spec import WORK, ContainerSpec, Mount, Resources, Security

_HOST: Final = Image(name=HOST, reference=HOST)
_KILLED: Final = 128
"""What a shell, and bubblewrap, add to the number of a signal."""


class BubblewrapPrograms:
    """Starts each program in a container of its own, over this machine's `/usr`; see `ProgramSandbox`.

    A program finds its directory and the paths of the *rules* where they are on this machine. It may have 128 processes
    and write 256 MiB to `/tmp` and `/work`, which is its HOME
    unless it sees the one that it has. Where root starts it, it runs as a user that has no files.
    """

    def __init__(self, rules: SandboxRules) -> None:
        self._rules = rules
        self._engine = BubblewrapEngine()

    async def check(self) -> None:
        """Implement `ProgramSandbox.check`."""
        for path in self._rules.paths:
            if not path.exists():
                raise ConfigurationError(f"there is no {path}, which sandbox_paths names")
        trial = Program(argv=("true",), env={}, cwd=HOST_PATHS[0])
        container = await self._engine.start(_HOST, self._spec(trial))
        _, code = await run_trial(container, TRIAL_TIME)
        if code != 0:
            raise refused(why_not(container.said(), code, HOST))

    def shows(self, path: Path, directory: Path) -> bool:
        """Implement `ProgramSandbox.shows`."""
        seen = (*HOST_PATHS, directory, *self._rules.paths)
        return any(path.is_relative_to(each) for each in seen) and any(
            path.resolve().is_relative_to(each.resolve()) for each in seen
        )

    async def start(self, program: Program) -> ContainedProgram:
        """Implement `ProgramSandbox.start`."""
        return ContainedProgram(await self._engine.start(_HOST, self._spec(program)))

    async def aclose(self) -> None:
        """Implement `ProgramSandbox.aclose`."""
        await self._engine.aclose()

    def _spec(self, program: Program) -> ContainerSpec:
        """Return the container of a program. What is mounted later covers what is below it."""
        home = program.env.get("HOME", "")
        is_shown = home.startswith("/") and self.shows(Path(home), program.cwd)
        mounts = [*tmpfs_mounts(DEFAULT_LIMITS.disk_bytes)]
        mounts += [_bind(path, read_only=True) for path in self._rules.paths]
        mounts.append(_bind(program.cwd, read_only=not self._rules.writable))
        return ContainerSpec(
            image=HOST,
            command=tuple(program.argv),
            env=program.env if is_shown else {**program.env, "HOME": WORK},
            working_dir=str(program.cwd),
            mounts=tuple(mount for mount in mounts if mount.type != "bind" or not _is_of_host(mount.target)),
            resources=Resources(pids=DEFAULT_LIMITS.pids, disk_bytes=DEFAULT_LIMITS.disk_bytes),
            security=Security(network="host" if self._rules.network else "none"),
        )


class ContainedProgram:
    """A program in its container; see `Process`."""

    def __init__(self, container: ChildContainer) -> None:
        self._container = container

    @property
    def stream(self) -> Pipes:
        """Its stdout and stdin."""
        return self._container.stream

    def stderr_tail(self) -> bytes:
        """Return the last of what it has written to stderr until now."""
        return self._container.said().encode()

    async def wait(self) -> int:
        """Return the exit code, once it has ended; a negative code is a signal."""
        code = (await self._container.wait()).code
        return _KILLED + 9 if code is None else code

    def kill(self) -> None:
        """Begin to kill it with all that it has started, at once."""
        self._container.kill()

    async def aclose(self) -> None:
        """Kill it with all that it has started, and remove its container."""
        await self._container.aclose()


def _bind(path: Path, *, read_only: bool) -> Mount:
    return Mount(type="bind", source=str(path), target=str(path), read_only=read_only)


def _is_of_host(path: str) -> bool:
    """Return whether the container has a path anyway."""
    return any(Path(path).is_relative_to(each) for each in HOST_PATHS)
