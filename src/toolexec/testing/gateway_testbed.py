"""The test bed of the gateway suite: tools that record their calls, and gateways to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from toolexec.backend.local import LocalBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.code.gateway import Gateway
from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.discovery.docs import DocEntry, DocStore, InMemoryDocStore
from toolexec.discovery.examples import ToolExample
from toolexec.discovery.index import Index
from toolexec.discovery.memory import InMemoryIndex
from toolexec.model.binding import LocalBinding
from toolexec.model.declare import declare
from toolexec.run.runner import DefaultRunner, Runner

PATIENCE: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayParts:
    """The parts of a gateway under test: the tools, and what the code may do with them."""

    index: Index
    docs: DocStore
    runner: Runner
    max_tool_calls: int = 0
    max_chain_steps: int = 0
    allowed: Sequence[str] | None = None

    def direct(self) -> Tools:
        """Make a gateway in this process with these parts, to be put behind the one under test."""
        limits = Limits(max_tool_calls=self.max_tool_calls, max_chain_steps=self.max_chain_steps)
        return Tools(self.index, self.docs, self.runner, limits=limits, allowed=self.allowed)


MakeGateway: TypeAlias = Callable[[GatewayParts], AbstractAsyncContextManager[Gateway]]
"""Makes the gateway to examine, and clears up after it."""


class GatewayTestbed:
    """The tools that the checks call, and gateways to them; each check gets a fresh one."""

    def __init__(self, make: MakeGateway) -> None:
        self.make = make
        self.calls: list[str] = []
        """The names of the tools whose handlers have begun."""
        self.stopped: list[str] = []
        """The names of the tools whose handlers were left early."""
        self.release: asyncio.Event = asyncio.Event()
        """Set it to let `meet` go on."""
        self.index: Index = InMemoryIndex()
        self.docs: InMemoryDocStore = InMemoryDocStore(self.index)
        self.backends: BackendRegistry = BackendRegistry()
        self._local = LocalBackend()
        self.backends.register(self._local)
        self.runner: Runner = DefaultRunner(self.index, self.backends)
        meta = {"category": "sums", "inputModes": ["text"], "securitySchemes": {"key": {}}}
        self.register(self.add, "suite", read_only=True, open_world=False, tags=["numbers"], meta=meta)
        for function in (self.echo, self.fail, self.wait, self.meet, self.grow, self.measure):
            self.register(function, "suite")
        self.register(self.secret, "vault")
        example = ToolExample(title="Two and three", args={"a": 2, "b": 3}, result_hint="5", id="e1")
        entry = DocEntry(summary="Adds two numbers.", notes="Exact.", examples=(example,), external_refs=("https://x",))
        self.docs.register_doc("suite:add", entry)

    def register(self, function: Callable[..., Any], namespace: str, **parts: Any) -> None:
        """Add one more tool; *parts* as `toolexec.tool` takes them."""
        declared = declare(function, f"{namespace}:{function.__name__}", **parts)
        self.index.register(declared.tool, LocalBinding(declared.tool.id))
        self._local.add(declared)

    def gateway(self, **limits: Any) -> AbstractAsyncContextManager[Gateway]:
        """Make a gateway to the tools; *limits* as in `GatewayParts`."""
        return self.make(GatewayParts(index=self.index, docs=self.docs, runner=self.runner, **limits))

    async def add(self, a: int, b: int = 1) -> int:
        """Add two numbers."""
        self.calls.append("add")
        await asyncio.sleep(0)
        return a + b

    async def echo(self, value: Any = None, previous: Any = None) -> Any:
        """Give the value back, or the one before."""
        self.calls.append("echo")
        return previous if value is None else value

    async def fail(self) -> None:
        """Raise a ValueError."""
        self.calls.append("fail")
        raise ValueError("this tool always fails")

    async def wait(self) -> None:
        """Wait for ever."""
        self.calls.append("wait")
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.append("wait")

    async def meet(self, number: int) -> int:
        """Wait to be released."""
        self.calls.append("meet")
        await self.release.wait()
        return number

    async def grow(self, size: int) -> str:
        """Return a string of that many characters."""
        self.calls.append("grow")
        return "x" * size

    async def measure(self, text: str) -> int:
        """Return the length of a string."""
        self.calls.append("measure")
        return len(text)

    async def secret(self) -> str:
        """Something that not all code may see."""
        self.calls.append("secret")
        return "xyzzy"

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for *condition*, at most 30 s."""
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - the other side has no event to give
                await asyncio.sleep(0.005)
