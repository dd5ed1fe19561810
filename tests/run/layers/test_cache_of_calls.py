"""Answers that came of other calls are not kept: what those calls answer is, by the rules for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from toolexec import Exec, Step, Tool, ToolAnnotations
from toolexec.backend import ProviderBackend
from toolexec.errors import BackendUnavailableError, PolicyError
from toolexec.model.origin import ApprovalRequest, Caller, Origin, acting
from toolexec.run.gate import Gate
from toolexec.run.layers import Cache, Fallback
from toolexec.run.layers.approval import Approval
from toolexec.run.policy import Policy, Rule

READS = ToolAnnotations(read_only=True)
ANY = {"type": "object"}
SKILL = """+++
name = "count"
description = "Counts what is there."
+++
return run("shop:stock")
"""


class Shop:
    """A server with a stock that a call changes, and tools that read it by calling its tool."""

    def __init__(self, **parts: Any) -> None:
        self.stock = 3
        self.reads = 0
        self.is_down = False
        parts = {"policy": Policy(default="allow", remote_destructive="allow"), "cache": Cache()} | parts
        self.ex = Exec(gate=Gate(**parts))
        for server in ("shop", "branch"):
            tools = [Tool(name="stock", namespace=server, input_schema=ANY, annotations=READS)]
            tools.append(Tool(name="buy", namespace=server, input_schema=ANY))
            self.ex.add_backends(ProviderBackend(server, self._answering(server), tools=tools))
        self.ex.add_skill(SKILL)
        self.ex.add(Tool(name="tool", namespace="own", input_schema=ANY, annotations=READS), handler=self._call)
        self.ex.add(Tool(name="thread", namespace="own", input_schema=ANY, annotations=READS), handler=self._call_sync)
        self.ex.add(Tool(name="code", namespace="own", input_schema=ANY, annotations=READS), handler=self._code)

    def _answering(self, server: str) -> Callable[[str, Any], Awaitable[int]]:
        async def answer(name: str, args: Any) -> int:
            await asyncio.sleep(0)
            if server == "shop" and self.is_down:
                raise BackendUnavailableError("down")
            self.stock -= name == "buy"
            self.reads += name == "stock"
            return self.stock

        return answer

    async def _call(self, args: Any) -> Any:
        return (await self.ex.run_tool("shop:stock")).raise_for_error().value

    def _call_sync(self, args: Any) -> Any:
        return self.ex.sync.run_tool("shop:stock").raise_for_error().value

    async def _code(self, args: Any) -> Any:
        return (await self.ex.execute_code("return tools.shop.stock()")).value


async def once(ex: Exec, tool: str) -> Any:
    """Return what a tool answers when it is called alone."""
    return (await ex.run_tool(tool)).raise_for_error().value


async def in_a_chain(ex: Exec, tool: str) -> Any:
    """Return what it answers as a step."""
    return (await ex.run_chain([Step(tool)])).value


async def in_code(ex: Exec, tool: str) -> Any:
    """Return what it answers to a program."""
    return (await ex.execute_code(f"return tools.run({tool!r})")).value


async def in_a_stream(ex: Exec, tool: str) -> Any:
    """Return what a stream ends with."""
    return [event.data async for event in ex.stream_tool(tool, fallback=True)][-1]


@pytest.mark.parametrize("read", [once, in_a_chain, in_code, in_a_stream])
@pytest.mark.parametrize("tool", ["shop:stock", "skill:count", "own:tool", "own:thread", "own:code"])
async def test_a_write_ends_what_was_read_before_by_any_path(tool: str, read: Any) -> None:
    """After a write, no path gives what was there before; without one, the server is asked once."""
    shop = Shop()
    async with shop.ex as ex:
        assert [await read(ex, tool), await read(ex, tool)] == [3, 3]
        assert shop.reads == (2 if (tool, read) == ("shop:stock", in_a_stream) else 1)
        await ex.run_tool("shop:buy")
        assert await read(ex, tool) == shop.stock == 2


@pytest.mark.parametrize("tool", ["shop:stock", "skill:count", "own:tool"])
async def test_what_must_not_be_kept_is_not_kept_in_what_it_became(tool: str) -> None:
    """A rule of 0 seconds for a tool holds for what others make of its answers."""
    shop = Shop(cache=Cache(rules={"shop:*": 0}))
    async with shop.ex as ex:
        assert await once(ex, tool) == 3
        shop.stock = 7
        assert await once(ex, tool) == 7


@pytest.mark.parametrize("tool", ["shop:stock", "skill:count", "own:tool"])
async def test_each_call_is_asked_about(tool: str) -> None:
    """An approval for one call is not one for the next, by whatever tool the call is made."""
    asked: list[str] = []

    def ask(request: ApprovalRequest) -> Any:
        asked.append(request.tool_id)
        return "once" if len(asked) == 1 else "no"

    policy = Policy([Rule("ask", tools="shop:stock")], default="allow", remote_destructive="allow")
    shop = Shop(policy=policy, approval=Approval(policy.decide, ask=ask))
    async with shop.ex as ex:
        assert await once(ex, tool) == 3
        with pytest.raises(Exception, match="approv"):
            await once(ex, tool)
    assert asked == ["shop:stock"] * 2


async def test_callers_at_the_same_time_are_each_decided_on() -> None:
    """Where callers share answers, one that must not call a tool gets none that another's skill made of it."""
    policy = Policy([Rule("deny", tools="shop:stock", callers="guest")], default="allow", remote_destructive="allow")
    shop = Shop(policy=policy, cache=Cache(identity="none"))

    async def count(caller: str) -> Any:
        with acting(Origin(caller=Caller(id=caller))):
            return await shop.ex.run_tool("skill:count")

    async with shop.ex:
        ann, guest = await asyncio.gather(count("ann"), count("guest"))
        assert ann.value == 3
        assert guest.value is None
        assert guest.error is not None


@pytest.mark.parametrize("read", [once, in_a_chain, in_code])
async def test_the_answer_of_a_fallback_is_not_kept_for_the_tool(read: Any) -> None:
    """A write to the server that stood in ends what was read there, and a rule about it is kept."""
    shop = Shop(fallback=Fallback({"shop:*": ["branch:*"]}))
    async with shop.ex as ex:
        shop.is_down = True
        assert await read(ex, "shop:stock") == 3
        await ex.run_tool("branch:buy")
        assert await read(ex, "shop:stock") == 2


async def test_callers_of_a_fallback_are_each_decided_on() -> None:
    """Where callers share answers, one that must not call the tool that stands in gets nothing of it."""
    policy = Policy([Rule("deny", tools="branch:stock", callers="guest")], default="allow", remote_destructive="allow")
    shop = Shop(policy=policy, cache=Cache(identity="none"), fallback=Fallback({"shop:*": ["branch:*"]}))

    async def read(caller: str) -> Any:
        with acting(Origin(caller=Caller(id=caller))):
            return await shop.ex.run_tool("shop:stock")

    async with shop.ex:
        shop.is_down = True
        answers = await asyncio.gather(read("ann"), read("guest"), return_exceptions=True)
        assert answers[0].value == 3  # type: ignore[union-attr]
        assert isinstance(answers[1], BackendUnavailableError | PolicyError)
