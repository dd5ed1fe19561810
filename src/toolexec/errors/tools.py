"""Errors about tools: their definitions, finding them, calling them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from toolexec.errors.base import ToolExecError, reworded
from toolexec.errors.outcome import Outcome


class InvalidToolError(ToolExecError):
    """A tool definition, a binding of one or an example is not acceptable; the message names the field and the rule."""

    code = "invalid_tool"
    further_codes: ClassVar[tuple[str, ...]] = ("example_too_large", "invalid_binding")

    @property
    def field(self) -> str:
        """The field of the definition that is invalid; empty where it is not a single one."""
        return str(self.details.get("field", ""))


class ToolConflictError(InvalidToolError):
    """A tool with this ID but another definition is registered already; the index is unchanged."""

    code = "tool_conflict"


class InvalidSchemaError(ToolExecError):
    """A JSON Schema cannot be used: malformed, too deep, too large, without a meaning that ends, or of a dialect other
    than 2020-12 and draft-07."""

    code = "invalid_schema"
    further_codes: ClassVar[tuple[str, ...]] = ("unsupported_schema",)

    @property
    def pointer(self) -> str:
        """The JSON pointer of the place in the schema; empty for the root, and where it is unknown."""
        return str(self.details.get("pointer", ""))


class ExternalRefError(InvalidSchemaError):
    """The schema refers to a document outside of itself; nothing is ever fetched."""

    code = "external_ref"


class InvalidToolIDError(ToolExecError):
    """The text is not a tool ID."""

    code = "invalid_tool_id"
    default_outcome = Outcome.NOT_SENT


class InvalidVersionError(ToolExecError):
    """The text is not a semantic version or version constraint, or no version satisfies it."""

    code = "invalid_version"


class InvalidCursorError(ToolExecError):
    """The cursor is damaged, or belongs to another query, another index or an older index version."""

    code = "invalid_cursor"


class InvalidChainError(ToolExecError):
    """A chain is defined in a way that cannot run; no step has run (or not the one whose error this is)."""

    code = "invalid_chain"
    default_outcome = Outcome.NOT_SENT


class NotOfferedError(ToolExecError):
    """No server offers this resource or this prompt, or the caller may not know of it. `details` have its `uri`, or its
    `name` with similar ones as `close`.

    >>> from toolexec import Exec
    >>> with Exec().sync as ex:
    ...     try:
    ...         ex.read_resource("toolexec://docs/file:///a.md")
    ...     except NotOfferedError as error:
    ...         error.details["uri"]
    'toolexec://docs/file:///a.md'
    """

    code = "not_offered"
    default_outcome = Outcome.NOT_SENT


class ToolNotFoundError(ToolExecError):
    """No tool has this ID. `details["close"]` lists similar IDs, best first.

    >>> from toolexec import Exec
    >>> with Exec().sync as ex:
    ...     _ = ex.add(lambda a, b: a + b, "math:add")
    ...     try:
    ...         ex.run_tool("math:ad")
    ...     except ToolNotFoundError as error:
    ...         error.details["close"]
    ['math:add']
    """

    code = "tool_not_found"
    default_outcome = Outcome.NOT_SENT

    def __init__(
        self, tool_id: str, *, close: Sequence[str] = (), op: str = "resolve", details: Mapping[str, Any] | None = None
    ) -> None:
        hint = f"; did you mean {' or '.join(close)}?" if close else "; a search finds tools by words"
        super().__init__(
            f"no tool {short_id(tool_id)}{hint}",
            tool_id=tool_id,
            op=op,
            details={"close": list(close), **(details or {})},
        )

    @property
    def close(self) -> tuple[str, ...]:
        """Similar IDs, the best first."""
        return tuple(self.details.get("close", ()))


class DocNotFoundError(ToolExecError):
    """Neither a tool nor documentation is registered under this ID, or the level asked for needs the tool."""

    code = "doc_not_found"


class CatalogueError(ToolExecError):
    """A stored catalogue, or a snapshot of its search index, is damaged, of another kind or version, not safe to trust,
    or cannot be read or written; nothing was taken from it."""

    code = "catalogue"


class ProviderNotFoundError(ToolExecError):
    """No provider has this ID. `details["close"]` lists similar IDs, best first."""

    code = "provider_not_found"

    @property
    def close(self) -> tuple[str, ...]:
        """Similar IDs, the best first."""
        return tuple(self.details.get("close", ()))


class ClosedError(ToolExecError):
    """What ran was stopped because the Exec, session or runtime that it belongs to was closed; what it did until then
    is done."""

    code = "closed"


class NoBackendsError(ToolExecError):
    """The tool is known, but nothing that could run it is."""

    code = "no_backends"
    default_outcome = Outcome.NOT_SENT


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
        self.violations: tuple[Violation, ...] = tuple(violations)
        lines = [f"{v.path or '(root)'}: {v.message}" for v in self.violations]
        subject = f" of {short_id(tool_id)}" if tool_id else ""
        head = f"{self.what}{subject} {'is' if self.what.endswith('t') else 'are'} not valid"
        super().__init__(
            f"{head}: {'; '.join(lines[:8])}{f'; and {len(lines) - 8} more' if len(lines) > 8 else ''}",
            tool_id=tool_id,
            op=op,
            details={"violations": [asdict(v) for v in self.violations]},
        )


class InputValidationError(_ValidationError):
    """The arguments do not fit the tool's input schema; `violations` lists every one. Nothing has run.

    >>> from toolexec import Exec
    >>> def divmod_of(a: int, b: int) -> list[int]:
    ...     return [*divmod(a, b)]
    >>> with Exec().sync as ex:
    ...     _ = ex.add(divmod_of, "math:divmod")
    ...     try:
    ...         ex.run_tool("math:divmod", {"a": "seven"})
    ...     except InputValidationError as error:
    ...         [(violation.path, violation.expected) for violation in error.violations]
    [('', 'b'), ('/a', ['integer'])]
    """

    code = "validation_input"
    default_outcome = Outcome.NOT_SENT
    what = "arguments"


class OutputValidationError(_ValidationError):
    """The tool ran, but its result does not fit its output schema; `violations` lists every one, and `value` is what
    the tool gave all the same."""

    code = "validation_output"
    default_outcome = Outcome.DONE
    what = "result"

    def __init__(
        self,
        violations: Iterable[Violation],
        *,
        tool_id: str | None = None,
        op: str | None = None,
        value: Any = None,
    ) -> None:
        super().__init__(violations, tool_id=tool_id, op=op)
        self.value = value
        self.message += "; the tool ran, and its value is beside this error"


class ConversionError(ToolExecError):
    """A tool or a card cannot be read from a provider format, or written in it.

    `adapter` names the format, `direction` says what was being made (`to_tool`, `from_tool`, `to_provider`,
    `from_provider`). *cause* is the reason: a sentence, or the exception that is the `__cause__`.
    """

    code = "conversion"

    def __init__(self, adapter: str, direction: str, cause: str | Exception, *, tool_id: str | None = None) -> None:
        super().__init__(
            f"{adapter} {direction}: {cause}",
            tool_id=tool_id,
            op="convert",
            details={"adapter": adapter, "direction": direction},
        )
        if isinstance(cause, Exception):
            self.__cause__ = cause

    @property
    def adapter(self) -> str:
        """The form's name."""
        return str(self.details.get("adapter", ""))

    @property
    def direction(self) -> str:
        """What was being made."""
        return str(self.details.get("direction", ""))


class StreamNotSupportedError(ToolExecError):
    """The tool answers in one piece; call `run_tool`, or `stream_tool(..., fallback=True)` for a single event."""

    code = "stream_not_supported"
    default_outcome = Outcome.NOT_SENT


class BackendError(ToolExecError):
    """A backend could not be used, or not be added: its name is in use, or two backends list one ID."""

    code = "backend"
    further_codes: ClassVar[tuple[str, ...]] = ("backend_exists", "tool_collision")
    default_outcome = Outcome.NOT_SENT


class BackendNotFoundError(BackendError):
    """No backend has this name or hosts this binding."""

    code = "backend_not_found"


class BackendDisabledError(BackendError):
    """The backend is switched off."""

    code = "backend_disabled"


class BackendUnavailableError(BackendError):
    """The backend is not connected; the message has the reason and, for a process, the last lines it printed. Callers
    and models read another one, with the backend's name and what to do (`public`). With the code `circuit_open` it
    failed too often just now and is left alone; `details["retry_after"]` says for how many seconds.

    >>> from toolexec import Exec
    >>> with Exec().sync as ex:
    ...     _ = ex.add_mcp("gone", command="no-such-program")
    ...     try:
    ...         ex.run_tool("gone:ping")
    ...     except BackendUnavailableError as error:
    ...         error.code, error.retryable
    ('backend_unavailable', True)
    """

    code = "backend_unavailable"
    further_codes: ClassVar[tuple[str, ...]] = ("circuit_open",)
    default_retryable = True

    def public(self) -> ToolExecError:
        """Implement `ToolExecError.public`."""
        if self.code == "circuit_open":
            return self
        return reworded(
            self,
            f"{_named(self.backend)} is unavailable: try again later or use another tool; operators find the reason in "
            "the log and with `toolexec backends`",
        )


class LoginRequiredError(BackendUnavailableError):
    """The server wants a login that is not there, has ended, or lacks scopes (`details["scopes"]`); the message has the
    command that logs in, also as `details["command"]`, or for the caller of a server the link (`details["link"]`) to
    open in a browser; the same call can be made afterwards. Nothing has run."""

    code = "login_required"
    further_codes: ClassVar[tuple[str, ...]] = ()
    default_retryable = False

    @property
    def command(self) -> str:
        """The command that logs in, such as `toolexec login github`."""
        return str(self.details.get("command", ""))

    def public(self) -> ToolExecError:
        """Implement `ToolExecError.public`."""
        if self.link:
            return self
        return reworded(self, f"{_named(self.backend)} needs a login: an operator runs `{self.command}`")

    @property
    def link(self) -> str:
        """Where the caller logs in; empty where there is no page for that."""
        return str(self.details.get("link", ""))

    def at(self, link: str) -> LoginRequiredError:
        """Return the error for a caller who logs in at *link*: with that, and without the command."""
        words = f"{_named(self.backend)} needs a login of yours: open {link} in a browser, then make the call again"
        error = copy.copy(self)
        error.message, error.args = words, (words,)
        error.details = {name: value for name, value in self.details.items() if name != "command"} | {"link": link}
        return error


class BackendBusyError(BackendError):
    """The backend has no room for the call and will have none soon; the message says what takes all of it."""

    code = "backend_busy"
    default_retryable = True


class LoginError(ToolExecError):
    """A login was refused or cannot be trusted: an answer names another issuer, state or resource, or a place that must
    not be reached. No token was stored, and no secret sent to the place that the message names."""

    code = "login"
    default_outcome = Outcome.NOT_SENT


class ExecutionError(ToolExecError):
    """The tool was called and failed; this is what `Result.error` holds. `outcome` says what became of its work.

    >>> from toolexec import Exec
    >>> def fail():
    ...     raise RuntimeError("no paper")
    >>> with Exec().sync as ex:
    ...     _ = ex.add(fail, "printer:print")
    ...     result = ex.run_tool("printer:print")
    >>> isinstance(result.error, ExecutionError), result.error.code
    (True, 'handler_failed')
    """

    code = "execution_failed"

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-able data, with what became of the call."""
        return {**super().to_dict(), "outcome": self.outcome.value}


class HandlerError(ExecutionError):
    """A Python handler raised, or tried to end the process; the exception is the `__cause__`."""

    code = "handler_failed"
    default_outcome = Outcome.REFUSED


class InvalidResultError(ExecutionError):
    """The handler returned something that is not JSON; the message has the path and the type."""

    code = "invalid_result"
    default_outcome = Outcome.DONE


class RemoteToolError(ExecutionError):
    """A remote tool reported an error of its own (in MCP: `isError`). `details["content"]` has the full reply."""

    code = "remote_tool_failed"
    default_outcome = Outcome.REFUSED

    @property
    def content(self) -> Sequence[Mapping[str, object]]:
        """The parts of the reply in MCP's spelling."""
        return self.details.get("content", ())


class ConnectionLostError(ExecutionError):
    """The connection ended while the call was under way; whether the tool did its work is unknown. Where that was for
    a message that was too long, `details["longest"]` is how many bytes one may have."""

    code = "connection_lost"
    default_retryable = True

    def public(self) -> ToolExecError:
        """Implement `ToolExecError.public`."""
        longest = self.details.get("longest")
        why = f"was closed, for a message of more than {longest} bytes" if longest else "was lost during the call"
        return reworded(
            self,
            f"the connection to {_named(self.backend)} {why}, and whether the tool did its work is unknown: check that "
            "before you call it again",
        )


class ToolTimeoutError(ExecutionError, TimeoutError):
    """The call took longer than its time limit and was stopped, or had not begun by then (`Outcome.NOT_SENT`).

    >>> import asyncio
    >>> from toolexec import Exec
    >>> async def slow():
    ...     await asyncio.sleep(60)
    >>> with Exec().sync as ex:
    ...     _ = ex.add(slow, "job:slow")
    ...     ex.run_tool("job:slow", timeout=0.05).error.code
    'timeout'
    """

    code = "timeout"
    default_retryable = True

    @property
    def timeout(self) -> float | None:
        """The time limit in seconds; None where it is unknown."""
        return self.details.get("timeout")


def short_id(text: str | None) -> str:
    """Keep hostile names from flooding a message."""
    text = str(text)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _named(backend: str | None) -> str:
    return f"the backend {backend}" if backend else "a backend"
