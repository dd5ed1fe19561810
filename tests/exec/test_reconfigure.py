"""Options that come after the Exec: from a configuration file, for the Exec of a Python file."""

import pytest

from toolexec import ConfigurationError, Exec, Gate, InMemoryIndex, Policy, Rule, ToolTimeoutError, tool
from toolexec.errors import PolicyError

DENIED = Gate(policy=Policy([Rule("deny", tools=["math:add"])]))


@tool("math:add")
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


async def test_a_gate_comes_later() -> None:
    """Calls of every kind pass the new gate, also those that a tool makes with the same Exec."""
    async with Exec() as ex:
        ex.add(add)

        @tool("math:around")
        async def around() -> str:
            """Calls another tool."""
            return (await ex.run_tool("math:add", {"a": 1, "b": 2})).value

        ex.add(around)
        ex.reconfigure(gate=DENIED)
        with pytest.raises(PolicyError):
            await ex.run_tool("math:add", {"a": 1, "b": 2})
        result = await ex.run_tool("math:around")
        assert isinstance(result.error.__cause__, PolicyError)  # type: ignore[union-attr]
        chain = await ex.run_chain([{"tool": "math:add", "args": {"a": 1, "b": 2}}])
        assert chain.error is not None
        assert chain.error.code == "policy_denied"
        assert [found.id for found in await ex.search_tools("math")] == ["math:around"]


async def test_limits_come_later() -> None:
    """A shorter time limit holds from then on, and options that are not named stay."""
    import asyncio

    async def wait() -> None:
        await asyncio.sleep(60)

    async with Exec(max_tool_calls=7) as ex:
        ex.add(wait)
        ex.reconfigure(default_timeout=0.01, start_timeout=3)
        assert isinstance((await ex.run_tool("wait")).error, ToolTimeoutError)
        assert ex.options.max_tool_calls == 7


async def test_what_an_exec_is_made_of_stays() -> None:
    """Its index cannot be changed, nor anything once code has run; the options are as before."""
    async with Exec() as ex:
        with pytest.raises(ConfigurationError, match="index cannot be changed"):
            ex.reconfigure(index=InMemoryIndex())
        with pytest.raises(ConfigurationError):
            ex.reconfigure(no_such_option=1)
        await ex.execute_code("1 + 1")
        with pytest.raises(ConfigurationError, match="code has run already"):
            ex.reconfigure(gate=DENIED)
        assert ex.options.own_gate is None
