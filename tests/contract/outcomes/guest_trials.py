"""Trials of a guest that starts the program, makes a call of it, and then breaks the protocol and hangs up."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from toolexec.code.types import ExecuteRequest
from toolexec.errors import Outcome
from toolexec.process.stream import SocketStream
from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES, PROTOCOL, VERSION
from toolexec.runtime.outcome import judge
from toolexec.runtime.protocol.conversation import Conversation
from toolexec.testing import SandboxTrial, ScriptedSandbox


def _frame(text: bytes | dict[str, Any]) -> bytes:
    body = text if isinstance(text, bytes) else json.dumps(text).encode()
    return len(body).to_bytes(4, "big") + body


_HELLO: Final = _frame({"type": "hello", "id": "0", "payload": {"protocol": PROTOCOL, "version": VERSION}})
_CALL: Final = _frame({"type": "search_tools", "id": "1", "payload": {"query": "any"}})
_SAID: Final[Mapping[str, bytes]] = {
    "nothing": b"",
    "a goodbye": _frame({"type": "bye"}),
    "an unknown type": _frame({"type": "nonsense", "id": "2"}),
    "an answer to what was not asked": _frame({"type": "response", "id": "77", "payload": {"value": 5}}),
    "half a frame": _frame({"type": "result", "id": "1", "payload": {"value": 5}})[:20],
    "a length alone": b"\0\0",
    "what is not JSON": _frame(b'{"type": "result"'),
    "a result of NaN": _frame(b'{"type": "result", "id": "1", "payload": {"value": NaN}}'),
    "a result that has neither value nor error": _frame({"type": "result", "id": "1", "payload": []}),
    "the result of another run": _frame({"type": "result", "id": "9", "payload": {"value": 5}}),
    "a frame over the limit": (MAX_FRAME_BYTES + 1).to_bytes(4, "big") + bytes(MAX_FRAME_BYTES + 1),
    "a frame far over the limit": b"\xff\xff\xff\xff",
    "a flood": _frame({"type": "nonsense", "id": "2"}) * 200,
    "a second hello": _HELLO,
    "no JSON at all": b"Traceback (most recent call last):\n" * 4,
}
GUEST: Final[Mapping[str, Outcome]] = dict.fromkeys(_SAID, Outcome.UNKNOWN)
"""Whatever it says: the program has begun, so that nothing is known of it."""


async def _guest(end: socket.socket, said: bytes) -> None:
    """Be the guest; *said* is what comes after the answer to its call."""
    reader, writer = await asyncio.open_connection(sock=end)

    async def receive() -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

    try:
        writer.write(_HELLO)
        await receive()  # hello
        await receive()  # execute
        writer.write(_CALL)
        await receive()
        writer.write(said)
        await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def guest_trial(name: str) -> AsyncGenerator[SandboxTrial]:
    """Leave the program to a guest at the other end of a pair of sockets."""
    begun = 0

    async def program(request: ExecuteRequest) -> Any:
        nonlocal begun
        begun += 1
        ours, theirs = socket.socketpair()
        talk = Conversation(SocketStream(ours))
        guest = asyncio.create_task(_guest(theirs, _SAID[name]))
        try:
            await talk.start()
            ending = await talk.run(request)
        finally:
            await talk.aclose()
            await asyncio.gather(guest, return_exceptions=True)  # its end may be closed before it has said all
        return judge(ending) or (ending.result or {}).get("value")

    yield SandboxTrial(sandbox=ScriptedSandbox({"1": program}), effects=lambda: begun)
