"""A kitchen: an Exec with tools for chains."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolexec import ChainResult, Exec, Step, Tool, ToolAnnotations
from toolexec.errors import ToolTimeoutError

ANY = {"type": "object"}
LONG = 60.0


class Kitchen:
    """An Exec with tools that note how they are called."""

    def __init__(self) -> None:
        self.ex = Exec(default_timeout=LONG)
        self.calls: list[Any] = []
        self.failures = 0
        for name in ("echo", "fail", "size"):
            self.ex.add(Tool(name=name, input_schema=ANY), handler=getattr(self, name))
        for name, hints in (
            ("flaky", ToolAnnotations(idempotent=True)),
            ("peek", ToolAnnotations(read_only=True)),
            ("wipe", ToolAnnotations(idempotent=True, destructive=True)),
        ):
            self.ex.add(Tool(name=name, input_schema=ANY, annotations=hints), handler=self.flaky)

    async def echo(self, args: dict[str, Any]) -> Any:
        """Note and give back the arguments, or the value under `give`."""
        self.calls.append(dict(args))
        return args.get("give", args)

    async def size(self, args: dict[str, Any]) -> int:
        """The number of arguments."""
        self.calls.append(dict(args))
        return len(args)

    async def fail(self, args: dict[str, Any]) -> None:
        """Raise."""
        self.calls.append(dict(args))
        raise ValueError("no")

    async def flaky(self, args: dict[str, Any]) -> str:
        """Time out as often as `failures` says, then work."""
        self.calls.append(dict(args))
        if self.failures > 0:
            self.failures -= 1
            raise ToolTimeoutError("later perhaps")
        return "worked"

    async def run(self, *steps: Step, **settings: Any) -> ChainResult:
        """Run a chain."""
        return await self.ex.run_chain(steps, **settings)

    @staticmethod
    def give(value: Any, **parts: Any) -> Step:
        """A step whose value is *value*."""
        return Step(tool_id="echo", args={"give": {"$literal": value}}, **parts)


@pytest.fixture
async def kitchen() -> AsyncIterator[Kitchen]:
    """A kitchen that is closed afterwards."""
    kitchen = Kitchen()
    yield kitchen
    await kitchen.ex.aclose()
