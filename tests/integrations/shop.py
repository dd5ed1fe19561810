"""What the tests of integrations share: a shop with tools behind a gate, and a way to need a package."""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator
from typing import Any

from tests.tiers import missing

from toolexec import Exec, Tool, ToolReply, tool
from toolexec.errors import PolicyError
from toolexec.model.call import ToolCall
from toolexec.model.content import image, text
from toolexec.model.events import StreamEvent
from toolexec.run.gate import Gate
from toolexec.run.layers.budget import Budget
from toolexec.run.resolve import Find
from toolexec.run.results import ResultStore
from toolexec.run.runner import Runner
from toolexec.run.types import Result


def require(module: str, extra: str) -> Any:
    """The module; where its package is not installed the tests are skipped, in CI they fail."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        missing(f"{module} is not installed", f"pip install 'toolexec[{extra}]'")


class Guard:
    """A rule that refuses one tool, and remembers every call that came to it."""

    def __init__(self, refused: str = "shop:refund") -> None:
        self.refused = refused
        self.calls: list[ToolCall] = []

    def wrap(self, inner: Runner, find: Find) -> Runner:
        return _Guarded(inner, self)


class _Guarded:
    def __init__(self, inner: Runner, guard: Guard) -> None:
        self.inner = inner
        self.guard = guard

    async def run(self, call: ToolCall) -> Result:
        self.guard.calls.append(call)
        if call.tool_id == self.guard.refused:
            raise PolicyError("refunds are for people", tool_id=call.tool_id)
        return await self.inner.run(call)

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        return self.inner.stream(call)


@tool(namespace="shop", read_only=True)
async def price(item: str, currency: str = "EUR") -> dict[str, Any]:
    """Tells the price of an item.

    Args:
        item: what to buy
    """
    return {"item": item, "price": 3, "currency": currency}


@tool(namespace="shop", destructive=True)
async def refund(order: int) -> str:
    """Gives the money of an order back."""
    return f"refunded {order}"


@tool(namespace="shop")
async def broken() -> None:
    """Always fails."""
    raise ValueError("the till is stuck")


@tool(namespace="shop")
async def photo(item: str) -> ToolReply:
    """Shows a picture of an item."""
    return ToolReply(content=[text(f"a {item}"), image(b"\x89PNG")])


@tool(namespace="stock")
async def everything() -> list[dict[str, Any]]:
    """Lists all that there is."""
    return [{"id": number, "name": f"thing {number}"} for number in range(500)]


ODD = Tool(
    name="odd.names",
    namespace="stock",
    description="Takes arguments with names that mean something elsewhere.",
    input_schema={"type": "object", "properties": {"self": {}, "config": {}, "run_manager": {}, "callbacks": {}}},
)


def make_shop(guard: Guard | None = None, *, max_bytes: int = 0, **options: Any) -> Exec:
    """An Exec with tools behind a guard, and behind a budget if there are *max_bytes*."""
    budget = Budget(ResultStore(max_bytes)) if max_bytes else None
    ex = Exec(gate=Gate(policy=guard or Guard(), budget=budget), **options)
    for function in (price, refund, broken, photo, everything):
        ex.add(function)
    ex.add(ODD, handler=lambda args: args)
    return ex
