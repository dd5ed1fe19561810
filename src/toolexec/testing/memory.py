"""A backend without anything behind it, for tests of code that uses tools."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from toolexec.backend.base import BackendStatus, ToolsListener
from toolexec.backend.failures import handler_failure
from toolexec.errors import (
    BackendDisabledError,
    BackendNotFoundError,
    BackendUnavailableError,
    HandlerError,
    StreamNotSupportedError,
    ToolExecError,
)
from toolexec.model.binding import Binding, BindingKind, MCPBinding, ProviderBinding
from toolexec.model.call import Progress, ToolCall, tell
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.tool import Tool

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class After:
    """An answer that waits until *event* is set."""

    event: asyncio.Event
    answer: Any = None


@dataclass(slots=True, kw_only=True)
class RecordedCall:
    """A call that an InMemoryBackend got: the tool's name there, a copy of the arguments, whether it was streamed, and
    what has become of it."""

    name: str
    args: JSONDict
    streamed: bool = False
    outcome: Literal["running", "answered", "failed", "cancelled"] = "running"


class InMemoryBackend:
    """Hosts tools that answer what you say, and records every call.

    *answers* maps a tool's name to its answer:

    - a value, or a ToolReply: that is the answer;
    - an exception: it is raised, as it is if it is a ToolExecError, as a HandlerError otherwise;
    - a function, async or not: it is called with the arguments as a dict, and gives the answer;
    - `After(event, answer)`: the same once the event is set;
    - a list of StreamEvents: they are the stream. Without a `done` or `error` among them, `done` follows with the list
      of chunks. An `asyncio.Event` between them is waited for.

    A tool without a definition in *tools* takes any arguments. Answers may be changed at any time.

    >>> async def main():
    ...     weather = InMemoryBackend("weather", {"today": {"sky": "clear"}, "tomorrow": ValueError("no idea")})
    ...     async with Exec() as ex:
    ...         await ex.add_backends(weather)
    ...         today = await ex.run_tool("weather:today", {"city": "Bern"})
    ...         tomorrow = await ex.run_tool("weather:tomorrow")
    ...     return today.value, str(tomorrow.error), weather.calls[0].args
    >>> import asyncio
    >>> from toolexec import Exec
    >>> asyncio.run(main())
    ({'sky': 'clear'}, 'tomorrow raised ValueError: no idea', {'city': 'Bern'})
    """

    def __init__(
        self,
        name: str = "memory",
        answers: JSONObject | None = None,
        *,
        tools: Iterable[Tool] = (),
        kind: BindingKind = "provider",
    ) -> None:
        self.name = name
        self.kind: BindingKind = kind
        self.enabled = True
        """Switch it off to have calls refused with BackendDisabledError."""
        self.unavailable: str | None = None
        """Set a reason to have calls refused with BackendUnavailableError."""
        self.started = False
        self.answers: JSONDict = dict(answers or {})
        self.calls: list[RecordedCall] = []
        self._listeners: list[ToolsListener] = []
        defined = [self._hosted(tool) for tool in tools]
        names = {tool.name for tool in defined}
        bare = [Tool(name=each, input_schema={"type": "object"}) for each in self.answers if each not in names]
        self._tools = [*defined, *map(self._hosted, bare)]

    def set_tools(self, tools: Iterable[Tool]) -> None:
        """Host these tools from now on, and notify the listeners."""
        self._tools = [self._hosted(tool) for tool in tools]
        self._publish()

    def calls_of(self, name: str) -> list[RecordedCall]:
        """Return the calls of one tool, in order."""
        return [call for call in self.calls if call.name == name]

    def status(self) -> BackendStatus:
        """Return the state of the backend."""
        reason = self.unavailable if self.enabled else "switched off"
        return BackendStatus(
            name=self.name,
            kind=self.kind,
            enabled=self.enabled,
            available=reason is None,
            reason=reason,
            tools=len(self._tools),
        )

    async def start(self) -> None:
        """Notify the listeners of the tools, the first time."""
        if not self.started:
            self.started = True
            self._publish()

    async def aclose(self) -> None:
        """Note that the backend is closed."""
        self.started: bool = False

    async def list_tools(self) -> Sequence[Tool]:
        """Return the tools; raises BackendUnavailableError as `unavailable` says."""
        self._check_available()
        return list(self._tools)

    def bind(self, tool: Tool) -> Binding:
        """Return the binding of one of these tools."""
        return (MCPBinding if self.kind == "mcp" else ProviderBinding)(self.name, tool.name)

    def on_tools(self, listener: ToolsListener) -> Callable[[], None]:
        """Have *listener* called at the start (now, if that was before) and by `set_tools`; see `LiveBackend`."""
        self._listeners.append(listener)
        if self.started:
            self._tell(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    async def call(self, name: str, call: ToolCall) -> Any:
        """Record the call and give the tool's answer; see `Backend.call`."""
        recorded = self._record(name, call, streamed=False)
        try:
            answer = await self._answer(name, recorded)
            if not _is_script(answer):
                recorded.outcome = "answered"
                return answer
            async with aclosing(self._play(name, answer)) as events:
                async for event in events:
                    if event.kind == "done":
                        recorded.outcome = "answered"
                        return event.data
                    if event.kind == "progress" and call.on_progress is not None:
                        tell(call.on_progress, _progress(event.data))
        except BaseException as error:
            raise self._failed(recorded, error)  # noqa: B904 - it has its cause
        raise AssertionError("a played script ends with done or raises")

    async def stream(self, name: str, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Record the call and give the scripted events; see `StreamingBackend.stream`."""
        answer = self.answers.get(name)
        if not call.fallback and name in self.answers and not _is_script(_unwrapped(answer)):
            raise StreamNotSupportedError(f"{call.tool_id} answers in one piece; script it with a list of events")
        recorded = self._record(name, call, streamed=True)
        try:
            answer = await self._answer(name, recorded)
            if not _is_script(answer):
                answer = [StreamEvent(kind="done", data=answer)]
            async with aclosing(self._play(name, answer)) as events:
                async for event in events:
                    if event.kind == "done":
                        recorded.outcome = "answered"
                    yield event
        except GeneratorExit:
            if recorded.outcome == "running":
                recorded.outcome = "cancelled"
            raise
        except BaseException as error:
            raise self._failed(recorded, error)  # noqa: B904 - it has its cause

    def _record(self, name: str, call: ToolCall, *, streamed: bool) -> RecordedCall:
        if not self.enabled:
            raise BackendDisabledError(f"backend {self.name} is switched off", backend=self.name)
        self._check_available()
        if name not in self.answers:
            known = ", ".join(self.answers) or "none"
            raise BackendNotFoundError(f"backend {self.name} has no answer for {name!r}; it has {known}")
        recorded = RecordedCall(name=name, args=dict(call.args or {}), streamed=streamed)
        self.calls.append(recorded)
        return recorded

    async def _answer(self, name: str, recorded: RecordedCall) -> Any:
        answer = self.answers[name]
        while True:
            if isinstance(answer, After):
                await answer.event.wait()
                answer = answer.answer
            elif isinstance(answer, BaseException) or (isinstance(answer, type) and issubclass(answer, BaseException)):
                raise answer
            elif callable(answer):
                answer = answer(dict(recorded.args))
            elif inspect.isawaitable(answer):
                answer = await answer
            else:
                return answer

    async def _play(self, name: str, script: Sequence[Any]) -> AsyncGenerator[StreamEvent, None]:
        chunks: list[Any] = []
        for event in script:
            if isinstance(event, asyncio.Event):
                await event.wait()
                continue
            if event.kind == "error":
                raise event.error or HandlerError(f"{self.name}:{name} ended with the error {event.data}")
            yield event
            if event.kind == "done":
                return
            chunks += [event.data] if event.kind == "chunk" else []
        yield StreamEvent(kind="done", data=chunks)

    def _failed(self, recorded: RecordedCall, error: BaseException) -> Exception:
        recorded.outcome = "cancelled"  # then the next line raises
        failure = error if isinstance(error, ToolExecError) else handler_failure(recorded.name, error, generating=False)
        recorded.outcome = "failed"
        return failure

    def _check_available(self) -> None:
        if self.unavailable is not None:
            raise BackendUnavailableError(f"backend {self.name} is unavailable: {self.unavailable}", backend=self.name)

    def _hosted(self, tool: Tool) -> Tool:
        return tool if tool.namespace else tool.replace(namespace=self.name)

    def _publish(self) -> None:
        for listener in list(self._listeners):
            self._tell(listener)

    def _tell(self, listener: ToolsListener) -> None:
        try:
            listener(list(self._tools))
        except Exception:
            logger.exception("a tools listener of backend %s failed", self.name)


def _is_script(answer: Any) -> bool:
    return (
        isinstance(answer, list | tuple)
        and any(isinstance(each, StreamEvent) for each in answer)
        and all(isinstance(each, StreamEvent | asyncio.Event) for each in answer)
    )


def _unwrapped(answer: Any) -> Any:
    while isinstance(answer, After):
        answer = answer.answer
    return answer


def _progress(data: Any) -> Progress:
    return Progress(done=data.get("progress", 0), total=data.get("total"), message=data.get("message", ""))
