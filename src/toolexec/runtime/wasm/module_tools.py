"""The tools as a raw module calls them: two host functions and JSON in the module's own memory.

```
(import "tools" "call"
  (func (param $request i32) (param $length i32) (param $answer i32) (param $room i32) (result i32)))
(import "tools" "read"
  (func (param $answer i32) (param $room i32) (result i32)))
```

`call` takes a request of JSON, `{"id": "namespace:tool", "args": {…}}`, blocks until the tool has answered, and puts
the answer at `$answer`: `{"structured": …}`, or `{"error": "…", "code": "…", "retryable": …}` when the tool
failed or may not be called. It gives the number of bytes. If they do not fit into `$room`, nothing is put there, and it
gives minus that number; the answer waits for `read`, which does the same with it (0 when none waits).

A request may have a `type`: any of the guest protocol (`search_tools`, `describe_tool`, `read_result`, …) with its
fields beside it; without one it is `run_tool`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from wasmtime import Linker

from toolexec.errors import ProtocolError
from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES
from toolexec.runtime.protocol.messages import REQUESTS
from toolexec.runtime.protocol.wire import error_payload
from toolexec.runtime.wasm.core import CoreGuest
from toolexec.runtime.wasm.core_ffi import define_function

MODULE: Final = "tools"


class ModuleTools:
    """One module's way to the tools: *exchange* is that of a `HostCalls`."""

    def __init__(self, exchange: Callable[[str], str]) -> None:
        self._exchange = exchange
        self._calls = 0
        self.waiting = b""

    def ask(self, request: bytes) -> bytes:
        """Return the answer to a request; every failure is an answer, too. Raises what stops the guest."""
        try:
            frame = self._frame(request)
        except ProtocolError as error:
            return json.dumps(error_payload(error)).encode()
        (answer,) = json.loads(self._exchange(frame))
        return json.dumps(answer.get("payload") or {}).encode()

    def _frame(self, request: bytes) -> str:
        try:
            payload: Any = json.loads(request)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"a request is not JSON: {error}") from error
        if not isinstance(payload, dict):
            raise ProtocolError('a request is an object such as {"id": "namespace:tool", "args": {}}')
        kind = payload.pop("type", "run_tool")
        if not isinstance(kind, str) or kind not in REQUESTS:
            raise ProtocolError(f"unknown type of request {str(kind)[:50]!r}; there are {', '.join(sorted(REQUESTS))}")
        self._calls += 1
        return json.dumps([{"type": kind, "id": str(self._calls), "payload": payload}])


def define_tools(linker: Linker) -> list[object]:
    """Define both functions; what is returned must live as long as anything that was linked."""
    return [
        define_function(linker, MODULE, "call", "iiii", "i", _call),
        define_function(linker, MODULE, "read", "ii", "i", _read),
    ]


def _call(guest: CoreGuest, request: int, size: int, at: int, room: int) -> int:
    tools: ModuleTools = guest.calls
    if size > MAX_FRAME_BYTES:
        tools.waiting = json.dumps(
            error_payload(ProtocolError(f"a request has at most {MAX_FRAME_BYTES} bytes"))
        ).encode()
    else:
        tools.waiting = tools.ask(guest.memory.read(request, size))
    return _read(guest, at, room)


def _read(guest: CoreGuest, at: int, room: int) -> int:
    tools: ModuleTools = guest.calls
    answer = tools.waiting
    if len(answer) > room:
        return -len(answer)
    guest.memory.write(at, answer)
    tools.waiting = b""
    return len(answer)
