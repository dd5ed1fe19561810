"""The program inside a worker process: it imports a handler, calls it, and answers with JSON.

It talks over a socket that is its stdin at first. Its stdout is at first a lifeline: a socket on which nothing is ever
sent. The handler sees neither: its own stdin is empty, and what it prints goes to stderr. When the parent goes away, so
does this process with its whole group, even in the middle of a call.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import runpy
import socket
import sys
import threading
import traceback
import types
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NoReturn

from toolexec.errors import ExecutionError, InvalidResultError
from toolexec.errors.base import readable
from toolexec.errors.outcome import Outcome
from toolexec.model.content import ToolReply
from toolexec.model.declare import FunctionTool, declare
from toolexec.model.json_value import JSONDict, NotJSONError, to_json, to_json_lossy
from toolexec.process import workers
from toolexec.process.child import die_with_us
from toolexec.process.fate import fate_of
from toolexec.process.tree import signal_group
from toolexec.process.workers import MAX_FRAME

_SCRIPT_NAME = "__toolexec_main__"


def main() -> None:
    """Serve until the parent hangs up."""
    _die_with_parent()
    parent = _take_over_stdin()
    inbox: queue.SimpleQueue[JSONDict] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(parent, inbox), daemon=True).start()
    while True:
        reply = _frame(_answer(inbox.get()))
        try:
            parent.sendall(reply)
        except OSError:
            _end_group()


def _die_with_parent() -> None:
    """Have the system kill the group as soon as the other end of the lifeline is closed.

    Reading from the parent shows the same, but not while a handler keeps Python's lock, as a bad regular expression
    does. Where the system cannot do it, that has to be enough.
    """
    with suppress(OSError):
        die_with_us(os.dup(1), os.getpgrp())


def _take_over_stdin() -> socket.socket:
    parent = socket.socket(fileno=os.dup(0))
    os.register_at_fork(after_in_child=partial(_close, parent.fileno()))  # a child must not keep the line open
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    with suppress(OSError):  # the parent may have no stderr
        os.dup2(2, 1)
    return parent


def _close(descriptor: int) -> None:
    with suppress(OSError):
        os.close(descriptor)


def _read(parent: socket.socket, inbox: queue.SimpleQueue[JSONDict]) -> None:
    with parent.makefile("rb") as requests:
        while True:
            try:
                size = int.from_bytes(requests.read(4), "big")
                body = requests.read(size)
            except OSError:
                size, body = 0, b""
            if not size or len(body) < size:
                _end_group()
            inbox.put(json.loads(body))


def _end_group() -> NoReturn:
    signal_group(0)
    raise SystemExit  # not reached


def _frame(reply: JSONDict) -> bytes:
    body = json.dumps(reply).encode()
    if len(body) > MAX_FRAME:
        problem = f"the result has {len(body)} bytes as JSON, more than {MAX_FRAME}"
        body = json.dumps({"kind": "invalid", "value": problem}).encode()
    return len(body).to_bytes(4, "big") + body


def _answer(request: JSONDict) -> JSONDict:
    try:
        target = _load(request["module"], request["function"], request["typed"], request["script"])
    except BaseException as error:
        return {"kind": "unloadable", "value": _description(error)}
    try:
        value = _call(target, request["args"])
    except InvalidResultError as error:
        return {"kind": "invalid", "value": str(error)}
    except BaseException as error:
        reply = {"kind": "raised", "value": _description(error), "fate": fate_of(error).to_dict()}
        if isinstance(error, ExecutionError) and error.outcome is not Outcome.NOT_SENT:  # as `handler_failure` has it
            reply |= {"message": error.message, "code": error.code, "details": to_json_lossy(error.details)}
        return reply
    kind = "value"
    if isinstance(value, ToolReply):
        kind, value = "reply", value.to_mcp()
    try:
        return {"kind": kind, "value": to_json(value)}
    except NotJSONError as error:
        return {"kind": "invalid", "value": f"the result is {error}"}


def _call(target: Any, args: JSONDict) -> Any:
    if isinstance(target, FunctionTool):
        handler = target.handler
        value = handler.call(handler.convert(args) if handler.convert else args)
        return handler.finish(value) if handler.finish else value
    return target(args)


@lru_cache(maxsize=256)
def _load(module: str, function: str, typed: bool, script: str | None) -> Any:
    target: Any = importlib.import_module(module) if script is None else _load_script(script)
    for part in function.split("."):
        target = getattr(target, part)
    return declare(target) if typed and not isinstance(target, FunctionTool) else target


@lru_cache(maxsize=1)
def _load_script(path: str) -> types.ModuleType:
    """Load the main script as a module, without what it does only when it is started."""
    workers.loading_main = True
    try:
        names = runpy.run_path(path, run_name=_SCRIPT_NAME)
    finally:
        workers.loading_main = False
    module = types.ModuleType(_SCRIPT_NAME)
    module.__dict__.update(names)
    sys.modules[_SCRIPT_NAME] = sys.modules["__main__"] = module  # for what looks up its names later
    return module


def _description(error: BaseException) -> list[str]:
    """Return type, message and traceback of an exception, none of them large."""
    trace = readable("".join(traceback.format_exception(error)))
    return [type(error).__name__, readable(error)[:2000], trace[-4000:]]
