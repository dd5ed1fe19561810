"""Whatever a backend's stream does, the caller's ends well."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import pytest

from toolexec.backend import LocalBackend
from toolexec.errors import (
    BackendNotFoundError,
    BackendUnavailableError,
    ExecutionError,
    StreamNotSupportedError,
)
from toolexec.model import ProviderBinding, Tool
from toolexec.run import StreamEvent, ToolCall

ANY = {"type": "object"}


def _kinds(events: list[StreamEvent]) -> list[str]:
    return [event.kind for event in events]


class _Scripted(LocalBackend):
    """A provider whose streams are a list of events, then an optional exception."""

    kind = "provider"

    def __init__(self, *script: StreamEvent | BaseException, plain_iterator: bool = False) -> None:
        super().__init__("acme")
        self.script = script
        self.closed = False
        self.plain_iterator = plain_iterator

    def stream(self, name: str, call: ToolCall) -> Any:
        return _Plain(self._play()) if self.plain_iterator else self._play()

    async def _play(self) -> AsyncGenerator[StreamEvent, None]:
        try:
            for item in self.script:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self.closed = True


class _Plain:
    """An async iterator that cannot be closed."""

    def __init__(self, items: AsyncIterator[StreamEvent]) -> None:
        self._items = items

    def __aiter__(self) -> _Plain:
        return self

    async def __anext__(self) -> StreamEvent:
        return await anext(self._items)


class TestBackends:
    """Whatever a backend's stream does, the caller's ends well."""

    def _script(self, workshop: Any, *script: Any, **settings: Any) -> _Scripted:
        backend = _Scripted(*script, **settings)
        workshop.backends.register(backend)
        workshop.index.register(Tool(name="t", input_schema=ANY), ProviderBinding("acme", "t"))
        return backend

    async def test_one_that_ends_without_a_result(self, workshop: Any) -> None:
        """Such a stream gets the missing `error` event."""
        self._script(workshop, StreamEvent(kind="chunk", data=1))
        events = await workshop.stream("t")
        assert _kinds(events) == ["chunk", "error"]
        assert "without a result" in str(events[-1].error)

    async def test_one_that_goes_on_after_its_end(self, workshop: Any) -> None:
        """Events after `done` are dropped, and the stream is closed."""
        done = StreamEvent(kind="done", data=1)
        backend = self._script(workshop, done, StreamEvent(kind="chunk", data=2), done)
        assert _kinds(await workshop.stream("t")) == ["done"]
        assert backend.closed

    async def test_one_that_fails(self, workshop: Any) -> None:
        """An ExecutionError is the `error` event, with the backend's name."""
        self._script(workshop, StreamEvent(kind="chunk", data=1), ExecutionError("no"))
        events = await workshop.stream("t")
        assert _kinds(events) == ["chunk", "error"]
        assert (events[-1].error.backend, events[-1].error.tool_id, events[-1].error.op) == ("acme", "t", "stream")

    async def test_one_that_raises_anything(self, workshop: Any) -> None:
        """Any other exception is an `error` event, too."""
        self._script(workshop, OSError("pipe"))
        events = await workshop.stream("t")
        assert isinstance(events[-1].error.__cause__, OSError)

    async def test_one_that_cannot_be_reached(self, workshop: Any) -> None:
        """An unreachable backend raises."""
        self._script(workshop, BackendUnavailableError("down"))
        with pytest.raises(BackendUnavailableError) as caught:
            await workshop.stream("t")
        assert caught.value.tool_id == "t"

    async def test_events_get_the_tools_id(self, workshop: Any) -> None:
        """An event without an ID gets it, one that has one keeps it, and an error event keeps its exception."""
        failure = ExecutionError("no")
        script = [
            StreamEvent(kind="progress", data={"progress": 1}),
            StreamEvent(kind="chunk", data=1, tool_id="other"),
            StreamEvent(kind="error", error=failure),
        ]
        self._script(workshop, *script)
        events = await workshop.stream("t")
        assert [e.tool_id for e in events] == ["t", "other", "t"]
        assert events[-1].error is failure

    async def test_an_iterator_that_cannot_be_closed(self, workshop: Any) -> None:
        """A backend may give a plain async iterator."""
        self._script(workshop, StreamEvent(kind="done", data=1), plain_iterator=True)
        assert _kinds(await workshop.stream("t")) == ["done"]

    async def test_nothing_hosts_it(self, workshop: Any) -> None:
        """A binding that leads nowhere raises, with the tool's ID."""
        workshop.index.register(Tool(name="t", input_schema=ANY), ProviderBinding("acme", "t"))
        with pytest.raises(BackendNotFoundError) as caught:
            await workshop.stream("t")
        assert caught.value.tool_id == "t"

    async def test_one_that_does_not_stream(self, workshop: Any) -> None:
        """A backend without streams refuses, or gives one event with `fallback`."""

        def execute(name: str, args: Mapping[str, Any]) -> int:
            return 5

        workshop.add_tool(Tool(name="t", input_schema=ANY), execute, ProviderBinding("acme", "t"))
        with pytest.raises(StreamNotSupportedError, match="acme"):
            await workshop.stream("t")
        assert [(e.kind, e.data) for e in await workshop.stream("t", fallback=True)] == [("done", 5)]


class TestEventType:
    """What a StreamEvent can do."""

    @pytest.mark.parametrize("kind", ["progress", "chunk", "done", "error"])
    def test_as_json(self, kind: Any) -> None:
        """The four kinds are JSON; the exception object stays out of it."""
        event = StreamEvent(kind=kind, data={"a": 1}, tool_id="t", error=ExecutionError("no"))
        assert json.loads(json.dumps(event.to_dict())) == {"kind": kind, "toolId": "t", "data": {"a": 1}}

    def test_what_is_empty_is_left_out(self) -> None:
        """An event without ID and data is just its kind."""
        assert StreamEvent(kind="done").to_dict() == {"kind": "done"}
