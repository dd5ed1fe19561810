"""Trials of gRPC services: each status, and messages and connections that do not hold."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
from packages.grpc.tests.service import Shop, descriptor_set, shop_file

from toolexec.backend import Backend
from toolexec.errors import Outcome
from toolexec.provider import provider_backend
from toolexec.testing import OutcomeTrial

MOST_BYTES = 2000
"""How large a message may be here."""
_OPEN = ("ABORTED", "CANCELLED", "DATA_LOSS", "DEADLINE_EXCEEDED", "INTERNAL", "UNAVAILABLE", "UNKNOWN")
"""The statuses after which the work may be done; a service refuses with all others."""
GRPC = {
    **{
        f"status {code.name}": Outcome.UNKNOWN if code.name in _OPEN else Outcome.REFUSED
        for code in grpc.StatusCode
        if code is not grpc.StatusCode.OK
    },
    "an answer that is not a message": Outcome.DONE,
    "an answer that is too large here": Outcome.DONE,
    "an answer that is too large there": Outcome.DONE,
    "a request that is too large there": Outcome.REFUSED,
    "an exception": Outcome.UNKNOWN,
    "silence": Outcome.UNKNOWN,
    "a lost connection": Outcome.UNKNOWN,
    "nothing listens": Outcome.NOT_SENT,
}


class _Service(grpc.GenericRpcHandler):
    """Answers every method with the bytes of *reply*, and counts the calls that do their work."""

    def __init__(self, reply: Callable[[grpc.aio.ServicerContext[Any, Any]], Any], *, works: bool) -> None:
        self._reply = reply
        self._works = works
        self.effects = 0

    def service(self, handler_call_details: Any) -> Any:
        """Give the handler of every method."""
        return grpc.unary_unary_rpc_method_handler(self._answer)

    async def _answer(self, _: bytes, context: Any) -> bytes:
        self.effects += self._works
        return await self._reply(context)


@asynccontextmanager
async def grpc_trial(name: str) -> AsyncIterator[OutcomeTrial]:
    """Make a method of a server on this event loop."""
    there = {"an answer that is too large there": "send", "a request that is too large there": "receive"}.get(name)
    server = grpc.aio.server(options=[(f"grpc.max_{there}_message_length", 50)] if there else [])

    async def reply(context: Any) -> bytes:
        if name.startswith("status "):
            await context.abort(grpc.StatusCode[name.removeprefix("status ")], "because of that")
        if name == "an exception":
            raise ValueError("odd")
        if name == "silence":
            await asyncio.sleep(60)
        if name == "a lost connection":
            ending.append(asyncio.create_task(server.stop(None)))
            await asyncio.sleep(60)
        return b"\xff\xff\xff" if "not a message" in name else message(name="x" * size).SerializeToString()

    ending: list[asyncio.Task[None]] = []
    message: Any = Shop().message["Everything"]
    size = 2 * MOST_BYTES if name == "an answer that is too large here" else 500
    service = _Service(reply, works=GRPC[name] in (Outcome.DONE, Outcome.UNKNOWN))
    server.add_generic_rpc_handlers((service,))
    async with grpc_backend(server, stops=name == "nothing listens", waits=name != "silence") as backend:
        yield OutcomeTrial(
            backend=backend, tool_id="odd:Shop.Echo", args={"name": "x" * 300}, effects=lambda: service.effects
        )
    await asyncio.gather(*ending)


@asynccontextmanager
async def grpc_backend(server: Any, *, stops: bool = False, waits: bool = True) -> AsyncIterator[Backend]:
    """Start *server* and a backend for it, and end both. With *stops* the server has ended before the first call; unless
    the backend *waits*, its calls have 0.3 seconds."""
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    directory = TemporaryDirectory()
    descriptors = Path(directory.name) / "shop.binpb"
    descriptors.write_bytes(descriptor_set(shop_file()))
    settings: dict[str, Any] = {"target": f"127.0.0.1:{port}", "descriptors": str(descriptors)}
    settings |= {"max_message_bytes": MOST_BYTES} | ({} if waits else {"timeout": 0.3})
    backend = provider_backend("grpc", "odd", settings)
    await backend.start()
    if stops:
        await server.stop(None)
    quiet = [logging.getLogger(each) for each in ("grpc._common", "grpc._cython.cygrpc")]
    for each in quiet:
        each.disabled = True  # what they log of an exception keeps its frames, and with them the server's connections
    try:
        yield backend
    finally:
        for each in quiet:
            each.disabled = False
        await backend.aclose()
        await server.stop(None)
        directory.cleanup()
