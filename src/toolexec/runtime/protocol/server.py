"""The host's half of the gateway protocol: requests in, answers out."""

from __future__ import annotations

import asyncio
import json
import math
from functools import lru_cache
from typing import Literal, Protocol, cast, runtime_checkable

from toolexec.backend.failures import contained
from toolexec.backend.here import Wait
from toolexec.code.deliveries import Deliveries
from toolexec.code.gateway import Gateway
from toolexec.code.names import named_at, names_of, path_in, tool_at
from toolexec.code.tools import AdmittedCall, Tools
from toolexec.discovery.docs import DetailLevel
from toolexec.errors import ProtocolError, ToolExecError, ToolTimeoutError
from toolexec.model.binding import Binding
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.protocols import provides
from toolexec.run.large import MAX_STEPS, Budget, encode_large, is_small, off_loop
from toolexec.run.types import Result, StepResult
from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES
from toolexec.runtime.protocol.messages import Message, encode_message
from toolexec.runtime.protocol.wire import error_payload, read_steps, result_fields, step_payload

_MAX_LIMIT = 1000
_READ_SECONDS = 30.0
"""How long it may take to read a part of a result."""
_MAX_TEXT = 10_000
_MOST_NOTE = 300


@runtime_checkable
class ResultReader(Protocol):
    """A gateway whose large results stay elsewhere and can be read there."""

    async def read_result(
        self, handle_id: str, *, path: str = "", offset: int = 0, limit: int | None = None
    ) -> JSONValue:
        """Return a part of a result; raises InvalidRequestError as `Handles.read` does."""
        ...


@runtime_checkable
class Relay(Protocol):
    """A gateway that passes requests on to the one that answers them, as they are."""

    async def relay(self, message: Message) -> str:
        """Return the answer to a request, as a message with its ID; raises ToolExecError."""
        ...

    def release(self, message: Message) -> None:
        """Pass on that the guest holds some results no longer."""
        ...


class RequestServer:
    """Answers the requests of one guest with a gateway; nothing that a guest sends is believed unchecked.

    A failure of any kind is an answer of type `error`. Many requests may be under way at once. For a guest that reads
    nothing of an answer but the value, *lean* leaves out the rest: where the tool ran, how long, its raw reply.
    """

    def __init__(self, gateway: Gateway, *, lean: bool = False) -> None:
        self.gateway = gateway
        self._lean = lean
        self._tools = gateway if isinstance(gateway, Tools) else None
        self._relay = gateway if provides(gateway, Relay) else None
        self._most = self._tools.result_bytes if self._tools is not None else MAX_FRAME_BYTES
        self.deliveries: Deliveries | None = self._tools.deliveries if self._tools is not None else None
        self.keeps_time: bool = self.deliveries is not None and self.deliveries.keeps_time
        """Whether the timers of the code are steps of its run."""

    async def answer(self, message: Message) -> str:
        """Return the answer to a request, as JSON; raises nothing but what cancels it."""
        try:
            if self._relay is not None and message.refused is None:
                return await self._relay.relay(message)
            return self._fitting(message, await self._payload(message))
        except BaseException as error:
            return self.refusal(message, contained(error))

    def answer_here(self, message: Message, wait: Wait, within: float) -> str | AdmittedCall | None:
        """Return the answer to a `run_tool` request whose tool can run in this very thread, and to `read_result`.

        An admitted call when it cannot: `finish` it on the event loop; None when this is not a call for it at all.
        """
        tools = self._tools
        if message.refused is not None:
            return self.refusal(message, message.refused)
        if tools is not None and message.type == "read_result":
            return self._read_here(tools, message, within)
        if tools is None or message.type != "run_tool":
            return None
        try:
            admitted = self._admit(tools, message.payload, message.id)
            result = tools.run_here(admitted, wait, within)
            if result is None:
                return admitted
            return self._fitting(message, self._result(result, admitted))
        except BaseException as error:
            return self.refusal(message, contained(error))

    def admit_here(self, message: Message, within: float) -> str | tuple[AdmittedCall, bool] | None:
        """Admit the call of a `run_tool` request, and say whether `finish_here` can make it; or refuse it.

        None when this is not a call for it at all.
        """
        tools = self._tools
        if message.refused is not None:
            return self.refusal(message, message.refused)
        if tools is None or message.type != "run_tool":
            return None
        try:
            admitted = self._admit(tools, message.payload, message.id)
            return admitted, tools.runs_here(admitted, within)
        except BaseException as error:
            return self.refusal(message, contained(error))

    def finish_here(self, message: Message, admitted: AdmittedCall, wait: Wait, within: float) -> str | None:
        """Return the answer to a `run_tool` request that was admitted, made in this very thread; None when that cannot
        be.
        """
        assert self._tools is not None
        try:
            result = self._tools.run_here(admitted, wait, within)
            return self._fitting(message, self._result(result, admitted)) if result is not None else None
        except BaseException as error:
            return self.refusal(message, contained(error))

    async def finish(self, message: Message, admitted: AdmittedCall) -> str:
        """Return the answer to a `run_tool` request that was admitted."""
        assert self._tools is not None
        try:
            return self._fitting(message, self._result(await self._tools.finish(admitted), admitted))
        except BaseException as error:
            return self.refusal(message, contained(error))

    def release(self, message: Message) -> None:
        """Forget the results that a guest holds no longer; raises ProtocolError for a list that is none."""
        handles = message.payload.get("handles")
        if not isinstance(handles, list):
            raise ProtocolError("release needs a list of handles")
        if self._tools is not None:
            self._tools.handles.drop(handles)
        elif self._relay is not None:
            self._relay.release(message)

    def _read_here(self, tools: Tools, message: Message, within: float) -> str:
        try:
            request = _ReadRequest(message.payload)
            return self._fitting(
                message, request.answer(tools, Budget(within, steps=MAX_STEPS, is_over=tools.is_closed))
            )
        except Exception as error:
            return self.refusal(message, error)

    def refusal(self, message: Message, error: Exception) -> str:
        """Return the answer that says no. That of a tool that was called and failed says where it ran, too."""
        if isinstance(error, _ToolFailed):
            payload = error_payload(error.cause) | {"result": result_fields(error.result, self._most)}
            if error.result.value is not None:  # it ran, and broke its output schema
                handle = self._handle(error.result.value)
                payload["result"] |= {"handle": handle} if handle else {"structured": error.result.value}
        else:
            payload = error_payload(error)
        return encode_message("error", message.id, json.dumps(payload))

    def _fitting(self, message: Message, payload: str) -> str:
        if len(payload) > MAX_FRAME_BYTES - 1024:
            raise ProtocolError(f"the answer to {message.type} has {len(payload)} bytes, more than fit; ask for less")
        return encode_message("response", message.id, payload)

    async def _payload(self, message: Message) -> str:
        if message.refused is not None:
            raise message.refused
        payload = message.payload
        gateway = self.gateway
        match message.type:
            case "run_tool":
                return await self._run_tool(payload, message.id)
            case "run_chain":
                chain = read_steps(payload)
                tools = self._tools
                made = gateway.run_chain(chain) if tools is None else tools.run_chain(chain, step=message.id)
                result, steps = await made
                if all(is_small(step.value) for step in steps):
                    return self._chain(result, steps)
                return await off_loop(lambda _: self._chain(result, steps), Budget())
            case "search_tools":
                found = await gateway.search_tools(_text(payload, "query"), _limit(payload, "limit"))
                return json.dumps({"results": [summary.to_dict() for summary in found]})
            case "list_namespaces":
                return json.dumps({"namespaces": await gateway.list_namespaces()})
            case "note":
                if self._tools is not None:
                    self._tools.note(_text(payload, "text")[:_MOST_NOTE])
                return "{}"
            case "help":
                return json.dumps(await self._help(_text(payload, "path"), is_page=payload.get("page") is True))
            case "describe_tool":
                level = cast("DetailLevel", payload.get("level") or "full")
                return json.dumps((await gateway.describe_tool(self._tool_id(payload), level)).to_dict())
            case "list_tool_examples":
                examples = await gateway.list_tool_examples(self._tool_id(payload), _limit(payload, "max"))
                return json.dumps({"examples": [example.to_dict() for example in examples]})
            case "read_result":
                return await self._read_result(payload)
            case _:
                raise ProtocolError(f"unknown message type {message.type[:50]!r}")

    async def _run_tool(self, payload: JSONObject, step: str) -> str:
        if self._tools is not None:
            admitted = self._admit(self._tools, payload, step)
            return self._result(await self._tools.finish(admitted), admitted)
        tool_id, args, timeout = self._tool_id(payload), _args(payload), _timeout(payload)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return self._result(await self.gateway.run_tool(tool_id, args), None)
        except TimeoutError:
            if not limit.expired():
                raise
            raise ToolTimeoutError(
                f"{tool_id} did not finish within {timeout} s", tool_id=tool_id, op="execute"
            ) from None

    async def _help(self, path: str, *, is_page: bool) -> JSONObject:
        """Return what `dir` and `help` show."""
        if self._tools is None:
            names = await self.gateway.list_namespaces()
            return {"names": [] if path else names, "text": "\n".join(names)}
        from toolexec.code.guide import help_text, names_at  # few programs ask, and it takes a while

        return {"text": await help_text(self._tools, path)} if is_page else {"names": await names_at(self._tools, path)}

    def _admit(self, tools: Tools, payload: JSONObject, step: str) -> AdmittedCall:
        tool_id = self._tool_id(payload, calls=True)
        if bound := payload.get("bound"):
            named = ", ".join(f"`{str(name)[:100]}`" for name in bound[:20]) if isinstance(bound, list) else ""
            tools.note(f"{tool_id} takes its arguments by name: values without one were passed as {named}")
        return tools.admit(tool_id, _args(payload), _timeout(payload), step=step)

    def _tool_id(self, payload: JSONObject, *, calls: bool = False) -> str:
        """Return the tool that is meant; a path of Python names may stand for an unknown ID, and in calls also for a
        tool that is hidden: they are refused, as by its ID. An ID without a colon may be in the spelling of another
        system."""
        tool_id = _text(payload, "id")
        if payload.get("path") is True and self._tools is not None and self._tools.index.find(tool_id) is None:
            index, path = self._tools.index, tool_id.split(":")
            hidden = named_at(index, path) if calls else None
            return hidden or tool_at(index, path, allowed=self._tools.allows)
        if self._tools is not None and ":" not in tool_id and self._tools.index.find(tool_id) is None:
            names, path = names_of(self._tools.index), path_in(tool_id)
            return names.exactly(path) or names.meant(path, allowed=self._tools.allows) or tool_id
        return tool_id

    def _result(self, result: Result, admitted: AdmittedCall | None) -> str:
        if result.error is not None:
            raise _ToolFailed(result, result.error)
        text = admitted.text if admitted is not None else json.dumps(result.value, allow_nan=False)
        head = self._head(result)
        handle = self._tools.keep(result.value, text) if self._tools is not None else None
        if handle is not None:
            return f'{{{head}"handle":{json.dumps(handle.to_dict())}}}'
        return f'{{{head}"structured":{text}}}'

    def _head(self, result: Result) -> str:
        """Return the fields of a result beside its value."""
        if self._lean:
            return ""
        if result.reply is not None or result.warnings:
            return f"{json.dumps(result_fields(result, self._most))[1:-1]},"
        where = _binding_text(result.binding)
        return f'"tool":{json.dumps(result.tool_id)},"durationMs":{round(result.duration * 1000, 3)!r},{where}'

    def _chain(self, result: Result | None, steps: list[StepResult]) -> str:
        parts = [step_payload(step, self._most) for step in steps]
        handle: JSONDict | None = None
        for part in parts:
            handle = self._handle(part["structured"])
            if handle is not None:
                del part["structured"]
                part["handle"] = handle
        data: JSONDict = {"stepResults": parts}
        if result is not None and handle is not None:
            data["handle"] = handle
        else:
            data["structured"] = result.value if result is not None else None
        failed = next((part for part in reversed(parts) if "error" in part), None) if result is None else None
        if failed is not None:
            data["failed"] = failed["error"]
        return json.dumps(data, allow_nan=False)

    def _handle(self, value: JSONValue) -> JSONDict | None:
        """Return what stands for a value that is over the byte budget."""
        if self._tools is None or value is None:
            return None
        handle = self._tools.keep(value, encode_large(value))
        return handle.to_dict() if handle is not None else None

    async def _read_result(self, payload: JSONObject) -> str:
        request, tools = _ReadRequest(payload), self._tools
        if tools is not None:
            budget = Budget(_READ_SECONDS, steps=MAX_STEPS, is_over=tools.is_closed)
            return await off_loop(lambda budget: request.answer(tools, budget), budget)
        if not provides(self.gateway, ResultReader) or request.page is not None:
            raise ProtocolError("this gateway keeps no results")
        value = await self.gateway.read_result(
            request.handle, path=request.path, offset=request.offset, limit=request.limit
        )
        return json.dumps({"structured": value}, allow_nan=False)


class _ReadRequest:
    """What a guest wants of a result that is kept; raises ProtocolError for what makes no sense."""

    def __init__(self, payload: JSONObject) -> None:
        self.handle = _text(payload, "handle")
        self.page: JSONObject | None = payload.get("page")
        if self.page is not None and not isinstance(self.page, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ProtocolError("a page is described by an object")
        wanted = payload if self.page is None else self.page
        self.limit: int | None = wanted.get("limit")
        self.offset: int = wanted.get("offset") or 0
        self.path: str = payload.get("path") or ""
        numbers = (self.offset, self.limit or 0, wanted.get("bytes") or 0)
        if not all(map(_is_whole, numbers)) or not isinstance(self.path, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ProtocolError("path is a text, offset, limit and bytes are integers, 0 or more")

    def answer(self, tools: Tools, budget: Budget) -> str:
        """Return the payload of the answer. Takes long where the value is large, so it is not for the event loop."""
        handles, page = tools.handles, self.page
        if page is not None:
            return handles.page(
                self.handle,
                of="keys" if page.get("of") == "keys" else "items",
                offset=self.offset,
                limit=self.limit,
                most_bytes=page.get("bytes") or handles.budget,
                backward=page.get("backward") is True,
                strings=page.get("strings") is not False,
                budget=budget,
            )
        value = handles.read(self.handle, path=self.path, offset=self.offset, limit=self.limit, budget=budget)
        text, handle = handles.answer(value, budget)
        return f'{{"handle":{json.dumps(handle.to_dict())}}}' if handle is not None else f'{{"structured":{text}}}'


class _ToolFailed(Exception):  # noqa: N818 - no error of its own, it only carries one
    """A tool was called and failed: the answer is an error, with what is known about the call."""

    def __init__(self, result: Result, cause: ToolExecError) -> None:
        super().__init__(cause.message)
        self.result = result
        self.cause = cause


@lru_cache(maxsize=1024)
def _binding_text(binding: Binding | None) -> str:
    if binding is None:
        return ""
    return f'"backendKind":"{binding.kind}","binding":{json.dumps(binding.to_dict())},'


def _args(payload: JSONObject) -> JSONObject | None:
    args = payload.get("args")
    if args is not None and not isinstance(args, dict):
        raise ProtocolError("the args of a call are an object")
    return args


def _timeout(payload: JSONObject) -> float | None:
    timeout = payload.get("timeout")
    if timeout is None:
        return None
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout < math.inf:
        raise ProtocolError("the timeout of a call is a number of seconds above 0")
    return timeout


def _text(payload: JSONObject, key: Literal["id", "path", "query", "handle", "text"]) -> str:
    value = payload.get(key)
    if not isinstance(value, str):
        raise ProtocolError(f"{key} must be a text")
    if len(value) > _MAX_TEXT:  # searching for it, or for IDs that are like it, would take the host long
        raise ProtocolError(f"{key} may have {_MAX_TEXT} characters, not {len(value)}")
    return value


def _limit(payload: JSONObject, key: str) -> int:
    value = payload.get(key)
    if value is None:
        return 10
    if not _is_whole(value):
        raise ProtocolError(f"{key} must be an integer, 0 or more")
    return min(value, _MAX_LIMIT)


def _is_whole(value: JSONValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
