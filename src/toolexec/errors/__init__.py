"""Every error that toolexec raises, in one tree.

```
ToolExecError
├─ ConfigurationError              options, files or a missing extra
│   ├─ MissingExtraError           an optional dependency is not installed
│   ├─ UnsupportedPlatformError    a part of toolexec cannot work on this operating system
│   └─ SecretError                 a secret that the configuration refers to is not there
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
├─ CatalogueError                  a stored catalogue cannot be used
├─ InvalidProviderError            what is no provider's card, or no ID of one
├─ ProviderNotFoundError           no such provider
├─ NotStartedError                 it is asked for what there is only once it is started
├─ AlreadyStartedError             it is started twice
├─ NoBackendsError                 the tool exists, nothing hosts it
├─ InputValidationError            the arguments do not fit the input schema
├─ OutputValidationError           the result does not fit the output schema
├─ ConversionError                 a form of some vendor cannot be read or written
├─ StreamNotSupportedError         the tool answers in one piece
├─ ClosedError                     stopped because its Exec, session or runtime was closed
├─ BackendError                    a backend could not be used
│   ├─ BackendNotFoundError
│   ├─ BackendExistsError
│   ├─ BackendDisabledError
│   ├─ BackendUnavailableError     retryable: it may come back
│   ├─ BackendBusyError            retryable: it has no room for the call
│   └─ ToolCollisionError          two backends list one ID
├─ ExecutionError                  the tool was called and failed
│   ├─ HandlerError                a Python handler raised or tried to exit
│   ├─ InvalidResultError          the result is not JSON
│   ├─ RemoteToolError             a remote tool reported an error
│   ├─ ConnectionLostError         retryable: the server died during the call
│   └─ ToolTimeoutError            retryable: the deadline passed (also a TimeoutError)
├─ PolicyError                     a rule forbids the call; nothing has run
│   ├─ ToolNotAllowedError         the code may not call this tool
│   ├─ ApprovalRequiredError       it needs approval, and nobody can be asked
│   ├─ ApprovalDeniedError         somebody was asked and said no
│   └─ DefinitionChangedError      the tool is not the one that was accepted
├─ RateLimitedError                retryable: too many calls in too short a time
├─ AuditError                      the audit log cannot be written or does not verify
├─ ResultNotFoundError             no result is kept under this handle
├─ CodeExecutionError              code was run and failed
│   ├─ CodeError                   the program's own failure: message, line, traceback
│   └─ SandboxViolationError       it did what its sandbox forbids
├─ LimitExceededError              code used up what it was granted: memory, CPU time, processes, disk, calls
│   ├─ ToolCallLimitError          too many tool calls
│   ├─ ChainStepLimitError         a chain with too many steps
│   └─ CodeTimeoutError            its time was over (also a TimeoutError)
├─ SandboxError                    where code runs: the request, the choice of a sandbox, or the sandbox itself
│   ├─ InvalidRequestError         the request makes no sense; nothing has run
│   │   ├─ MissingGatewayError
│   │   ├─ MissingCodeError
│   │   ├─ InvalidLimitsError      negative, or looser than allowed
│   │   └─ InvalidModuleError      not a WebAssembly module
│   ├─ SandboxUnavailableError     no sandbox can take this; the message says what to install
│   ├─ SandboxDeniedError          a rule forbids this sandbox or asks for an opt-in
│   ├─ LimitNotEnforceableError    the sandbox cannot enforce a limit that was asked for
│   └─ SandboxFailedError          the sandbox died, or the program could not be run in it
└─ GatewayError                    the way back from a sandbox
    ├─ ConnectionClosedError       it is closed, or the other side is gone
    ├─ GatewayTimeoutError         no answer in time (also a TimeoutError)
    └─ ProtocolError               a message that breaks the protocol
```

An error carries data, so that nobody has to parse its message: a stable `code`, and `tool_id`, `op`, `backend`,
`retryable` and `details` as far as they are known. The original failure, if any, is its `__cause__`.
"""

import warnings

from toolexec.errors.base import (
    ConfigurationError,
    MissingExtraError,
    ToolExecError,
    UnsupportedPlatformError,
)
from toolexec.errors.code import (
    ChainStepLimitError,
    CodeError,
    CodeExecutionError,
    CodeTimeoutError,
    ConnectionClosedError,
    GatewayError,
    GatewayTimeoutError,
    InvalidLimitsError,
    InvalidModuleError,
    InvalidRequestError,
    LimitExceededError,
    LimitNotEnforceableError,
    MissingCodeError,
    MissingGatewayError,
    ProtocolError,
    SandboxDeniedError,
    SandboxError,
    SandboxFailedError,
    SandboxUnavailableError,
    SandboxViolationError,
    ToolCallLimitError,
    ToolNotAllowedError,
)
from toolexec.errors.gate import (
    ApprovalDeniedError,
    ApprovalRequiredError,
    AuditError,
    DefinitionChangedError,
    PolicyError,
    RateLimitedError,
    ResultNotFoundError,
    SecretError,
)
from toolexec.errors.tools import (
    AlreadyStartedError,
    BackendBusyError,
    BackendDisabledError,
    BackendError,
    BackendExistsError,
    BackendNotFoundError,
    BackendUnavailableError,
    CatalogueError,
    ClosedError,
    ConnectionLostError,
    ConversionError,
    DocNotFoundError,
    ExampleTooLargeError,
    ExecutionError,
    ExternalRefError,
    HandlerError,
    InputValidationError,
    InvalidBindingError,
    InvalidChainError,
    InvalidCursorError,
    InvalidDetailError,
    InvalidProviderError,
    InvalidResultError,
    InvalidSchemaError,
    InvalidToolError,
    InvalidToolIDError,
    InvalidVersionError,
    NoBackendsError,
    NotStartedError,
    OutputValidationError,
    ProviderNotFoundError,
    RemoteToolError,
    StreamNotSupportedError,
    ToolCollisionError,
    ToolConflictError,
    ToolNotFoundError,
    ToolTimeoutError,
    UnsupportedSchemaError,
    Violation,
)

__all__ = [
    "AlreadyStartedError",
    "ApprovalDeniedError",
    "ApprovalRequiredError",
    "AuditError",
    "BackendBusyError",
    "BackendDisabledError",
    "BackendError",
    "BackendExistsError",
    "BackendNotFoundError",
    "BackendUnavailableError",
    "CatalogueError",
    "ChainStepLimitError",
    "ClosedError",
    "CodeError",
    "CodeExecutionError",
    "CodeTimeoutError",
    "ConfigurationError",
    "ConnectionClosedError",
    "ConnectionLostError",
    "ConversionError",
    "DefinitionChangedError",
    "DocNotFoundError",
    "ExampleTooLargeError",
    "ExecutionError",
    "ExternalRefError",
    "GatewayError",
    "GatewayTimeoutError",
    "HandlerError",
    "InputValidationError",
    "InvalidBindingError",
    "InvalidChainError",
    "InvalidCursorError",
    "InvalidDetailError",
    "InvalidLimitsError",
    "InvalidModuleError",
    "InvalidProviderError",
    "InvalidRequestError",
    "InvalidResultError",
    "InvalidSchemaError",
    "InvalidToolError",
    "InvalidToolIDError",
    "InvalidVersionError",
    "LimitExceededError",
    "LimitNotEnforceableError",
    "MissingCodeError",
    "MissingExtraError",
    "MissingGatewayError",
    "NoBackendsError",
    "NotStartedError",
    "OutputValidationError",
    "PolicyError",
    "ProtocolError",
    "ProviderNotFoundError",
    "RateLimitedError",
    "RemoteToolError",
    "ResultNotFoundError",
    "SandboxDeniedError",
    "SandboxError",
    "SandboxFailedError",
    "SandboxUnavailableError",
    "SandboxViolationError",
    "SecretError",
    "StreamNotSupportedError",
    "ToolCallLimitError",
    "ToolCollisionError",
    "ToolConflictError",
    "ToolExecError",
    "ToolNotAllowedError",
    "ToolNotFoundError",
    "ToolTimeoutError",
    "UnsupportedPlatformError",
    "UnsupportedSchemaError",
    "Violation",
]

_RENAMED: dict[str, type[ToolExecError]] = {
    "ProgramFailedError": CodeError,
    "ResourceLimitError": LimitExceededError,
    "SandboxTimeoutError": CodeTimeoutError,
}


def __getattr__(name: str) -> type[ToolExecError]:
    """Give the class that has taken the place of a removed one, for one release."""
    kind = _RENAMED.get(name)
    if kind is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"toolexec.errors.{name} is {kind.__name__} now; use that", DeprecationWarning, stacklevel=2)
    return kind
