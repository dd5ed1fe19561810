"""The contract suite for runners: the pipeline itself, each layer around it, and stacks of layers.

The checks are plain async functions, free of any test framework. `check_runner` takes them all; to have each one as a
test of its own, go through `RUNNER_CHECKS` with `run_runner_check`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Final, NoReturn, TypeAlias

from toolexec.backend.local import LocalBackend
from toolexec.backend.provider import ProviderBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery.index import Index
from toolexec.discovery.memory import InMemoryIndex
from toolexec.errors import (
    BackendUnavailableError,
    HandlerError,
    InputValidationError,
    InvalidToolIDError,
    RemoteToolError,
    StreamNotSupportedError,
    ToolNotFoundError,
)
from toolexec.model.binding import LocalBinding, ProviderBinding
from toolexec.model.call import Progress, ToolCall
from toolexec.model.content import ToolReply, text
from toolexec.model.declare import declare
from toolexec.model.events import StreamEvent
from toolexec.model.handler import ToolContext
from toolexec.model.json_value import JSONDict
from toolexec.model.tool import Tool
from toolexec.run.runner import Runner
from toolexec.testing.report import Report, checks_of

MakeRunner: TypeAlias = Callable[[Index, BackendRegistry], Runner]
"""Makes the runner to examine from an index and backends that have the suite's tools."""

_PATIENCE: Final = 30.0
_caller: ContextVar[str] = ContextVar("_caller", default="nobody")


class _Down(ProviderBackend):
    """A provider that cannot be reached."""

    def __init__(self, name: str, trouble: BackendUnavailableError) -> None:
        super().__init__(name, print)
        self._trouble = trouble

    async def call(self, name: str, call: ToolCall) -> NoReturn:
        """Raise the trouble."""
        raise self._trouble


class RunnerTestbed:
    """One runner with the tools that the checks call; each check gets a fresh one."""

    def __init__(self, make: MakeRunner) -> None:
        self.calls: list[str] = []
        """The names of the tools whose handlers have begun."""
        self.stopped: list[str] = []
        """The names of the tools whose handlers were left early."""
        self.begun: asyncio.Event = asyncio.Event()
        """Set once `wait` or `tick` waits."""
        self.release: asyncio.Event = asyncio.Event()
        """Set it to let `meet` go on."""
        self.trouble: BackendUnavailableError = BackendUnavailableError(
            "the suite's provider is down", details={"since": "the beginning"}
        )
        self.index: Index = InMemoryIndex()
        self.backends: BackendRegistry = BackendRegistry()
        self.local: LocalBackend = LocalBackend()
        self.backends.register(self.local)
        self._add_tools()
        self.runner: Runner = make(self.index, self.backends)

    def _add_tools(self) -> None:
        for function in (self.add, self.fail, self.refuse, self.wait, self.count, self.tick, self.break_off, self.meet):
            declared = declare(function, f"suite:{function.__name__}")
            self.index.register(declared.tool, LocalBinding(declared.tool.id))
            self.local.add(declared)
        spoiler = Tool(name="spoil", namespace="suite", input_schema={"type": "object"})
        self.index.register(spoiler, LocalBinding(spoiler.id))
        self.local.register(spoiler.id, self.spoil)
        self.backends.register(_Down("suite-provider", self.trouble))
        remote = Tool(name="down", namespace="suite", input_schema={"type": "object"})
        self.index.register(remote, ProviderBinding("suite-provider", "down"))

    async def add(self, a: int, b: int = 1) -> int:
        """Add two numbers."""
        self.calls.append("add")
        return a + b

    async def fail(self) -> None:
        """Raise a ValueError."""
        raise ValueError("this tool always fails")

    async def refuse(self) -> ToolReply:
        """Report an error in MCP's way."""
        return ToolReply(content=[text("not today")], is_error=True)

    async def wait(self) -> None:
        """Wait for ever."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.append("wait")

    async def count(self, to: int) -> AsyncIterator[int]:
        """Give the numbers up to one."""
        for number in range(to):
            yield number

    async def tick(self) -> AsyncIterator[int]:
        """Give one number, then wait for ever."""
        try:
            yield 0
            self.begun.set()
            await asyncio.Event().wait()
        finally:
            self.stopped.append("tick")

    async def break_off(self) -> AsyncIterator[int]:
        """Give one number, then raise."""
        yield 0
        raise ValueError("no more")

    async def meet(self, name: str, ctx: ToolContext) -> list[str]:
        """Report progress, wait to be released, and say who called."""
        ctx.report(1, 2, name)
        self.calls.append(name)
        await self.release.wait()
        if name == "bad":
            raise ValueError(name)
        return [name, _caller.get()]

    def spoil(self, args: JSONDict) -> int:
        """Change the arguments."""
        args["added"] = True
        return len(args)

    async def events(self, call: ToolCall) -> list[StreamEvent]:
        """Return all events of a streamed call."""
        async with aclosing(self.runner.stream(call)) as stream:
            return [event async for event in stream]


async def a_result_passes_through(testbed: RunnerTestbed) -> None:
    """Require that the value, the canonical ID, the binding and the time taken arrive."""
    result = await testbed.runner.run(ToolCall("suite:add", {"a": 2, "b": 3}))
    assert result.ok, result.error
    assert result.value == 5
    assert result.tool_id == "suite:add"
    assert result.binding == LocalBinding("suite:add")
    assert result.duration >= 0
    assert result.raise_for_error() is result


async def no_arguments_are_an_empty_mapping(testbed: RunnerTestbed) -> None:
    """Require that a call without `args` reaches the handler as one with `{}`."""
    assert (await testbed.runner.run(ToolCall("suite:spoil"))).value == 1
    assert (await testbed.runner.run(ToolCall("suite:spoil", {}))).value == 1


async def a_tool_that_raises_is_a_result(testbed: RunnerTestbed) -> None:
    """Require that the handler's exception is the cause of `Result.error`."""
    result = await testbed.runner.run(ToolCall("suite:fail"))
    assert not result.ok
    assert isinstance(result.error, HandlerError), result.error
    assert isinstance(result.error.__cause__, ValueError)
    assert result.error.tool_id == "suite:fail"


async def a_reported_error_is_a_result(testbed: RunnerTestbed) -> None:
    """Require that a reply with `isError` is a failure that keeps the reply."""
    result = await testbed.runner.run(ToolCall("suite:refuse"))
    assert isinstance(result.error, RemoteToolError), result.error
    assert "not today" in str(result.error)
    assert list(result.content) == [text("not today")]


async def an_unknown_tool_raises(testbed: RunnerTestbed) -> None:
    """Require that an unknown tool cannot be called."""
    error = await _raised(testbed, ToolCall("suite:ad"), ToolNotFoundError)
    assert "suite:add" in error.details["close"]


async def a_malformed_id_raises(testbed: RunnerTestbed) -> None:
    """Require that an invalid ID cannot be looked up."""
    for tool_id in ("", "a:b:c:d", "suite:", "suite add"):
        await _raised(testbed, ToolCall(tool_id), InvalidToolIDError)


async def wrong_arguments_raise(testbed: RunnerTestbed) -> None:
    """Require that every violation is listed, and that the handler is not called."""
    error = await _raised(testbed, ToolCall("suite:add", {"b": "x", "c": 1}), InputValidationError)
    assert len(error.violations) == 3, error.violations
    assert testbed.calls == []


async def a_raised_error_arrives_as_it_is(testbed: RunnerTestbed) -> None:
    """No layer wraps, copies or replaces what the inner runner raises, not even an error that is retryable."""
    error = await _raised(testbed, ToolCall("suite:down"), BackendUnavailableError)
    assert error is testbed.trouble
    assert error.retryable
    assert error.details == {"since": "the beginning"}


async def cancelling_stops_the_tool(testbed: RunnerTestbed) -> None:
    """Require that a cancellation reaches the handler and comes out as a cancellation."""
    task = asyncio.ensure_future(testbed.runner.run(ToolCall("suite:wait")))
    await asyncio.wait_for(testbed.begun.wait(), _PATIENCE)
    task.cancel()
    await asyncio.wait([task], timeout=_PATIENCE)
    assert task.cancelled()
    assert testbed.stopped == ["wait"]


async def a_runner_survives_failures(testbed: RunnerTestbed) -> None:
    """Require that a failed, a refused and a cancelled call leave nothing that the next call would notice."""
    await cancelling_stops_the_tool(testbed)
    await a_tool_that_raises_is_a_result(testbed)
    await an_unknown_tool_raises(testbed)
    await a_result_passes_through(testbed)


async def arguments_stay_untouched(testbed: RunnerTestbed) -> None:
    """Require that a handler's changes of its arguments reach neither the caller's mapping nor the call."""
    args = {"given": 1}
    call = ToolCall("suite:spoil", args)
    assert (await testbed.runner.run(call)).value == 2
    assert args == {"given": 1}
    assert call == ToolCall("suite:spoil", {"given": 1})
    assert call.args is args


async def progress_reaches_the_caller(testbed: RunnerTestbed) -> None:
    """Require that `on_progress` gets what the handler reports."""
    received: list[Progress] = []
    testbed.release.set()
    await testbed.runner.run(ToolCall("suite:meet", {"name": "one"}, on_progress=received.append))
    assert received == [Progress(done=1, total=2, message="one")]


async def concurrent_calls_are_independent(testbed: RunnerTestbed) -> None:
    """Calls run at the same time, each with its own result, progress and context; one that fails harms no other."""
    names = [f"call-{number}" for number in range(20)] + ["bad"]
    received: dict[str, list[Progress]] = {name: [] for name in names}

    async def call(name: str) -> Any:
        _caller.set(f"caller of {name}")
        return await testbed.runner.run(ToolCall("suite:meet", {"name": name}, on_progress=received[name].append))

    tasks = [asyncio.ensure_future(call(name)) for name in names]
    while len(testbed.calls) < len(names):
        await asyncio.sleep(0)
        for task in tasks:
            assert not task.done(), f"a call has ended before its time: {task}"
    testbed.release.set()
    results = await asyncio.gather(*tasks)
    assert [r.value for r in results[:-1]] == [[name, f"caller of {name}"] for name in names[:-1]]
    assert isinstance(results[-1].error, HandlerError)
    assert all(received[name] == [Progress(done=1, total=2, message=name)] for name in names)


async def a_stream_ends_with_one_done(testbed: RunnerTestbed) -> None:
    """Chunks in order, then `done` with all of them, and nothing after that; every event has the tool's ID."""
    events = await testbed.events(ToolCall("suite:count", {"to": 3}))
    assert [(e.kind, e.data) for e in events] == [("chunk", 0), ("chunk", 1), ("chunk", 2), ("done", [0, 1, 2])]
    assert {event.tool_id for event in events} == {"suite:count"}


async def a_failing_stream_ends_with_one_error(testbed: RunnerTestbed) -> None:
    """Require that earlier chunks are not lost, and that the `error` event carries the exception and its data."""
    events = await testbed.events(ToolCall("suite:break_off"))
    assert [event.kind for event in events] == ["chunk", "error"]
    error = events[-1].error
    assert isinstance(error, HandlerError)
    assert events[-1].data == error.to_dict()


async def a_stream_refuses_at_its_first_step(testbed: RunnerTestbed) -> None:
    """Require that `stream` raises what `run` raises, before any event."""
    for call, kind in (
        (ToolCall("suite:ad"), ToolNotFoundError),
        (ToolCall("a:b:c:d"), InvalidToolIDError),
        (ToolCall("suite:count", {"to": "x"}), InputValidationError),
        (ToolCall("suite:add", {"a": 1}), StreamNotSupportedError),
    ):
        async with aclosing(testbed.runner.stream(call)) as stream:
            try:
                event = await anext(stream)
            except kind:
                continue
        raise AssertionError(f"{call} gave {event} instead of raising {kind.__name__}")


async def a_plain_tool_streams_one_event_on_request(testbed: RunnerTestbed) -> None:
    """With `fallback`, a tool that answers in one piece gives a single `done` or `error`."""
    events = await testbed.events(ToolCall("suite:add", {"a": 1}, fallback=True))
    assert [(event.kind, event.data) for event in events] == [("done", 2)]
    events = await testbed.events(ToolCall("suite:fail", fallback=True))
    assert [event.kind for event in events] == ["error"]


async def closing_a_stream_stops_the_tool(testbed: RunnerTestbed) -> None:
    """Require that a consumer that leaves early closes the generator of the handler."""
    async with aclosing(testbed.runner.stream(ToolCall("suite:tick"))) as stream:
        assert (await anext(stream)).data == 0
    assert testbed.stopped == ["tick"]


async def cancelling_a_stream_stops_the_tool(testbed: RunnerTestbed) -> None:
    """Require that a cancellation reaches the handler and comes out as a cancellation."""
    task = asyncio.ensure_future(testbed.events(ToolCall("suite:tick")))
    await asyncio.wait_for(testbed.begun.wait(), _PATIENCE)
    task.cancel()
    await asyncio.wait([task], timeout=_PATIENCE)
    assert task.cancelled()
    assert testbed.stopped == ["tick"]


RunnerCheck: TypeAlias = Callable[[RunnerTestbed], Awaitable[None]]
RUNNER_CHECKS: Final[Mapping[str, RunnerCheck]] = checks_of(__name__)
"""Every check by its name."""


async def run_runner_check(make: MakeRunner, name: str) -> None:
    """Put a runner that *make* gives through one check; raises AssertionError, or what went wrong, KeyError for an
    unknown name."""
    testbed = RunnerTestbed(make)
    try:
        await RUNNER_CHECKS[name](testbed)
    finally:
        await testbed.backends.stop_all()


async def check_runner(make: MakeRunner, *, known_gaps: Collection[str] = ()) -> None:
    """Put the runners that *make* gives through every check; see `Report` for known gaps and for what is raised."""
    report = Report("runner", RUNNER_CHECKS, known_gaps)
    for name in RUNNER_CHECKS:
        with report.check(name):
            await run_runner_check(make, name)
    report.conclude()


async def _raised(testbed: RunnerTestbed, call: ToolCall, kind: type[Exception]) -> Any:
    try:
        result = await testbed.runner.run(call)
    except kind as error:
        return error
    raise AssertionError(f"{call} gave {result} instead of raising {kind.__name__}")
