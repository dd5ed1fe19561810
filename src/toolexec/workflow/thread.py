"""One branch of a run: where it is, what it has on its stack, its names, and the blocks that it is in."""

from __future__ import annotations

from typing import Final, TypeAlias

from toolexec.errors import ClosedError, CodeError, LimitExceededError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, to_json_lossy
from toolexec.workflow.values import OperationError, TooLargeError, Value

Entry: TypeAlias = JSONDict
"""A block that a thread is in: its `kind` (for, while, try, retry, group), the `height` of the stack below it, and what
it needs to go on. Plain data, but for a `range` that a loop goes over."""

_UNCAUGHT: Final = LimitExceededError, ClosedError
"""By class, as a tool may fail with any code of its own, such as `closed`."""
_OWN: Final = frozenset({"values", "results", "skipped", "out"})


class Fault:
    """A failure on its way to what handles it. `is_final` ones are never caught."""

    __slots__ = ("cause", "code", "column", "details", "is_final", "kind", "line", "message", "retryable", "tool")

    def __init__(self, message: str, kind: str, line: int, column: int) -> None:
        self.code: str = CodeError.code
        self.message: str = message
        self.kind: str = kind
        self.tool: str | None = None
        self.retryable: bool = kind == "fail"
        self.line: int = line
        self.column: int = column
        self.details: JSONValue = {}
        self.is_final: bool = False
        self.cause: ToolExecError | None = None

    @classmethod
    def of_operation(cls, error: OperationError, line: int, column: int) -> Fault:
        """Return the fault of an operation that is not possible, or makes a value that is too large."""
        fault = cls(error.message, error.kind, line, column)
        if isinstance(error, TooLargeError):
            fault.as_limit("value")
        return fault

    @classmethod
    def of_tool(cls, error: ToolExecError, tool: str, line: int, column: int) -> Fault:
        """Return the fault of a tool call."""
        fault = cls(str(error), error.code, line, column)
        fault.code, fault.tool, fault.retryable = error.code, error.tool_id or tool, error.retryable
        fault.details = to_json_lossy(error.details)
        fault.is_final = isinstance(error, _UNCAUGHT)
        fault.cause = error
        return fault

    def as_limit(self, resource: str) -> Fault:
        """Let it be the breach of a limit, which is never caught."""
        self.code, self.is_final, self.details = LimitExceededError.code, True, {"resource": resource}
        return self

    def to_value(self) -> Value:
        """Return what `catch` binds."""
        details = self.details if self.tool is not None else {"kind": self.kind, **self.details}
        return {
            "code": self.code,
            "message": self.message,
            "tool": self.tool,
            "retryable": self.retryable,
            "line": self.line,
            "column": self.column,
            "details": details,
        }

    def to_error(self) -> ToolExecError:
        """Return the error with which the workflow ends when nothing catches it."""
        if self.is_final:
            where = {"line": self.line, "column": self.column}
            if isinstance(self.cause, _UNCAUGHT):
                self.cause.details |= where
                return self.cause
            return LimitExceededError(
                f"{self.message} (line {self.line}, col {self.column})", details={**where, **self.details}
            )
        error = CodeError(
            self.message,
            line=self.line,
            column=self.column,
            kind=self.kind,
            tool_id=self.tool,
            op="workflow",
            retryable=self.retryable and self.tool is not None,
            details=self.details if self.tool is not None else None,
        )
        error.__cause__ = self.cause
        return error

    def to_dict(self) -> JSONDict:
        """Return the fault as JSON-able data."""
        return self.to_value() | {"kind": self.kind, "final": self.is_final, "details": self.details}

    @classmethod
    def from_dict(cls, data: JSONObject) -> Fault:
        """Return the fault that `to_dict` has written; the original error is not in there."""
        fault = cls(data["message"], data["kind"], data["line"], data["column"])
        fault.code, fault.tool, fault.retryable = data["code"], data["tool"], data["retryable"]
        fault.details, fault.is_final = data["details"], data["final"]
        return fault


class Thread:
    """One branch of a run. A branch of `parallel` is a child of the one that waits for it, and sees its names."""

    __slots__ = ("blocks", "children", "id", "is_over", "names", "number", "parent", "pc", "place", "stack", "wait")

    def __init__(self, id: str, pc: int, parent: Thread | None = None, place: int = 0) -> None:
        self.id: str = id
        self.pc: int = pc
        self.parent: Thread | None = parent
        self.place: int = place
        """Which of its parent's branches it is."""
        self.number: int = 0
        """How many requests it has made, and groups of branches."""
        self.stack: list[Value] = []
        self.names: dict[str, Value] = {}
        self.blocks: list[Entry] = []
        self.wait: JSONDict | None = None
        """The request whose answer it waits for."""
        self.children: dict[str, Thread] = {}
        self.is_over: bool = False

    def key(self) -> str:
        """Return the key of its next request."""
        self.number += 1
        return f"{self.id}.{self.number}"

    def below(self) -> list[Thread]:
        """Return the thread and all that it waits for, parents first."""
        found: list[Thread] = [self]
        for thread in found:
            found += [*thread.children.values()]
        return found

    def to_dict(self) -> JSONDict:
        """Return the thread without its children as JSON-able data of its own."""
        return {
            "id": self.id,
            "pc": self.pc,
            "parent": None if self.parent is None else self.parent.id,
            "place": self.place,
            "number": self.number,
            "stack": [_span(value) if isinstance(value, range) else value for value in self.stack],
            "ranges": [place for place, value in enumerate(self.stack) if isinstance(value, range)],
            "names": {**self.names},
            "blocks": [_entry_to_json(entry) for entry in self.blocks],
            "wait": self.wait,
        }

    @classmethod
    def from_dict(cls, data: JSONObject, parent: Thread | None) -> Thread:
        """Return the thread that `to_dict` has written, as a child of *parent*."""
        thread = cls(data["id"], data["pc"], parent, data["place"])
        thread.number, thread.wait = data["number"], data["wait"]
        thread.stack, thread.names = [*data["stack"]], {**data["names"]}
        for place in data["ranges"]:
            thread.stack[place] = range(*thread.stack[place])
        thread.blocks = [_entry_from_json(entry) for entry in data["blocks"]]
        if parent is not None:
            parent.children[thread.id] = thread
        return thread


def _entry_to_json(entry: Entry) -> Entry:
    return {key: _part_to_json(value) if key in _OWN else value for key, value in entry.items()}


def _part_to_json(value: JSONValue) -> JSONValue:
    if isinstance(value, range):
        return {"range": _span(value)}
    return None if value is None else [*value]


def _span(numbers: range) -> list[int]:
    return [numbers.start, numbers.stop, numbers.step]


def _entry_from_json(entry: JSONObject) -> Entry:
    found = {key: [*value] if key in _OWN and isinstance(value, list) else value for key, value in entry.items()}
    if isinstance(values := found.get("values"), dict):
        found["values"] = range(*values["range"])
    return found
