"""What a sandbox backend promises: start an isolated guest, run code in it, say truthfully what it enforced.

Below the promises is what the sandboxes share whose guests talk over a stream: languages, results, sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar, get_args, runtime_checkable

from toolexec.code.limits import LimitsEnforced, trace_of
from toolexec.code.types import BackendInfo, CodeResult, ExecuteRequest
from toolexec.errors import InvalidRequestError, SandboxFailedError, ToolExecError
from toolexec.runtime.outcome import Ending, judge
from toolexec.runtime.runs import OwnRuns

__all__ = [
    "LANGUAGES",
    "PROFILES",
    "Availability",
    "ExecuteRequest",
    "ExecuteResult",
    "GuestSession",
    "Profile",
    "SandboxBackend",
    "SandboxSession",
    "SessionBackend",
    "info_of",
    "language_of",
    "located",
    "result_of",
]

Profile: TypeAlias = Literal["dev", "standard", "hardened"]
PROFILES: tuple[str, ...] = get_args(Profile)
LANGUAGES: Final = frozenset({"python", "bash", "javascript", "go"})
"""The languages of guests that talk over a stream."""
ExecuteResult = CodeResult
"""The former name of what came of a program; it stays for one release."""

AnyError = TypeVar("AnyError", bound=ToolExecError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Whether a backend can run something here and now; if not, why, and the command or setting that fixes it."""

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
        """Return a guest for programs in the language and under the profile of *request*, whose code is not run.

        Raises SandboxUnavailableError or InvalidRequestError.
        """
        ...


def info_of(backend: SandboxBackend, **details: Any) -> BackendInfo:
    """Return what a result says about the backend that made it; how ready that is, the runtime adds."""
    return BackendInfo(kind=backend.kind, isolation=backend.isolation, details=details)


def located(error: AnyError, backend: SandboxBackend) -> AnyError:
    """Return *error* with the kind of sandbox that it happened in."""
    return error.locate(op="execute", backend=backend.kind)


def language_of(backend: SandboxBackend, request: ExecuteRequest) -> str:
    """Return the language of a request that *backend* can run; raises InvalidRequestError for another one, and for a
    replay that it cannot give.
    """
    language = request.language or "python"
    if language not in LANGUAGES:
        known = ", ".join(sorted(LANGUAGES))
        raise located(InvalidRequestError(f"{backend.kind} does not run {language!r}; it runs {known}"), backend)
    if not request.best_effort and (request.now is not None or (request.seed is not None and language != "python")):
        what = "the clock" if request.now is not None else f"random numbers of {language}"
        raise located(
            InvalidRequestError(
                f"{backend.kind} cannot replay {what}; use the wasm sandbox, or best_effort=True to run without that"
            ),
            backend,
        )
    return language


def result_of(
    backend: SandboxBackend,
    request: ExecuteRequest,
    ending: Ending,
    began: float,
    details: Mapping[str, Any],
    files: dict[str, bytes],
) -> CodeResult:
    """Return what came of a run, as the caller gets it; *began* is the `perf_counter()` at its start."""
    error = judge(ending)
    payload = ending.result or {}
    return CodeResult(
        backend=info_of(backend, **details),
        value=payload.get("value") if error is None else None,
        stdout=request.output.text("stdout"),
        stderr=request.output.text("stderr"),
        tool_calls=trace_of(request.gateway),
        duration=perf_counter() - began,
        files=files,
        error=located(error, backend) if error is not None else None,
        limits_enforced=backend.enforces(request),
    )


class GuestSession:
    """One guest for Python that keeps its names from one program to the next; see `SandboxSession`.

    *run* runs a program in it, and says whether the guest can run another one after it. *close* ends the guest; it may
    be called more than once.
    """

    def __init__(
        self,
        backend: SandboxBackend,
        run: Callable[[ExecuteRequest], Coroutine[Any, Any, tuple[CodeResult, bool]]],
        close: Callable[[GuestSession], Awaitable[None]],
    ) -> None:
        self._backend = backend
        self._run = run
        self._close = close
        self._over = ""
        self._turn = asyncio.Lock()
        self._runs = OwnRuns()

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Implement `SandboxSession.execute`; programs that are given at the same time run one after the other."""
        async with self._turn:
            if self._over:
                raise located(SandboxFailedError(f"this session is over: {self._over}; open a new one"), self._backend)
            if request.language not in ("", "python"):
                raise located(InvalidRequestError(f"this session runs python, not {request.language}"), self._backend)
            try:
                result, lives = await self._runs.run(self._run(request))
            except InvalidRequestError:
                raise  # nothing was run
            except BaseException:
                await self._end("its last run was stopped")
                raise
            if not lives:
                await self._end("its last run was stopped, or ended the process")
            return result

    async def aclose(self) -> None:
        """Implement `SandboxSession.aclose`; a program that runs is cancelled."""
        await self._runs.aclose()
        await self._end("it was closed")

    async def _end(self, why: str) -> None:
        self._over = self._over or why
        await self._close(self)
