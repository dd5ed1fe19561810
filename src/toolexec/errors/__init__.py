"""Every error that toolexec raises, in one tree.

```
ToolExecError
├─ ConfigurationError              options, files or a missing extra
│   ├─ MissingExtraError           an optional dependency is not installed
│   ├─ UnsupportedPlatformError    a part of toolexec cannot work on this operating system
│   └─ SecretError                 a secret that the configuration refers to is not there
├─ InvalidToolError                a tool definition, its binding or an example is not acceptable
│   └─ ToolConflictError           the ID is taken by another definition
├─ InvalidSchemaError              a JSON Schema cannot be used
│   └─ ExternalRefError            it points outside of itself
├─ InvalidToolIDError              not `name`, `namespace:name` or `namespace:name:version`
├─ InvalidVersionError             not a semantic version or constraint
├─ InvalidCursorError              a page cursor of another query, index or index version
├─ InvalidChainError               a chain definition that cannot run
├─ ToolNotFoundError               no such tool
├─ NotOfferedError                 no server offers this resource or this prompt
├─ DocNotFoundError                nothing is known about this ID
├─ CatalogueError                  a stored catalogue cannot be used
├─ ProviderNotFoundError           no such provider
├─ NoBackendsError                 the tool exists, nothing hosts it
├─ InputValidationError            the arguments do not fit the input schema
├─ OutputValidationError           the result does not fit the output schema
├─ ConversionError                 a form of some vendor cannot be read or written
├─ StreamNotSupportedError         the tool answers in one piece
├─ ClosedError                     stopped because its Exec, session or runtime was closed
├─ BackendError                    a backend could not be used or added
│   ├─ BackendNotFoundError
│   ├─ BackendDisabledError
│   ├─ BackendUnavailableError     retryable: it may come back
│   │   └─ LoginRequiredError      the server wants a login that is not there
│   └─ BackendBusyError            retryable: it has no room for the call
├─ LoginError                      a login was refused or cannot be trusted
├─ ExecutionError                  the tool was called and failed
│   ├─ HandlerError                a Python handler raised or tried to exit
│   ├─ InvalidResultError          the result is not JSON
│   ├─ RemoteToolError             a remote tool reported an error
│   ├─ ConnectionLostError         retryable: the server died during the call
│   └─ ToolTimeoutError            retryable: the deadline passed (also a TimeoutError)
├─ PolicyError                     a rule forbids the call; nothing has run
│   ├─ ToolNotAllowedError         the code may not call this tool
│   ├─ ApprovalRequiredError       it needs approval, and there is no approver to ask
│   ├─ ApprovalDeniedError         the approver said no, or did not answer in time
│   └─ DefinitionChangedError      the tool is not the one that was accepted
├─ RateLimitedError                retryable: too many calls in too short a time
├─ ContextBudgetError              the conversation has cost as many tokens as it may
├─ AuditError                      the audit log cannot be written or does not verify
├─ ResultHeldError                 the answer is held for a person to read
├─ ResultNotFoundError             no result is kept under this handle
├─ CodeExecutionError              code was run and failed
│   ├─ CodeError                   the program's own failure: message, line, traceback
│   │   ├─ WorkflowSyntaxError     the text of a workflow cannot be parsed
│   │   └─ WorkflowCheckError      a workflow has mistakes that were found before it ran
│   └─ SandboxViolationError       it did what its sandbox forbids
├─ LimitExceededError              code used up what it was granted: memory, CPU time, processes, disk, calls
│   ├─ ToolCallLimitError          too many tool calls
│   ├─ ChainStepLimitError         a chain with too many steps
│   └─ CodeTimeoutError            its time was over (also a TimeoutError)
├─ SandboxError                    where code runs: the request, the choice of a sandbox, or the sandbox itself
│   ├─ InvalidRequestError         the request makes no sense; nothing has run
│   │   └─ InvalidLimitsError      negative, or looser than allowed
│   ├─ SandboxUnavailableError     no sandbox can take this; the message says what to install
│   ├─ SandboxDeniedError          a rule forbids this sandbox or asks for an opt-in
│   ├─ LimitNotEnforceableError    the sandbox cannot enforce a limit that was asked for
│   └─ SandboxFailedError          the sandbox died, or the program could not be run in it
├─ RunError                        a durable run cannot go on, or not be used as asked
│   ├─ RunBusyError                retryable: another process runs it, or it has not ended
│   └─ RunWaitingError             it is suspended until something happens
├─ JournalError                    the journal of durable runs cannot be read or written
├─ StateError                      retryable: the store of a server's sessions and waiting calls cannot be reached
├─ CassetteError                   a file of recorded calls cannot be used; no tool was called
│   ├─ CassetteMissError           no call like this one is recorded
│   └─ CassetteDriftError          a tool has other schemas than when it was recorded
└─ GatewayError                    the way back from a sandbox
    ├─ ConnectionClosedError       it is closed, or the other side is gone
    ├─ GatewayTimeoutError         no answer in time (also a TimeoutError)
    └─ ProtocolError               a message that breaks the protocol
```

An error carries data, so that its message need not be parsed: a stable `code`, and, where they are known, `tool_id`,
`op`, `backend`, `retryable` and `details`. A class has one code of its own, and some have `further_codes`, for
cases that no handler needs to catch apart. The original failure, if any, is its `__cause__`.
"""

from toolexec.errors.base import (
    ConfigurationError,
    MissingExtraError,
    ToolExecError,
    UnsupportedPlatformError,
)
from toolexec.errors.cassette import CassetteDriftError, CassetteError, CassetteMissError
from toolexec.errors.code import (
    ChainStepLimitError,
    CodeError,
    CodeExecutionError,
    CodeTimeoutError,
    ConnectionClosedError,
    GatewayError,
    GatewayTimeoutError,
    InvalidLimitsError,
    InvalidRequestError,
    LimitExceededError,
    LimitNotEnforceableError,
    ProtocolError,
    SandboxDeniedError,
    SandboxError,
    SandboxFailedError,
    SandboxUnavailableError,
    SandboxViolationError,
    ToolCallLimitError,
    ToolNotAllowedError,
    WorkflowCheckError,
    WorkflowSyntaxError,
)
from toolexec.errors.durable import (
    JournalError,
    RunBusyError,
    RunError,
    RunWaitingError,
    StateError,
)
from toolexec.errors.gate import (
    ApprovalDeniedError,
    ApprovalRequiredError,
    AuditError,
    ContextBudgetError,
    DefinitionChangedError,
    PolicyError,
    RateLimitedError,
    ResultHeldError,
    ResultNotFoundError,
    SecretError,
)
from toolexec.errors.outcome import Outcome
from toolexec.errors.tools import (
    BackendBusyError,
    BackendDisabledError,
    BackendError,
    BackendNotFoundError,
    BackendUnavailableError,
    CatalogueError,
    ClosedError,
    ConnectionLostError,
    ConversionError,
    DocNotFoundError,
    ExecutionError,
    ExternalRefError,
    HandlerError,
    InputValidationError,
    InvalidChainError,
    InvalidCursorError,
    InvalidResultError,
    InvalidSchemaError,
    InvalidToolError,
    InvalidToolIDError,
    InvalidVersionError,
    LoginError,
    LoginRequiredError,
    NoBackendsError,
    NotOfferedError,
    OutputValidationError,
    ProviderNotFoundError,
    RemoteToolError,
    StreamNotSupportedError,
    ToolConflictError,
    ToolNotFoundError,
    ToolTimeoutError,
    Violation,
)

__all__ = [
    "ApprovalDeniedError",
    "ApprovalRequiredError",
    "AuditError",
    "BackendBusyError",
    "BackendDisabledError",
    "BackendError",
    "BackendNotFoundError",
    "BackendUnavailableError",
    "CassetteDriftError",
    "CassetteError",
    "CassetteMissError",
    "CatalogueError",
    "ChainStepLimitError",
    "ClosedError",
    "CodeError",
    "CodeExecutionError",
    "CodeTimeoutError",
    "ConfigurationError",
    "ConnectionClosedError",
    "ConnectionLostError",
    "ContextBudgetError",
    "ConversionError",
    "DefinitionChangedError",
    "DocNotFoundError",
    "ExecutionError",
    "ExternalRefError",
    "GatewayError",
    "GatewayTimeoutError",
    "HandlerError",
    "InputValidationError",
    "InvalidChainError",
    "InvalidCursorError",
    "InvalidLimitsError",
    "InvalidRequestError",
    "InvalidResultError",
    "InvalidSchemaError",
    "InvalidToolError",
    "InvalidToolIDError",
    "InvalidVersionError",
    "JournalError",
    "LimitExceededError",
    "LimitNotEnforceableError",
    "LoginError",
    "LoginRequiredError",
    "MissingExtraError",
    "NoBackendsError",
    "NotOfferedError",
    "Outcome",
    "OutputValidationError",
    "PolicyError",
    "ProtocolError",
    "ProviderNotFoundError",
    "RateLimitedError",
    "RemoteToolError",
    "ResultHeldError",
    "ResultNotFoundError",
    "RunBusyError",
    "RunError",
    "RunWaitingError",
    "SandboxDeniedError",
    "SandboxError",
    "SandboxFailedError",
    "SandboxUnavailableError",
    "SandboxViolationError",
    "SecretError",
    "StateError",
    "StreamNotSupportedError",
    "ToolCallLimitError",
    "ToolConflictError",
    "ToolExecError",
    "ToolNotAllowedError",
    "ToolNotFoundError",
    "ToolTimeoutError",
    "UnsupportedPlatformError",
    "Violation",
    "WorkflowCheckError",
    "WorkflowSyntaxError",
]
