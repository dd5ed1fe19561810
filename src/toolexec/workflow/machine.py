"""A run of a workflow in steps: its state is plain data, and what it needs from outside it asks for.

`advance` executes instructions until all branches wait. What they wait for, tool calls and pauses, is handed to a
driver, which answers in any order. The same program with the same inputs and answers takes the same steps, wherever it
is interrupted: `state` is JSON, and `restore` goes on with it in another process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from toolexec.errors import ConfigurationError, InputValidationError, ToolExecError
from toolexec.errors.outcome import Outcome as CallOutcome
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, NotJSONError, to_json
from toolexec.model.schema import Schema
from toolexec.model.tree_size import is_too_large
from toolexec.run.large import Budget as WorkBudget
from toolexec.run.large import BudgetExceededError
from toolexec.workflow.instructions import INSTRUCTIONS, OUT, Handler, Signal
from toolexec.workflow.library.function import Context
from toolexec.workflow.program import Program
from toolexec.workflow.thread import Entry, Fault, Thread
from toolexec.workflow.values import OperationError, TooLargeError, Value

MAX_STEPS: Final = 5_000_000
"""How many steps a run may take."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may take: so many steps, where work on large values counts as several."""

    steps: int = MAX_STEPS


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A tool call that is to be made; `key` is the same in every run with the same answers. `timeout` is in seconds,
    `at` the line and column of the call."""

    key: str
    tool_id: str
    args: Mapping[str, Value]
    timeout: float | None
    at: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sleep:
    """A pause of so many seconds that is to be answered, with null, when it is over."""

    key: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is new since the last time: requests, the keys of those that are no longer needed, and lines to print."""

    calls: tuple[CallRequest, ...] = ()
    sleeps: tuple[Sleep, ...] = ()
    cancelled: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pending(Outcome):
    """All branches wait for answers."""


@dataclass(frozen=True, slots=True)
class Paused(Outcome):
    """There is more to do: call `advance` again; for an `is_long` step with a budget, and not on the event loop."""

    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Finished(Outcome):
    """The workflow has ended, with a value or an error."""

    value: Value = None
    error: ToolExecError | None = None


class Watcher(Protocol):
    """Follows a machine step by step. What its methods raise ends `advance`."""

    def step(self, thread: Thread) -> None:
        """Record that the thread is about to take the step at its `pc`."""
        ...

    def ask(self, thread: Thread, request: JSONDict) -> None:
        """Record a request, with its `key`, before it is made."""
        ...

    def fault(self, thread: Thread, fault: Fault) -> None:
        """Record a failure in the thread, before anything handles it."""
        ...


class Machine:
    """One run of a program. Not safe for several threads at once.

    *now* is the Unix time that `now()` gives all through the run. Raises InputValidationError for inputs that do not
    fit.
    """

    def __init__(
        self, program: Program, inputs: Mapping[str, object] | None = None, *, now: float, budget: Budget | None = None
    ) -> None:
        self.program: Program = program
        self.given: dict[str, Value] = _checked(program, inputs or {})
        self.now: float = now
        self.steps: int = 0
        """How many steps were taken."""
        self.limit: Budget = budget or Budget()
        self.context: Context = Context(now)
        self.budget: WorkBudget | None = None
        self.watcher: Watcher | None = None
        """Follows what is done, step by step, which takes longer."""
        self._code: list[tuple[Handler, JSONValue]] = [(INSTRUCTIONS[op], arg) for op, arg, *_ in program.code]
        self._root = Thread("0", 0)
        self._ready: deque[Thread] = deque([self._root])
        self._waiting: dict[str, Thread] = {}
        self._calls: list[CallRequest] = []
        self._sleeps: list[Sleep] = []
        self._cancelled: list[str] = []
        self._printed: list[str] = []
        self._finished: tuple[Value, Fault | None] | None = None

    # -- from outside -------------------------------------------------------------------------------------------

    def advance(self, steps: int = 10_000, *, budget: WorkBudget | None = None) -> Outcome:
        """Take at most so many steps, and return what came of them.

        Steps on large values are taken only with a *budget*, which can end them; without one the answer is a `Paused`
        that says so.
        """
        self.budget = budget
        self.context = Context(self.now, budget)
        end = self.steps + steps
        is_long = False
        while self._ready and self._finished is None and self.steps < end and not is_long:
            thread = self._ready[0]
            if thread.is_over or thread.wait is not None:
                self._ready.popleft()
            else:
                most = min(end, self.limit.steps + 1)
                if self.watcher is not None:
                    self.watcher.step(thread)
                    most = min(most, self.steps + 1)
                is_long = self._run(thread, most)
        return self._outcome(is_long)

    def answer(self, key: str, value: object, *, may_repeat: bool = False) -> None:
        """Take the result of a request. *may_repeat* says that the tool can be called again without harm. An answer
        that nothing waits for any more is ignored."""
        thread = self._waiting.pop(key, None)
        if thread is None or thread.wait is None:
            return
        if thread.wait["kind"] == "call":
            thread.stack.append(value)
            if not may_repeat:
                _mark_unsafe(thread)
        thread.wait = None
        self._ready.append(thread)

    def fail(self, key: str, error: ToolExecError, *, may_repeat: bool = False) -> None:
        """Take the failure of a request, as `answer` takes its result."""
        thread = self._waiting.pop(key, None)
        if thread is None or thread.wait is None:
            return
        request, thread.wait = thread.wait, None
        if not may_repeat and error.outcome is not CallOutcome.NOT_SENT:
            _mark_unsafe(thread)
        self._unwind(thread, Fault.of_tool(error, request["tool"], request["line"], request["column"]))

    def requests(self) -> Outcome:
        """Return all requests without an answer: what a new driver of a restored machine has to do."""
        waits = [thread.wait for thread in self._waiting.values() if thread.wait is not None]
        return Pending(
            calls=tuple(_call_of(wait) for wait in waits if wait["kind"] == "call"),
            sleeps=tuple(Sleep(wait["key"], wait["seconds"]) for wait in waits if wait["kind"] == "sleep"),
        )

    def state(self) -> JSONDict:
        """Return the state between two calls of `advance`, as JSON-able data of its own, but for the values in it.

        Raises TooLargeError for one of more than 10 million values.
        """
        finished = None
        if self._finished is not None:
            value, fault = self._finished
            finished = {"value": value, "fault": None if fault is None else fault.to_dict()}
        state = {
            "program": self.program.digest,
            "inputs": self.given,
            "now": self.now,
            "steps": self.steps,
            "limit": self.limit.steps,
            "threads": [thread.to_dict() for thread in self._root.below()],
            "ready": [thread.id for thread in self._ready if not thread.is_over],
            "cancelled": [*self._cancelled],
            "finished": finished,
        }
        if is_too_large(state):
            raise TooLargeError("the state of the workflow holds more than 10,000,000 values")
        return state

    def load(self, state: JSONObject) -> None:
        """Take over what `state` has returned; `restore` is for callers."""
        self.steps = state["steps"]
        threads: dict[str, Thread] = {}
        for data in state["threads"]:  # parents come first
            threads[data["id"]] = Thread.from_dict(data, threads.get(data["parent"]))
        self._root = threads["0"]
        self._ready = deque(threads[name] for name in state["ready"])
        self._waiting = {
            thread.wait["key"]: thread
            for thread in threads.values()
            if thread.wait is not None and "key" in thread.wait
        }
        self._cancelled = [*state["cancelled"]]
        finished = state["finished"]
        if finished is not None:
            fault = finished["fault"]
            self._finished = finished["value"], None if fault is None else Fault.from_dict(fault)

    # -- what instructions ask for ------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        """Print *text*."""
        self._printed.append(text)

    def ask(self, thread: Thread, request: JSONDict) -> None:
        """Let the thread wait for the answer to a request."""
        _, _, line, column = self.program.code[thread.pc - 1]
        request |= {"key": thread.key(), "line": line, "column": column}
        if self.watcher is not None:
            self.watcher.ask(thread, request)
        thread.wait = request
        self._waiting[request["key"]] = thread
        if request["kind"] == "call":
            self._calls.append(_call_of(request))
        else:
            self._sleeps.append(Sleep(request["key"], request["seconds"]))

    def fork(self, thread: Thread, entry: Entry) -> bool:
        """Start the first branches of a group; returns whether there are any."""
        if not entry["results"]:
            self._join(thread, entry)
            return False
        thread.wait = {"kind": "group"}
        for _ in range(min(entry["limit"], len(entry["results"]))):
            self._start_branch(thread, entry)
        return True

    # -- inside -------------------------------------------------------------------------------------------------

    def _run(self, thread: Thread, end: int) -> bool:
        """Execute a thread until it stops or *end* steps are taken; return whether the next step is a long one."""
        code = self._code
        signal: Signal = None
        pc = thread.pc
        try:
            while self.steps < end:
                pc = thread.pc
                handler, arg = code[pc]
                thread.pc = pc + 1
                self.steps += 1
                signal = handler(self, thread, arg)
                if signal is not None:
                    break
        except OperationError as error:
            self._unwind(thread, Fault.of_operation(error, *self._place(pc)))
            return False
        except BudgetExceededError as error:
            self._finish(None, Fault(str(error), "limit", *self._place(pc)).as_limit("time"))
            return False
        if self.steps > self.limit.steps:
            message = f"limit exceeded: the workflow took more than {self.limit.steps:,} steps"
            self._finish(None, Fault(message, "limit", *self._place(pc)).as_limit("steps"))
        elif signal == "long":
            thread.pc = pc
            self.steps -= 1
            return True
        elif signal in ("end", "skip"):
            self._end_branch(thread, signal == "skip")
        elif signal in ("finish", "return"):
            out = self._root.names
            self._finish(out[OUT] if signal == "finish" and OUT in out else thread.stack[-1], None)
        return False

    def _place(self, pc: int) -> tuple[int, int]:
        return self.program.code[pc][2:]

    def _finish(self, value: Value, fault: Fault | None) -> None:
        if fault is None and is_too_large(value):
            fault = Fault("the value of the workflow holds more than 10,000,000 values", "limit", 0, 0)
            value, fault = None, fault.as_limit("value")
        self._finished = value, fault
        self._cancel_below(self._root)
        self._ready.clear()

    def _outcome(self, is_long: bool) -> Outcome:
        cancelled = {*self._cancelled}
        calls = tuple(call for call in self._calls if call.key not in cancelled)
        sleeps = tuple(sleep for sleep in self._sleeps if sleep.key not in cancelled)
        new = calls, sleeps, tuple(self._cancelled), tuple(self._printed)
        self._calls, self._sleeps, self._cancelled, self._printed = [], [], [], []
        if self._finished is not None:
            value, fault = self._finished
            return Finished((), (), *new[2:], value, None if fault is None else fault.to_error())
        if is_long or any(not thread.is_over and thread.wait is None for thread in self._ready):
            return Paused(*new, is_long)
        return Pending(*new)

    # -- branches -----------------------------------------------------------------------------------------------

    def _start_branch(self, thread: Thread, entry: Entry) -> None:
        place = entry["next"]
        entry["next"] = place + 1
        starts = entry["starts"]
        branch = Thread(f"{thread.id}.{entry['number']}/{place}", entry["start"] if starts is None else starts[place])
        branch.parent, branch.place = thread, place
        if starts is None:
            branch.names = _names_of(entry, place)
        thread.children[branch.id] = branch
        self._ready.append(branch)

    def _end_branch(self, branch: Thread, skipped: bool) -> None:
        parent = branch.parent
        assert parent is not None
        branch.is_over = True
        del parent.children[branch.id]
        entry = parent.blocks[-1]
        if skipped:
            entry["skipped"].append(branch.place)
        else:
            entry["results"][branch.place] = branch.stack.pop()
        if entry["next"] < len(entry["results"]):
            self._start_branch(parent, entry)
        elif not parent.children:
            self._join(parent, entry)
            self._ready.append(parent)

    def _join(self, thread: Thread, entry: Entry) -> None:
        thread.blocks.pop()
        thread.wait = None
        results: Value = entry["results"]
        if entry["skipped"]:
            skipped = {*entry["skipped"]}
            results = [value for place, value in enumerate(results) if place not in skipped]
        if entry["starts"] is not None and entry["names"] is not None:
            named = zip(entry["names"], results, strict=True)
            results = {name: value for name, value in named if name is not None}
        thread.stack.append(results)

    def _cancel_below(self, thread: Thread) -> None:
        """End what a thread waits for: its branches, and its request."""
        for below in thread.below():
            if below is not thread:
                below.is_over = True
            if below.wait is not None and "key" in below.wait:
                self._waiting.pop(below.wait["key"], None)
                self._cancelled.append(below.wait["key"])
            below.wait = None
        thread.children.clear()

    def _unwind(self, thread: Thread, fault: Fault) -> None:
        """Let a failure go up, through blocks and branches, to what handles it."""
        if self.watcher is not None:
            self.watcher.fault(thread, fault)
        if fault.is_final:
            self._finish(None, fault)
            return
        while True:
            while thread.blocks:
                entry = thread.blocks[-1]
                if entry["kind"] == "try" or (entry["kind"] == "retry" and _repeats(entry, fault)):
                    del thread.stack[entry["height"] :]
                    self._handle(thread, entry, fault)
                    return
                thread.blocks.pop()
            if thread.parent is None:
                self._finish(None, fault)
                return
            thread.is_over = True
            thread = thread.parent
            self._cancel_below(thread)
            thread.blocks.pop()

    def _handle(self, thread: Thread, entry: Entry, fault: Fault) -> None:
        thread.pc = entry["to"]
        if entry["kind"] == "try":
            thread.blocks.pop()
            thread.stack.append(fault.to_value())
        else:
            entry["left"] -= 1
            wanted = fault.details.get("retry_after") if isinstance(fault.details, dict) else None
            pause = max(entry["delay"], wanted) if isinstance(wanted, int | float) else entry["delay"]
            entry["delay"] = min(entry["delay"] * entry["backoff"], 60)
            if pause > 0:
                self.ask(thread, {"kind": "sleep", "seconds": min(pause, 60)})
                return
        if thread not in self._ready:
            self._ready.append(thread)


def restore(program: Program, state: JSONObject) -> Machine:
    """Return a machine that goes on where *state* was taken; raises ConfigurationError for one of another program."""
    if state["program"] != program.digest:
        raise ConfigurationError("the state belongs to another workflow, or to another version of it")
    machine = Machine(program, state["inputs"], now=state["now"], budget=Budget(state["limit"]))
    machine.load(state)
    return machine


def _checked(program: Program, inputs: Mapping[str, object]) -> dict[str, Value]:
    if not inputs and "required" not in program.inputs:
        return {}
    try:
        given = to_json(dict(inputs))
    except NotJSONError as error:
        raise InputValidationError(error.violations, op="workflow") from None
    violations = Schema.of(dict(program.inputs)).violations(given)
    if violations:
        raise InputValidationError(violations, op="workflow")
    return given


def _call_of(request: JSONObject) -> CallRequest:
    at = request["line"], request["column"]
    return CallRequest(request["key"], request["tool"], request["args"], request["timeout"], at)


def _names_of(entry: Entry, place: int) -> dict[str, Value]:
    value = entry["values"][place]
    names = entry["names"]
    if len(names) == 1:
        return {names[0]: value}
    if entry["pairs"]:
        return dict(zip(names, value, strict=True))
    pair = (place, value) if entry["object"] is None else (value, entry["object"][value])
    return dict(zip(names, pair, strict=True))


def _mark_unsafe(thread: Thread | None) -> None:
    """Let nothing around a call be repeated: the call has done something that it may do twice then."""
    while thread is not None:
        for entry in thread.blocks:
            if entry["kind"] == "retry":
                entry["unsafe"] = True
        thread = thread.parent


def _repeats(entry: Entry, fault: Fault) -> bool:
    return fault.retryable and entry["left"] > 0 and not entry["unsafe"]
