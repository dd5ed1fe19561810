"""Whose fault was it? One function decides what an exception out of a tool means."""

from __future__ import annotations

import asyncio

from toolexec.errors import ExecutionError, HandlerError

__all__ = ["handler_failure"]


def handler_failure(name: str, error: BaseException) -> ExecutionError:
    """The error to report when the handler *name* ended with *error*.

    Raises *error* itself when it is not the handler's: a cancellation that someone else asked for, or the closing of a
    generator. `SystemExit` and `KeyboardInterrupt` out of a handler are failures of that call, not orders to the
    process; a cancellation that nobody asked this task for is one too (the handler awaited something cancelled).
    """
    if isinstance(error, ExecutionError):
        return error
    if isinstance(error, GeneratorExit):
        raise error
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise error
        wrapped = HandlerError(f"{name} was cancelled from inside: something that it waited for was cancelled")
    elif isinstance(error, SystemExit):
        wrapped = HandlerError(f"{name} tried to end the process (SystemExit {error.code!r})")
    elif isinstance(error, KeyboardInterrupt):
        wrapped = HandlerError(f"{name} raised KeyboardInterrupt")
    else:
        text = str(error)
        wrapped = HandlerError(f"{name} raised {type(error).__name__}{f': {text[:2000]}' if text else ''}")
    wrapped.details["type"] = type(error).__name__
    wrapped.__cause__ = error
    return wrapped
