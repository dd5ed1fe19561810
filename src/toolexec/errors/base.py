"""What every error has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from toolexec.errors.outcome import Outcome


def readable(value: object) -> str:
    """Return the text of *value* as UTF-8 can carry it, with `?` for half characters; also where its own `__str__`
    fails, as that of an exception may."""
    try:
        text = str(value)
    except Exception:
        return "(it has no readable text)"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class ToolExecError(Exception):
    """The base of every error here; `except ToolExecError` catches them all.

    `code` says what happened; an error may carry one of its class's `further_codes`, which say it more exactly. `op` is
    the step that failed, `retryable` whether the same call may succeed later, and `details` are further data, as JSON.
    `outcome` is what became of the call: where only a transport knows it, that passes it in; else it is the class's
    `default_outcome`, which is `UNKNOWN` unless the class says otherwise. Its value as a string (`"done"`) is the same;
    any other counts as unknown. Of anything else that is given in the place of a string, its text is taken.

    >>> from toolexec import Exec
    >>> with Exec().sync as ex:
    ...     try:
    ...         ex.run_tool("math:ad")
    ...     except ToolExecError as error:
    ...         error.code, error.retryable
    ('tool_not_found', False)
    """

    code: str = "internal"
    further_codes: ClassVar[tuple[str, ...]] = ()
    default_retryable: ClassVar[bool] = False
    default_outcome: ClassVar[Outcome] = Outcome.UNKNOWN
    states_outcome: bool = False
    """Is true where the outcome was stated, and is not only that of the class."""

    def __init__(
        self,
        message: str,
        *,
        tool_id: str | None = None,
        op: str | None = None,
        backend: str | None = None,
        retryable: bool | None = None,
        details: Mapping[str, Any] | None = None,
        code: str | None = None,
        outcome: Outcome | str | None = None,
    ) -> None:
        # Handlers raise these with what they have at hand, and every path reads the same: plain types, from here on.
        self.message = readable(message)
        super().__init__(self.message)
        if code is not None or type(self.code) is not str:
            self.code = readable(self.code if code is None else code)
        self.tool_id = tool_id if tool_id is None else readable(tool_id)
        self.op = op if op is None else readable(op)
        self.backend = backend if backend is None else readable(backend)
        self.retryable: bool = self.default_retryable if retryable is None else bool(retryable)
        self.outcome: Outcome = self.default_outcome
        if outcome is not None:
            # A handler that raises this may have had an effect: a misspelt name must not read as if it had none.
            self.outcome = Outcome.read(outcome) or Outcome.UNKNOWN
            self.states_outcome = True
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

    def public(self) -> ToolExecError:
        """Give the error as callers and models may read it: the error itself, or one of the same class whose message
        leaves out what is for operators only, such as addresses, commands and what a process printed."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-able data, the same in CLI output, gateway messages and MCP replies."""
        data: dict[str, Any] = {"code": self.code, "message": self.message, "retryable": self.retryable}
        for key in ("tool_id", "op", "backend"):
            value = getattr(self, key)
            if value is not None:
                data[key] = value
        if self.details:
            data["details"] = self.details
        return data


class ConfigurationError(ToolExecError):
    """Options, a file or an argument make no sense; nothing has run.

    >>> from toolexec import Exec
    >>> Exec(tool_timeuot=5)
    Traceback (most recent call last):
        ...
    toolexec.errors.base.ConfigurationError: ...did you mean ...
    """

    code = "configuration"
    further_codes: ClassVar[tuple[str, ...]] = ("already_started", "invalid_detail", "invalid_provider", "not_started")
    default_outcome = Outcome.NOT_SENT

    @property
    def setting(self) -> str:
        """The name of the setting that is invalid; empty where the message alone says what is wrong."""
        return str(self.details.get("setting", ""))


class MissingExtraError(ConfigurationError):
    """An optional dependency is missing; the message names the extra to install."""

    code = "missing_extra"

    def __init__(self, extra: str, *, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs the '{extra}' extra; install it with: pip install 'toolexec[{extra}]'",
            details={"extra": extra},
        )

    @property
    def extra(self) -> str:
        """The extra to install."""
        return str(self.details.get("extra", ""))


def reworded(error: ToolExecError, message: str) -> ToolExecError:
    """Return an error of the same class, place and code with another message, and without details."""
    other = error.__class__.__new__(error.__class__, message)
    other.__dict__.update(error.__dict__)
    ToolExecError.__init__(
        other,
        message,
        tool_id=error.tool_id,
        op=error.op,
        backend=error.backend,
        retryable=error.retryable,
        outcome=error.outcome if error.states_outcome else None,
    )
    return other


class UnsupportedPlatformError(ConfigurationError):
    """A part of toolexec cannot work on this operating system (`details["platform"]`), which lacks something
    (`details["lacking"]`); the message says where it works.
    """

    code = "unsupported_platform"

    @property
    def platform(self) -> str:
        """This operating system."""
        return str(self.details.get("platform", ""))


def _rebuild(kind: type[ToolExecError], args: tuple[Any, ...], state: dict[str, Any]) -> ToolExecError:
    """Return an error as copying and pickling have it."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error
