"""A gateway that asks another process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final, Self

from toolexec.code.gateway import checkpoint
from toolexec.discovery.docs import DetailLevel, ToolDoc
from toolexec.discovery.examples import ToolExample
from toolexec.discovery.summary import Summary
from toolexec.errors import (
    ConfigurationError,
    ConnectionClosedError,
    GatewayTimeoutError,
    ProtocolError,
    ToolExecError,
)
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.run.steps import Step
from toolexec.run.types import Result, StepResult
from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES, PROTOCOL, VERSION
from toolexec.runtime.protocol import answers
from toolexec.runtime.protocol.connections import Connection
from toolexec.runtime.protocol.messages import Codec, JSONCodec, Message
from toolexec.runtime.protocol.wire import read_error

__all__ = ["ProxyGateway"]

logger: logging.Logger = logging.getLogger(__name__)
_JSON: Final = JSONCodec()
_HELLO: Final = "0"
_PATIENCE: Final = 10.0
_BYE_PATIENCE: Final = 1.0


class ProxyGateway:
    """Asks the gateway at the other end of *connection*, which `serve_gateway` serves there; it owns the connection.

    *timeout* is in seconds for each request (None: no limit). *codec* must be the other side's. Many requests may be
    under way at once; cancelling one notifies the other side. Every method raises what the other side's gateway raises,
    and ConnectionClosedError, GatewayTimeoutError, or ProtocolError (a message cannot be encoded, is over
    *max_frame_bytes*, or was not understood).

    `async with` greets the other side and receives its answers until the end. Without it the caller must receive
    from the connection and give what comes to `deliver`. Raises ConfigurationError for a timeout that is not above 0.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        timeout: float | None = None,
        codec: Codec = _JSON,
        max_frame_bytes: int = MAX_FRAME_BYTES,
    ) -> None:
        if timeout is not None and not timeout > 0:
            raise ConfigurationError(f"a timeout must be above 0 seconds, not {timeout}; None means no limit")
        self._connection = connection
        self._timeout = timeout
        self._codec = codec
        self._max = max_frame_bytes
        self._last_id = 0
        self._pending: dict[str, asyncio.Future[Message]] = {}
        self._notes: set[asyncio.Task[None]] = set()
        self._receiver: asyncio.Task[None] | None = None
        self._closed = False
        self._lost = ""
        self.limits: JSONObject = {}
        """The caps that the other side announced in its greeting, such as `max_tool_calls`."""

    # -- lifetime -----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Greet the other side; raises ProtocolError when it speaks another protocol or version, and ConfigurationError
        when it was greeted already."""
        if self._receiver is not None:
            raise ConfigurationError("the gateway is open already")
        self._receiver = asyncio.create_task(self._receive())
        try:
            greeting = {"protocol": PROTOCOL, "version": VERSION, "capabilities": ["cancel", "handles"]}
            answer = await self._exchange(_HELLO, "hello", greeting, self._timeout or _PATIENCE)
            spoken = answer.get("protocol"), answer.get("version")
            if spoken != (PROTOCOL, VERSION):
                raise ProtocolError(f"the other side speaks {spoken!r}, not {PROTOCOL!r} {VERSION}")
            limits = answer.get("limits")
            self.limits = limits if isinstance(limits, Mapping) else {}
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Say goodbye and close the connection; what is under way and all later calls raise ConnectionClosedError.

        Raises what closing the connection raises, the first time; later calls do nothing.
        """
        if self._closed:
            return
        self._closed = True
        self._fail_pending(ConnectionClosedError, "the gateway is closed")
        notes = [*self._notes]
        try:
            if self._receiver is not None:
                try:
                    async with asyncio.timeout(_BYE_PATIENCE):
                        await self._connection.send(self._codec.encode([Message("bye", "", {})]))
                except (ToolExecError, OSError, TimeoutError):
                    logger.debug("a gateway could not say goodbye", exc_info=True)
                notes.append(self._receiver)
            for task in notes:
                task.cancel()
            if notes:
                await asyncio.wait(notes)
        finally:
            await self._connection.aclose()

    # -- the operations -----------------------------------------------------------------------------------------

    async def search_tools(self, query: str, limit: int = 10) -> list[Summary]:
        """Return the best tools for *query*, at most *limit*, and never more than 1,000."""
        return answers.read_summaries(await self._ask("search_tools", {"query": query, "limit": limit}))

    async def list_namespaces(self) -> list[str]:
        """Return all namespaces in alphabetical order."""
        return answers.read_namespaces(await self._ask("list_namespaces", {}))

    async def describe_tool(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Return a tool's documentation; raises as `DocStore.describe` does."""
        return answers.read_doc(await self._ask("describe_tool", {"id": tool_id, "level": level}), tool_id, level)

    async def list_tool_examples(self, tool_id: str, limit: int | None = None) -> list[ToolExample]:
        """Return a tool's examples, at most *limit*; raises as `DocStore.list_examples` does."""
        return answers.read_examples(await self._ask("list_tool_examples", {"id": tool_id, "max": limit or 0}))

    async def run_tool(self, tool_id: str, args: JSONObject | None = None, *, timeout: float | None = None) -> Result:
        """Run one tool; raises as `Gateway.run_tool` does. *timeout* (seconds) is for the tool, on the other side.

        A value that is too large for the other side's byte budget stays there: the result's value is then a dict with
        the key `$handle`, which stands for it as an argument of other calls; `read_result` reads it.
        """
        payload: JSONDict = {"id": tool_id, "args": args if args is None else dict(args)}
        if timeout is not None:
            payload["timeout"] = timeout
        answer = await self._request("run_tool", payload)
        if answer.type != "error":
            return answers.read_result(answer.payload, tool_id)
        failed = answers.read_failure(answer.payload, tool_id)
        if failed is None:
            raise read_error(answer.payload)
        return failed

    async def run_chain(self, steps: Sequence[Step]) -> tuple[Result | None, list[StepResult]]:
        """Run a chain as `Gateway.run_chain` does; an empty one gives nothing, and nothing is sent."""
        if not steps:
            self._check_open()
            return None, []
        items = [step.to_dict() for step in steps]
        return answers.read_chain(await self._ask("run_chain", {"steps": items}), steps)

    async def read_result(
        self, handle_id: str, *, path: str = "", offset: int = 0, limit: int | None = None
    ) -> JSONValue:
        """Return a part of a value that stays on the other side; see `Handles.read`. What is again too large is again a
        dict with the key `$handle`."""
        payload = {"handle": handle_id, "path": path, "offset": offset, "limit": limit}
        return answers.read_value(await self._ask("read_result", payload))

    async def println(self, *values: object) -> None:
        """Print values on the other side: their `str`, one space between them, a line break at the end."""
        self._check_open()
        await self._send(Message("println", "", {"text": " ".join(map(str, values))}))

    # -- one request --------------------------------------------------------------------------------------------

    async def _ask(self, kind: str, payload: JSONObject) -> JSONObject:
        answer = await self._request(kind, payload)
        if answer.type == "error":
            raise read_error(answer.payload)
        return answer.payload

    async def _request(self, kind: str, payload: JSONObject) -> Message:
        self._last_id += 1
        return await self._await_answer(Message(kind, str(self._last_id), payload), self._timeout)

    async def _exchange(self, message_id: str, kind: str, payload: JSONObject, timeout: float) -> JSONObject:
        answer = await self._await_answer(Message(kind, message_id, payload), timeout)
        if answer.type == "error":
            raise read_error(answer.payload)
        return answer.payload

    async def _await_answer(self, message: Message, timeout: float | None) -> Message:
        """Return the answer to a request, be it a response or an error."""
        self._check_open()
        await checkpoint()
        kind, message_id = message.type, message.id
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._pending[message_id] = answer
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                await self._send(message)
                return await answer
        except asyncio.CancelledError:
            self._post(Message("cancel", message_id, {}))
            raise
        except TimeoutError:
            if not limit.expired():
                raise
            self._post(Message("cancel", message_id, {}))
            tool_id = message.payload.get("id")
            raise GatewayTimeoutError(
                f"no answer to {kind} within {timeout:g} s; it was cancelled, but may have been done",
                tool_id=tool_id if isinstance(tool_id, str) else None,
                op=kind,
                details={"timeout": timeout},
            ) from None
        finally:
            del self._pending[message_id]
            if answer.done() and not answer.cancelled():
                answer.exception()  # there may be no receiver left

    async def _send(self, message: Message) -> None:
        frame = self._codec.encode([message])
        if len(frame) > self._max:
            raise ProtocolError(
                f"a request of {len(frame)} bytes is over the limit of {self._max}; send less at once", op=message.type
            )
        await self._connection.send(frame)

    def _post(self, message: Message) -> None:
        """Send a message in a task of its own, if there is a receiver."""
        if self._closed or self._lost:
            return
        task = asyncio.get_running_loop().create_task(self._send_quietly(message))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def _send_quietly(self, message: Message) -> None:
        try:
            await self._send(message)
        except ToolExecError:
            logger.debug("a message of type %s was not sent", message.type, exc_info=True)

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionClosedError("the gateway is closed")
        if self._lost:
            raise ConnectionClosedError(f"the gateway's connection is lost: {self._lost}")

    # -- what comes in ------------------------------------------------------------------------------------------

    def deliver(self, message: Message) -> None:
        """Take an answer that was received elsewhere; any type other than `error` counts as success.

        Raises ProtocolError when no request with this ID is pending, or when it has been answered already.
        """
        answer = self._pending.get(message.id)
        if answer is None:
            raise ProtocolError(f"no pending request for ID {message.id!r}")
        if answer.done():
            raise ProtocolError(f"the request {message.id!r} is answered already")
        answer.set_result(message)

    async def _receive(self) -> None:
        while True:
            try:
                messages = self._codec.decode(await self._connection.receive())
            except ProtocolError as error:
                # Which request it answers cannot be known; none of them may wait for ever.
                self._fail_pending(ProtocolError, f"an answer cannot be read: {error}")
                continue
            except Exception as error:
                self._lose(str(error) or type(error).__name__)
                return
            for message in messages:
                self._hear(message)

    def _hear(self, message: Message) -> None:
        if message.type == "bye":
            self._lose("the other side has ended it")
        elif message.type == "error" and not message.id:
            self._fail_pending(ProtocolError, f"the other side cannot read a request: {read_error(message.payload)}")
        else:
            try:
                self.deliver(message)
            except ProtocolError as error:  # the answer to a request that was given up
                logger.debug("an answer is ignored: %s", error)

    def _lose(self, reason: str) -> None:
        self._lost = self._lost or reason
        self._fail_pending(ConnectionClosedError, f"the gateway's connection is lost: {reason}")

    def _fail_pending(self, kind: type[ToolExecError], text: str) -> None:
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(kind(text))
