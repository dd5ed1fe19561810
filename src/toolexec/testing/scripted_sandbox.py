"""A sandbox that runs nothing: its programs are answers of yours."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable
from time import perf_counter
from typing import Any

from toolexec.code.limits import CountedGateway, LimitsEnforced
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import (
    CodeError,
    CodeTimeoutError,
    InvalidRequestError,
    SandboxDeniedError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.runtime.base import Availability, info_of

__all__ = ["ScriptedSandbox"]

_NOTHING_RUN = (InvalidRequestError, SandboxDeniedError, SandboxUnavailableError)


class ScriptedSandbox:
    """Answers programs by their text, records every request, and keeps the promises of a `SandboxBackend`.

    *programs* maps the code of a program to what comes of it:

    - a value: that is the program's value;
    - an exception: an InvalidRequestError, SandboxDeniedError or SandboxUnavailableError is raised, as nothing was run;
      any other ToolExecError is the error of the result; all else is the program's own failure;
    - a function, async or not: it gets the ExecuteRequest, calls tools through its gateway and prints to its output,
      and gives one of the above;
    - an CodeResult: that is the result.

    Code that is not among them gets *default*. The time limit holds for async functions. *enforced* is what it says it
    enforces beside time, and beside calls and steps where the gateway counts them. Everything may be changed later.

    >>> async def greet(request):
    ...     name = (await request.gateway.run_tool("people:name")).value
    ...     request.output.write("found one\\n")
    ...     return f"hello {name}"
    >>> async def main():
    ...     sandbox = ScriptedSandbox({"greet()": greet})
    ...     async with Exec(runtime_backends=[sandbox]) as ex:
    ...         ex.add(lambda: "Ada", "people:name")
    ...         result = await ex.execute_code("greet()", timeout=5)
    ...     return result.value, result.stdout, len(result.tool_calls), sandbox.requests[0].timeout
    >>> import asyncio
    >>> from toolexec import Exec
    >>> asyncio.run(main())
    ('hello Ada', 'found one\\n', 1, 5)
    """

    def __init__(
        self,
        programs: JSONObject | None = None,
        *,
        kind: str = "wasm",
        isolation: str = "wasm",
        languages: Iterable[str] = ("python",),
        default: Any = None,
        enforced: LimitsEnforced | None = None,
    ) -> None:
        self.programs: JSONDict = dict(programs or {})
        self.kind = kind
        self.isolation = isolation
        self.languages: frozenset[str] = frozenset(languages)
        self.default = default
        self.enforced: LimitsEnforced = enforced or LimitsEnforced()
        self.availability: Availability = Availability(ok=True)
        """What `check` answers."""
        self.closing_error: Exception | None = None
        """What `aclose` raises, once it has stopped everything."""
        self.requests: list[ExecuteRequest] = []
        self.closed: int = 0
        self._running: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> int:
        """How many programs run now."""
        return len(self._running)

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        """`enforced`, and what holds in any case."""
        counted = isinstance(request.gateway, Tools | CountedGateway)
        ours = self.enforced.to_dict()
        return LimitsEnforced(**{**ours, "timeout": True, "tool_calls": counted, "chain_steps": counted})

    async def check(self) -> Availability:
        """`availability`."""
        return self.availability

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Answer the program; see `SandboxBackend.execute`."""
        self.requests.append(request)
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        started = perf_counter()
        try:
            result = await self._result(request)
        finally:
            self._running.discard(task)
        result.duration = perf_counter() - started
        return result

    async def aclose(self) -> None:
        """Stop what runs; raises `closing_error`, if there is one."""
        self.closed += 1
        running = [*self._running]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        if self.closing_error is not None:
            raise self.closing_error

    async def _result(self, request: ExecuteRequest) -> CodeResult:
        answer = self.programs.get(request.code, self.default)
        limit = asyncio.timeout(request.seconds)
        try:
            async with limit:
                while callable(answer):
                    answer = answer(request)
                    if inspect.isawaitable(answer):
                        answer = await answer
        except TimeoutError as error:
            answer = CodeTimeoutError(f"stopped after {request.seconds:g} s") if limit.expired() else error
        except Exception as error:
            answer = error
        if isinstance(answer, CodeResult):
            return answer
        result = CodeResult(
            backend=info_of(self),
            stdout=request.output.text("stdout"),
            stderr=request.output.text("stderr"),
            limits_enforced=self.enforces(request),
        )
        if isinstance(answer, BaseException):
            result.error = self._failure(answer)
        else:
            result.value = answer
        return result

    def _failure(self, answer: BaseException) -> ToolExecError:
        """Return the error of a result; raises errors that say that nothing was run."""
        if isinstance(answer, _NOTHING_RUN):
            raise answer
        if not isinstance(answer, Exception):
            return SandboxFailedError(f"the sandbox was ended by {type(answer).__name__}", backend=self.kind)
        if isinstance(answer, ToolExecError):
            return answer.locate(op="execute", backend=self.kind)
        kind = type(answer).__name__
        return CodeError(f"{kind}: {answer}", kind=kind, op="execute", backend=self.kind)
