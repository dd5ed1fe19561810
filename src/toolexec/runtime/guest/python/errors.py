"""The errors of tools as a program sees them: the same names, codes and fields as on the host."""

from __future__ import annotations

from typing import Any

large_value: Any = None
"""Makes a value from the host's description of one that it keeps; set by the owner of a channel to the host."""


class ToolError(Exception):
    """A tool call failed; `except ToolError` catches every such failure.

    `code` is a stable word, `message` the text, `retryable` whether another try may help. `tool_id`, `op`, `backend`
    and `details` are set where they are known. `value` is what the tool gave where it ran and only broke its output
    schema.
    """

    code = "internal"
    host_class = ""

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "",
        tool_id: Any = None,
        op: Any = None,
        backend: Any = None,
        retryable: bool = False,
        details: Any = None,
        value: Any = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code: str = code or type(self).code
        self.tool_id = tool_id
        self.op = op
        self.backend = backend
        self.retryable = retryable
        self.details: Any = details or {}
        self.value: Any = value
        self._held: Any = None

    def __getattribute__(self, name: str) -> Any:
        if name == "value" and self._held is not None:
            held, self._held = self._held, None
            self.value = large_value(held)
        return super().__getattribute__(name)


def _tree() -> dict[str, tuple[str, str]]:
    """Code → name of the class and of its parent."""
    rows = """
        tool_not_found ToolNotFoundError ToolError
        invalid_tool_id InvalidToolIDError ToolError
        doc_not_found DocNotFoundError ToolError
        invalid_detail InvalidDetailError ToolError
        invalid_chain InvalidChainError ToolError
        no_backends NoBackendsError ToolError
        validation_input InputValidationError ToolError
        validation_output OutputValidationError ToolError
        invalid_schema InvalidSchemaError ToolError
        configuration ConfigurationError ToolError
        backend BackendError ToolError
        backend_not_found BackendNotFoundError BackendError
        backend_disabled BackendDisabledError BackendError
        backend_unavailable BackendUnavailableError BackendError
        execution_failed ExecutionError ToolError
        handler_failed HandlerError ExecutionError
        invalid_result InvalidResultError ExecutionError
        remote_tool_failed RemoteToolError ExecutionError
        connection_lost ConnectionLostError ExecutionError
        timeout ToolTimeoutError ExecutionError
        policy_denied PolicyError ToolError
        tool_not_allowed ToolNotAllowedError PolicyError
        limit_exceeded LimitExceededError ToolError
        tool_call_limit ToolCallLimitError LimitExceededError
        chain_step_limit ChainStepLimitError LimitExceededError
        invalid_request InvalidRequestError ToolError
        gateway GatewayError ToolError
        connection_closed ConnectionClosedError GatewayError
        gateway_timeout GatewayTimeoutError GatewayError
        protocol ProtocolError GatewayError
    """
    return {code: (name, parent) for code, name, parent in map(str.split, rows.strip().splitlines())}


def _classes() -> dict[str, type]:
    made: dict[str, type] = {"ToolError": ToolError}
    for code, (name, parent) in _tree().items():
        bases = (made[parent], TimeoutError) if name.endswith("TimeoutError") else (made[parent],)
        made[name] = type(name, bases, {"code": code, "__module__": "tools", "__doc__": ToolError.__doc__})
    return made


CLASSES = _classes()
_BY_CODE = {kind.code: kind for kind in CLASSES.values()}  # type: ignore[attr-defined]


def tool_error(payload: Any) -> ToolError:
    """Return the error that a reply of the host describes."""
    if not isinstance(payload, dict):
        payload = {}
    code, named = payload.get("code"), payload.get("class")
    if isinstance(named, str):  # a tool may have failed with any code of its own
        kind: Any = CLASSES.get(named, ToolError)
    else:
        kind = _BY_CODE.get(code, ToolError) if isinstance(code, str) else ToolError
    about = payload.get("result")
    about = about if isinstance(about, dict) else {}
    error = kind(
        str(payload.get("error") or "unknown error"),
        code=code if isinstance(code, str) else "",
        tool_id=payload.get("toolId"),
        op=payload.get("op"),
        backend=payload.get("backend"),
        retryable=payload.get("retryable") is True,
        details=payload.get("details"),
        value=about.get("structured", about.get("handle")),
    )
    if isinstance(named, str):
        error.host_class = named
    if large_value is not None and "structured" not in about:
        error._held = about.get("handle")  # noqa: SLF001 - it is read on access
    return error
