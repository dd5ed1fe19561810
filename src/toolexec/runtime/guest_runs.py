"""What sandboxes have in common whose guests talk over a stream: the languages, the result of a run, and sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from time import perf_counter
from typing import Any, Final

from toolexec.code.types import CodeResult
from toolexec.errors import InvalidRequestError, SandboxFailedError
from toolexec.runtime.base import ExecuteRequest, OwnRuns, SandboxBackend, info_of, located
from toolexec.runtime.outcome import Ending, judge

__all__ = ["LANGUAGES", "GuestSession", "language_of", "result_of"]

LANGUAGES: Final = frozenset({"python", "bash", "javascript", "go"})


def language_of(backend: SandboxBackend, request: ExecuteRequest) -> str:
    """The language of a request that *backend* can run; raises InvalidRequestError for another one, and for a replay
    that it cannot give."""
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
    """What came of a run, as the caller gets it; *began* is the `perf_counter()` at its start."""
    error = judge(ending)
    payload = ending.result or {}
    trace: Any = getattr(request.gateway, "tool_calls", None)
    return CodeResult(
        backend=info_of(backend, **details),
        value=payload.get("value") if error is None else None,
        stdout=request.output.text("stdout"),
        stderr=request.output.text("stderr"),
        tool_calls=list(trace()) if trace is not None else [],
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
        """See `SandboxSession.execute`; programs that are given at the same time run one after the other."""
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
        """See `SandboxSession.aclose`; a program that runs is cancelled."""
        await self._runs.aclose()
        await self._end("it was closed")

    async def _end(self, why: str) -> None:
        self._over = self._over or why
        await self._close(self)
