"""What a sandbox backend promises: start an isolated guest, run code in it, say truthfully what it enforced."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, get_args, runtime_checkable

from toolexec.code.limits import LimitsEnforced
from toolexec.code.types import BackendInfo, CodeResult, ExecuteRequest
from toolexec.errors import ClosedError, ToolExecError

__all__ = [
    "PROFILES",
    "Availability",
    "ExecuteRequest",
    "ExecuteResult",
    "OwnRuns",
    "Profile",
    "SandboxBackend",
    "SandboxSession",
    "SessionBackend",
]

Profile: TypeAlias = Literal["dev", "standard", "hardened"]
PROFILES: tuple[str, ...] = get_args(Profile)
ExecuteResult = CodeResult
"""The former name of what came of a program; it stays for one release."""

T = TypeVar("T")
AnyError = TypeVar("AnyError", bound=ToolExecError)


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
        """A guest for programs in the language and under the profile of *request*, whose code is not run.

        Raises SandboxUnavailableError or InvalidRequestError.
        """
        ...


def info_of(backend: SandboxBackend, **details: Any) -> BackendInfo:
    """What a result says about the backend that made it; how ready that is, the runtime adds."""
    return BackendInfo(kind=backend.kind, isolation=backend.isolation, details=details)


def located(error: AnyError, backend: SandboxBackend) -> AnyError:
    """*error* with the kind of sandbox that it happened in."""
    return error.locate(op="execute", backend=backend.kind)


class OwnRuns:
    """Runs work for callers, each in a task that `aclose` cancels; the caller then gets a ClosedError.

    A caller that is cancelled itself cancels its work, and waits until that has ended.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what *work* gives; raises what it raises, and ClosedError when it was stopped by `aclose`."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # the cancellation is what the caller hears of
            raise
        if task.cancelled():
            raise ClosedError("the run was stopped: what it runs in was closed; make a new one and run it again")
        return task.result()

    async def aclose(self) -> None:
        """Cancel all work and wait until it has ended; work that closes what it runs in does not wait for itself."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
