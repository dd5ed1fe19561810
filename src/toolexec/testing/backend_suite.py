"""The contract suite for backends.

The checks are plain async functions, free of any test framework. `check_backend` takes them all; to have each one as a
test of its own, go through `BACKEND_CHECKS` with `run_backend_check`.

The backend under examination hosts these tools, by these names, among others if it likes. `suite_tools` has them as
Python functions; a backend that cannot host those gets its own.

- `echo(value)` answers *value*, whatever JSON it is.
- `fail()` fails, with a text that has the words "on purpose".
- `slow()` takes a minute, and ends early when it is cancelled.
- `running()` answers how many calls of `slow` and `forever` are under way. It must know of those that were cancelled:
  that is how the checks see that cancelling stops the work.
- `count(to)` gives *to* chunks, or reports progress *to* times, and then ends. The checks ask for 3.
- `forever()` gives chunks, or reports progress, without end until it is closed or cancelled.

`count` and `forever` are needed only by a StreamingBackend. An answer may be wrapped as `{"result": answer}`, as MCP
servers do it, and a tool's failure may be a reply that says so.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from copy import deepcopy
from typing import Any, Final, TypeAlias

from toolexec.backend.attempt import Attempt, attempt_at
from toolexec.backend.base import Backend, LiveBackend, StreamingBackend
from toolexec.discovery.index import Registered
from toolexec.errors import BackendDisabledError, BackendNotFoundError, ExecutionError, RemoteToolError
from toolexec.model.binding import binding_from_dict
from toolexec.model.call import ToolCall
from toolexec.model.declare import FunctionTool, declare
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONObject
from toolexec.model.tool import Tool
from toolexec.run.normalize import as_reply, reply_error, reply_value
from toolexec.testing.report import Report, checks_of

MakeBackend: TypeAlias = Callable[[], AbstractAsyncContextManager[Backend]]
"""Gives each check a backend of its own that is started and hosts the suite's tools; leaving the context closes it."""

_PATIENCE: Final = 30.0
_SAMPLES: Final[Sequence[Any]] = (
    "grüße 👋",
    "",
    17,
    -2.5,
    True,
    None,
    [],
    {},
    {"list": [1, [2, {"three": None}]], "text": "a\nb"},
)


def suite_tools() -> list[FunctionTool[..., Any]]:
    """Return the suite's tools as Python functions, with a count of their own."""
    under_way: list[str] = []

    async def echo(value: Any) -> Any:
        """Answers the value."""
        return value

    async def fail() -> None:
        """Fails."""
        raise ValueError("this tool fails on purpose")

    async def slow() -> str:
        """Takes a minute."""
        under_way.append("slow")
        try:
            await asyncio.sleep(60)
        finally:
            under_way.remove("slow")
        return "at last"

    async def running() -> int:
        """Return how many calls of slow and forever are under way."""
        return len(under_way)

    async def count(to: int) -> AsyncIterator[int]:
        """Counts."""
        for number in range(to):
            yield number

    async def forever() -> AsyncIterator[int]:
        """Counts without end."""
        under_way.append("forever")
        number = 0
        try:
            while True:
                yield number
                number += 1
                await asyncio.sleep(0.01)
        finally:
            under_way.remove("forever")

    return [declare(function) for function in (echo, fail, slow, running, count, forever)]


async def status_describes_the_backend(backend: Backend) -> None:
    """Require that a started backend is available, says so at once, and has a status that is JSON."""
    status = backend.status()
    assert (status.name, status.kind) == (backend.name, backend.kind), status
    assert status.enabled, status
    assert status.available, status
    assert status.reason is None, status
    assert status.tools >= 4, status
    assert json.loads(json.dumps(status.to_dict()))["name"] == backend.name


async def starting_twice_changes_nothing(backend: Backend) -> None:
    """Require that a second start is allowed, and the backend goes on as before."""
    before = list(await backend.list_tools())
    await backend.start()
    assert list(await backend.list_tools()) == before
    assert await _call(backend, "echo", {"value": 1}) == 1


async def closing_twice_is_allowed(backend: Backend) -> None:
    """Closing what is closed does nothing."""
    await asyncio.wait_for(backend.aclose(), _PATIENCE)
    await asyncio.wait_for(backend.aclose(), _PATIENCE)


async def listing_is_stable(backend: Backend) -> None:
    """Require the same tools in the same order in every listing, which no caller can change."""
    first = await backend.list_tools()
    kept = list(first)
    assert len({tool.id for tool in kept}) == len(kept), "an ID is listed twice"
    if isinstance(first, list):
        first.clear()
    assert list(await backend.list_tools()) == kept
    needed = {"echo", "fail", "slow", "running"}
    assert needed <= {tool.name for tool in kept}, f"the suite needs {needed}"


async def bindings_lead_back(backend: Backend) -> None:
    """Require a binding of the backend's kind for each tool, which survives being written down."""
    tools = await backend.list_tools()
    bindings = [backend.bind(tool) for tool in tools]
    assert len(set(bindings)) == len(tools), "two tools share a binding"
    for binding in bindings:
        assert binding.kind == backend.kind, binding
        assert binding.backend in (backend.name, "local"), binding
        assert binding_from_dict(binding.to_dict()) == binding


async def calls_answer(backend: Backend) -> None:
    """Require that every kind of JSON value arrives and comes back."""
    for value in _SAMPLES:
        answer = await _call(backend, "echo", {"value": value})
        assert answer == value, f"{answer!r} for {value!r}"


async def no_arguments_are_fine(backend: Backend) -> None:
    """Require that a call without `args` is one with none."""
    assert await _call(backend, "running", None) == 0
    assert await _call(backend, "running", {}) == 0


async def arguments_stay_untouched(backend: Backend) -> None:
    """Require that the caller's arguments are as before, all the way down."""
    args = {"value": {"deep": [1, {"deeper": None}]}}
    before = deepcopy(args)
    await _call(backend, "echo", args)
    assert args == before


async def an_unknown_tool_is_refused(backend: Backend) -> None:
    """Require that an unknown name neither hangs nor crashes the backend."""
    try:
        attempt = _attempt(backend, await _tool(backend, "echo"), ToolCall("no-such-tool"))
        raw = await asyncio.wait_for(backend.call("no-such-tool", attempt), _PATIENCE)
    except (BackendNotFoundError, RemoteToolError):
        pass
    else:
        reply = as_reply(raw)
        assert reply is not None, f"an unknown tool answered {raw!r}"
        assert reply.is_error, f"an unknown tool answered {raw!r}"
    assert await _call(backend, "echo", {"value": 1}) == 1


async def a_disabled_backend_refuses(backend: Backend) -> None:
    """Require that a disabled backend refuses calls, and works again once it is enabled."""
    tool = await _tool(backend, "echo")
    target: Any = backend  # the protocol lets a backend decide how it is switched off; all of ours have an attribute
    target.enabled = False
    status = backend.status()
    assert not status.enabled, status
    assert not status.available, status
    assert status.reason, status
    call = ToolCall(tool.id, {"value": 1}, fallback=True)
    await _expect(BackendDisabledError, backend.call(backend.bind(tool).tool, _attempt(backend, tool, call)))
    if isinstance(backend, StreamingBackend):
        await _expect(BackendDisabledError, _events(backend, tool, call))
    target.enabled = True
    assert await _call(backend, "echo", {"value": 1}) == 1


async def a_failure_is_an_execution_error(backend: Backend) -> None:
    """Require that the tool's own message arrives, and that the next call does not notice."""
    error = await _failure(backend, "fail")
    assert "on purpose" in str(error), error
    assert await _call(backend, "echo", {"value": 1}) == 1


async def cancelling_is_prompt(backend: Backend) -> None:
    """Require that a cancelled call ends at once as cancelled, and that the next call does not notice."""
    task = await _begin(backend, _call(backend, "slow", {}))
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=_PATIENCE)
    assert done, "the call goes on"
    assert task.cancelled(), f"the call ended with {task.exception()!r}"
    assert await _call(backend, "echo", {"value": 1}) == 1


async def cancelling_stops_the_work(backend: Backend) -> None:
    """After a cancellation nothing is under way any more."""
    await cancelling_is_prompt(backend)
    await _wait_for_running(backend, 0)


async def calls_run_concurrently(backend: Backend) -> None:
    """Require that a slow call holds up no other, and that every caller gets its own answer."""
    slow = await _begin(backend, _call(backend, "slow", {}))
    answers = await asyncio.gather(*(_call(backend, "echo", {"value": number}) for number in range(20)))
    assert answers == list(range(20))
    assert not slow.done(), "the slow call has ended"
    slow.cancel()
    await asyncio.wait([slow], timeout=_PATIENCE)


async def listeners_can_leave(backend: Backend) -> None:
    """Require that a listener of a LiveBackend can be removed, also twice."""
    if isinstance(backend, LiveBackend):
        stop = backend.on_tools(lambda _: None)
        stop()
        stop()


async def a_stream_ends_with_done(backend: Backend) -> None:
    """Progress and chunks come first, then one `done`, and then nothing."""
    if not isinstance(backend, StreamingBackend):
        return
    tool = await _tool(backend, "count")
    events = await _events(backend, tool, ToolCall(tool.id, {"to": 3}))
    kinds = [event.kind for event in events]
    assert len(kinds) == 4, kinds
    assert set(kinds[:-1]) <= {"progress", "chunk"}, kinds
    assert kinds[-1] == "done", kinds


async def a_plain_answer_can_be_streamed(backend: Backend) -> None:
    """With `fallback`, a tool that answers in one piece gives that as `done`, or fails as a call does."""
    if not isinstance(backend, StreamingBackend):
        return
    tool = await _tool(backend, "echo")
    events = await _events(backend, tool, ToolCall(tool.id, {"value": [1]}, fallback=True))
    assert [event.kind for event in events] == ["done"], events
    assert _value(tool.id, events[-1].data) == [1]
    tool = await _tool(backend, "fail")
    text = ""
    try:
        events = await _events(backend, tool, ToolCall(tool.id, fallback=True))
        _value(tool.id, events[-1].data)
    except ExecutionError as error:
        text = str(error)
    assert "on purpose" in text, f"fail gave {text or events}"


async def closing_a_stream_stops_the_work(backend: Backend) -> None:
    """Require that a consumer that leaves early leaves nothing running."""
    if not isinstance(backend, StreamingBackend):
        return
    tool = await _tool(backend, "forever")
    events = backend.stream(backend.bind(tool).tool, _attempt(backend, tool, ToolCall(tool.id)))
    event = await asyncio.wait_for(anext(events), _PATIENCE)
    assert event.kind in ("progress", "chunk"), event
    await asyncio.wait_for(events.aclose(), _PATIENCE)
    await _wait_for_running(backend, 0)


async def cancelling_a_stream_stops_the_work(backend: Backend) -> None:
    """Require that a cancelled consumer leaves nothing running, and ends as cancelled."""
    if not isinstance(backend, StreamingBackend):
        return
    tool = await _tool(backend, "forever")
    task = await _begin(backend, _events(backend, tool, ToolCall(tool.id)))
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=_PATIENCE)
    assert done, "the stream goes on"
    assert task.cancelled(), f"the stream ended with {task.exception()!r}"
    await _wait_for_running(backend, 0)


BackendCheck: TypeAlias = Callable[[Backend], Awaitable[None]]
BACKEND_CHECKS: Final[Mapping[str, BackendCheck]] = checks_of(__name__)
"""Every check by its name."""


async def run_backend_check(make: MakeBackend, name: str) -> None:
    """Put a backend that *make* gives through one check; raises AssertionError, or what went wrong, KeyError for an
    unknown name."""
    check = BACKEND_CHECKS[name]
    async with make() as backend:
        await check(backend)


async def check_backend(make: MakeBackend, *, known_gaps: Collection[str] = ()) -> None:
    """Put the backends that *make* gives through every check; see `Report` for known gaps and for what is raised."""
    report = Report("backend", BACKEND_CHECKS, known_gaps)
    for name in BACKEND_CHECKS:
        with report.check(name):
            await run_backend_check(make, name)
    report.conclude()


async def _tool(backend: Backend, name: str) -> Tool:
    for tool in await backend.list_tools():
        if tool.name == name:
            return tool
    raise AssertionError(f"the suite needs the tool {name}")


async def _call(backend: Backend, name: str, args: JSONObject | None) -> Any:
    tool = await _tool(backend, name)
    call = backend.call(backend.bind(tool).tool, _attempt(backend, tool, ToolCall(tool.id, args)))
    return _value(tool.id, await asyncio.wait_for(call, _PATIENCE))


def _attempt(backend: Backend, tool: Tool, call: ToolCall) -> Attempt:
    """Return the call as the gate would hand it out."""
    binding = backend.bind(tool)
    return attempt_at(call, Registered(tool, (binding,), binding))


def _value(tool_id: str, raw: Any) -> Any:
    """Return the value in a raw answer; raises the failure that a reply reports."""
    reply = as_reply(raw)
    if reply is None:
        return raw
    if reply.is_error:
        raise reply_error(tool_id, reply)
    value = reply_value(reply)
    return value["result"] if isinstance(value, dict) and value.keys() == {"result"} else value


async def _failure(backend: Backend, name: str) -> ExecutionError:
    try:
        value = await _call(backend, name, {})
    except ExecutionError as error:
        return error
    raise AssertionError(f"{name} gave {value!r} instead of failing")


async def _events(backend: Backend, tool: Tool, call: ToolCall) -> list[StreamEvent]:
    assert isinstance(backend, StreamingBackend)
    async with aclosing(backend.stream(backend.bind(tool).tool, _attempt(backend, tool, call))) as stream:
        return [event async for event in stream]


async def _expect(kind: type[Exception], work: Awaitable[Any]) -> None:
    try:
        value = await asyncio.wait_for(work, _PATIENCE)
    except kind:
        return
    raise AssertionError(f"it gave {value!r} instead of raising {kind.__name__}")


async def _begin(backend: Backend, work: Awaitable[Any]) -> asyncio.Future[Any]:
    """Start *work* and wait until its tool is running."""
    task = asyncio.ensure_future(work)
    await _wait_for_running(backend, 1)
    assert not task.done(), f"it has ended: {task}"
    return task


async def _wait_for_running(backend: Backend, wanted: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while await _call(backend, "running", {}) != wanted:  # noqa: ASYNC110 - it may be in another process
            await asyncio.sleep(0.01)
