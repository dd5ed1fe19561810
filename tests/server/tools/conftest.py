"""A counter over which the server's own tools are used: every reply is checked against its output schema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from toolexec import Exec, Progress, Tool, ToolContext, ToolReply, tool
from toolexec.errors import ToolExecError
from toolexec.model.content import audio, image, resource_link, text
from toolexec.model.json_value import to_json
from toolexec.model.origin import HERE, acting
from toolexec.model.schema import Schema
from toolexec.run.results import ResultStore
from toolexec.server.tools.base import MetaCall, MetaReply, MetaTool
from toolexec.server.tools.errors import error_reply

LONG = 60.0


class Counter:
    """Asks the server's tools as a server does."""

    def __init__(self, **settings: Any) -> None:
        self.ex = Exec(**({"default_timeout": LONG} | settings))
        self.results = ResultStore()
        self.origin = replace(HERE, client="test", session="s1")
        self.progress: list[Progress] = []

    async def ask(self, meta: MetaTool, _args: Mapping[str, Any] | None = None, **args: Any) -> MetaReply:
        """The reply, which fits the tool's output schema (an error need not, where that has no place for one)."""
        arguments = {**(_args or {}), **args}
        takes, gives = Schema.of(dict(meta.input_schema)).guard(), Schema.of(dict(meta.output_schema)).guard()
        assert takes.accepts(arguments), takes.violations(arguments)
        call = MetaCall(
            ex=self.ex,
            args=arguments,
            origin=self.origin,
            results=self.results,
            on_progress=self.progress.append,
        )
        with acting(self.origin):
            try:
                reply = await meta.handle(call)
            except ToolExecError as error:
                reply = error_reply(error)
                assert to_json(dict(reply.value)) == dict(reply.value)
                return reply
        assert gives.accepts(dict(reply.value)), gives.violations(dict(reply.value))
        assert to_json(reply.content) == reply.content
        assert reply.is_error == ("error" in reply.value)
        return reply

    async def value(self, meta: MetaTool, _args: Mapping[str, Any] | None = None, **args: Any) -> Any:
        """The value of a reply that reports no error."""
        reply = await self.ask(meta, _args, **args)
        assert not reply.is_error, reply.value
        return reply.value

    async def error(self, meta: MetaTool, _args: Mapping[str, Any] | None = None, **args: Any) -> Any:
        """The error in a reply."""
        reply = await self.ask(meta, _args, **args)
        assert reply.is_error, reply.value
        return reply.value["error"]


def refuses(meta: MetaTool, **args: Any) -> bool:
    """Return whether the tool's input schema refuses these arguments."""
    return not Schema.of(dict(meta.input_schema)).accepts(args)


def size(value: Any) -> int:
    """Return how many bytes of compact JSON that is."""
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


@pytest.fixture
async def counter() -> AsyncIterator[Counter]:
    """A counter with tools of every kind."""
    counter = Counter()
    stock(counter.ex)
    yield counter
    await counter.ex.aclose()


def stock(ex: Exec) -> None:
    """Tools that nest, fail, return null, images and big values, take long, and report progress."""

    @tool("shop:order", tags=["write"])
    def order(item: str, count: int = 1, options: dict[str, list[int]] | None = None) -> dict[str, Any]:
        """Order something.

        Args:
            item: What to order.
        """
        return {"item": item, "count": count, "options": options or {}}

    @tool("shop:nothing", read_only=True)
    def nothing() -> None:
        """Give nothing at all."""

    @tool("shop:greet", read_only=True)
    def greet(name: str) -> str:
        """Say hello."""
        return f"hello {name}"

    @tool("shop:fail")
    def fail(why: str = "no") -> str:
        """Fail always."""
        raise ValueError(why)

    @tool("shop:many", read_only=True)
    def many(count: int) -> list[dict[str, Any]]:
        """Give many rows."""
        return [{"id": number, "title": f"row {number}"} for number in range(count)]

    @tool("shop:slow")
    async def slow() -> str:
        """Take very long."""
        await asyncio.sleep(LONG)
        return "late"

    @tool("shop:steps")
    async def steps(count: int, ctx: ToolContext) -> int:
        """Report progress."""
        for number in range(count):
            ctx.report(number + 1, count, f"step {number + 1}")
        return count

    @tool("media:draw")
    def draw() -> ToolReply:
        """Draw."""
        parts = [text("a dot"), image(b"\x89PNG"), audio(b"RIFF"), resource_link("file:///a", "a")]
        return ToolReply(content=parts)

    @tool("media:broken")
    def broken() -> ToolReply:
        """Fail with an image."""
        return ToolReply(content=[text("no ink"), image(b"\x89PNG")], is_error=True)

    @tool("media:both")
    def both(words: str, same: bool = False) -> ToolReply:
        """Give a structured value with words beside it."""
        told = json.dumps({"n": 1}) if same else words
        return ToolReply(content=[text(told)], structured={"n": 1}, has_structured=True)

    for one in (order, nothing, greet, fail, many, slow, steps, draw, broken, both):
        ex.add(one)
    ex.add(Tool(name="anything", input_schema={"type": "object"}), handler=lambda args: args)
