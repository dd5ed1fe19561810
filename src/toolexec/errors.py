"""Every error that toolexec raises, in one tree.

```
ToolExecError
├─ ConfigurationError              options, files or a missing extra
│   └─ MissingExtraError           an optional dependency is not installed
├─ InvalidToolError                a tool definition is not acceptable
│   └─ ToolConflictError           the ID is taken by another definition
├─ InvalidSchemaError              a JSON Schema cannot be used
│   ├─ UnsupportedSchemaError      its dialect is neither 2020-12 nor draft-07
│   └─ ExternalRefError            it points outside of itself
├─ InvalidBindingError             a binding lacks what its kind needs
├─ InvalidToolIDError              not `name`, `namespace:name` or `namespace:name:version`
├─ InvalidVersionError             not a semantic version or constraint
├─ InvalidCursorError              a page cursor of another query, index or index version
├─ InvalidChainError               a chain definition that cannot run
├─ ToolNotFoundError               no such tool
├─ DocNotFoundError                nothing is known about this ID
├─ InvalidDetailError              an unknown detail level
├─ ExampleTooLargeError            example arguments over the caps
├─ NoBackendsError                 the tool exists, nothing hosts it
├─ InputValidationError            the arguments do not fit the input schema
├─ OutputValidationError           the result does not fit the output schema
├─ StreamNotSupportedError         the tool answers in one piece
├─ BackendError                    a backend could not be used
│   ├─ BackendNotFoundError
│   ├─ BackendExistsError
│   ├─ BackendDisabledError
│   ├─ BackendUnavailableError     retryable: it may come back
│   └─ ToolCollisionError          two backends list one ID
└─ ExecutionError                  the tool was called and failed
    ├─ HandlerError                a Python handler raised or tried to exit
    ├─ InvalidResultError          the result is not JSON
    ├─ RemoteToolError             a remote tool reported an error
    ├─ ConnectionLostError         retryable: the server died during the call
    └─ ToolTimeoutError            retryable: the deadline passed (also a TimeoutError)
```

An error carries data, so that nobody has to parse its message: a stable `code`, and `tool_id`, `op`, `backend`,
`retryable` and `details` as far as they are known. The original failure, if any, is its `__cause__`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

__all__ = [
    "BackendDisabledError",
    "BackendError",
    "BackendExistsError",
    "BackendNotFoundError",
    "BackendUnavailableError",
    "ConfigurationError",
    "ConnectionLostError",
    "DocNotFoundError",
    "ExampleTooLargeError",
    "ExecutionError",
    "ExternalRefError",
    "HandlerError",
    "InputValidationError",
    "InvalidBindingError",
    "InvalidChainError",
    "InvalidCursorError",
    "InvalidDetailError",
    "InvalidResultError",
    "InvalidSchemaError",
    "InvalidToolError",
    "InvalidToolIDError",
    "InvalidVersionError",
    "MissingExtraError",
    "NoBackendsError",
    "OutputValidationError",
    "RemoteToolError",
    "StreamNotSupportedError",
    "ToolCollisionError",
    "ToolConflictError",
    "ToolExecError",
    "ToolNotFoundError",
    "ToolTimeoutError",
    "UnsupportedSchemaError",
    "Violation",
]


class ToolExecError(Exception):
    """The base of every error here; `except ToolExecError` catches them all."""

    code: ClassVar[str] = "internal"
    default_retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        tool_id: str | None = None,
        op: str | None = None,
        backend: str | None = None,
        retryable: bool | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.tool_id = tool_id
        self.op = op
        self.backend = backend
        self.retryable = self.default_retryable if retryable is None else retryable
        self.details: dict[str, Any] = dict(details or {})

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)  # whatever the arguments of the class itself are

    def locate(self, *, tool_id: str | None = None, op: str | None = None, backend: str | None = None) -> Self:
        """Fill in what the raising code could not know; what is already set stays. Returns the error itself."""
        self.tool_id = self.tool_id or tool_id
        self.op = self.op or op
        self.backend = self.backend or backend
        return self

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON-able data, the same in CLI output, gateway messages and MCP replies."""
        data: dict[str, Any] = {"code": self.code, "message": self.message, "retryable": self.retryable}
        for key in ("tool_id", "op", "backend"):
            value = getattr(self, key)
            if value is not None:
                data[key] = value
        if self.details:
            data["details"] = self.details
        return data


class ConfigurationError(ToolExecError):
    """Options, a file or an argument make no sense; nothing has run."""

    code = "configuration"


class MissingExtraError(ConfigurationError):
    """An optional dependency is missing; the message names the extra to install."""

    code = "missing_extra"

    def __init__(self, extra: str, *, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs the '{extra}' extra; install it with: pip install 'toolexec[{extra}]'",
            details={"extra": extra},
        )


class InvalidToolError(ToolExecError):
    """A tool definition is not acceptable; the message names the field and the rule."""

    code = "invalid_tool"


class ToolConflictError(InvalidToolError):
    """A tool with this ID but another definition is registered already; the index is unchanged."""

    code = "tool_conflict"


class InvalidSchemaError(ToolExecError):
    """A JSON Schema cannot be used: malformed, too deep, too large, or without a meaning that ends."""

    code = "invalid_schema"


class UnsupportedSchemaError(InvalidSchemaError):
    """The schema declares a dialect other than 2020-12 and draft-07."""

    code = "unsupported_schema"


class ExternalRefError(InvalidSchemaError):
    """The schema refers to a document outside of itself; nothing is ever fetched."""

    code = "external_ref"


class InvalidBindingError(ToolExecError):
    """A binding lacks the server, provider, tool or handler name that its kind needs."""

    code = "invalid_binding"


class InvalidToolIDError(ToolExecError):
    """The text is not a tool ID."""

    code = "invalid_tool_id"


class InvalidVersionError(ToolExecError):
    """The text is not a semantic version or version constraint, or no version satisfies it."""

    code = "invalid_version"


class InvalidCursorError(ToolExecError):
    """The cursor is damaged, or belongs to another query, another index or an older index version."""

    code = "invalid_cursor"


class InvalidChainError(ToolExecError):
    """A chain is defined in a way that cannot run; no step has run (or not the one whose error this is)."""

    code = "invalid_chain"


class ToolNotFoundError(ToolExecError):
    """No tool has this ID. `details["close"]` lists similar IDs, best first."""

    code = "tool_not_found"

    def __init__(
        self, tool_id: str, *, close: Sequence[str] = (), op: str = "resolve", details: Mapping[str, Any] | None = None
    ) -> None:
        hint = f"; did you mean {' or '.join(close)}?" if close else "; a search finds tools by words"
        super().__init__(
            f"no tool {_short(tool_id)}{hint}",
            tool_id=tool_id,
            op=op,
            details={"close": list(close), **(details or {})},
        )


class DocNotFoundError(ToolExecError):
    """Neither a tool nor documentation is registered under this ID, or the level asked for needs the tool."""

    code = "doc_not_found"


class InvalidDetailError(ToolExecError):
    """The detail level is not one of `summary`, `schema`, `full`."""

    code = "invalid_detail"


class ExampleTooLargeError(ToolExecError):
    """An example's arguments are too deep or have too many values."""

    code = "example_too_large"


class NoBackendsError(ToolExecError):
    """The tool is known, but nothing that could run it is."""

    code = "no_backends"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One way in which a value breaks its schema.

    `path` is a JSON pointer into the value (`""` is the value itself), `keyword` the schema keyword that failed,
    `expected` what the keyword asks for and `got` the value found, shortened, or `"***"` where the schema marks it
    `writeOnly` or as a password.
    """

    path: str
    keyword: str
    message: str
    expected: Any = None
    got: Any = None


class _ValidationError(ToolExecError):
    what: ClassVar[str]

    def __init__(self, violations: Iterable[Violation], *, tool_id: str | None = None, op: str | None = None) -> None:
        self.violations = tuple(violations)
        lines = [f"{v.path or '(root)'}: {v.message}" for v in self.violations]
        subject = f" of {_short(tool_id)}" if tool_id else ""
        head = f"{self.what}{subject} {'is' if self.what.endswith('t') else 'are'} not valid"
        super().__init__(
            f"{head}: {'; '.join(lines[:8])}{f'; and {len(lines) - 8} more' if len(lines) > 8 else ''}",
            tool_id=tool_id,
            op=op,
            details={"violations": [asdict(v) for v in self.violations]},
        )


class InputValidationError(_ValidationError):
    """The arguments do not fit the tool's input schema; `violations` lists every one. Nothing has run."""

    code = "validation_input"
    what = "arguments"


class OutputValidationError(_ValidationError):
    """The tool ran, but its result does not fit its output schema; `violations` lists every one."""

    code = "validation_output"
    what = "result"


class StreamNotSupportedError(ToolExecError):
    """The tool answers in one piece; call `run_tool`, or `stream_tool(..., fallback=True)` for a single event."""

    code = "stream_not_supported"


class BackendError(ToolExecError):
    """A backend could not be used."""

    code = "backend"


class BackendNotFoundError(BackendError):
    """No backend has this name or hosts this binding."""

    code = "backend_not_found"


class BackendExistsError(BackendError):
    """A backend with this name is registered already."""

    code = "backend_exists"


class BackendDisabledError(BackendError):
    """The backend is switched off."""

    code = "backend_disabled"


class BackendUnavailableError(BackendError):
    """The backend is not connected; the message has the reason and, for a process, the last lines it printed."""

    code = "backend_unavailable"
    default_retryable = True


class ToolCollisionError(BackendError):
    """Two backends list a tool under one ID; the message names both and the policies that settle it."""

    code = "tool_collision"


class ExecutionError(ToolExecError):
    """The tool was called and failed; this is what `Result.error` holds."""

    code = "execution_failed"


class HandlerError(ExecutionError):
    """A Python handler raised, or tried to end the process; the exception is the `__cause__`."""

    code = "handler_failed"


class InvalidResultError(ExecutionError):
    """The handler returned something that is not JSON; the message has the path and the type."""

    code = "invalid_result"


class RemoteToolError(ExecutionError):
    """A remote tool reported an error of its own (in MCP: `isError`). `details["content"]` has the full reply."""

    code = "remote_tool_failed"


class ConnectionLostError(ExecutionError):
    """The connection ended while the call was under way; whether the tool did its work is unknown."""

    code = "connection_lost"
    default_retryable = True


class ToolTimeoutError(ExecutionError, TimeoutError):
    """The call took longer than its time limit and was stopped."""

    code = "timeout"
    default_retryable = True


def _rebuild(kind: type[ToolExecError], args: tuple[Any, ...], state: dict[str, Any]) -> ToolExecError:
    """An error as copying and pickling have it."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def _short(text: str | None) -> str:
    """Keep hostile names from flooding a message."""
    text = str(text)
    return text if len(text) <= 200 else f"{text[:197]}..."
