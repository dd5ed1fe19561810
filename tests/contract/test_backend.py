"""The contract suite for backends against every backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from toolexec.backend import Backend, LocalBackend, ProviderBackend
from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.source import Definition, ProvidedTool
from toolexec.errors import BackendNotFoundError
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.testing.backend_suite import (
    BACKEND_CHECKS,
    MakeBackend,
    check_backend,
    run_backend_check,
    suite_tools,
)
from toolexec.testing.memory import InMemoryBackend


def local(name: str) -> LocalBackend:
    """A local backend with the suite's tools."""
    backend = LocalBackend(name)
    for function in suite_tools():
        backend.add(function)
    return backend


def provider() -> ProviderBackend:
    """A provider behind an async function."""
    tools = {function.tool.name: function for function in suite_tools()}

    async def call_tool(name: str, args: Mapping[str, Any]) -> Any:
        if name not in tools:
            raise BackendNotFoundError(f"no {name}")
        return await tools[name].handler.call(args)

    return ProviderBackend("suite", call_tool, tools=[function.tool for function in tools.values()])


def memory() -> InMemoryBackend:
    """A scripted backend."""
    never = asyncio.Event()
    functions = {function.tool.name: function.handler.call for function in suite_tools()}

    def running(_: dict[str, Any]) -> int:
        return sum(call.outcome == "running" and call.name != "running" for call in backend.calls)

    chunks = [StreamEvent(kind="chunk", data=number) for number in range(3)]
    answers = functions | {"running": running, "count": chunks, "forever": [chunks[0], never]}
    backend = InMemoryBackend("suite", answers)
    return backend


class LocalSource:
    """Provides the tools of a local backend."""

    kind = "suite"

    def __init__(self) -> None:
        self.backend = local("local")

    async def load(self) -> Definition:
        """Give each tool with the local backend's calls."""
        names = {tool.name: tool for tool in await self.backend.list_tools()}
        return Definition(
            tools=[
                ProvidedTool(
                    tool,
                    partial(self.backend.call, name),
                    partial(self.backend.stream, name) if name in ("count", "forever") else None,
                )
                for name, tool in names.items()
            ]
        )

    async def aclose(self) -> None:
        """Close the local backend."""
        await self.backend.aclose()

    def info(self) -> Mapping[str, Any]:
        """Say nothing."""
        return {}


def maker(build: Callable[[], Backend]) -> MakeBackend:
    """Make the backend that the suite checks."""

    @asynccontextmanager
    async def make() -> AsyncIterator[Backend]:
        backend = build()
        await backend.start()
        try:
            yield backend
        finally:
            await backend.aclose()

    return make


BACKENDS: dict[str, MakeBackend] = {
    "local": maker(lambda: local("local")),
    "named local": maker(lambda: local("suite")),
    "provider": maker(provider),
    "memory": maker(memory),
    "source": maker(lambda: SourceBackend("suite", LocalSource())),
}


@pytest.mark.full
@pytest.mark.parametrize("check", BACKEND_CHECKS)
@pytest.mark.parametrize("kind", BACKENDS)
async def test_backend_contract(kind: str, check: str) -> None:
    """Each backend passes each check."""
    await run_backend_check(BACKENDS[kind], check)


@pytest.mark.full
@pytest.mark.parametrize("kind", BACKENDS)
async def test_the_whole_suite_in_one_go(kind: str) -> None:
    """`check_backend` takes all checks."""
    await check_backend(BACKENDS[kind])


class Forgetful(LocalBackend):
    """A backend that breaks its contract in two places."""

    async def list_tools(self) -> Any:
        """Give the backend's own list away."""
        if not hasattr(self, "listed"):
            self.listed = list(await super().list_tools())
        return self.listed

    async def call(self, name: str, call: ToolCall) -> Any:
        """Change the caller's arguments."""
        answer = await super().call(name, call)
        if isinstance(call.args, dict):
            call.args.clear()
        return answer


def forgetful() -> Forgetful:
    """A Forgetful backend with the suite's tools."""
    backend = Forgetful()
    for function in suite_tools():
        backend.add(function)
    return backend


async def test_all_failures_are_reported_by_name() -> None:
    """The report of a backend lists every broken point at once."""
    with pytest.raises(ExceptionGroup) as caught:
        await check_backend(maker(forgetful))
    notes = {note for error in caught.value.exceptions for note in error.__notes__}
    assert notes == {"backend check: arguments_stay_untouched", "backend check: listing_is_stable"}


async def test_a_known_gap_is_allowed_until_it_is_closed() -> None:
    """Gaps are listed by name; one that is none any more is news."""
    with pytest.raises(ExceptionGroup) as caught:
        await check_backend(
            maker(forgetful), known_gaps=["arguments_stay_untouched", "listing_is_stable", "calls_answer"]
        )
    assert [str(error) for error in caught.value.exceptions] == ["calls_answer is listed as a known gap, but it passes"]


async def test_an_unknown_gap_is_an_error() -> None:
    """A misspelt gap would hide nothing and mislead the reader."""
    with pytest.raises(ValueError, match="there are no checks nonsense"):
        await check_backend(maker(forgetful), known_gaps=["nonsense"])


async def test_a_backend_without_the_tools_is_told_so() -> None:
    """The suite names the missing tool."""
    with pytest.raises(AssertionError, match="the suite needs the tool echo"):
        await run_backend_check(maker(LocalBackend), "calls_answer")
