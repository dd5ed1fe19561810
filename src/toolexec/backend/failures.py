"""Whose fault was it? One function decides what an exception out of a tool means."""

from __future__ import annotations

import asyncio

from toolexec.errors import ExecutionError, HandlerError

__all__ = ["handler_failure"]

_MOST_TEXT = 2000


def handler_failure(name: str, error: BaseException, *, generating: bool = True) -> ExecutionError:
    """The error to report when the handler *name* ended with *error*.

    Raises *error* itself when it is not the handler's: a cancellation that someone else asked for, or the closing of a
    generator (of a coroutine, when *generating* is false). `SystemExit` and `KeyboardInterrupt` out of a handler are
    failures of that call, not orders to the process; a cancellation that nobody asked this task for is one too (the
    handler awaited something cancelled).
    """
    if isinstance(error, ExecutionError):
        return error
    if isinstance(error, GeneratorExit) and (generating or _task() is None):
        raise error
    if isinstance(error, asyncio.CancelledError):
        task = _task()
        if task is None or task.cancelling():
            raise error
        wrapped = HandlerError(f"{name} was cancelled from inside: something that it waited for was cancelled")
    elif isinstance(error, SystemExit):
        wrapped = HandlerError(f"{name} tried to end the process (SystemExit {_text(error)})")
    else:
        if type(error) is RuntimeError and isinstance(error.__cause__, StopIteration | StopAsyncIteration):
            error = error.__cause__  # Python's own disguise for one that leaves a coroutine or a generator
        text = _text(error)
        wrapped = HandlerError(f"{name} raised {type(error).__name__}{f': {text}' if text else ''}")
    wrapped.details["type"] = type(error).__name__
    wrapped.__cause__ = error
    return wrapped


def _task() -> asyncio.Task[object] | None:
    """The task that is running, if any; a coroutine that is closed as garbage may have none."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_MOST_TEXT]
    except Exception:
        return "(it has no readable text)"
