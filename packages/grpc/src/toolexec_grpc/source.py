"""The provider of gRPC methods: what it lists, and how it calls them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf import json_format, message_factory
from google.protobuf.message import EncodeError

from toolexec import StreamEvent, Tool, ToolAnnotations
from toolexec.errors import (
    BackendUnavailableError,
    ConfigurationError,
    ConnectionLostError,
    InputValidationError,
    InvalidResultError,
    RemoteToolError,
    ToolExecError,
    Violation,
)
from toolexec.provider import (
    Definition,
    JSONObject,
    ProvidedTool,
    Scrubber,
    ToolCall,
    clean_segment,
    did_you_mean,
    is_cancelled,
    key_of,
)
from toolexec_grpc.config import GRPCProvider
from toolexec_grpc.connection import Connection, Connections
from toolexec_grpc.descriptors import Services, build_services, read_descriptor_set
from toolexec_grpc.failures import call_failure, outcome_of_unended
from toolexec_grpc.json_mapping import read_message, write_message
from toolexec_grpc.plain_messages import PlainMessage
from toolexec_grpc.reflection import reflect
from toolexec_grpc.schemas import is_wrapped, message_schema, takes_null

_REFLECTING: Final = 20.0
_NO_SIDE_EFFECTS: Final = 1
_IDEMPOTENT: Final = 2
_MOST_COLLECTED: Final = 64 << 20
_EOF: Final[Any] = grpc.aio.EOF  # pyright: ignore[reportAttributeAccessIssue] - it is there, in C


class GRPCSource:
    """Provides the unary and server-streaming methods of gRPC services; others are skipped."""

    kind = "grpc"

    def __init__(self, provider: GRPCProvider) -> None:
        self._provider = provider
        self._connections = Connections()

    async def load(self) -> Definition:
        """Return the methods. Raises SecretError, ConfigurationError, BackendUnavailableError."""
        provider = await asyncio.to_thread(self._provider.resolved)
        await self._connections.use(provider)
        services = await self._services(provider)
        return _Reading(provider, services, self._connections).definition()

    async def aclose(self) -> None:
        """Close the connection; calls under way fail."""
        await self._connections.aclose()

    def info(self) -> JSONObject:
        """Return where the server is."""
        return {"target": self._provider.target, "tls": self._provider.encrypted}

    async def _services(self, provider: GRPCProvider) -> Services:
        where = f"provider {provider.name}"
        wanted = list(provider.services) or None
        if provider.descriptors:
            files = await asyncio.to_thread(read_descriptor_set, provider.descriptors, where)
        else:
            connection = self._connections.get()
            await connection.ready()
            metadata = tuple(provider.metadata.items())
            names, files = await reflect(connection.channel, timeout=_REFLECTING, metadata=metadata, where=where)
            wanted = names if wanted is None else wanted
        services = await asyncio.to_thread(build_services, files, wanted)
        for name in provider.services:
            if name not in services.names:
                raise ConfigurationError(
                    f"{where}: there is no service {name!r}; {did_you_mean(name, sorted(services.names))}"
                )
        return services


class _Reading:
    """One reading of the services: from descriptors to tools."""

    def __init__(self, provider: GRPCProvider, services: Services, connections: Connections) -> None:
        self._provider = provider
        self._services = services
        self._connections = connections
        self._scrubber = provider.scrubber()
        self._same_name = Counter(service.name for service in services.found)

    def definition(self) -> Definition:
        """Return a tool for each method."""
        tools: list[ProvidedTool] = []
        skipped = dict(self._services.skipped)
        for service in self._services.found:
            for descriptor in service.methods:
                name = self._name(service, descriptor)
                if descriptor.client_streaming:
                    skipped[name] = "it takes a stream of messages, which a tool cannot"
                    continue
                try:
                    tools.append(self._tool(name, service, descriptor))
                except ToolExecError as error:
                    skipped[name] = error.message
        return Definition(tools=tools, skipped=skipped)

    def _name(self, service: Any, method: Any) -> str:
        """Return `Service.Method`, with the package where two services have the same name."""
        first = service.name if self._same_name[service.name] == 1 else service.full_name
        return clean_segment(f"{first}.{method.name}")

    def _tool(self, name: str, service: Any, descriptor: Any) -> ProvidedTool:
        comments = self._services.comments
        output = message_schema(descriptor.output_type, comments, output=True)
        if descriptor.server_streaming:
            definitions = output.pop("$defs", None)
            output = {"type": "array", "items": output, **({"$defs": definitions} if definitions else {})}
        options = descriptor.GetOptions()
        safe = options.idempotency_level == _NO_SIDE_EFFECTS
        path = f"/{service.full_name}/{descriptor.name}"
        description = comments.get(descriptor.full_name) or f"Calls {path[1:]}."
        tool = Tool(
            name=name,
            namespace=self._provider.namespace or self._provider.name,
            description=f"Deprecated. {description}" if options.deprecated else description,
            input_schema=message_schema(descriptor.input_type, comments),
            output_schema=output,
            annotations=ToolAnnotations(
                read_only=safe, idempotent=safe or options.idempotency_level == _IDEMPOTENT, open_world=True
            ),
        ).check_schemas()
        method = _Method(
            name=name,
            path=path,
            provider=self._provider,
            connections=self._connections,
            request=message_factory.GetMessageClass(descriptor.input_type),
            reply=message_factory.GetMessageClass(descriptor.output_type),
            takes=PlainMessage.of(descriptor.input_type),
            gives=PlainMessage.of(descriptor.output_type),
            pool=self._services.pool,
            wrapped=is_wrapped(descriptor.input_type),
            metadata=tuple(self._provider.metadata.items()),
            key_name="" if safe else self._provider.idempotency_metadata,
            scrubber=self._scrubber,
        )
        if descriptor.server_streaming:
            return ProvidedTool(tool, method.collect, method.stream, self._provider.destination)
        return ProvidedTool(tool, method.call, destination=self._provider.destination)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Method:
    """A method with everything that does not depend on a call."""

    name: str
    path: str
    provider: GRPCProvider
    connections: Connections
    request: Any
    reply: Any
    takes: PlainMessage | None
    gives: PlainMessage | None
    pool: Any
    wrapped: bool
    metadata: tuple[tuple[str, str], ...]
    key_name: str
    scrubber: Scrubber

    async def call(self, call: ToolCall) -> Any:
        """Make a unary call; see `Backend.call`."""
        request = self._message(call)
        connection = self.connections.get()
        await connection.ready(call)
        timeout, metadata = self._timeout(call), self._metadata(call)
        try:
            reply = await self._stub(connection, lambda channel: channel.unary_unary)(
                request, timeout=timeout, metadata=metadata
            )
        except BaseException as error:
            raise self._failure(error, connection, timeout)  # noqa: B904 - it has its cause
        return self._value(reply)

    async def collect(self, call: ToolCall) -> list[Any]:
        """Make a call with many answers and return their list; see `Backend.call`."""
        async with aclosing(self._answers(call)) as answers:
            return [answer async for answer in answers]

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Make a call and yield its answers as they come; see `StreamingBackend.stream`."""
        values: list[Any] = []
        async with aclosing(self._answers(call)) as answers:
            async for value in answers:
                values.append(value)
                yield StreamEvent(kind="chunk", data=value)
        yield StreamEvent(kind="done", data=values)

    async def _answers(self, call: ToolCall) -> AsyncGenerator[Any, None]:
        request = self._message(call)
        connection = self.connections.get()
        await connection.ready(call)
        timeout, metadata = self._timeout(call), self._metadata(call)
        size, has_answered = 0, False
        pending: Any = None
        try:
            stub = self._stub(connection, lambda channel: channel.unary_stream)
            pending = stub(request, timeout=timeout, metadata=metadata)
            while (reply := await self._next(pending, connection, timeout)) is not _EOF:
                self._check(reply)
                size += reply.ByteSize()
                if size > _MOST_COLLECTED:
                    raise RemoteToolError(f"{self.name} answered more than {_MOST_COLLECTED} bytes and was stopped")
                has_answered = True
                yield self._value(reply)
        except ToolExecError as error:
            error.outcome, error.states_outcome = outcome_of_unended(error.outcome, has_answered=has_answered), True
            raise
        finally:
            if pending is not None:
                pending.cancel()

    async def _next(self, pending: Any, connection: Connection, timeout: float | None) -> Any:
        try:
            return await pending.read()
        except BaseException as error:
            raise self._failure(error, connection, timeout)  # noqa: B904 - it has its cause

    def _stub(self, connection: Connection, shape: Callable[[Any], Any]) -> Any:
        method = connection.methods.get(self.path)
        if method is None:
            method = connection.methods[self.path] = shape(connection.channel)(
                self.path,
                request_serializer=self.request.SerializeToString,
                response_deserializer=self.reply.FromString,
            )
        return method

    def _timeout(self, call: ToolCall) -> float | None:
        limits = [limit for limit in (call.timeout, self.provider.timeout) if limit]
        return min(limits) if limits else None

    def _metadata(self, call: ToolCall) -> tuple[tuple[str, str], ...]:
        key = key_of(call)
        return (*self.metadata, (self.key_name, key)) if key and self.key_name else self.metadata

    def _message(self, call: ToolCall) -> Any:
        """Return the arguments as a message. Raises InputValidationError."""
        args: Any = call.args or {}
        message = self.request()
        is_default = self.wrapped and args.get("value") is None and not (args and takes_null(message.DESCRIPTOR))
        try:
            is_read = self.takes is not None and self.takes.fill(args, message)
            if not (is_default or is_read):
                read_message(args["value"] if self.wrapped else args, message, self.pool)
            size = message.ByteSize()
            lacking = [] if message.IsInitialized() else message.FindInitializationErrors()
        except (json_format.ParseError, EncodeError, ValueError, TypeError, RecursionError) as error:
            raise _refused("proto", f"it is not a {self.request.DESCRIPTOR.full_name}: {str(error)[:500]}") from error
        if lacking:
            raise _refused("required", f"it lacks {', '.join(lacking)[:500]}")
        if size > self.provider.max_message_bytes:
            raise _refused(
                "maxBytes", f"it has {size} bytes as a message; {self.provider.max_message_bytes} is the most"
            )
        return message

    def _value(self, reply: Any) -> Any:
        self._check(reply)
        try:
            value = self.gives.read(reply) if self.gives is not None else write_message(reply, self.pool)
        except (json_format.Error, ValueError, TypeError, RecursionError) as error:
            raise InvalidResultError(
                f"{self.name} answered, but its answer has no JSON form: {str(error)[:500]}", op="normalize"
            ) from error
        return self.scrubber.value(value) if self.scrubber else value

    def _check(self, reply: Any) -> None:
        """Raise InvalidResultError for an answer that gRPC cannot read, which is None."""
        if reply is None:
            raise InvalidResultError(
                f"{self.name} answered, but its answer is not a {self.reply.DESCRIPTOR.full_name}", op="normalize"
            )

    def _failure(self, error: BaseException, connection: Connection, timeout: float | None) -> BaseException:
        """Return what to raise for a call that was sent and ended with *error*."""
        if isinstance(error, grpc.aio.AioRpcError):
            failure: BaseException = call_failure(
                self.name,
                self.provider.address,
                error,
                lost=not connection.is_ready(),
                timeout=timeout,
                limit=self.provider.max_message_bytes,
                clean=self.scrubber.text,
            )
        elif isinstance(error, asyncio.CancelledError) and not is_cancelled():
            failure = ConnectionLostError(f"the connection to {self.provider.address} was closed during the call")
        elif isinstance(error, grpc.aio.UsageError):  # the connection was closed before the call
            failure = BackendUnavailableError(f"the connection to {self.provider.address} is closed")
        else:
            return error
        failure.__cause__ = error
        return failure


def _refused(keyword: str, message: str) -> InputValidationError:
    return InputValidationError([Violation(path="", keyword=keyword, message=message)], op="validate_input")
