"""How two runs differ, by what a journal has of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from toolexec.durable.journal import CallRecord, RunRecord
from toolexec.durable.offline import numbered, seconds_of
from toolexec.durable.outcomes import read_outcome
from toolexec.errors import ToolExecError
from toolexec.model.json_value import JSONDict, JSONValue

Difference: TypeAlias = Literal["only in a", "only in b", "tool", "arguments", "result", "error", "state"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSide:
    """A call as one of the runs made it: its number, tool and state, what it came to, and how many seconds it took."""

    number: int
    tool: str
    state: str
    value: JSONValue = None
    error: ToolExecError | None = None
    seconds: float | None = None

    def to_dict(self) -> JSONDict:
        """Return the call as JSON-able data."""
        data: JSONDict = {"number": self.number, "tool": self.tool, "state": self.state}
        if self.error is not None:
            data["error"] = self.error.to_dict()
        elif self.state == "done":
            data["value"] = self.value
        return data if self.seconds is None else data | {"seconds": round(self.seconds, 6)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDiff:
    """One step of two runs, with what differs; `a` or `b` is None where that run has no such step.

    Arguments are compared by their digests, as a journal has no more of them: they are equal, or they are not.
    """

    step: str
    a: CallSide | None
    b: CallSide | None
    differs: tuple[Difference, ...] = ()

    def to_dict(self) -> JSONDict:
        """Return the step as JSON-able data."""
        sides = {"a": self.a, "b": self.b}
        data: JSONDict = {"step": self.step, "differs": [*self.differs]}
        return data | {name: side.to_dict() if side is not None else None for name, side in sides.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDiff:
    """How the runs `a` and `b` differ.

    `differs` names what differs of the runs as a whole: `kind`, `source`, `settings`, `state`, `value`, `error`.
    `calls` are all steps, in the order of run a's, those of b alone after the ones that were made before them.
    """

    a: str
    b: str
    differs: tuple[str, ...] = ()
    calls: Sequence[CallDiff] = field(default_factory=tuple[CallDiff, ...])

    @property
    def same(self) -> bool:
        """Whether nothing differs but times."""
        return not self.differs and self.first is None

    @property
    def first(self) -> CallDiff | None:
        """The first step at which they differ; None where all calls are the same."""
        return next((call for call in self.calls if call.differs), None)

    def to_dict(self) -> JSONDict:
        """Return the difference as JSON-able data."""
        first = self.first
        data: JSONDict = {"a": self.a, "b": self.b, "same": self.same, "differs": [*self.differs]}
        data["first"] = first.step if first is not None else None
        return data | {"calls": [call.to_dict() for call in self.calls]}


def diff_runs(a: RunRecord, calls_a: Sequence[CallRecord], b: RunRecord, calls_b: Sequence[CallRecord]) -> RunDiff:
    """Return how two runs differ: their calls by their steps, and what they came to."""
    first, second = numbered(calls_a), numbered(calls_b)
    sides = [{call.step: (number, call) for number, call in enumerate(each, 1)} for each in (first, second)]
    found = [_compared(step, sides[0].get(step), sides[1].get(step)) for step in _merged(first, second)]
    return RunDiff(a=a.id, b=b.id, differs=tuple(_differing(a, b)), calls=tuple(found))


def _merged(first: Sequence[CallRecord], second: Sequence[CallRecord]) -> list[str]:
    """Return all steps: those of *first* in their order, each of *second* alone after the one before it there."""
    after: dict[str, list[str]] = {}
    known = {call.step for call in first}
    last = ""
    for call in second:
        if call.step in known:
            last = call.step
        else:
            after.setdefault(last, []).append(call.step)
    found = [*after.get("", [])]
    for call in first:
        found += [call.step, *after.get(call.step, [])]
    return found


_Numbered: TypeAlias = tuple[int, CallRecord]


def _compared(step: str, a: _Numbered | None, b: _Numbered | None) -> CallDiff:
    if a is None or b is None:
        only: Difference = "only in b" if a is None else "only in a"
        return CallDiff(step=step, a=_side(a), b=_side(b), differs=(only,))
    left, right = _side(a), _side(b)
    assert left is not None
    assert right is not None
    differs: list[Difference] = []
    if left.tool != right.tool:
        differs.append("tool")
    if a[1].args != b[1].args:
        differs.append("arguments")
    if left.state != right.state:
        differs.append("state")
    elif _error(left.error) != _error(right.error):
        differs.append("error")
    elif left.value != right.value or type(left.value) is not type(right.value):
        differs.append("result")
    return CallDiff(step=step, a=left, b=right, differs=tuple(differs))


def _side(numbered_call: _Numbered | None) -> CallSide | None:
    if numbered_call is None:
        return None
    number, call = numbered_call
    seconds = seconds_of(call)
    side = CallSide(number=number, tool=call.tool, state=call.state, seconds=seconds)
    if call.outcome is None:
        return side
    try:
        result = read_outcome(call.outcome)
    except ToolExecError as error:
        return CallSide(number=number, tool=call.tool, state=call.state, error=error, seconds=seconds)
    found = {"value": result.value, "error": result.error}
    return CallSide(number=number, tool=call.tool, state=call.state, seconds=seconds, **found)


def _error(error: ToolExecError | None) -> tuple[str, str, str] | None:
    return (type(error).__name__, error.code, error.message) if error is not None else None


def _differing(a: RunRecord, b: RunRecord) -> Iterator[str]:
    """Yield what differs of the runs as a whole."""
    given: list[Any] = [run.settings.get("given") for run in (a, b)]
    facts = {"kind": (a.kind, b.kind), "source": (a.source, b.source), "settings": given, "state": (a.state, b.state)}
    yield from (name for name, (one, other) in facts.items() if one != other)
    results: list[Any] = [dict(run.result or {}) for run in (a, b)]
    if results[0].get("value") != results[1].get("value"):
        yield "value"
    failures: list[Any] = [result.get("error") or result.get("raised") for result in results]
    kinds = [each and (each.get("class"), each.get("code"), each.get("message")) for each in failures]
    if kinds[0] != kinds[1]:
        yield "error"
