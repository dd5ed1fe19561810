"""MCP servers in containers: the streams of a container are the transport, and nothing else leads out of it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from toolexec.backend.mcp.sandbox import ServerProgram, ServerSandboxSettings, ServerStream
from toolexec.code.limits import Limits
from toolexec.errors import ConfigurationError
from toolexec.process.settling import to_the_end
from toolexec.process.stream import Pipes, QuickStream, Stream
from toolexec.runtime.containers.bubblewrap.args import HOST, HOST_PATHS
from toolexec.runtime.containers.bubblewrap.checks import TRIAL_TIME, why_not
from toolexec.runtime.containers.builder import spec_for
from toolexec.runtime.containers.checks import why_not_shared
from toolexec.runtime.containers.config import ContainerConfig
from toolexec.runtime.containers.engine import Container, ContainerEngine, Exit, Image, Killable
from toolexec.runtime.containers.launcher import ChildContainer, refused, run_trial, unavailable
from toolexec.runtime.containers.network import Network
from toolexec.runtime.containers.spec import DEFAULT_PATH, ContainerSpec, Mount
from toolexec.runtime.containers.way_out import CERTIFICATE, RELAY, SOCKET, WayOut
from toolexec.runtime.egress.environment import environment
from toolexec.runtime.egress.policy import Egress

__all__ = ["ContainedServer", "ContainedServers"]

_OVER_HOST: Final = "bubblewrap"
_WAY: Final = "/run/toolexec"
_KILLED: Final = 128 + 9
_REFUSED_SHOWN: Final = 5
_LONGEST_LINE: Final = 256  # which is what the kernel reads of it
_NO_NETWORK: Final = re.compile(
    r"ENETUNREACH|EAI_AGAIN|ENOTFOUND|EAI_NONAME|Network is unreachable|[Nn]ame resolution|[Nn]ame or service not known"
    r"|[Cc]ould not resolve|getaddrinfo|nodename nor servname|dns error|failed to lookup address"
)
_NO_FILE: Final = re.compile(
    r"execvp \S+: No such file|cannot be started: No such file|error while loading shared libraries|No module named"
    r"|Cannot find (module|package)|MODULE_NOT_FOUND"
)


class ContainedServers:
    """Starts each server in a container of its own; see `ServerSandbox` and `ServerSandboxSettings`.

    It owns the *engine*. Raises ConfigurationError for a directory that no container gets.
    """

    def __init__(self, settings: ServerSandboxSettings, engine: ContainerEngine) -> None:
        self._settings = settings
        self._engine = engine
        self._is_over_host = settings.engine == _OVER_HOST
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


class ContainedServer:
    """A server in its container; see `SandboxedServer`."""

    def __init__(self, container: Container, settings: ServerSandboxSettings, way: WayOut | None) -> None:
        self._container = container
        self._settings = settings
        self._way = way
        self._stream = _AttachedStream(container.stream)
        self._closing: asyncio.Task[None] | None = None
        self._end: Exit | None = None
        self._ended = asyncio.create_task(self._wait())

    @property
    def stream(self) -> ServerStream:
        """Its stdout and stdin."""
        stream = self._container.stream
        return stream if isinstance(stream, Pipes) else self._stream

    @property
    def pid(self) -> int:
        """The number of its outermost process here; 0 where a daemon has it."""
        return self._container.pid if isinstance(self._container, ChildContainer) else 0

    @property
    def exit_code(self) -> int | None:
        """See `ServerProcess.exit_code`; a code above 128 may be a signal."""
        if self._end is None:
            return None
        return _KILLED if self._end.code is None else self._end.code

    def stderr_tail(self) -> bytes:
        """Return the last of what it has written to stderr until now."""
        return self._container.said().encode()

    async def wait(self) -> int:
        """Return the exit code, once it has ended."""
        return await asyncio.shield(self._ended)

    def explain(self) -> str:
        """Implement `SandboxedServer.explain`."""
        end, parts = self._end or Exit(), list[str]()
        if end.lost:
            parts.append(f"its sandbox was lost: {end.lost}")
        if end.oom:
            limit = self._settings.memory_bytes >> 20
            parts.append(f"it was killed for its memory: sandbox.memory_bytes is {limit} MiB")
        if end.pids:
            parts.append(f"it was refused another process: sandbox.pids is {self._settings.pids}")
        refused = self._way.refused if self._way is not None else {}
        if refused:
            hosts = ", ".join([*refused][:_REFUSED_SHOWN])
            parts.append(f"its sandbox does not let it reach {hosts}; name in sandbox.hosts what it needs")
        said, is_over_host = self._container.said(), self._settings.engine == _OVER_HOST
        if not self._settings.hosts and _NO_NETWORK.search(said):
            what = "name in sandbox.hosts what it needs" if is_over_host else "it can have none"
            parts.append(f"it seems to need the network, which its sandbox does not have; {what}")
        if is_over_host and not self._settings.image and _NO_FILE.search(said):
            parts.append("it seems to need files that its sandbox does not have; name their directory in sandbox.read")
        return "; ".join(parts)

    def terminate(self) -> None:
        """Begin to end it: a container can be asked by its stdin only, which is closed by now."""
        if isinstance(self._container, Killable):
            self._container.kill()
        else:
            self._close_soon()

    async def aclose(self) -> None:
        """Kill it with all that it has started, and remove its container."""
        await to_the_end(self._close_soon())

    def _close_soon(self) -> asyncio.Task[None]:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        return self._closing

    async def _close(self) -> None:
        try:
            await self._stream.aclose()
            await self._container.aclose()
        finally:
            if self._way is not None:
                await self._way.aclose()
            if not self._ended.done():
                self._ended.cancel()
            await asyncio.wait({self._ended})

    async def _wait(self) -> int:
        self._end = await self._container.wait()
        code = self.exit_code
        assert code is not None
        return code


class _AttachedStream:
    """Any stream of a container, with ends that can be closed one by one; see `ServerStream`."""

    def __init__(self, inner: Stream) -> None:
        self._inner = inner
        self._over = asyncio.Event()
        self._is_closed = False
        self._closing: asyncio.Task[None] | None = None

    async def read(self) -> bytes:
        """Return the next bytes; b"" at the end, also where the stream is lost."""
        if self._over.is_set():
            return b""
        reading = asyncio.ensure_future(self._inner.read())
        ending = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({reading, ending}, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else b""
        except OSError:
            return b""
        finally:
            for task in (reading, ending):
                task.cancel()

    async def write(self, data: bytes) -> None:
        """Send all of *data*. Raises OSError when the server is gone."""
        self._check()
        await self._inner.write(data)

    def write_now(self, data: bytes) -> int:
        """Send as much as is taken at once. Raises OSError when the server is gone."""
        self._check()
        return self._inner.write_now(data) if isinstance(self._inner, QuickStream) else 0

    def end_reading(self) -> None:
        """Have `read` return b"" from now on."""
        self._over.set()

    def close_writing(self) -> None:
        """Close the stream as a whole: an engine has no other way to let a server find the end of its input."""
        self._is_closed = True
        self.end_reading()
        if self._closing is None:
            self._closing = asyncio.create_task(self._inner.aclose())

    async def aclose(self) -> None:
        """Wait until it is closed, if that has begun; its container closes it otherwise."""
        if self._closing is not None:
            await asyncio.wait({self._closing})

    def _check(self) -> None:
        if self._is_closed:
            raise BrokenPipeError("the stream is closed")
