"""What a sandbox backend promises: start an isolated guest, run code in it, say truthfully what it enforced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar, get_args, runtime_checkable

from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.code.output import Output
from toolexec.code.types import BackendInfo, ToolCallRecord
from toolexec.errors import InvalidRequestError, MissingCodeError, MissingGatewayError, ToolExecError
from toolexec.runtime.gateway.base import Gateway

__all__ = [
    "DEFAULT_TIMEOUT",
    "PROFILES",
    "Availability",
    "ExecuteRequest",
    "ExecuteResult",
    "Profile",
    "SandboxBackend",
    "SandboxSession",
    "SessionBackend",
]

Profile: TypeAlias = Literal["dev", "standard", "hardened"]
PROFILES: tuple[str, ...] = get_args(Profile)
DEFAULT_TIMEOUT = 30.0
Failure = TypeVar("Failure", bound=ToolExecError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteRequest:
    """One program to run.

    `gateway` is its way to the tools and `output` takes what it prints, while it runs. `timeout` is in seconds for the
    whole run. `files` are put into its private working directory, by relative path. `env` are its only environment
    variables of the caller. With `seed` and `now` (a Unix time) random numbers and clock can be replayed. `args` and
    `stdin` are for programs that read them. `best_effort` accepts a sandbox that cannot enforce every limit asked for.
    `metadata` is for the backend; known keys: `unsafeOptIn`, `wasm_module`, `wasm_module_b64`.
    """

    code: str
    gateway: Gateway | None = None
    language: str = ""
    timeout: float | None = None
    limits: Limits = field(default_factory=Limits)
    profile: str = ""
    output: Output = field(default_factory=Output)
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    args: Sequence[str] = ()
    stdin: bytes = b""
    seed: int | None = None
    now: float | None = None
    best_effort: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def validate(self) -> Self:
        """The request itself; raises MissingGatewayError, MissingCodeError or InvalidRequestError.

        A WebAssembly module in the metadata stands for the code.
        """
        if not isinstance(self.gateway, Gateway):
            raise MissingGatewayError("a gateway is required: code without one could call no tool; use DirectGateway")
        if not isinstance(self.code, str):
            raise MissingCodeError(f"code must be text, not {type(self.code).__name__}")
        if not self.code.strip() and not self.metadata.get("wasm_module") and not self.metadata.get("wasm_module_b64"):
            raise MissingCodeError("code is required")
        if self.timeout is not None and not _is_above_zero(self.timeout):
            raise InvalidRequestError(f"a timeout must be above 0 seconds, not {self.timeout!r}")
        if not all(isinstance(name, str) and isinstance(value, str) for name, value in self.env.items()):
            raise InvalidRequestError("env must map names to texts")
        if not all(isinstance(name, str) and isinstance(value, bytes) for name, value in self.files.items()):
            raise InvalidRequestError("files must map relative paths to bytes")
        return self

    @property
    def seconds(self) -> float:
        """The time limit that holds: the one asked for, else 30 s."""
        return self.timeout if self.timeout is not None else DEFAULT_TIMEOUT


@dataclass(slots=True, kw_only=True)
class ExecuteResult:
    """What came of a program.

    `error` is set when the program failed (CodeError), was stopped (CodeTimeoutError, LimitExceededError,
    SandboxViolationError) or lost its sandbox (SandboxFailedError); what was captured until then is here all the same.
    `limits_enforced` is true only for what would really have stopped the program. `duration` is in seconds.
    """

    backend: BackendInfo
    value: Any = None
    stdout: str = ""
    stderr: str = ""
    tool_calls: list[ToolCallRecord] = field(default_factory=list[ToolCallRecord])
    duration: float = 0.0
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    error: ToolExecError | None = None
    limits_enforced: LimitsEnforced = field(default_factory=LimitsEnforced)

    @property
    def ok(self) -> bool:
        """Whether the program ran to its end."""
        return self.error is None

    def raise_for_error(self) -> ExecuteResult:
        """The result itself, or its error raised."""
        if self.error is not None:
            raise self.error
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether a backend can run something here and now; if not, why, and the command or setting that mends it."""

    ok: bool
    reason: str = ""
    remedy: str = ""
    version: str = ""


@runtime_checkable
class SandboxBackend(Protocol):
    """Hosts code. Safe for many runs at once.

    `kind` is its name, `isolation` what surrounds the code in the end (`none`, `process`, `wasm`, `container`, `vm`):
    a backend that has another one do the work says what that one has. `languages` are those that it can run.
    """

    kind: str
    isolation: str
    languages: frozenset[str]

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        """Which limits would hold for *request*, before anything runs."""
        ...

    async def check(self) -> Availability:
        """Whether it can run something here and now. Never raises, quick when asked again."""
        ...

    async def execute(self, request: ExecuteRequest) -> ExecuteResult:
        """Run a program that the router has validated.

        Raises SandboxUnavailableError, InvalidRequestError or SandboxDeniedError when nothing was run; cancelling
        stops the program. Everything else, the program's own failure too, is in the result.
        """
        ...

    async def aclose(self) -> None:
        """Stop what runs and free everything."""
        ...


class SandboxSession(Protocol):
    """One guest that runs several programs, one after the other, and keeps its state between them."""

    async def execute(self, request: ExecuteRequest) -> ExecuteResult:
        """Run one more program; see `SandboxBackend.execute`.

        After a run that had to be stopped the state is lost, and the next one raises SandboxFailedError that says so.
        """
        ...

    async def aclose(self) -> None:
        """End the guest."""
        ...


@runtime_checkable
class SessionBackend(Protocol):
    """A backend whose guests can live longer than one run."""

    async def open_session(self, request: ExecuteRequest) -> SandboxSession:
        """A guest for programs in the language and under the profile of *request*, whose code is not run.

        Raises SandboxUnavailableError or InvalidRequestError.
        """
        ...


def info_of(backend: SandboxBackend, **details: Any) -> BackendInfo:
    """What a result says about the backend that made it; how ready that is, the runtime adds."""
    return BackendInfo(kind=backend.kind, isolation=backend.isolation, details=details)


def located(error: Failure, backend: SandboxBackend) -> Failure:
    """*error* with the kind of sandbox that it happened in."""
    return error.locate(op="execute", backend=backend.kind)


def _is_above_zero(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
