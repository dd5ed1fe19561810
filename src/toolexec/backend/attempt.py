"""One physical effect: the only thing that a backend is called with."""

from __future__ import annotations

from typing import Final

from toolexec.discovery.index import Registered
from toolexec.model.call import ToolCall

_new: Final = object.__new__


class Attempt(ToolCall):
    """One physical effect: this tool, by this binding, with these arguments, decided on and recorded.

    A binding that is tried, a fallback, a retry, a check of the ledger, an undo, a dry run, a step of a chain, a call
    from code: each is an Attempt of its own. `entry` is the tool and the binding that were decided on, `number` counts
    the attempts at one call from 1, `is_json` says that its arguments are known to be plain JSON. `Backend.call` takes
    nothing else, and only `attempt_at` makes one, so that what no rule has decided on reaches no backend.
    """

    __slots__ = ("_asked", "entry", "is_json", "number")

    entry: Registered
    number: int
    is_json: bool
    _asked: ToolCall

    def __init__(self, *_: object) -> None:
        raise TypeError("an Attempt is made by attempt_at only; give the call to a runner")

    @property
    def waiting(self) -> str:
        """What the attempt waits for; a time limit around the call that it was made of reads it there."""
        return self._asked.waiting

    @waiting.setter
    def waiting(self, what: str) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Set it where the time limit reads it."""
        self._asked.waiting = what

    def identify(self) -> str:
        """Return the ID of the call, which all attempts at it share; see `ToolCall.identify`."""
        if not self.run_id:
            self.run_id = self._asked.identify()
        return self.run_id


def attempt_at(call: ToolCall, entry: Registered, number: int = 1) -> Attempt:
    """Return *call* as the attempt to make it with the tool and the binding of *entry*.

    The gate's `Door` does so with what its rules have admitted; the runner and the `Aggregator` do where there is no
    gate. A test over the sources holds that nothing else does. Who gives it to a backend first awaits what the
    origin's `on_effect` returns.
    """
    # Each by hand: this costs 0.3 µs, `dataclasses.replace` 1.5 µs, and every call passes here.
    attempt = _new(Attempt)
    attempt.tool_id = call.tool_id
    attempt.args = call.args
    attempt.timeout = call.timeout
    attempt.on_progress = call.on_progress
    attempt.fallback = call.fallback
    attempt.origin = call.origin
    attempt.run_id = call.run_id
    attempt.idempotency_key = call.idempotency_key
    attempt.fresh = call.fresh
    attempt.step = call.step
    attempt.at = call.at
    attempt.resolution = call.resolution
    attempt._asked = call  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - this is its maker
    attempt.entry = entry
    attempt.number = number
    attempt.is_json = False
    return attempt
