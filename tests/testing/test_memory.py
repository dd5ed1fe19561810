"""The scripted backend."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from toolexec import Exec, Progress, StreamEvent, Tool, ToolReply
from toolexec.backend import LiveBackend, StreamingBackend
from toolexec.errors import (
    BackendDisabledError,
    BackendNotFoundError,
    BackendUnavailableError,
    HandlerError,
    RemoteToolError,
    StreamNotSupportedError,
)
from toolexec.model.binding import MCPBinding, ProviderBinding
from toolexec.model.call import ToolCall
from toolexec.testing.memory import After, InMemoryBackend, RecordedCall

CHUNK = StreamEvent(kind="chunk", data=1)
HALF = StreamEvent(kind="progress", data={"progress": 1, "total": 2, "message": "half"})


async def answer(backend: InMemoryBackend, name: str, args: Any = None, **rest: Any) -> Any:
    """Return the answer of the backend."""
    return await backend.call(name, ToolCall(name, args, **rest))


async def events(backend: InMemoryBackend, name: str, *, fallback: bool = False) -> list[Any]:
    """Return the events of the backend's stream."""
    async with aclosing(backend.stream(name, ToolCall(name, fallback=fallback))) as stream:
        return [(event.kind, event.data) async for event in stream]


async def test_values_are_answers() -> None:
    """Whatever they are, a reply in parts included."""
    reply = ToolReply()
    backend = InMemoryBackend(answers={"number": 5, "nothing": None, "list": [], "mixed": [CHUNK, 5], "reply": reply})
    assert await answer(backend, "number") == 5
    assert await answer(backend, "nothing") is None
    assert await answer(backend, "list") == []
    assert await answer(backend, "mixed") == [CHUNK, 5]
    assert await answer(backend, "reply") is reply


async def test_functions_are_asked() -> None:
    """Async ones as well; they get the arguments, and may give any answer."""

    async def double(args: dict[str, Any]) -> int:
        return args["n"] * 2

    backend = InMemoryBackend(answers={"one": lambda args: args["n"], "double": double, "late": lambda _: ValueError})
    assert await answer(backend, "one", {"n": 4}) == 4
    assert await answer(backend, "double", {"n": 4}) == 8
    with pytest.raises(HandlerError, match="late raised ValueError"):
        await answer(backend, "late")


async def test_exceptions_are_raised() -> None:
    """Errors of ours as they are, others as a failure of the tool."""
    down = BackendUnavailableError("down")
    backend = InMemoryBackend(answers={"ours": down, "other": ValueError("no"), "exit": SystemExit(1)})
    with pytest.raises(BackendUnavailableError) as caught:
        await answer(backend, "ours")
    assert caught.value is down
    for name in ("other", "exit"):
        with pytest.raises(HandlerError):
            await answer(backend, name)
    assert [call.outcome for call in backend.calls] == ["failed"] * 3


async def test_an_answer_can_wait() -> None:
    """Until its event is set, and whatever comes then."""
    gate = asyncio.Event()
    backend = InMemoryBackend(answers={"late": After(gate, lambda args: args["n"])})
    task = asyncio.ensure_future(answer(backend, "late", {"n": 3}))
    await asyncio.sleep(0)
    assert backend.calls[0].outcome == "running"
    gate.set()
    assert await task == 3
    assert backend.calls[0].outcome == "answered"


async def test_a_cancelled_call_is_recorded_as_such() -> None:
    """A test can see that work was stopped."""
    backend = InMemoryBackend(answers={"never": After(asyncio.Event())})
    task = asyncio.ensure_future(answer(backend, "never"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert backend.calls[0].outcome == "cancelled"


async def test_calls_are_recorded() -> None:
    """With a copy of their arguments."""
    backend = InMemoryBackend(answers={"a": 1, "b": [CHUNK]})
    args = {"n": 1}
    await answer(backend, "a", args)
    args["n"] = 2
    await events(backend, "b")
    assert backend.calls == [
        RecordedCall(name="a", args={"n": 1}, outcome="answered"),
        RecordedCall(name="b", args={}, streamed=True, outcome="answered"),
    ]
    assert backend.calls_of("b") == backend.calls[1:]


async def test_a_scripted_stream() -> None:
    """The events as they are; done is added when it is missing."""
    script = [HALF, CHUNK, StreamEvent(kind="done", data="all"), CHUNK]
    backend = InMemoryBackend(answers={"short": (CHUNK,), "long": script})
    assert await events(backend, "short") == [("chunk", 1), ("done", [1])]
    assert await events(backend, "long") == [("progress", HALF.data), ("chunk", 1), ("done", "all")]


async def test_a_scripted_stream_as_a_call() -> None:
    """The value of done, with the progress told."""
    received: list[Progress] = []
    backend = InMemoryBackend(answers={"count": [HALF, CHUNK]})
    assert await answer(backend, "count") == [1]
    assert await answer(backend, "count", on_progress=received.append) == [1]
    assert received == [Progress(done=1, total=2, message="half")]


async def test_a_scripted_stream_that_fails() -> None:
    """With its own error, or one made of its data."""
    error = RemoteToolError("down")
    own = [CHUNK, StreamEvent(kind="error", error=error)]
    backend = InMemoryBackend(answers={"own": own, "data": [StreamEvent(kind="error", data="broken")]})
    with pytest.raises(RemoteToolError, match="down"):
        await events(backend, "own")
    with pytest.raises(HandlerError, match="broken"):
        await answer(backend, "data")
    assert [call.outcome for call in backend.calls] == ["failed", "failed"]


async def test_a_stream_can_wait_and_be_left() -> None:
    """An event between the events holds it up; leaving is recorded."""
    gate = asyncio.Event()
    backend = InMemoryBackend(answers={"slow": After(gate, [CHUNK, asyncio.Event()])})
    async with aclosing(backend.stream("slow", ToolCall("slow"))) as stream:
        gate.set()
        assert (await anext(stream)).data == 1
    assert backend.calls[0].outcome == "cancelled"
    async with aclosing(backend.stream("slow", ToolCall("slow"))) as stream:
        await anext(stream)
        task = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert backend.calls[1].outcome == "cancelled"
    backend.answers["slow"] = [StreamEvent(kind="done")]
    async with aclosing(backend.stream("slow", ToolCall("slow"))) as stream:
        await anext(stream)
    assert backend.calls[2].outcome == "answered"


async def test_a_plain_answer_does_not_stream() -> None:
    """Unless that is asked for."""
    backend = InMemoryBackend(answers={"plain": 1})
    with pytest.raises(StreamNotSupportedError):
        await events(backend, "plain")
    assert backend.calls == []
    assert await events(backend, "plain", fallback=True) == [("done", 1)]


async def test_switched_off_unavailable_or_unknown() -> None:
    """Calls are refused and not recorded; the status has the reason."""
    backend = InMemoryBackend("m", {"a": 1})
    with pytest.raises(BackendNotFoundError, match="no answer for 'b'; it has a"):
        await answer(backend, "b")
    with pytest.raises(BackendNotFoundError):
        await events(backend, "b")
    backend.unavailable = "asleep"
    assert (backend.status().available, backend.status().reason) == (False, "asleep")
    with pytest.raises(BackendUnavailableError, match="asleep"):
        await answer(backend, "a")
    backend.enabled = False
    assert backend.status().reason == "switched off"
    with pytest.raises(BackendDisabledError):
        await answer(backend, "a")
    backend.enabled, backend.unavailable = True, None
    assert await answer(backend, "a") == 1
    assert len(backend.calls) == 1


async def test_tools_and_bindings() -> None:
    """Answers without a definition get one; all are in the backend's namespace unless they have their own."""
    given = Tool(name="b", namespace="own", input_schema={"type": "object"}, description="given")
    backend = InMemoryBackend("m", {"a": 1, "b": 2}, tools=[given])
    assert [tool.id for tool in await backend.list_tools()] == ["own:b", "m:a"]
    assert backend.bind(given) == ProviderBinding("m", "b")
    assert InMemoryBackend("m", kind="mcp").bind(given) == MCPBinding("m", "b")
    assert isinstance(backend, StreamingBackend)
    assert isinstance(backend, LiveBackend)


async def test_listeners_hear_of_tools(caplog: pytest.LogCaptureFixture) -> None:
    """At the start and whenever they change; one that fails keeps no other from it."""
    backend = InMemoryBackend("m", {"a": 1})
    received: list[list[str]] = []

    def fail(_: Any) -> None:
        raise ValueError("deaf")

    backend.on_tools(fail)
    stop = backend.on_tools(lambda tools: received.append([tool.id for tool in tools]))
    await backend.start()
    await backend.start()
    backend.set_tools([Tool(name="b", input_schema={"type": "object"})])
    stop()
    stop()
    backend.set_tools([])
    assert received == [["m:a"], ["m:b"]]
    assert "a tools listener of backend m failed" in caplog.text


async def test_in_an_exec() -> None:
    """Its tools are found, called, and come and go."""
    backend = InMemoryBackend("m", {"a": {"n": 1}})
    async with Exec() as ex:
        await ex.add_backends(backend)
        assert [hit.id for hit in await ex.search_tools("a")] == ["m:a"]
        assert (await ex.run_tool("m:a")).value == {"n": 1}
        backend.answers["b"] = 2
        backend.set_tools([Tool(name="b", input_schema={"type": "object"})])
        assert (await ex.run_tool("m:b")).value == 2
        assert ex.index.find("m:a") is None
    assert not backend.started


async def test_a_backend_that_was_started_before_still_shows_its_tools() -> None:
    """A late listener gets the tools at once."""
    backend = InMemoryBackend("fake", {"one": 1})
    await backend.start()
    async with Exec() as ex:
        ex.add_backends(backend)
        assert (await ex.run_tool("fake:one")).value == 1
