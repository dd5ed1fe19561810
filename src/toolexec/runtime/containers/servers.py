"""MCP servers in containers: the streams of a container are the transport, and nothing else leads out of it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from toolexec.backend.mcp.sandbox import ServerProgram, ServerSandboxSettings
from toolexec.code.limits import Limits
from toolexec.errors import ConfigurationError
from toolexec.runtime.containers.bubblewrap.args import HOST, HOST_PATHS
from toolexec.runtime.containers.bubblewrap.checks import TRIAL_TIME, why_not
from toolexec.runtime.containers.builder import spec_for
from toolexec.runtime.containers.checks import why_not_shared
from toolexec.runtime.containers.config import ContainerConfig
from toolexec.runtime.containers.contained_server import ContainedServer
from toolexec.runtime.containers.engine import ContainerEngine, Image
from toolexec.runtime.containers.launcher import refused, run_trial, unavailable
from toolexec.runtime.containers.network import Network
from toolexec.runtime.containers.spec import DEFAULT_PATH, ContainerSpec, Mount
from toolexec.runtime.containers.way_out import CERTIFICATE, RELAY, SOCKET, WayOut
from toolexec.runtime.egress.environment import environment
from toolexec.runtime.egress.policy import Egress

_WAY: Final = "/run/toolexec"
_LONGEST_LINE: Final = 256  # which is what the kernel reads of it


class ContainedServers:
    """Starts each server in a container of its own; see `ServerSandbox` and `ServerSandboxSettings`.

    It owns the *engine*. Raises ConfigurationError for a directory that no container gets.
    """

    def __init__(self, settings: ServerSandboxSettings, engine: ContainerEngine) -> None:
        self._settings = settings
        self._engine = engine
        self._is_over_host = settings.is_over_host
        self._network = Network(Egress(hosts=tuple(settings.hosts)) if settings.hosts else None)
        self._checked = False
        for name, paths in (("read", settings.readable), ("write", settings.writable)):
            for path in paths:
                if problem := why_not_shared(path):
                    raise ConfigurationError(f"sandbox.{name}: {path} {problem}")

    async def check(self, program: ServerProgram | None = None) -> None:
        """Implement `ServerSandbox.check`."""
        settings = self._settings
        if settings.hosts:
            self._network.reach(WayOut())
        if not self._is_over_host:
            found = await self._engine.check()
            if not found.ok:
                raise refused(found)
            if self._engine.drops:  # a guest of ours gives it up by itself, and a server would keep it
                raise unavailable(
                    f"{settings.engine} leaves it to a program to give up {', '.join(self._engine.drops)}, and a "
                    "server does not do so",
                    "use the sandbox bubblewrap, or a daemon that has filters of system calls",
                )
            return
        await asyncio.to_thread(self._check_paths)
        image = await self._engine.resolve(settings.image or HOST)
        probe = ["python3", "-I", "-S", "-c", ""] if settings.hosts else ["true"]
        container = await self._engine.start(image, self._spec(image, ServerProgram(argv=probe, env={}), None))
        _, code = await run_trial(container, TRIAL_TIME)
        if code != 0:
            raise refused(why_not(container.said(), code, image.name))
        if program is not None and not settings.image:
            await asyncio.to_thread(self._found, program)

    async def start(self, program: ServerProgram) -> ContainedServer:
        """Implement `ServerSandbox.start`."""
        if not self._checked:
            await self.check()
            await self._engine.sweep()
            self._checked = True
        if self._is_over_host and not self._settings.image:
            program = await asyncio.to_thread(self._found, program)
        async with AsyncExitStack() as made:
            image = await self._engine.resolve(self._settings.image or HOST)
            way = WayOut() if self._settings.hosts else None
            if way is not None:
                self._network.reach(way)
                made.push_async_callback(way.aclose)
                await way.open()
            container = await self._engine.start(image, self._spec(image, program, way))
            made.pop_all()
            return ContainedServer(container, self._settings, way)
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        """Implement `ServerSandbox.aclose`."""
        await self._engine.aclose()

    def shows(self, path: Path, program: ServerProgram) -> bool:
        """Return whether *program* finds *path*, as it is written and as its links resolve, in its sandbox."""
        named = (*self._settings.readable, *self._settings.writable)
        seen = (*HOST_PATHS, *named, *([program.cwd] if program.cwd is not None else []))
        return all(
            any(one.is_relative_to(each) for each in group)
            for one, group in ((path, seen), (path.resolve(), [each.resolve() for each in seen]))
        )

    def _check_paths(self) -> None:
        for path in (*self._settings.readable, *self._settings.writable):
            if not path.exists():
                raise ConfigurationError(f"there is no {path}, which its sandbox is to have")
        for path in self._settings.writable:
            if any(path.resolve().is_relative_to(each) for each in HOST_PATHS) or not path.is_dir():
                raise ConfigurationError(f"sandbox.write: {path} is not a directory that it could change")
            if os.geteuid() == 0 and path.stat().st_mode & 0o7 != 0o7:
                raise ConfigurationError(
                    f"sandbox.write: {path} cannot be changed by all users, and what root starts in a sandbox runs as "
                    f"one that has no files; run this as an ordinary user, or: chmod o+rwx {path}"
                )

    def _found(self, program: ServerProgram) -> ServerProgram:
        """Return *program* with its command as a path, and the directories of this process's PATH that it sees.

        Raises ConfigurationError for a command that is not in the sandbox, and FileNotFoundError for one that is
        nowhere, as a start without a sandbox would.
        """
        if program.cwd is not None:
            program = replace(program, cwd=program.cwd.absolute())
            assert program.cwd is not None
            if not program.cwd.is_dir():
                raise ConfigurationError(f"cannot start it in {str(program.cwd)!r}: there is no such directory")
            if problem := why_not_shared(program.cwd):
                raise ConfigurationError(f"cwd: {program.cwd} {problem}")
        own = os.environ.get("PATH", DEFAULT_PATH).split(os.pathsep)
        places = [each for each in own if each.startswith("/") and self.shows(Path(each), program)]
        path = ":".join(dict.fromkeys([*places, *DEFAULT_PATH.split(":")]))
        command = program.argv[0]
        base = program.cwd or Path.cwd()
        found = shutil.which(
            str(base / command) if "/" in command else command, path=program.env.get("PATH", f"{path}:{':'.join(own)}")
        )
        if found is None:
            raise FileNotFoundError(2, os.strerror(2), command)
        for needed in (Path(found), _interpreter(Path(found))):
            if needed is not None and not self.shows(needed, program):
                real = needed.resolve()
                linked = f", which is {real}," if real != needed else ""
                raise ConfigurationError(
                    f"its sandbox has no {needed}{linked} and so cannot start it; name the directory that it needs in "
                    "sandbox.read"
                )
        return replace(program, argv=[found, *program.argv[1:]], env={"PATH": path, **program.env})

    def _spec(self, image: Image, program: ServerProgram, way: WayOut | None) -> ContainerSpec:
        settings = self._settings
        command, env = tuple(program.argv), dict(program.env)
        if way is not None:
            port = self._network.port
            env = environment(port, f"{_WAY}/{CERTIFICATE}") | env
            command = ("python3", "-I", "-S", f"{_WAY}/{RELAY}", str(port), f"{_WAY}/{SOCKET}", *command)
        limits = Limits(
            memory_bytes=settings.memory_bytes,
            cpus=settings.cpus,
            pids=settings.pids,
            disk_bytes=settings.disk_bytes,
        )
        spec = spec_for(
            image=image.name,
            command=command,
            limits=limits,
            profile="standard",
            config=ContainerConfig(image=image.name),
            kind=settings.engine,
            env=env,
        )
        if program.cwd is not None:
            spec = replace(spec, working_dir=str(program.cwd))
        return replace(spec, mounts=(*spec.mounts, *self._binds(program, way))) if self._is_over_host else spec

    def _binds(self, program: ServerProgram, way: WayOut | None) -> Iterator[Mount]:
        """Yield what is mounted of this machine: what covers something else after that."""
        is_read_only = dict.fromkeys(self._settings.readable, True)
        if program.cwd is not None and not self._settings.image:
            is_read_only.setdefault(program.cwd, True)
        is_read_only |= dict.fromkeys(self._settings.writable, False)
        for path in sorted(is_read_only, key=lambda each: len(each.parts)):
            read_only = is_read_only[path] and not any(path.is_relative_to(each) for each in self._settings.writable)
            if self._settings.image or not any(path.is_relative_to(each) for each in HOST_PATHS):
                yield Mount(type="bind", source=str(path), target=str(path), read_only=read_only)
        if way is not None:
            yield Mount(type="bind", source=str(way.directory), target=_WAY, read_only=True)


def _interpreter(script: Path) -> Path | None:
    """Return the program that a script names in its first line; None for what is not a script of that form."""
    try:
        with script.open("rb") as file:
            head = file.readline(_LONGEST_LINE)
    except OSError:  # whatever starts it says why
        return None
    words = head.removeprefix(b"#!").split()
    return Path(os.fsdecode(words[0])) if head.startswith(b"#!") and words else None
