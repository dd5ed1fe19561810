"""Tools behind a function that the user supplies."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from toolexec import Tool
from toolexec.backend import ProviderBackend, StreamingBackend
from toolexec.errors import (
    BackendDisabledError,
    BackendUnavailableError,
    HandlerError,
    InputValidationError,
    RemoteToolError,
    Violation,
)
from toolexec.model.binding import MCPBinding, ProviderBinding
from toolexec.model.call import ToolCall

TOOL = Tool(name="add", namespace="ns", input_schema={"type": "object"})


async def acall(name: str, args: Mapping[str, Any]) -> Any:
    """An async provider."""
    await asyncio.sleep(0)
    return [name, args, threading.get_ident()]


def call(name: str, args: Mapping[str, Any]) -> Any:
    """A provider that may block."""
    return [name, args, threading.get_ident()]


async def answer(function: Any, args: Mapping[str, Any] | None = None, name: str = "add") -> Any:
    """Return the answer of a provider with that function."""
    backend = ProviderBackend("p", function)
    try:
        return await backend.call(name, ToolCall("p:add", args))
    finally:
        await backend.aclose()


async def test_an_async_function_runs_on_the_event_loop() -> None:
    """An async function receives the name and the arguments."""
    assert await answer(acall, {"a": 1}) == ["add", {"a": 1}, threading.get_ident()]


async def test_a_sync_function_runs_in_a_thread() -> None:
    """A sync function may block without holding up the loop."""
    name, args, thread = await answer(call)
    assert (name, args) == ("add", {})
    assert thread != threading.get_ident()


async def test_an_awaitable_out_of_a_sync_function_is_awaited() -> None:
    """A lambda or a partial around an async function is as good."""
    assert (await answer(lambda name, args: acall(name, args)))[0] == "add"
    assert (await answer(functools.partial(acall)))[2] == threading.get_ident()


async def test_the_arguments_are_a_copy() -> None:
    """The function's changes of its arguments stay there."""
    args = {"a": 1}
    await answer(lambda _, given: given.clear(), args)
    assert args == {"a": 1}


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()])
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_it_raises_is_the_failure_of_the_call(error: BaseException, is_async: bool) -> None:
    """Any exception is the failure of the call, even one meant for the process."""

    async def afail(*_: Any) -> None:
        raise error

    def fail(*_: Any) -> None:
        raise error

    with pytest.raises(HandlerError, match="p:add"):
        await answer(afail if is_async else fail)


@pytest.mark.parametrize(
    "error",
    [
        RemoteToolError("its own"),
        BackendUnavailableError("down"),
        InputValidationError([Violation(path="", keyword="x", message="y")]),
    ],
)
async def test_errors_of_ours_are_passed_on(error: Exception) -> None:
    """A provider can say itself what happened, and that the call could not be made."""

    async def fail(*_: Any) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await answer(fail)
    assert caught.value is error


async def test_a_real_cancellation_goes_through() -> None:
    """A cancellation reaches the provider's function."""
    stopped: list[str] = []
    started = asyncio.Event()

    async def wait(*_: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("yes")

    task = asyncio.ensure_future(answer(wait))
    await started.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert stopped == ["yes"]


async def test_what_a_provider_says_of_itself() -> None:
    """Its kind, its tools and its bindings."""
    backend = ProviderBackend("p", acall, tools=[TOOL])
    assert list(await backend.list_tools()) == [TOOL]
    assert backend.bind(TOOL) == ProviderBinding("p", "add")
    assert backend.status().to_dict() == {
        "name": "p",
        "kind": "provider",
        "enabled": True,
        "available": True,
        "tools": 1,
    }
    assert not isinstance(backend, StreamingBackend)
    stand_in = ProviderBackend("server", acall, kind="mcp")
    assert stand_in.bind(TOOL) == MCPBinding("server", "add")


async def test_a_provider_that_is_switched_off() -> None:
    """A disabled provider refuses calls and says why."""
    backend = ProviderBackend("p", acall)
    backend.enabled = False
    with pytest.raises(BackendDisabledError):
        await backend.call("add", ToolCall("p:add"))
    assert backend.status().to_dict()["reason"] == "switched off"
