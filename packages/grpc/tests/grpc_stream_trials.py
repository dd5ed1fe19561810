"""Trials of gRPC methods that answer with a stream: only its end says that the work is done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from packages.grpc.tests.grpc_trials import GRPC, MOST_BYTES, grpc_backend
from packages.grpc.tests.service import Shop

from toolexec.errors import Outcome
from toolexec.testing import OutcomeTrial

_AFTER = " after an answer"
_BROKEN = ("an exception", "silence", "a lost connection", "one that is not a message", "one that is too large here")
GRPC_STREAMS = {
    **{name: outcome for name, outcome in GRPC.items() if name.startswith("status ")},
    **{f"{name} after the head": outcome for name, outcome in GRPC.items() if name.startswith("status ")},
    **{f"{name}{_AFTER}": Outcome.UNKNOWN for name in GRPC if name.startswith("status ")},
    **dict.fromkeys(_BROKEN, Outcome.UNKNOWN),
    **{f"{name}{_AFTER}": Outcome.UNKNOWN for name in (*_BROKEN, "one that is too large there")},
    "nothing listens": Outcome.NOT_SENT,
}


class _Service(grpc.GenericRpcHandler):
    """Answers every method with the stream of *reply*, and counts the calls that do their work."""

    def __init__(self, reply: Callable[[Any], AsyncIterator[bytes]], *, works: bool) -> None:
        self._reply = reply
        self._works = works
        self.effects = 0

    def service(self, handler_call_details: Any) -> Any:
        """Give the handler of every method."""
        return grpc.unary_stream_rpc_method_handler(self._answer)

    async def _answer(self, _: bytes, context: Any) -> AsyncIterator[bytes]:
        self.effects += self._works
        async for message in self._reply(context):
            yield message


@asynccontextmanager
async def grpc_stream_trial(name: str) -> AsyncIterator[OutcomeTrial]:
    """Make a method of a server on this event loop."""
    trouble = name.removesuffix(_AFTER).removesuffix(" after the head")
    limits = [("grpc.max_send_message_length", 50)] if trouble.endswith("there") else []
    server = grpc.aio.server(options=limits)
    message: Any = Shop().message["Tree"]
    ending: list[asyncio.Task[None]] = []

    async def reply(context: Any) -> AsyncIterator[bytes]:
        if name.endswith(" after the head"):
            await context.send_initial_metadata(())
        if name.endswith(_AFTER):
            yield message(label="first").SerializeToString()
        if trouble.startswith("status "):
            await context.abort(grpc.StatusCode[trouble.removeprefix("status ")], "because of that")
        if trouble == "an exception":
            raise ValueError("odd")
        if trouble == "a lost connection":
            ending.append(asyncio.create_task(server.stop(None)))
        if trouble in ("silence", "a lost connection"):
            await asyncio.sleep(60)
        yield b"\xff\xff\xff" if "not a message" in trouble else message(label="x" * 2 * MOST_BYTES).SerializeToString()

    service = _Service(reply, works=GRPC_STREAMS[name] is Outcome.UNKNOWN)
    server.add_generic_rpc_handlers((service,))
    async with grpc_backend(server, stops=name == "nothing listens", waits=trouble != "silence") as backend:
        yield OutcomeTrial(backend=backend, tool_id="odd:Shop.Count", args={}, effects=lambda: service.effects)
    await asyncio.gather(*ending)
