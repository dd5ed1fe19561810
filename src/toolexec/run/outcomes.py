"""Outcomes that a recording answers with: kept apart from those of calls that are made."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias, runtime_checkable

from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.run.layer import Layer
from toolexec.run.runner import Runner
from toolexec.run.types import Result

Wrap: TypeAlias = Callable[[Runner], Runner]


@runtime_checkable
class AnswersSome(Protocol):
    """A runner that makes some calls, and answers others from a recording."""

    def identity(self, call: ToolCall) -> Hashable | None:
        """Return what the same calls of one caller have in common; None for a call that is never answered."""
        ...

    def is_left(self, call: ToolCall) -> bool:
        """Return whether an answer is left for the call."""
        ...

    def held(self, call: ToolCall) -> AbstractContextManager[bool]:
        """Keep the answer that is left for the call, in the block; give whether there is one."""
        ...


def kept_apart(answers: AnswersSome, inner: Runner, real: Wrap, apart: Wrap) -> Runner:
    """Return *inner* with a part around it that keeps outcomes: as *real* for calls that are made, and as *apart* for
    those that *answers* answers."""
    made = real(inner)
    return _Apart(answers, made, apart(_Held(answers, made, inner)))


class _Held(Layer):
    """Answers a call from the recording; where that has none any more, the call is one to make."""

    in_thread = False

    def __init__(self, answers: AnswersSome, made: Runner, inner: Runner) -> None:
        super().__init__(inner)
        self._answers = answers
        self._made = made

    async def run(self, call: ToolCall) -> Result:
        with self._answers.held(call) as is_held:
            return await (self.inner if is_held else self._made).run(call)

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        with self._answers.held(call) as is_held:
            events = (self.inner if is_held else self._made).stream(call)
            try:
                async for event in events:
                    yield event
            finally:
                await events.aclose()


class _Apart(Layer):
    """Sends calls that are answered, and the same ones again, to *apart*; all others to what makes them."""

    in_thread = False

    def __init__(self, answers: AnswersSome, made: Runner, apart: Runner) -> None:
        super().__init__(made)
        self._answers = answers
        self._apart = apart
        self._answered: set[Hashable] = set()

    def _of(self, call: ToolCall) -> Runner:
        call.identify()  # by which the recording knows it further in
        identity = self._answers.identity(call)
        if identity is None:
            return self.inner
        if self._answers.is_left(call):
            self._answered.add(identity)
        return self._apart if identity in self._answered else self.inner

    async def run(self, call: ToolCall) -> Result:
        return await self._of(call).run(call)

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        return self._of(call).stream(call)
