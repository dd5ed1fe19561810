"""What a hostile program may try to reach, watched: canaries of every kind on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from toolexec.backend.local import LocalBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.discovery.docs import InMemoryDocStore
from toolexec.discovery.memory import InMemoryIndex
from toolexec.model.binding import LocalBinding
from toolexec.model.declare import declare
from toolexec.run.runner import DefaultRunner

_CANARY = "import os, time\nos.close(1)\ntime.sleep(3600)"


class Site:
    """The canaries of one battery, as `async with`.

    A directory with a secret file in the host's temporary directory, a secret in the host's environment, a process with
    a secret in its command line and environment, a TCP and a UDP port on loopback, and a forbidden tool with a secret
    in its description. `secrets` are the random strings by what they reveal: none may ever come out of a sandbox.
    """

    def __init__(self) -> None:
        kinds = ("file", "environment", "process", "tool")
        self.secrets: dict[str, str] = {kind: f"{kind}-{secrets.token_hex(16)}" for kind in kinds}
        self.forbidden_calls = 0
        self.calls: int = 0
        """Calls of the allowed tools; the battery watches that there are none after the end of a run."""
        self._visits: list[str] = []
        self._beats: dict[str, float] = {}
        self._ending = False
        self._token = secrets.token_hex(8)
        self._variable = f"TOOLEXEC_ESCAPE_{secrets.token_hex(4).upper()}"
        self._own_tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="toolexec-escape-"))
        self._canary = self._directory / "canary.txt"
        self._canary.write_text(self.secrets["file"], "utf-8")
        os.environ[self._variable] = self.secrets["environment"]
        await asyncio.to_thread(self._start_process)
        self._server = await asyncio.start_server(self._visited, "127.0.0.1", 0)
        self._port: int = self._server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        self._udp, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(self._visits), local_addr=("127.0.0.1", self._port)
        )
        self._prepare_tools()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = True
        self._udp.close()
        self._server.close()
        for task in [*self._own_tasks]:
            task.cancel()
        await self._server.wait_closed()
        os.environ.pop(self._variable, None)
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)
        await self._backends.stop_all()

    def _start_process(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own few lines
            [sys.executable, "-I", "-c", _CANARY, self.secrets["process"]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            stdout.read()  # it is up, with its command line in place

    @property
    def facts(self) -> dict[str, str]:
        """The facts about the host that a program receives, by the placeholder in its code."""
        return {
            "PORT": str(self._port),
            "DIRECTORY": str(self._directory),
            "CANARY": str(self._canary),
            "VARIABLE": self._variable,
            "CHILD": str(self._process.pid),
            "HOST": str(os.getpid()),
            "HOME": str(Path.home()),
            "TOKEN": self._token,
        }

    def fill_in(self, program: str) -> str:
        """Return a program with the facts filled in."""
        for name, fact in self.facts.items():
            program = program.replace(f"@{name}@", fact)
        return program

    def tools(self, limits: Limits, allowed: Sequence[str] | None) -> Tools:
        """Return the gateway of one run."""
        return Tools(self._index, InMemoryDocStore(self._index), self._runner, limits=limits, allowed=allowed)

    # -- what was seen ------------------------------------------------------------------------------------------

    def betrayed(self, said: str) -> list[str]:
        """Return which facts about the host a string reveals, each a sentence."""
        seen = [f"it got hold of the {kind} secret" for kind, secret in self.secrets.items() if secret in said]
        seen += [f"it looked at the host's own {path}" for mark, path in self._marks().items() if mark in said]
        return seen

    def _marks(self) -> dict[str, str]:
        """By what `os.stat` says about them: places of this very machine. A sandbox may have others of that name."""
        found: dict[str, str] = {}
        for path in (Path.home(), Path("/etc/passwd"), self._directory, self._canary):
            with contextlib.suppress(OSError):
                about = path.stat()
                found[f"<{about.st_dev} {about.st_ino} {about.st_mtime_ns}>"] = str(path)
        return found

    async def inspect(self) -> list[str]:
        """Return what happened to the canaries since the last look, each a sentence; they are set up again."""
        seen = [f"it connected to the host: {visit[:100]!r}" for visit in self._visits]
        self._visits.clear()
        names = sorted(path.name for path in self._directory.iterdir()) if self._directory.is_dir() else []
        intact = names == ["canary.txt"] and not self._canary.is_symlink()
        if not intact or self._canary.read_text("utf-8", "replace") != self.secrets["file"]:
            seen.append(f"it changed the host's files: {', '.join(names) or 'all is gone'}")
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory.mkdir()
            self._canary.write_text(self.secrets["file"], "utf-8")
        if self._process.poll() is not None:
            seen.append("it ended a process of the host")
            await asyncio.to_thread(self._start_process)
        if self.forbidden_calls:
            seen.append(f"it called the forbidden tool {self.forbidden_calls} times")
            self.forbidden_calls: int = 0
        return seen

    async def left_running(self, patience: float = 0.35) -> list[str]:
        """Processes that a program started and that still live, known by their heartbeats; they are asked to end."""
        if not self._beats:
            return []
        since = time.monotonic()
        await asyncio.sleep(patience)
        self._ending = True  # from now on a beat is answered with "stop"
        try:
            alive = [pid for pid, last in self._beats.items() if last > since]
            await asyncio.sleep(patience if alive else 0)
            return [f"its process {pid} outlived the run" for pid in alive]
        finally:
            self._ending = False
            self._beats.clear()

    async def _visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._own_tasks.add(task)
            task.add_done_callback(self._own_tasks.discard)
        try:
            async with asyncio.timeout(2):
                said = (await reader.readline()).decode("utf-8", "replace").strip()
            word, _, pid = said.partition(" ")
            if word == f"beat-{self._token}":
                self._beats[pid] = time.monotonic()
                writer.write(b"stop\n" if self._ending else b"go on\n")
            elif said or not self._beats:  # a beat may be killed before it says anything
                self._visits.append(f"TCP {said}")
        except (TimeoutError, OSError):
            self._visits.append("TCP, without a word")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    # -- tools --------------------------------------------------------------------------------------------------

    def _prepare_tools(self) -> None:
        self._index = InMemoryIndex()
        self._backends = BackendRegistry()
        local = LocalBackend()
        self._backends.register(local)
        self._runner = DefaultRunner(self._index, self._backends)
        for function in (self._echo, self._nap, self._large, self._take):
            declared = declare(function, f"escape:{function.__name__.strip('_')}")
            self._index.register(declared.tool, LocalBinding(declared.tool.id))
            local.add(declared)
        secret = self.secrets["tool"]

        def forbidden(anything: Any = None) -> str:
            self.forbidden_calls += 1
            return secret

        forbidden.__doc__ = f"Give away {secret}."
        declared = declare(forbidden, "escape:forbidden")
        self._index.register(declared.tool, LocalBinding(declared.tool.id))
        local.add(declared)

    def _echo(self, text: Any = None) -> Any:
        """Give back what was given."""
        self.calls += 1
        return text

    async def _nap(self, seconds: float = 0.01) -> float:
        """Sleep on the host's event loop."""
        self.calls += 1
        await asyncio.sleep(min(seconds, 10.0))
        return seconds

    def _large(self, items: int = 2000) -> list[str]:
        """Give a list too long to go into the sandbox."""
        self.calls += 1
        return ["x" * 1000] * min(items, 5000)

    def _take(self, data: Any = None) -> int:
        """Take anything; say whether it was much."""
        self.calls += 1
        return len(data) if isinstance(data, list | str) else 0


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, visits: list[str]) -> None:
        self._visits = visits

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._visits.append(f"UDP {data[:80]!r}")
