"""What looks into each kind of program that is made again, and stops it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

from toolexec.durable.offline import OfflineReplay, SeenCall
from toolexec.errors import CodeError, ToolExecError
from toolexec.exec.chain import Step
from toolexec.exec.stops import MOST_CHARS, Frame, Place, StopReason, Wanted, value_text
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.visible import visible_line
from toolexec.process.settling import settle
from toolexec.run.large import Budget as WorkBudget
from toolexec.workflow.compiler import compile_workflow
from toolexec.workflow.instructions import OUT
from toolexec.workflow.machine import Budget, Finished, Machine, Paused
from toolexec.workflow.parser import parse
from toolexec.workflow.thread import Fault, Thread

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STEPS: Final = 100_000
_SECONDS: Final = 1.0


@dataclass(slots=True, kw_only=True)
class Found:
    """What a probe has found where the program stopped; `pending` are calls that were not even sent."""

    reason: StopReason
    place: Place
    line: int = 0
    variables: dict[str, str] = field(default_factory=dict[str, str])
    stack: list[Frame] = field(default_factory=list[Frame])
    pending: list[tuple[str, str, JSONDict | None]] = field(default_factory=list[tuple[str, str, JSONDict | None]])
    evaluated: JSONDict | None = None


class LookingProbe:
    """A `Probe` that has one place to stop at: `stopped` is done then, and `found` is what was seen there, or last."""

    guest_program: str = ""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.found: Found | None = None
        self._loop = asyncio.get_running_loop()
        self.stopped: asyncio.Future[None] = self._loop.create_future()

    def report(self, found: JSONObject) -> bool:
        """Implement `Probe.report`."""
        return False

    def observe(self, machine: object) -> None:
        """Implement `Probe.observe`."""

    def comes(self, step: str) -> bool:
        """Return whether the program stops at this call, which it makes now."""
        return False

    def answers(self, step: str) -> ToolExecError | None:
        """Return what a call fails with at which the program stops; None to leave it open."""
        return None

    def _stop(self, found: Found) -> None:
        """Take what was found; from any thread."""
        self.found = found
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(settle, self.stopped, None)


class GuestProbe(LookingProbe):
    """Looks into Python in its guest, by a program that is there before it."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__(wanted)
        from toolexec.runtime.wasm.probe import probe_program

        after = wanted.after
        self.guest_program: str = probe_program(
            {
                "anchor": after.call,
                "ticks": after.ticks,
                "goal": wanted.goal,
                "line": wanted.line,
                "call": wanted.call.partition(".")[0],  # a step of a chain: it stops before that chain
                "expression": wanted.expression,
                "most": MOST_CHARS,
            }
        )

    def report(self, found: JSONObject) -> bool:
        """Implement `Probe.report`; the program could send this itself, so nothing in it is believed."""
        data: Any = found
        reason: StopReason = data.get("reason") if data.get("reason") in ("call", "line", "error") else "line"
        variables = _dict(data.get("variables"))
        frames = [_dict(each) for each in _list(data.get("stack"))]
        call = _dict(data.get("call"))
        sent = [*map(_message, _list(data.get("pending"))), _message(call) if call else None]
        evaluated = {key: visible_line(str(text), MOST_CHARS) for key, text in _dict(data.get("evaluated")).items()}
        seen = Found(
            reason=reason,
            place=Place(str(data.get("anchor") or ""), _number(data.get("ticks"))),
            line=_number(data.get("line")),
            variables={
                visible_line(name, 100): visible_line(str(text), MOST_CHARS) for name, text in variables.items()
            },
            stack=[Frame(visible_line(str(each.get("function")), 200), _number(each.get("line"))) for each in frames],
            pending=[each for each in sent if each is not None],
            evaluated=evaluated or None,
        )
        if reason == "error":  # the program goes on to its end, where its error is
            self.found = seen
            return False
        self._stop(seen)
        return True


class CallProbe(LookingProbe):
    """Stops chains and JavaScript at their calls. *steps* are those of a chain."""

    def __init__(self, wanted: Wanted, steps: list[Step] | None = None) -> None:
        super().__init__(wanted)
        self._steps = steps
        self._active = not wanted.after.call
        self._is_over = False

    def comes(self, step: str) -> bool:
        """Implement `LookingProbe.comes`."""
        wanted, goal = self.wanted, self.wanted.goal
        if self._is_over:
            return True
        is_there = self._active and (
            goal in ("next", "step")
            or (goal == "call" and step == wanted.call)
            or (goal == "line" and self._steps is not None and _line(step) == wanted.line)
        )
        if not self._active and step == wanted.after.call:
            self._active = True
            is_there = goal == "here"
        if is_there:
            self._is_over = True
            line = _line(step) if self._steps is not None else 0
            found = Found(reason="call", place=Place(step), line=line)
            if self._steps is not None:
                self._stop(found)
            else:
                self.found = found  # it ends at its line, by the failure of the call
        return is_there

    def answers(self, step: str) -> ToolExecError | None:
        """Implement `LookingProbe.answers`: a program that is not a chain says by its failure in which line it is."""
        return ToolExecError("the replay stops here", code="replay") if self._steps is None else None

    def locate(self, error: ToolExecError | None) -> None:
        """Take the line from the error that the program ended with, if it stopped there."""
        if self.found is not None and isinstance(error, CodeError) and error.line:
            self.found.line = error.line


class MachineProbe(LookingProbe):
    """Follows the machine of a workflow. Implements `Watcher`."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__(wanted)
        self._machine: Machine | None = None
        self._active = not wanted.after.call
        self._ticks = 0
        self._last: tuple[str, int] | None = None
        self._asked: list[tuple[str, str, JSONDict | None]] = []

    def observe(self, machine: object) -> None:
        """Implement `Probe.observe`."""
        assert isinstance(machine, Machine)
        self._machine = machine
        machine.watcher = self

    def step(self, thread: Thread) -> None:
        """Implement `Watcher.step`."""
        assert self._machine is not None
        line = self._machine.program.code[thread.pc][2]
        if (thread.id, line) == self._last:
            return
        self._last = thread.id, line
        if not self._active:
            return
        self._ticks += 1
        wanted, skip = self.wanted, self.wanted.after.ticks
        if self._ticks == skip and wanted.goal == "here":
            self._end("line", thread, line)
        if self._ticks > skip and (wanted.goal == "step" or (wanted.goal == "line" and line == wanted.line)):
            self._end("line", thread, line)

    def ask(self, thread: Thread, request: JSONDict) -> None:
        """Implement `Watcher.ask`."""
        if request["kind"] != "call":
            return
        wanted, key, line = self.wanted, request["key"], request["line"]
        self._asked.append((key, request["tool"], dict(request["args"])))
        if self._active and self._ticks >= wanted.after.ticks and wanted.goal in ("next", "call"):
            if wanted.goal == "next" or key == wanted.call:
                self._end("call", thread, line, key)
        elif not self._active and key == wanted.after.call:
            self._active, self._ticks = True, 0
            if wanted.goal == "here" and not wanted.after.ticks:
                self._end("call", thread, line, key)

    def fault(self, thread: Thread, fault: Fault) -> None:
        """Implement `Watcher.fault`; whether something handles it shows at the end."""
        self.found = self._seen("error", thread, fault.line)

    def _end(self, reason: StopReason, thread: Thread, line: int, key: str = "") -> None:
        self._stop(self._seen(reason, thread, line, key))
        raise _StoppedError

    def _seen(self, reason: StopReason, thread: Thread, line: int, key: str = "") -> Found:
        names = _names(thread)
        place = Place(key) if key else Place(self.wanted.after.call if self._active else "", self._ticks)
        return Found(
            reason=reason,
            place=place,
            line=line,
            variables={visible_line(name, 100): value_text(value) for name, value in names.items()},
            pending=[*self._asked],
            evaluated=evaluated_text(self.wanted.expression, names),
        )


class _StoppedError(Exception):
    """The machine has stopped where it was to."""


def chain_names(steps: list[Step], calls: list[SeenCall]) -> dict[str, JSONValue]:
    """Return what the next step of a chain can refer to: the values of the `steps` before, those of named ones by their
    name, and the `previous` one."""
    values = {each.step.partition(".")[0]: each.value for each in calls if not each.is_open and each.error is None}
    known: dict[str, JSONValue] = {"steps": [values.get(str(number)) for number in range(len(values))]}
    for number, step in enumerate(steps):
        if str(number) in values:
            known["previous"] = values[str(number)]
            known |= {step.name: values[str(number)]} if step.name else {}
    return known


def evaluated_text(expression: str | None, names: dict[str, JSONValue]) -> JSONDict | None:
    """Return the value of an expression, or how it failed, as text; None for no expression."""
    if expression is None:
        return None
    found = _evaluate(expression, names)
    if "error" in found:
        return {"error": visible_line(str(found["error"]), MOST_CHARS)}
    return {"value": value_text(found["value"])}


def pending_calls(replay: OfflineReplay, found: Found, seen: list[SeenCall]) -> list[SeenCall]:
    """Return the calls that were made, and after them those that the program has only got ready."""
    known = {each.step for each in seen}
    more: list[SeenCall] = []
    for step, tool, args in found.pending:
        if step not in known:
            record = replay.records.get(step)
            called = record.tool if record is not None else tool
            more.append(SeenCall(number=replay.number(step), step=step, tool=called, args=args))
            known.add(step)
    return sorted([*seen, *more], key=lambda each: each.number)


def _names(thread: Thread | None) -> dict[str, Any]:
    """Return the names that a branch knows: its own, and those of the branches around it."""
    found: list[Thread] = []
    while thread is not None:
        found.append(thread)
        thread = thread.parent
    names: dict[str, Any] = {}
    for each in reversed(found):
        names |= {name: value for name, value in each.names.items() if name.isidentifier() and name != OUT}
    return names


def _message(message: object) -> tuple[str, str, JSONDict | None] | None:
    """Return a call as a guest sends it: its ID, its tool and its arguments."""
    try:
        data = _dict(json.loads(message) if isinstance(message, str) else message)
        payload: Any = data.get("payload")
        payload = _dict(json.loads(payload) if isinstance(payload, str) else payload)
    except ValueError:
        return None
    if data.get("type") not in ("run_tool", "run_chain"):
        return None
    tool = str(payload.get("id") or "") if data.get("type") == "run_tool" else "run_chain"
    return str(data.get("id") or ""), tool, _dict(payload.get("args") or {})


def _line(step: str) -> int:
    number = step.partition(".")[0]
    return int(number) + 1 if number.isdigit() else 0


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _evaluate(expression: str, names: Mapping[str, JSONValue]) -> JSONDict:
    """Return the value of an expression as `{"value": …}`, or how it failed as `{"error": …}`; in a second at most."""
    try:
        used = [name for name in names if name in {*_NAME.findall(expression)}]
        declared = "".join(f"input {name}: any?\n" for name in used)
        program = compile_workflow(parse(f"{declared}return ({expression.strip()})"))
        machine = Machine(program, {name: names[name] for name in used}, now=0.0, budget=Budget(_STEPS))
        outcome = machine.advance(_STEPS)
        while isinstance(outcome, Paused):
            outcome = machine.advance(_STEPS, budget=WorkBudget(_SECONDS))
    except ToolExecError as error:
        return {"error": str(error)}
    if not isinstance(outcome, Finished):
        return {"error": "an expression calls no tools"}
    return {"error": str(outcome.error)} if outcome.error is not None else {"value": outcome.value}
