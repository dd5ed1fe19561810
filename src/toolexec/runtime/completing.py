"""What a result gets that a sandbox has given: its trace, the values of handles, notes, and advice on a failure."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from toolexec.code.limits import trace_of
from toolexec.code.repair.failure import Failure
from toolexec.code.repair.further import about_further
from toolexec.code.repair.lacks import distribution_of, missing_module, needed_process
from toolexec.code.repair.prepare import MAX_REPAIRED
from toolexec.code.repair.silent import about_value, has_nothing, may_be_silent
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import CodeError, InvalidRequestError
from toolexec.process.threads import WorkerThreads
from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.needs import Needs

T = TypeVar("T")
logger: logging.Logger = logging.getLogger(__name__)
_MAX_SOURCE: Final = 2_000
_WATCHED: Final = frozenset({"TypeError", "RangeError", "SyntaxError", "Error"})
"""The errors that may come from a read that found nothing."""
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
    is_watched = backend.kind == "wasm" and request.language == "javascript" and len(request.code) <= MAX_REPAIRED
    if error is None and tools is not None and len(request.code) <= MAX_REPAIRED:
        if further := about_further(request.code, tools):
            result.notes.append(further)
        language = request.language or "python"
        facts = await _facts_of_value(result, request, tools, backend) if is_watched else []
        is_certain = any(" instead of " in each for each in facts)
        if not is_certain and may_be_silent(request.code, language, tools, result.value):
            read = partial(about_value, is_watched=is_watched)
            result.notes += await _read_by(read, request.code, language, tools, result.value) or ()
        result.notes += [each for each in facts if each not in result.notes]
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
        held=error.details.pop("held", None),
    )
    ran = backend.kind, request.language or "python"
    found = await fitting(_needed_by(failure)) if failure.is_isolated else []
    elsewhere = [place for place in found if place != ran]
    if is_watched and tools is not None and error.__cause__ is None and error.kind in _WATCHED:
        failure = replace(failure, facts=await _facts_of_failure(error, request, tools, backend))
    if advice := await _read_by(_advise, failure, elsewhere, tools):
        error.message = f"{error.message}; {advice}"
        error.details["advice"] = advice
    return result


def _advise(failure: Failure, elsewhere: list[tuple[str, str]], tools: Tools | None) -> str:
    from toolexec.code.repair.advice import advise  # which takes long to import, and few programs fail

    return advise(failure, elsewhere, tools)


async def _facts_of_failure(
    error: CodeError, request: ExecuteRequest, tools: Tools, backend: SandboxBackend
) -> tuple[str, ...]:
    """Return what another run of a program reports of the reads that its failure comes from."""
    from toolexec.code.repair.javascript_facts import facts_of_failure
    from toolexec.code.repair.watch import watched

    found, again = await watched(request, tools, backend.execute)
    if again is None or again.message != error.message:
        return ()
    return tuple(await _read_by(facts_of_failure, request.code, error.message, error.line, found) or ())


async def _facts_of_value(
    result: CodeResult, request: ExecuteRequest, tools: Tools, backend: SandboxBackend
) -> list[str]:
    """Return what another run of a program that may have read nothing reports of its reads."""
    from toolexec.code.repair.javascript_facts import facts_of_value, may_be_watched
    from toolexec.code.repair.watch import watched

    is_empty = has_nothing(result.value)
    if not await _read_by(partial(may_be_watched, is_empty=is_empty), request.code, result.value, tools):
        return []
    found, again = await watched(request, tools, backend.execute)
    if again is not None:
        return []
    return await _read_by(partial(facts_of_value, is_empty=is_empty), request.code, found, tools) or []


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
