"""What a result gets that a sandbox has given: its trace, the values of handles, notes, and advice on a failure."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from toolexec.code.limits import trace_of
from toolexec.code.repair.failure import Failure
from toolexec.code.repair.lacks import distribution_of, missing_module, needed_process
from toolexec.code.repair.prepare import MAX_REPAIRED
from toolexec.code.repair.silent import about_value, may_be_silent
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import CodeError, InvalidRequestError
from toolexec.process.threads import WorkerThreads
from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.needs import Needs

T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)
_MAX_SOURCE: Final = 2_000
_threads = WorkerThreads()  # reading a program of a model beside the values that it got may take a tenth of a second


async def completed(
    result: CodeResult,
    request: ExecuteRequest,
    backend: SandboxBackend,
    fitting: Callable[[Needs], Awaitable[list[tuple[str, str]]]],
) -> CodeResult:
    """Return the result of *backend* with the trace, values of handles, notes, and advice on a failure. *fitting* gives
    the other sandboxes, and their languages, that have what a program needs.
    """
    result = _with_values(result, request)
    error = result.error
    tools = request.gateway if isinstance(request.gateway, Tools) else None
    if error is None and tools is not None and len(request.code) <= MAX_REPAIRED:
        language = request.language or "python"
        if may_be_silent(request.code, language, tools):
            notes = await _read_by(about_value, request.code, language, tools, result.value)
            result.notes = [*result.notes, *(notes or ())]
    if not isinstance(error, CodeError):
        return result
    failure = Failure(
        kind=error.kind,
        message=error.message,
        code=request.code[:MAX_REPAIRED],
        backend=backend.kind,
        language=request.language or "python",
        source=(error.source or _line_of(request.code, error.line))[:_MAX_SOURCE],
        line=error.line,
        has_network=getattr(getattr(backend, "config", None), "egress", None) is not None,
        is_isolated=backend.isolation not in ("none", "process"),
    )
    ran = backend.kind, request.language or "python"
    found = await fitting(_needed_by(failure)) if failure.is_isolated else []
    elsewhere = [place for place in found if place != ran]
    if advice := await _read_by(_advise, failure, elsewhere, tools):
        error.message = f"{error.message}; {advice}"
        error.details["advice"] = advice
    return result


def _advise(failure: Failure, elsewhere: list[tuple[str, str]], tools: Tools | None) -> str:
    from toolexec.code.repair.advice import advise  # which takes long to import, and few programs fail

    return advise(failure, elsewhere, tools)


def _with_values(result: CodeResult, request: ExecuteRequest) -> CodeResult:
    """Return the result with the trace that the gateway kept, whatever became of the program, and with the values that
    handles in its own value stand for."""
    gateway = request.gateway
    result.language = request.language or "python"
    result.tool_calls = result.tool_calls or trace_of(gateway)
    if isinstance(gateway, Tools) and result.error is None:
        try:
            result.value = gateway.resolve(result.value)
        except InvalidRequestError as error:  # the program was run, whatever it names in its value
            result.value = None
            result.error = CodeError(f"the value of the program cannot be had: {error}", op="execute")
    return result


def _line_of(code: str, line: int) -> str:
    lines = code.splitlines()
    return lines[line - 1] if 0 < line <= len(lines) else ""


def _needed_by(failure: Failure) -> Needs:
    """Return what a program lacked that failed."""
    module = missing_module(failure)
    return Needs(frozenset({distribution_of(module)} if module else ()), needed_process(failure))


async def _read_by(function: Callable[..., T], *args: Any) -> T | None:
    """Return what *function*, which reads a program, gives; None where it cannot read that: a program may be nested as
    deeply as its author likes, and what came of it counts for more than advice on it."""
    try:
        return await _threads.run(function, *args)
    except Exception as error:
        logger.info("a program could not be read for advice on it: %s", type(error).__name__)
        return None
