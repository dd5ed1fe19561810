"""One sandbox with the tools that the programs of the suite call."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Final

from toolexec.backend.local import LocalBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.discovery.docs import InMemoryDocStore
from toolexec.discovery.memory import InMemoryIndex
from toolexec.model.binding import LocalBinding
from toolexec.model.declare import declare
from toolexec.run.runner import DefaultRunner
from toolexec.runtime.base import SandboxBackend
from toolexec.testing.sandbox_snippets import PYTHON, Snippets

PATIENCE: Final = 60.0
_HOLD_SECONDS: Final = 30.0


class SandboxTestbed:
    """One sandbox with the tools that the programs call; each check gets a fresh one."""

    def __init__(self, backend: SandboxBackend, snippets: Snippets = PYTHON) -> None:
        self.backend = backend
        self.snippets = snippets
        self.gate: asyncio.Event = asyncio.Event()
        """Set it to let suite:gate answer."""
        self.begun: asyncio.Event = asyncio.Event()
        """Set once suite:wait, suite:gate or suite:hold waits."""
        self.stopped: list[str] = []
        """The names of the tools that were left early."""
        self.waits: int = 0
        """How many calls of suite:wait have begun."""
        self.release: threading.Event = threading.Event()
        """Set it to let suite:hold go."""
        self._loop = asyncio.get_running_loop()
        self._met: list[asyncio.Future[int]] = []
        self._index = InMemoryIndex()
        self._backends = BackendRegistry()
        local = LocalBackend()
        self._backends.register(local)
        for function in (self._add, self._slow, self._fail, self._meet, self._wait, self._hold, self._gate):
            declared = declare(function, f"suite:{function.__name__.strip('_')}")
            self._index.register(declared.tool, LocalBinding(declared.tool.id))
            local.add(declared)

    def tools(self, *, limits: Limits | None = None, allowed: tuple[str, ...] | None = None) -> Tools:
        """Return the gateway of one run."""
        runner = DefaultRunner(self._index, self._backends)
        return Tools(self._index, InMemoryDocStore(self._index), runner, limits=limits, allowed=allowed)

    def request(self, code: str, tools: Tools | None = None, **fields: Any) -> ExecuteRequest:
        """Return a request as the router passes it."""
        unsafe = self.backend.isolation in ("none", "process")
        defaults: dict[str, Any] = {
            "language": self.snippets.language,
            "profile": "dev" if unsafe else "standard",
            "metadata": {"unsafeOptIn": True} if unsafe else {},
            "timeout": 30.0,
        }
        return ExecuteRequest(code=code, gateway=tools or self.tools(), **{**defaults, **fields})

    async def run(self, code: str, tools: Tools | None = None, **fields: Any) -> CodeResult:
        """Run a program; one that hangs fails the check."""
        return await asyncio.wait_for(self.backend.execute(self.request(code, tools, **fields)), PATIENCE)

    async def aclose(self) -> None:
        """End what the tools hold."""
        self.release.set()
        self.gate.set()
        await self._backends.stop_all()

    def _add(self, a: int, b: int = 0) -> int:
        """Add two numbers."""
        return a + b

    async def _slow(self, a: int = 0) -> int:
        """Give a number, some turns of the event loop later."""
        await asyncio.sleep(0.01)
        return a

    async def _fail(self) -> None:
        """Always fail."""
        raise ValueError("this tool always fails")

    async def _meet(self, guests: int) -> int:
        """Wait until so many calls are under way."""
        self._met.append(self._loop.create_future())
        if len(self._met) >= guests:
            for place in self._met:
                if not place.done():
                    place.set_result(1)
        return await self._met[-1]

    async def _wait(self) -> None:
        """Wait for ever."""
        self.waits += 1
        await self._until("wait", asyncio.Event())

    async def _gate(self) -> None:
        """Wait until the check opens the gate."""
        await self._until("gate", self.gate)

    async def _until(self, name: str, event: asyncio.Event) -> None:
        self.begun.set()
        try:
            await event.wait()
        except asyncio.CancelledError:
            self.stopped.append(name)
            raise

    def _hold(self) -> None:
        """Block a thread."""
        self._loop.call_soon_threadsafe(self.begun.set)
        self.release.wait(_HOLD_SECONDS)
