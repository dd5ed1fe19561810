"""Whose fault was it? One function decides what an exception out of a tool means."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any, TypeVar

from toolexec.backend.here import here
from toolexec.errors import ExecutionError, HandlerError, InvalidResultError, Outcome, ToolExecError
from toolexec.errors.base import readable
from toolexec.model.json_value import NotJSONError, to_json_lossy
from toolexec.process.fate import fate_of

_MOST_TEXT = 2000
E = TypeVar("E", bound=ToolExecError)


def handler_failure(name: str, error: BaseException, *, generating: bool = True) -> ExecutionError:
    """Return the error to report when the handler *name* ended with *error*.

    Only two things are not the handler's and are raised: a cancellation that was asked of the current task, and the
    closing of a generator (of a coroutine, when *generating* is false). All else is a failure of that call, whatever
    its class: `SystemExit`, `KeyboardInterrupt`, a cancellation that was not asked of this task. A call in a thread of
    its own cannot be cancelled or closed, so there every exception is the handler's.

    What became of the call, and whether it may succeed later, is as `fate_of` says.
    """
    fate = fate_of(error)
    # A call of the handler's own that never began says nothing of the handler, which has.
    if isinstance(error, ExecutionError) and error.outcome is not Outcome.NOT_SENT:
        error.outcome = fate.outcome
        return error
    alone = here.wait is not None  # in a thread without an event loop
    is_closing = isinstance(error, GeneratorExit) and (generating or _task() is None)
    if not alone and (is_closing or (isinstance(error, asyncio.CancelledError) and is_cancelled())):
        try:
            raise error
        finally:
            del error  # of which this frame is a part now: only a collection of garbage would free such a cycle
    if isinstance(error, asyncio.CancelledError):
        wrapped = HandlerError(f"{name} was cancelled from inside: something that it waited for was cancelled")
    elif isinstance(error, SystemExit):
        wrapped = HandlerError(f"{name} tried to end the process (SystemExit {readable(error)[:_MOST_TEXT]})")
    else:
        if type(error) is RuntimeError and isinstance(error.__cause__, StopIteration | StopAsyncIteration):
            error = error.__cause__  # Python's own disguise for one that leaves a coroutine or a generator
        text = readable(error)[:_MOST_TEXT]
        wrapped = HandlerError(f"{name} raised {type(error).__name__}{f': {text}' if text else ''}")
    wrapped.details["type"] = type(error).__name__
    wrapped.__cause__ = error
    wrapped.outcome, wrapped.retryable = fate.outcome, fate.retryable
    if fate.retry_after is not None:
        wrapped.details["retry_after"] = fate.retry_after
    return wrapped


def backend_failure(name: str, error: BaseException, *, generating: bool = True) -> ExecutionError:
    """Return the error to report when the backend of the tool *name* ended with *error*, which should be an
    ExecutionError: what became of the call is as that says, and else unknown."""
    if isinstance(error, ExecutionError):
        return error
    try:
        failure = handler_failure(name, error, generating=generating)
    finally:
        del error  # as there
    failure.outcome = Outcome.UNKNOWN
    return failure


def located(error: E, *, tool_id: str, op: str, backend: str | None = None) -> E:
    """Return *error* as the failure of a call, with the place where it happened. Its details become plain JSON of its
    own, with text in place of what has no JSON form: each path to a caller writes them."""
    if error.details:
        details = to_json_lossy(error.details)
        error.details = details if isinstance(details, dict) else {"details": details}
    return error.locate(tool_id=tool_id, op=op, backend=backend)


def contained(error: BaseException) -> Exception:
    """Return *error* as one that can be reported; raises it when it is a cancellation asked of the current task."""
    try:
        return error if isinstance(error, Exception) else handler_failure("the call", error, generating=False)
    finally:
        del error  # as in `handler_failure`


def is_cancelled() -> bool:
    """Return whether a cancellation was asked of the current task; also true where there is no task."""
    task = _task()
    return task is None or task.cancelling() > 0


def cancel_begun(task: asyncio.Task[Any]) -> None:
    """Cancel *task* after its first step.

    A task that is cancelled before never enters its `try`: what its `finally` settles for others stays open for ever.
    """
    task.get_loop().call_soon(task.cancel)


def result_not_json(name: str, error: NotJSONError, what: str = "returned something") -> InvalidResultError:
    """Return the error to report when the tool *name* ran and its result has no JSON form."""
    first = error.violations[0]
    return InvalidResultError(
        f"{name} {what} that is not JSON at {first.path or 'its root'}: {first.message}",
        op="normalize",
        details={"violations": [asdict(violation) for violation in error.violations]},
    )


def _task() -> asyncio.Task[object] | None:
    """Return the task that is running, if any; a coroutine that is closed as garbage may have none."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
