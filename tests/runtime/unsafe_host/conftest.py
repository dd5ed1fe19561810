"""A host with tools and an unsafe backend."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.tiers import missing

from toolexec import Exec, Tool
from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest, Output
from toolexec.runtime.unsafe_host.backend import UnsafeConfig, UnsafeHostBackend

OPTED_IN = {"unsafeOptIn": True}


class Host:
    """Tools, what they noticed, and a backend that code runs in."""

    def __init__(self) -> None:
        self.ex = Exec(default_timeout=60)
        self.backend = UnsafeHostBackend()
        self.active = 0
        self.most_active = 0
        self.cancelled = 0
        self.begun = asyncio.Event()
        number = {"type": "number"}
        adding = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}
        self.ex.add(Tool(name="add", namespace="math", input_schema=adding), handler=self.add)
        for name in ("meet", "wait", "fail", "large"):
            self.ex.add(Tool(name=name, namespace="test", input_schema={"type": "object"}), handler=getattr(self, name))

    async def add(self, args: dict[str, Any]) -> Any:
        """The sum."""
        return args["a"] + args["b"]

    async def meet(self, args: dict[str, Any]) -> int:
        """Wait until as many calls as `count` says are under way at the same time."""
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            for _ in range(1000):
                if self.most_active >= args["count"]:
                    return self.most_active
                await asyncio.sleep(0.01)
            return self.most_active
        finally:
            self.active -= 1

    async def wait(self, args: dict[str, Any]) -> None:
        """Take for ever."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def fail(self, args: dict[str, Any]) -> None:
        """Raise."""
        raise ValueError("no luck")

    async def large(self, args: dict[str, Any]) -> str:
        """A long text."""
        return "x" * args["size"]

    def request(self, code: str, **settings: Any) -> ExecuteRequest:
        """A request with tools of its own."""
        limits = settings.pop("limits", Limits())
        tools = Tools(
            self.ex.index, self.ex.docs, self.ex.runner, limits=limits, output=settings.pop("output", Output())
        )
        settings = {"timeout": 60.0, "metadata": OPTED_IN, **settings}
        return ExecuteRequest(code=code, gateway=tools, output=tools.output, limits=limits, **settings)

    async def run(self, code: str, **settings: Any) -> CodeResult:
        """Run a program and return its result."""
        return await self.backend.execute(self.request(code, **settings))

    async def value(self, code: str, **settings: Any) -> Any:
        """The value of a program that succeeds."""
        return (await self.run(code, **settings)).raise_for_error().value

    def use(self, **config: Any) -> None:
        """Have another backend, with *config*."""
        self.backend = UnsafeHostBackend(UnsafeConfig(**config))


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    """A host whose backend is closed in the end."""
    host = Host()
    yield host
    await host.backend.aclose()


@pytest.fixture
def go_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go, which must be on the PATH; compiled packages are kept where the user of this machine keeps them."""
    import shutil

    if shutil.which("go") is None:
        missing("go is not on the PATH", "bash .ci/run")
    monkeypatch.setenv("GOCACHE", os.environ.get("GOCACHE") or str(Path.home() / ".cache" / "go-build"))
