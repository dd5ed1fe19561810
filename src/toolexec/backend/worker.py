"""The program inside a worker process: it imports a handler, calls it, and answers with JSON.

Frames are a length (4 bytes, big-endian) and JSON. They travel on the original stdin and stdout, which the handler
never sees: its own stdin is empty, and what it prints goes to stderr. When the parent goes away, so does this process
with its whole group, even in the middle of a call.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import runpy
import signal
import sys
import threading
import traceback
from functools import lru_cache
from typing import Any, BinaryIO

from toolexec.model.declare import FunctionTool
from toolexec.model.json_value import explain_not_json

__all__ = ["main"]


def main() -> None:
    """Serve until the parent closes the pipe."""
    requests, replies = _take_over_pipes()
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, inbox), daemon=True).start()
    while True:
        body = json.dumps(_answer(inbox.get())).encode()
        replies.write(len(body).to_bytes(4, "big") + body)
        replies.flush()


def _take_over_pipes() -> tuple[BinaryIO, BinaryIO]:
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


def _read(requests: BinaryIO, inbox: queue.SimpleQueue[dict[str, Any]]) -> None:
    while True:
        head = requests.read(4)
        body = requests.read(int.from_bytes(head, "big")) if len(head) == 4 else b""
        if not body:
            os.killpg(0, signal.SIGKILL)
        inbox.put(json.loads(body))


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        value = _call(request)
        problems = explain_not_json(value)
        if problems:
            raise TypeError(f"the result is not JSON at {problems[0].path or 'its root'}: {problems[0].message}")
        return {"value": value}
    except BaseException as error:
        trace = "".join(traceback.format_exception(error))[-4000:]
        return {"error": [type(error).__name__, str(error)[:2000], trace]}


def _call(request: dict[str, Any]) -> Any:
    module, name = request["source"]
    target = _load(module, name, request["main"])
    if isinstance(target, FunctionTool):
        handler = target.handler
        args = handler.convert(request["args"]) if handler.convert else request["args"]
        value = handler.call(args)
        return handler.finish(value) if handler.finish else value
    return target(request["args"])


@lru_cache(maxsize=256)
def _load(module: str, name: str, main_file: str | None) -> Any:
    if module == "__main__":
        namespace = runpy.run_path(main_file or "", run_name="__toolexec_worker__")
        target: Any = namespace[name.split(".", maxsplit=1)[0]]
        rest = name.split(".")[1:]
    else:
        target, rest = importlib.import_module(module), name.split(".")
    for part in rest:
        target = getattr(target, part)
    return target


if __name__ == "__main__":
    sys.exit(main())
