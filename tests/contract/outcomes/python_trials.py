"""Trials of Python functions: hosted here, by the provider of Python modules, and behind a function for a provider."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from toolexec import Tool
from toolexec.backend import Backend, LocalBackend, ProviderBackend
from toolexec.backend.providers.kinds import provider_backend
from toolexec.errors import (
    BackendUnavailableError,
    ConnectionLostError,
    InvalidResultError,
    Outcome,
    RateLimitedError,
    RemoteToolError,
    ToolTimeoutError,
)
from toolexec.model.declare import FunctionTool, declare
from toolexec.testing import OutcomeTrial

_RAISED: Mapping[str, tuple[Callable[[], Exception], Outcome]] = {
    "ValueError": (lambda: ValueError("no such account"), Outcome.REFUSED),
    "RemoteToolError": (lambda: RemoteToolError("no"), Outcome.REFUSED),
    "RemoteToolError of unknown outcome": (lambda: RemoteToolError("no", outcome=Outcome.UNKNOWN), Outcome.UNKNOWN),
    "ConnectionLostError": (lambda: ConnectionLostError("gone"), Outcome.UNKNOWN),
    "ToolTimeoutError": (lambda: ToolTimeoutError("late"), Outcome.UNKNOWN),
    "InvalidResultError": (lambda: InvalidResultError("odd"), Outcome.DONE),
    "ConnectionError": (lambda: ConnectionResetError("reset"), Outcome.UNKNOWN),
    "TimeoutError": (lambda: TimeoutError("late"), Outcome.UNKNOWN),
}
_RETURNED: Mapping[str, Any] = {"an object": object(), "NaN": float("nan"), "bytes": b"\xff"}
PYTHON = {name: outcome for name, (_, outcome) in _RAISED.items()} | dict.fromkeys(_RETURNED, Outcome.DONE)
_NOT_MADE: Mapping[str, Callable[[], Exception]] = {
    "BackendUnavailableError": lambda: BackendUnavailableError("it is away"),
    "RateLimitedError": lambda: RateLimitedError("too many"),
}
PROVIDER = PYTHON | dict.fromkeys(_NOT_MADE, Outcome.NOT_SENT)


class _Function:
    """Ends as its name says, and counts its work."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.effects = 0

    def run(self) -> Any:
        """Work, unless it refuses."""
        self.effects += PROVIDER[self._name] in (Outcome.DONE, Outcome.UNKNOWN)
        if self._name in _RETURNED:
            return _RETURNED[self._name]
        raise _RAISED[self._name][0]() if self._name in _RAISED else _NOT_MADE[self._name]()

    def tool(self) -> FunctionTool[..., Any]:
        """Return it as a tool."""

        async def pay(amount: int) -> Any:
            """Pays."""
            return self.run()

        return declare(pay, namespace="odd")


@asynccontextmanager
async def _started(backend: Backend, function: _Function) -> AsyncIterator[OutcomeTrial]:
    await backend.start()
    try:
        yield OutcomeTrial(backend=backend, tool_id="odd:pay", args={"amount": 7}, effects=lambda: function.effects)
    finally:
        await backend.aclose()


@asynccontextmanager
async def local_trial(name: str) -> AsyncIterator[OutcomeTrial]:
    """Make a function that this process hosts."""
    function, backend = _Function(name), LocalBackend("odd")
    backend.add(function.tool())
    async with _started(backend, function) as trial:
        yield trial


@asynccontextmanager
async def module_trial(name: str) -> AsyncIterator[OutcomeTrial]:
    """Make a tool of a module."""
    function, module = _Function(name), ModuleType("odd_module")
    module.__dict__["pay"] = function.tool()
    sys.modules[module.__name__] = module
    try:
        async with _started(provider_backend("python", "odd", {"target": "odd_module:pay"}), function) as trial:
            yield trial
    finally:
        del sys.modules[module.__name__]


@asynccontextmanager
async def provider_trial(name: str) -> AsyncIterator[OutcomeTrial]:
    """Make a function that stands for a provider."""
    function = _Function(name)
    tool = Tool(name="pay", namespace="odd", input_schema={"type": "object"})

    async def call_tool(_: str, __: Mapping[str, Any]) -> Any:
        return function.run()

    async with _started(ProviderBackend("odd", call_tool, tools=[tool]), function) as trial:
        yield trial
