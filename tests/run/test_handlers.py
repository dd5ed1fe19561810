"""A handler cannot harm anyone but its own call."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

import pytest

from toolexec.errors import HandlerError
from toolexec.model import Tool

ANY = {"type": "object"}


class TestHandlers:
    """A handler cannot harm anyone but its own call."""

    @pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), RecursionError(), TimeoutError("mine")])
    @pytest.mark.parametrize("kind", ["async", "sync"])
    async def test_it_may_raise_anything(self, workshop: Any, error: BaseException, kind: str) -> None:
        """Each is a failure with its cause; a TimeoutError of the handler is not a passed deadline."""

        async def fail_async(args: Any) -> None:
            raise error

        def fail_sync(args: Any) -> None:
            raise error

        workshop.add_tool(Tool(name="t", input_schema=ANY), fail_async if kind == "async" else fail_sync)
        result = await workshop.run("t")
        assert type(result.error) is HandlerError
        assert result.error.__cause__ is error
        assert result.error.code == "handler_failed"

    async def test_deep_recursion(self, workshop: Any) -> None:
        """A handler that recurses for ever fails alone."""

        def deeper(args: Any) -> Any:
            return deeper(args)

        workshop.add_tool(Tool(name="t", input_schema=ANY), deeper)
        result = await workshop.run("t")
        assert isinstance(result.error.__cause__, RecursionError)

    async def test_a_cancellation_from_inside(self, workshop: Any) -> None:
        """A handler that awaits something cancelled has failed; the call itself was not cancelled."""

        async def unlucky() -> None:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

        workshop.add(unlucky, "t")
        result = await workshop.run("t")
        assert isinstance(result.error, HandlerError)
        assert "cancelled from inside" in str(result.error)

    async def test_context_variables(self, workshop: Any) -> None:
        """An async handler shares the caller's context, as with a plain await."""
        variable = ContextVar("variable", default="unset")

        async def change(to: str) -> str:
            before = variable.get()
            variable.set(to)
            return before

        workshop.add(change, "t")
        variable.set("caller")
        assert (await workshop.run("t", {"to": "handler"})).value == "caller"
        assert variable.get() == "handler"

    async def test_the_callers_arguments_stay(self, workshop: Any) -> None:
        """A handler that changes its arguments changes a copy."""

        def greedy(args: dict[str, Any]) -> int:
            args.clear()
            return 0

        workshop.add_tool(Tool(name="t", input_schema=ANY), greedy)
        args = {"a": 1}
        await workshop.run("t", args)
        assert args == {"a": 1}

    async def test_results_are_the_callers_own(self, workshop: Any) -> None:
        """Two calls give two results; changing one changes nothing else."""

        async def fresh() -> list[int]:
            return [1]

        workshop.add(fresh, "t")
        first, second = await workshop.run("t"), await workshop.run("t")
        first.value.append(2)
        assert second.value == [1]
