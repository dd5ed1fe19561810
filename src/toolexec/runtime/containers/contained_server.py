"""One MCP server in its container: its streams, its end, and what its sandbox says of that."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

from toolexec.backend.mcp.sandbox import ServerSandboxSettings, ServerStream
from toolexec.process.settling import to_the_end
from toolexec.process.stream import Pipes, QuickStream, Stream
from toolexec.runtime.containers.engine import Container, Exit, Killable
from toolexec.runtime.containers.launcher import ChildContainer

if TYPE_CHECKING:
    from toolexec.runtime.containers.way_out import WayOut

_KILLED: Final = 128 + 9
_REFUSED_SHOWN: Final = 5
_NO_NETWORK: Final = re.compile(
    r"ENETUNREACH|EAI_AGAIN|ENOTFOUND|EAI_NONAME|Network is unreachable|[Nn]ame resolution|[Nn]ame or service not known"
    r"|[Cc]ould not resolve|getaddrinfo|nodename nor servname|dns error|failed to lookup address"
)
_NO_FILE: Final = re.compile(
    r"execvp \S+: No such file|cannot be started: No such file|error while loading shared libraries|No module named"
    r"|Cannot find (module|package)|MODULE_NOT_FOUND"
)


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
        said, is_over_host = self._container.said(), self._settings.is_over_host
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
