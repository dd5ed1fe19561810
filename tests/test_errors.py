"""The error tree: what its drawing says is what there is, and every error carries data."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

import toolexec.errors as errors
from toolexec.errors import (
    BackendUnavailableError,
    CodeError,
    CodeExecutionError,
    ConfigurationError,
    ConversionError,
    ExecutionError,
    InputValidationError,
    LimitExceededError,
    MissingExtraError,
    OutputValidationError,
    PolicyError,
    RateLimitedError,
    RemoteToolError,
    SandboxError,
    SandboxFailedError,
    ToolExecError,
    ToolNotFoundError,
    ToolTimeoutError,
    Violation,
)

CODES = {
    "ApprovalDeniedError": "approval_denied",
    "ApprovalRequiredError": "approval_required",
    "AuditError": "audit",
    "BackendDisabledError": "backend_disabled",
    "BackendError": "backend",
    "BackendNotFoundError": "backend_not_found",
    "BackendUnavailableError": "backend_unavailable",
    "BackendBusyError": "backend_busy",
    "ClosedError": "closed",
    "CassetteDriftError": "cassette_drift",
    "CassetteError": "cassette",
    "CassetteMissError": "cassette_miss",
    "CatalogueError": "catalogue",
    "ChainStepLimitError": "chain_step_limit",
    "CodeError": "code_error",
    "CodeExecutionError": "code_failed",
    "CodeTimeoutError": "code_timeout",
    "ConfigurationError": "configuration",
    "ConnectionClosedError": "connection_closed",
    "ConnectionLostError": "connection_lost",
    "ContextBudgetError": "context_budget",
    "ConversionError": "conversion",
    "DefinitionChangedError": "definition_changed",
    "DocNotFoundError": "doc_not_found",
    "ExecutionError": "execution_failed",
    "ExternalRefError": "external_ref",
    "GatewayError": "gateway",
    "GatewayTimeoutError": "gateway_timeout",
    "HandlerError": "handler_failed",
    "InputValidationError": "validation_input",
    "InvalidChainError": "invalid_chain",
    "InvalidCursorError": "invalid_cursor",
    "InvalidLimitsError": "invalid_limits",
    "InvalidRequestError": "invalid_request",
    "InvalidResultError": "invalid_result",
    "InvalidSchemaError": "invalid_schema",
    "InvalidToolError": "invalid_tool",
    "InvalidToolIDError": "invalid_tool_id",
    "InvalidVersionError": "invalid_version",
    "LimitExceededError": "limit_exceeded",
    "LimitNotEnforceableError": "limit_not_enforceable",
    "LoginError": "login",
    "LoginRequiredError": "login_required",
    "MissingExtraError": "missing_extra",
    "UnsupportedPlatformError": "unsupported_platform",
    "NoBackendsError": "no_backends",
    "OutputValidationError": "validation_output",
    "PolicyError": "policy_denied",
    "ProtocolError": "protocol",
    "ProviderNotFoundError": "provider_not_found",
    "RateLimitedError": "rate_limited",
    "RunError": "run",
    "RunBusyError": "run_busy",
    "RunWaitingError": "run_waiting",
    "JournalError": "journal",
    "RemoteToolError": "remote_tool_failed",
    "ResultHeldError": "result_held",
    "ResultNotFoundError": "result_not_found",
    "SandboxDeniedError": "sandbox_denied",
    "SandboxError": "sandbox",
    "SandboxFailedError": "sandbox_failed",
    "SandboxUnavailableError": "sandbox_unavailable",
    "SandboxViolationError": "sandbox_violation",
    "SecretError": "secret",
    "StateError": "state",
    "StreamNotSupportedError": "stream_not_supported",
    "ToolCallLimitError": "tool_call_limit",
    "ToolConflictError": "tool_conflict",
    "ToolExecError": "internal",
    "ToolNotAllowedError": "tool_not_allowed",
    "NotOfferedError": "not_offered",
    "ToolNotFoundError": "tool_not_found",
    "ToolTimeoutError": "timeout",
    "WorkflowCheckError": "workflow_check",
    "WorkflowSyntaxError": "workflow_syntax",
}
FURTHER_CODES = {
    "AuditError": ("ledger",),
    "BackendError": ("backend_exists", "tool_collision"),
    "BackendUnavailableError": ("circuit_open",),
    "CassetteError": ("cassette_busy", "cassette_secret"),
    "ConfigurationError": ("already_started", "invalid_detail", "invalid_provider", "not_started"),
    "InvalidRequestError": (
        "invalid_module",
        "missing_code",
        "missing_gateway",
        "request_too_large",
        "run_id_taken",
    ),
    "InvalidSchemaError": ("unsupported_schema",),
    "InvalidToolError": ("example_too_large", "invalid_binding"),
    "PolicyError": ("effect_in_progress", "no_caller", "no_credentials", "outcome_unknown"),
    "RunError": (
        "run_not_found",
        "run_ended",
        "run_lost",
        "run_cancelled",
        "run_changed",
        "run_diverged",
        "run_unanswered",
    ),
    "SandboxDeniedError": (
        "address_denied",
        "identity_unproven",
        "signature_invalid",
        "signature_replayed",
        "signature_stale",
        "unauthenticated",
    ),
    "SandboxFailedError": ("remote_run_lost",),
    "SandboxUnavailableError": ("queue_full", "quota_exceeded", "runtime_draining", "wrong_incarnation"),
}
RETRYABLE = {
    "BackendBusyError",
    "BackendUnavailableError",
    "ConnectionLostError",
    "GatewayTimeoutError",
    "RateLimitedError",
    "RunBusyError",
    "StateError",
    "ToolTimeoutError",
}
VIOLATION = Violation(path="/a", keyword="type", message="5 is not of type 'string'", expected="string", got=5)


def _classes(root: type[ToolExecError] = ToolExecError) -> Iterator[type[ToolExecError]]:
    if not root.__name__.startswith("_"):
        yield root
    for child in root.__subclasses__():
        if child.__module__.startswith(errors.__name__):
            yield from _classes(child)


ALL = sorted(_classes(), key=lambda kind: kind.__name__)


def _make(kind: type[ToolExecError]) -> ToolExecError:
    """One of each."""
    made: ToolExecError
    if issubclass(kind, InputValidationError | OutputValidationError):
        made = kind([VIOLATION], tool_id="ns:t", op="validate")
    elif kind is ToolNotFoundError:
        made = ToolNotFoundError("ns:t", close=["ns:u"])
    elif kind is MissingExtraError:
        made = MissingExtraError("mcp", needed_for="an MCP server")
    elif kind is ConversionError:
        made = ConversionError("openai", "to_tool", "it has no name", tool_id="ns:t")
    elif kind is CodeError:
        made = CodeError("it went wrong", line=2, column=5, source="x = 1/0", kind="ZeroDivisionError", traceback="...")
        made.locate(tool_id="ns:t", op="execute", backend="b")
    else:
        made = kind("it went wrong", tool_id="ns:t", op="execute", backend="b", details={"n": 1})
    return made


def _drawn() -> dict[str, str]:
    """Name → parent, as drawn at the top of the package."""
    text = inspect.getdoc(errors) or ""
    tree = text.split("```")[1].strip().splitlines()
    parents: dict[str, str] = {}
    path = [tree[0].strip()]
    for line in tree[1:]:
        match = re.match(r"^([│ ]*)[├└]─ (\w+)", line)
        assert match, line
        depth = len(match[1]) // 4 + 1
        parents[match[2]] = path[depth - 1]
        path = [*path[:depth], match[2]]
    return parents


def _parent(kind: type) -> str:
    base = kind.__bases__[0]
    return _parent(base) if base.__name__.startswith("_") else base.__name__


def test_the_drawing_is_the_tree() -> None:
    """Every class is drawn once, under its parent, in the order of definition, and nothing else is."""
    assert _drawn() == {kind.__name__: _parent(kind) for kind in ALL if kind is not ToolExecError}


def test_every_class_is_public() -> None:
    """`__all__` has them all."""
    assert {kind.__name__ for kind in ALL} == set(errors.__all__) - {"Outcome", "Violation"}


def test_the_codes_are_these() -> None:
    """A code is a promise: changing one breaks its readers."""
    assert {kind.__name__: kind.code for kind in ALL} == CODES
    further = {kind.__name__: vars(kind)["further_codes"] for kind in ALL if vars(kind).get("further_codes")}
    assert further == FURTHER_CODES


def test_the_codes_are_unique() -> None:
    """A code names one class."""
    codes = [code for kind in ALL for code in (kind.code, *vars(kind).get("further_codes", ()))]
    assert len(set(codes)) == len(codes)


def test_what_is_retryable() -> None:
    """By default it is what may work the next time."""
    assert {kind.__name__ for kind in ALL if kind.default_retryable} == RETRYABLE


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
class TestEveryError:
    """What holds for each class."""

    def test_it_says_when(self, kind: type[ToolExecError]) -> None:
        """Its docstring is its own, and begins with one plain sentence; only fields of its own need more."""
        text = (kind.__dict__.get("__doc__") or "").partition(">>> ")[0].rstrip()  # an example may follow
        assert re.match(r"^[A-Z].{10,}[.;]", text.strip(), re.DOTALL), text
        assert "\n\n" not in text or "__init__" in vars(kind)

    def test_it_is_json(self, kind: type[ToolExecError]) -> None:
        """Its data survive JSON."""
        error = _make(kind)
        data = error.to_dict()
        assert json.loads(json.dumps(data)) == data
        assert data["code"] == kind.code
        assert data["message"] == error.message
        assert str(error).startswith(error.message)
        assert data["retryable"] is error.retryable

    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
    def test_it_can_be_copied(self, kind: type[ToolExecError], duplicate: Any) -> None:
        """Copies, and errors from another process, are the same kind with the same data."""
        error = _make(kind)
        other = duplicate(error)
        assert type(other) is kind
        assert other.to_dict() == error.to_dict()


@pytest.mark.parametrize(("name", "code"), [(name, code) for name, codes in FURTHER_CODES.items() for code in codes])
def test_an_error_may_say_more_exactly_what_happened(name: str, code: str) -> None:
    """A further code is in its data and survives copies; the class keeps its own."""
    kind: type[ToolExecError] = getattr(errors, name)
    error = kind("no", code=code)
    assert error.to_dict()["code"] == code
    assert pickle.loads(pickle.dumps(error)).code == code
    assert copy.copy(error).code == code
    assert kind.code == CODES[name]


def test_errors_carry_what_their_handlers_need() -> None:
    """Typed fields take the place of `details`; they read the same from an error that came over a wire."""
    assert ToolNotFoundError("ad", close=["add"]).close == ("add",)
    assert MissingExtraError("mcp", needed_for="a server").extra == "mcp"
    assert RateLimitedError("wait", details={"retry_after": 2.5}).retry_after == 2.5
    assert LimitExceededError("no", details={"resource": "memory"}).resource == "memory"
    assert PolicyError("no", details={"rule": "rule 1", "reason": "it is late"}).rule == "rule 1"
    assert ToolTimeoutError("late", details={"timeout": 3.0}).timeout == 3.0
    assert RemoteToolError("no").content == ()
    assert ConfigurationError("no").setting == ""


def test_where_it_happened_is_filled_in() -> None:
    """`locate` completes what is missing and never overwrites."""
    error = ToolExecError("no", op="resolve")
    assert error.locate(tool_id="ns:t", op="execute", backend="b") is error
    assert (error.tool_id, error.op, error.backend) == ("ns:t", "resolve", "b")


def test_whether_to_try_again_can_be_said() -> None:
    """A single error may know better than its class."""
    assert ToolExecError("no", retryable=True).retryable
    assert not BackendUnavailableError("gone for good", retryable=False).retryable


def test_details_are_its_own() -> None:
    """Later changes of the given mapping do not reach the error."""
    details = {"a": 1}
    error = ToolExecError("no", details=details)
    details["a"] = 2
    assert error.details == {"a": 1}


def test_what_is_unknown_is_left_out() -> None:
    """There are no empty fields."""
    assert ToolExecError("no").to_dict() == {"code": "internal", "message": "no", "retryable": False}


def test_a_passed_deadline_is_a_timeout_error() -> None:
    """An `except TimeoutError` catches it."""
    assert issubclass(ToolTimeoutError, TimeoutError)


def test_every_violation_is_told() -> None:
    """The message has up to eight, the data all of them."""
    error = InputValidationError([VIOLATION] * 20, tool_id="ns:t")
    assert str(error).startswith("arguments of ns:t are not valid: /a: 5 is not")
    assert str(error).endswith("and 12 more")
    assert len(error.violations) == len(error.to_dict()["details"]["violations"]) == 20
    assert str(OutputValidationError([VIOLATION])).startswith("result is not valid: /a:")


def test_a_violation_of_the_whole() -> None:
    """The empty path reads as the root."""
    violation = Violation(path="", keyword="required", message="'a' is missing")
    assert "(root): 'a' is missing" in str(InputValidationError([violation]))


def test_unknown_tools_suggest_others() -> None:
    """Similar names if there are any, else the way to search; a hostile name does not flood the message."""
    assert str(ToolNotFoundError("ad", close=["add", "and"])) == "no tool ad; did you mean add or and?"
    assert "search" in str(ToolNotFoundError("ad"))
    assert len(str(ToolNotFoundError("x" * 10_000))) < 300


def test_a_missing_extra_says_how_to_get_it() -> None:
    """A missing extra is a configuration error whose message is the command to run."""
    error = MissingExtraError("mcp", needed_for="an MCP server")
    assert isinstance(error, ConfigurationError)
    assert "pip install 'toolexec[mcp]'" in str(error)


def test_a_program_says_where_it_failed() -> None:
    """Line and column are in the text as far as they are known, and everything is in the data."""
    error = CodeError("no such name", line=3, column=7, source="prnt(1)", kind="NameError", traceback="Traceback ...")
    assert str(error) == "no such name (line 3, col 7)"
    assert error.message == "no such name"
    expected = {"line": 3, "column": 7, "source": "prnt(1)", "kind": "NameError", "traceback": "Traceback ..."}
    assert error.details == expected
    assert str(CodeError("no", line=3)) == "no (line 3, col 0)"
    assert str(CodeError("no", column=7)) == "no"
    assert CodeError("no").details == {}


def test_a_dead_sandbox_is_not_a_failed_program() -> None:
    """Neither class is the base of the other."""
    assert not issubclass(CodeError, SandboxError)
    assert not issubclass(SandboxFailedError, CodeExecutionError)


def test_a_program_that_fails_is_code_that_failed() -> None:
    """Such a failure is one of the code, not of a tool and not of a limit; its cause can be attached."""
    cause = ValueError("inner")
    with pytest.raises(CodeExecutionError) as caught:
        raise CodeError("no") from cause
    assert caught.value.__cause__ is cause
    assert not isinstance(caught.value, ExecutionError | LimitExceededError)
