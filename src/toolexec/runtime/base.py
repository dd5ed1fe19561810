"""What a sandbox backend promises: start an isolated guest, run code in it, say truthfully what it enforced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from toolexec.code.limits import LimitsEnforced
from toolexec.code.types import BackendInfo, CodeResult, ExecuteRequest
from toolexec.errors import SandboxError, ToolExecError

LANGUAGES: Final = frozenset({"python", "bash", "javascript", "go"})
"""The languages of guests that talk over a stream."""

AnyError = TypeVar("AnyError", bound=ToolExecError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether a backend can run something here and now; if not, why, and the command or setting that fixes it.

    With `is_fault` something is wrong that a person has to look at, as files of another user in place of its own: then
    no other sandbox takes its place, and the run is refused. `error` is what a run gets now, if it is known: where it
    is `retryable`, `execute` waits for the backend within the time limit, so a run that no other sandbox can take is
    left to it.
    """

    ok: bool
    reason: str = ""
    remedy: str = ""
    version: str = ""
    is_fault: bool = False
    error: SandboxError | None = None


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
        """Return which limits would hold for *request*, before anything runs."""
        ...

    async def check(self) -> Availability:
        """Return whether it can run something here and now. Never raises, quick when asked again."""
        ...

    async def execute(self, request: ExecuteRequest) -> CodeResult:
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

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run one more program; see `SandboxBackend.execute`.

        A run that is stopped, at its deadline or by a cancellation, leaves the session as it is where the sandbox can
        interrupt a program, and the program obeys: the `session` of the error's details is `kept` then. Otherwise the
        state is lost, and the next run raises SandboxFailedError that says so.
        """
        ...

    async def aclose(self) -> None:
        """End the guest."""
        ...


@runtime_checkable
class SessionBackend(Protocol):
    """A backend whose guests can live longer than one run."""

    async def open_session(self, request: ExecuteRequest) -> SandboxSession:
        """Return a guest for programs in the language and under the profile of *request*, whose code is not run.

        Raises SandboxUnavailableError or InvalidRequestError.
        """
        ...


def info_of(backend: SandboxBackend, **details: Any) -> BackendInfo:
    """Return what a result says about the backend that made it; how ready that is, the runtime adds."""
    return BackendInfo(kind=backend.kind, isolation=backend.isolation, details=details)


def judged_kind(backend: SandboxBackend) -> str:
    """Return the kind of the sandbox that runs the code in the end: that of `inner`, a sandbox or the name of a kind,
    where a backend has others do the work. Profiles choose by it."""
    inner = getattr(backend, "inner", None)
    if isinstance(inner, str):
        return inner
    return judged_kind(inner) if isinstance(inner, SandboxBackend) else backend.kind


def located(error: AnyError, backend: SandboxBackend) -> AnyError:
    """Return *error* with the kind of sandbox that it happened in."""
    return error.locate(op="execute", backend=backend.kind)
