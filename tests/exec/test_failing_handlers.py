"""Whatever a handler raises is a failure of its own call: every exception, every kind of handler, every path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest

from toolexec import Exec, Result, Step, Tool, ToolContext, tool
from toolexec.errors import ExecutionError
from toolexec.model import MCPBinding, ProviderBinding

ANY = {"type": "object"}


class RudeError(BaseException):
    """An exception that is not an Exception."""


EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "CancelledError": lambda: asyncio.CancelledError("mine"),
    "GeneratorExit": GeneratorExit,
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "RudeError": RudeError,
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "TimeoutError": TimeoutError,
    "ValueError": lambda: ValueError("no"),
}


def make(name: str) -> BaseException:
    """Make an exception by its name."""
    return EXCEPTIONS[name]()


async def asynchronous(name: str) -> None:
    """Raises at once."""
    raise make(name)


async def waiting(name: str) -> None:
    """Raises after a wait."""
    await asyncio.sleep(0)
    raise make(name)


async def of_a_task(name: str) -> None:
    """Awaits something that raises in a future of its own."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.get_loop().call_soon(future.cancel)
    try:
        await future
    except asyncio.CancelledError:
        raise make(name) from None


async def with_context(name: str, context: ToolContext) -> None:
    """Raises, and could report progress."""
    raise make(name)


def sync(name: str) -> None:
    """Raises in a thread."""
    raise make(name)


def sync_with_context(name: str, context: ToolContext) -> None:
    """Raises in a thread, and could report progress."""
    raise make(name)


@tool("kind:inline", inline=True)
def inline(name: str) -> None:
    """Raises on the event loop."""
    raise make(name)


def awaitable(name: str) -> Any:
    """Gives an awaitable that raises."""
    return waiting(name)


def generator(name: str) -> Iterator[int]:
    """Raises after its first value."""
    yield 1
    raise make(name)


async def async_generator(name: str) -> AsyncIterator[int]:
    """Raises after its first value."""
    yield 1
    raise make(name)


async def async_generator_with_context(name: str, context: ToolContext) -> AsyncIterator[int]:
    """Raises after its first value, and could report progress."""
    yield 1
    raise make(name)


HANDLERS: list[Callable[..., Any]] = [
    asynchronous,
    waiting,
    of_a_task,
    with_context,
    sync,
    sync_with_context,
    awaitable,
    generator,
    async_generator,
    async_generator_with_context,
]
PROGRAMS = {
    "blocking": """
failed = 0
for kind, name in cases:
    try:
        str(tools.run_tool(f"kind:{kind}", {"name": name}))
    except Exception:
        failed += 1
return failed
""",
    "awaiting": """
failed = 0
for kind, name in cases:
    try:
        await tools.run_tool(f"kind:{kind}", {"name": name})
    except Exception:
        failed += 1
return failed
""",
    "gathering": """
import asyncio
calls = [tools.run_tool(f"kind:{kind}", {"name": name}) for kind, name in cases]
outcomes = await asyncio.gather(*calls, return_exceptions=True)
return sum(isinstance(outcome, Exception) for outcome in outcomes)
""",
}
CHAINS = """
for kind, name in cases:
    try:
        str(tools.run_chain([{"tool_id": f"kind:{kind}", "args": {"name": name}}]))
    except Exception as error:
        print(error)
"""
KINDS = [*(handler.__name__ for handler in HANDLERS), "inline", "provided", "mcp"]
CASES = [(kind, name) for kind in KINDS for name in EXCEPTIONS]


def make_exec(*, sync_provider: bool = False) -> Exec:
    """An Exec with a tool for each kind of handler, and one of a provider."""

    async def provider(provider: str, name: str, args: Mapping[str, Any]) -> None:
        raise make(args["name"])

    def provider_in_thread(provider: str, name: str, args: Mapping[str, Any]) -> None:
        raise make(args["name"])

    execute = provider_in_thread if sync_provider else provider
    ex = Exec(provider_executor=execute, mcp_executor=execute, max_tool_calls=1000)
    for handler in HANDLERS:
        ex.add(handler, f"kind:{handler.__name__}")
    ex.add(inline)
    ex.add(Tool(name="provided", namespace="kind", input_schema=ANY), binding=ProviderBinding("shop", "provided"))
    ex.add(Tool(name="mcp", namespace="kind", input_schema=ANY), binding=MCPBinding("shop", "provided"))
    return ex


def is_own_failure(error: BaseException | None, name: str) -> bool:
    """Return whether the error says that a handler raised the exception *name*."""
    return isinstance(error, ExecutionError) and error.details.get("type") == name


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An Exec with all kinds of handlers."""
    async with make_exec() as ex:
        yield ex


class TestEveryPath:
    """All exceptions out of all kinds of handlers, by each path to a tool."""

    async def test_run_tool(self, ex: Exec) -> None:
        """A single call gives a result with an error, and its task is not cancelled."""
        wrong = {}
        for kind, name in CASES:
            result = await contained(ex.run_tool(f"kind:{kind}", {"name": name}))
            if not (isinstance(result, Result) and is_own_failure(result.error, name)):
                wrong[kind, name] = result
        assert wrong == {}

    async def test_a_chain(self, ex: Exec) -> None:
        """A step of a chain has the error, and the chain goes on if it may."""
        steps = [Step(f"kind:{kind}", {"name": name}, stop_on_error=False) for kind, name in CASES]
        chain = await contained(ex.run_chain(steps))
        assert len(chain.steps) == len(CASES)
        wrong = [case for case, step in zip(CASES, chain.steps, strict=True) if not is_own_failure(step.error, case[1])]
        assert wrong == []

    async def test_a_stream(self, ex: Exec) -> None:
        """A stream ends with one error event."""
        wrong = {}
        for kind, name in CASES:

            async def last_of(kind: str = kind, name: str = name) -> Any:
                return [event async for event in ex.stream_tool(f"kind:{kind}", {"name": name})]

            events = await contained(last_of())
            ends = events if isinstance(events, BaseException) else [e for e in events if e.kind in ("done", "error")]
            if not (isinstance(ends, list) and len(ends) == 1 and is_own_failure(ends[0].error, name)):
                wrong[kind, name] = events
        assert wrong == {}

    @pytest.mark.parametrize("way", PROGRAMS)
    async def test_code(self, ex: Exec, way: str) -> None:
        """A program sees each as the failure of that call, whatever way it calls, and goes on."""
        source = f"cases = {[list(case) for case in CASES]!r}\n{PROGRAMS[way]}"
        result = await contained(ex.execute_code(source))
        assert not isinstance(result, BaseException), result
        assert result.error is None, result.error
        assert result.value == len(CASES)
        wrong = [
            (call.args, call.error)
            for call in result.tool_calls
            if not is_own_failure(call.error, (call.args or {})["name"])
        ]
        assert wrong == []
        assert len(result.tool_calls) == len(CASES)

    async def test_a_chain_in_code(self, ex: Exec) -> None:
        """A chain that a program runs has the failure as that of its step."""
        source = f"cases = {[list(case) for case in CASES]!r}\n{CHAINS}"
        result = await contained(ex.execute_code(source))
        assert not isinstance(result, BaseException), result
        assert result.error is None, result.error
        wrong = [c for c in result.tool_calls if not is_own_failure(c.error, (c.args or {})["name"])]
        assert wrong == []
        assert len(result.tool_calls) == len(CASES)

    async def test_a_provider_in_a_thread(self) -> None:
        """A provider's plain function fails as an async one does."""
        async with make_exec(sync_provider=True) as ex:
            for kind in ("provided", "mcp"):
                for name in EXCEPTIONS:
                    result = await contained(ex.run_tool(f"kind:{kind}", {"name": name}))
                    assert is_own_failure(result.error, name), (kind, name, result)


def test_the_blocking_twin() -> None:
    """The blocking methods give results with errors, too, and the loop behind them lives on."""
    with make_exec().sync as ex:
        for kind, name in CASES:
            result = ex.run_tool(f"kind:{kind}", {"name": name})
            assert is_own_failure(result.error, name), (kind, name, result)


async def contained(work: Awaitable[Any]) -> Any:
    """Return the result of *work*, or its exception; fail when it cancelled the task that awaits it."""
    task = asyncio.current_task()
    assert task is not None
    try:
        outcome = await work
    except BaseException as error:
        outcome = error
    assert task.cancelling() == 0
    return outcome
