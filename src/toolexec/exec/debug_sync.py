"""The blocking twin of a session that makes a run again."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from toolexec.durable.journal import RunRecord
    from toolexec.durable.offline import SeenCall
    from toolexec.errors import ToolExecError
    from toolexec.exec.debug import DebugSession
    from toolexec.exec.stops import Frame, Stop, StopReason
    from toolexec.model.json_value import JSONValue

T = TypeVar("T")


class Wait(Protocol):
    """Waits on the event loop of a `SyncExec` for what a coroutine returns."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...  # noqa: D102


class SyncDebugSession:
    """A `DebugSession` whose methods block; `SyncRuns.debug` gives it."""

    def __init__(self, session: DebugSession, wait: Wait) -> None:
        self._session = session
        self._wait = wait

    def __enter__(self) -> Self:
        """Read the run; raises as `DebugSession` does."""
        self._wait(self._session.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self._session.__aexit__(kind, error, trace))

    @property
    def run(self) -> RunRecord:
        """The run as it is recorded."""
        return self._session.run

    @property
    def source(self) -> str:
        """The program."""
        return self._session.source

    @property
    def stop(self) -> Stop:
        """All that was found where the run has stopped."""
        return self._session.stop

    @property
    def reason(self) -> StopReason:
        """Why it has stopped."""
        return self._session.reason

    @property
    def line(self) -> int:
        """The line where it is."""
        return self._session.line

    @property
    def variables(self) -> Mapping[str, str]:
        """What the program knows there."""
        return self._session.variables

    @property
    def calls(self) -> Sequence[SeenCall]:
        """The calls so far."""
        return self._session.calls

    @property
    def stack(self) -> Sequence[Frame]:
        """The functions that are under way."""
        return self._session.stack

    @property
    def error(self) -> ToolExecError | None:
        """The failure that the program ended with."""
        return self._session.error

    @property
    def value(self) -> JSONValue:
        """The value of a program that is at its end."""
        return self._session.value

    @property
    def is_over(self) -> bool:
        """Whether the run is at its end."""
        return self._session.is_over

    def to_call(self, call: int | str) -> Stop:
        """Go to a call; see `DebugSession.to_call`."""
        return self._wait(self._session.to_call(call))

    def to_line(self, line: int) -> Stop:
        """Go on to a line; see `DebugSession.to_line`."""
        return self._wait(self._session.to_line(line))

    def to_error(self) -> Stop:
        """Go to the failure of the run; see `DebugSession.to_error`."""
        return self._wait(self._session.to_error())

    def to_end(self) -> Stop:
        """Go on to the end; see `DebugSession.to_end`."""
        return self._wait(self._session.to_end())

    def step(self) -> Stop:
        """Go on to the next line; see `DebugSession.step`."""
        return self._wait(self._session.step())

    def next_call(self) -> Stop:
        """Go on to the next call; see `DebugSession.next_call`."""
        return self._wait(self._session.next_call())

    def back(self) -> Stop:
        """Go back to the stop before; see `DebugSession.back`."""
        return self._wait(self._session.back())

    def evaluate(self, expression: str) -> str:
        """Return the text of an expression's value; see `DebugSession.evaluate`."""
        return self._wait(self._session.evaluate(expression))
