"""In which groups answers reach code: what a run that can be made again must repeat exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from toolexec.errors import ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject


def timer_step(number: int) -> str:
    """Return the step of a program's timer: the first is `t1`. Guests number their calls, so none has that key."""
    return f"t{number}"


def is_timer(step: str) -> bool:
    """Return whether a step is a timer of a program."""
    return step[:1] == "t" and step[1:].isdigit()


class Deliveries(Protocol):
    """Decides which answers reach the code together, and when.

    Code that cannot see the world but through its calls does the same again when it gets the same answers in the same
    groups. An engine asks `upcoming` whenever the code waits. While there is a recorded group it hands over exactly
    that, in its order, once its answers are there; else what is ready, as ever. Either way it calls `deliver` with it.
    The methods may be called from any thread, `sleep` on the event loop.
    """

    keeps_time: bool
    """Whether the timers of code are steps of the run, and its clock goes on by the times that are recorded."""

    @property
    def is_durable(self) -> bool:
        """Whether the run may go on in another process, and so must be made by a sandbox that can make it again."""
        ...

    def upcoming(self) -> Sequence[str] | None:
        """Return the steps of the group that comes next, or None where nothing is recorded. Raises RunError when the
        run had ended by then."""
        ...

    def rest(self) -> None:
        """Take note that the code does nothing until it gets one of the answers that it waits for."""
        ...

    def wake(self) -> None:
        """Take note that the code is about to get an answer, and waits no longer."""
        ...

    def deliver(self, steps: Sequence[str]) -> None:
        """Take note that the code gets the answers of *steps*."""
        ...

    def is_known(self, step: str) -> bool:
        """Return whether it is recorded how the call ended, so that it must not be cancelled."""
        ...

    def call_off(self, step: str) -> None:
        """Take note that the code waits for a call no longer, which is cancelled now."""
        ...

    def is_held(self, step: str) -> bool:
        """Return whether the call waits until no recorded group is left."""
        ...

    def direct(self, step: str) -> None:
        """Take note that the code does nothing until this call is answered; empty when that is over."""
        ...

    def diverged(self, step: str, came: str, recorded: str, line: int = 0) -> ToolExecError:
        """Return the error of a run that does not do what is recorded, and have no more calls made."""
        ...

    async def sleep(self, step: str, seconds: float, at: tuple[int, int] | None = None) -> None:
        """Wait for so long since the step was first begun."""
        ...

    def expect(self, step: str) -> None:
        """Take note that the code has come to a step: a timer, or a call whose answer it may not wait for."""
        ...

    def took(self, step: str) -> float | None:
        """Return how many seconds a step took by the host's clock; None where that is not recorded."""
        ...

    # An engine whose state is data need not do all of it again.

    def kept(self) -> JSONObject | None:
        """Return the state of the engine that was kept last, if it can go on from there."""
        ...

    def accept(self) -> int:
        """Take note that the engine goes on from that state; return how many calls the code had made by then."""
        ...

    def watch(self, take: Callable[[], JSONDict | None]) -> None:
        """Have *take* give the state of the engine, between two answers, when it is to be kept; None for none."""
        ...

    def checkpoint(self) -> None:
        """Take note that the engine waits: its state may be kept now."""
        ...


class Probe(Protocol):
    """Looks into code that is made again with recorded answers, and ends it where it has seen enough.

    It is the attribute `probe` of the `Deliveries` of such a run. Methods may be called from any thread.
    """

    @property
    def guest_program(self) -> str:
        """The Python source that a guest runs before the code; empty for none."""
        ...

    def report(self, found: JSONObject) -> bool:
        """Take what that program has found; return whether the code is to be ended."""
        ...

    def observe(self, machine: object) -> None:
        """Record the machine that is about to run a workflow."""
        ...


def probe_of(deliveries: Deliveries) -> Probe | None:
    """Return what looks into the code of a run; None for any run but one that is made again for that."""
    return getattr(deliveries, "probe", None)
