"""A running container: its processes are a runtime's, its output is copied to a log and to those who are attached."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from packages.kubernetes.tests.kube.linux import (
    Pump,
    input_pipe,
    kill_cgroup,
    oom_kills,
    remove_cgroups,
    spawn,
    unmount,
    wait_pid,
)
from packages.kubernetes.tests.kube.objects import Object, now_micro
from tests.waiting import until

STDOUT, STDERR = 1, 2
_LOG_BYTES = 10 << 20
_HANDLERS = {
    "runc": ["runc"],
    "runsc": ["runsc", "--platform=systrap", "--network=none", "--overlay2=none", "--host-uds=none"],
}
Sink = Callable[[int, bytes], Awaitable[None]]
"""Takes a channel (1 for stdout, 2 for stderr) and what was written to it."""


class StartError(Exception):
    """The runtime could not start the container."""


class Log:
    """What a container has written, in pieces with their times, and the last 10 MiB of them."""

    def __init__(self) -> None:
        self.pieces: list[tuple[str, bytes]] = []
        self.size = 0
        self.is_complete = False
        self._changed = asyncio.Event()

    def add(self, data: bytes) -> None:
        """Append what was written now."""
        self.pieces.append((now_micro(), data))
        self.size += len(data)
        while self.size > _LOG_BYTES and len(self.pieces) > 1:
            self.size -= len(self.pieces.pop(0)[1])
        self._wake()

    def complete(self) -> None:
        """Record that nothing more comes."""
        self.is_complete = True
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait for the next change."""
        await self._changed.wait()

    def lines(self) -> list[tuple[str, bytes]]:
        """Return all lines, with the time of their first byte; the last one may be without its end."""
        found: list[tuple[str, bytes]] = []
        rest, begun = b"", ""
        for time, data in self.pieces:
            begun = begun if rest else time
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                found.append((begun, line + b"\n"))
                begun = time
        if rest:
            found.append((begun, rest))
        return found


class RunningContainer:
    """One container in runc, or in gVisor for the handler `runsc`. `directory` has its bundle, and everything else that goes with `remove`."""

    def __init__(self, id: str, directory: Path, cgroup: str, state: Path, *, handler: str = "runc") -> None:
        self.id = id
        self.directory = directory
        self.cgroup = cgroup
        self.log = Log()
        self.stdin: asyncio.StreamWriter | None = None
        self.pid = 0
        self.is_oom = False
        self.exit_code: int | None = None
        self.ended = asyncio.Event()
        self._is_gvisor = handler == "runsc"
        self._runtime = [*_HANDLERS[handler], f"--root={state}", f"--log={directory}/runtime.log", "--log-format=json"]
        self._sinks: set[Sink] = set()
        self._starting: asyncio.Future[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._process: Object = {}

    async def start(self, config: Object, *, stdin: bool) -> None:
        """Start it by *config*; raises StartError with what the runtime says. A start that is cancelled goes on to its end."""
        self._starting = asyncio.ensure_future(self._start(config, stdin=stdin))
        await asyncio.shield(self._starting)

    async def _start(self, config: Object, *, stdin: bool) -> None:
        (self.directory / "config.json").write_text(json.dumps(config))
        self._process = config["process"]
        source = os.open("/dev/null", os.O_RDONLY)
        if stdin:
            os.close(source)
            source, self.stdin = await input_pipe()
        out, err = os.pipe(), os.pipe()
        pidfile = self.directory / "pid"
        # What a detached runsc leaves is more than one process, and they are its own to wait for.
        detached = [] if self._is_gvisor else ["--detach"]
        words = ["run", *detached, f"--bundle={self.directory}", f"--pid-file={pidfile}", self.id]
        try:
            child = spawn([*self._runtime, *words], source, out[1], err[1])
        finally:
            for descriptor in (source, out[1], err[1]):
                os.close(descriptor)
        pumps = [
            asyncio.create_task(Pump(descriptor, lambda data, channel=channel: self._output(channel, data)).run())
            for channel, descriptor in ((STDOUT, out[0]), (STDERR, err[0]))
        ]
        starting = asyncio.create_task(wait_pid(child))
        if self._is_gvisor:
            await until(lambda: starting.done() or pidfile.exists())
        if not pidfile.exists() and await starting:
            await asyncio.gather(*pumps)
            self._close_stdin()
            raise StartError(self._failure())
        if self._is_gvisor:
            self.pid, ended = child, starting
        else:
            await starting
            self.pid = int(pidfile.read_text())
            ended = asyncio.create_task(wait_pid(self.pid))
        self._watching = asyncio.create_task(self._watch(ended, pumps))

    def _failure(self) -> str:
        """Return the last error of the runtime's log."""
        with suppress(OSError, ValueError, IndexError):
            return json.loads((self.directory / "runtime.log").read_text().splitlines()[-1])["msg"]
        return "the runtime failed without a word"

    async def _output(self, channel: int, data: bytes) -> None:
        self.log.add(data)
        for sink in [*self._sinks]:
            try:
                await sink(channel, data)
            except Exception:
                self._sinks.discard(sink)

    async def _watch(self, ended: asyncio.Task[int], pumps: list[asyncio.Task[None]]) -> None:
        code = await ended
        await asyncio.gather(*pumps)
        self.is_oom = oom_kills(self.cgroup) > 0
        self.exit_code = code
        self.log.complete()
        self._close_stdin()
        self.ended.set()

    def _close_stdin(self) -> None:
        if self.stdin is not None:
            self.stdin.close()

    async def attach(self, sink: Sink) -> None:
        """Copy what it writes from now on to *sink*, until its end, or until the sink raises or is cancelled."""
        self._sinks.add(sink)
        try:
            await self.ended.wait()
        finally:
            self._sinks.discard(sink)

    async def write(self, data: bytes) -> None:
        """Write to its stdin; what comes after its end is lost."""
        if self.stdin is not None and not self.stdin.is_closing():
            with suppress(ConnectionError):
                self.stdin.write(data)
                await self.stdin.drain()

    async def exec(self, args: list[str], sink: Sink, stdin: int | None) -> int:
        """Run another process in it, and return its exit code; *stdin* is a descriptor that is closed here."""
        process = {**self._process, "args": args}
        file = self.directory / f"exec-{os.urandom(4).hex()}.json"
        file.write_text(json.dumps(process))
        source = os.open("/dev/null", os.O_RDONLY) if stdin is None else stdin
        out, err = os.pipe(), os.pipe()
        try:
            child = spawn([*self._runtime, "exec", f"--process={file}", self.id], source, out[1], err[1])
        finally:
            for descriptor in (source, out[1], err[1]):
                os.close(descriptor)
        pumps = [
            Pump(descriptor, lambda data, channel=channel: sink(channel, data)).run()
            for channel, descriptor in ((STDOUT, out[0]), (STDERR, err[0]))
        ]
        waiting = asyncio.create_task(wait_pid(child))
        try:
            await asyncio.gather(*pumps)
        finally:
            file.unlink(missing_ok=True)
        return await waiting

    async def kill(self, grace: float) -> None:
        """Ask it to end, and kill it after *grace* seconds; returns when it has."""
        if self._starting is not None:
            with suppress(StartError):
                await asyncio.shield(self._starting)
        if not self.pid or self.ended.is_set():
            return
        if grace > 0:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), grace)
                return
        if self._is_gvisor:
            kill_cgroup(self.cgroup)
        with suppress(ProcessLookupError):
            if not self.ended.is_set():
                os.kill(self.pid, signal.SIGKILL)
        await self.ended.wait()

    async def remove(self, state: Path) -> None:
        """Remove what is left of it: the runtime's state, its control groups, its root."""
        await self.kill(0)
        if self._watching is not None:
            await self._watching
        await asyncio.to_thread(self._clear, state)

    def _clear(self, state: Path) -> None:
        remove_cgroups(self.cgroup)
        unmount(self.directory / "root")
        shutil.rmtree(state / self.id, ignore_errors=True)
        for file in state.glob(f"{self.id}_sandbox:*"):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)
