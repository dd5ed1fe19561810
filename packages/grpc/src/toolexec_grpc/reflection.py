"""What services a server has, by server reflection: version 1, and v1alpha where the server has only that."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from toolexec.errors import BackendUnavailableError, ConfigurationError
from toolexec_grpc.descriptors import MOST_BYTES, known_file
from toolexec_grpc.wire import ReflectionReply, ReflectionRequest

_PATHS: Final = (
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
)
_OWN: Final = "grpc.reflection."
_MOST_FILES: Final = 10_000
_EOF: Final[Any] = grpc.aio.EOF  # pyright: ignore[reportAttributeAccessIssue] - it is there, in C


async def reflect(channel: Any, *, timeout: float, metadata: Any, where: str) -> tuple[list[str], list[Any]]:
    """Return the full names of the services of a server, but those of reflection itself, and all files with them.

    Raises ConfigurationError for a server without reflection or with files that make no sense, BackendUnavailableError
    for one that cannot be asked now. The messages begin with *where*.
    """
    for path in _PATHS:
        method = channel.unary_stream(  # a stream of one question: a server answers it as it does any other
            path,
            request_serializer=ReflectionRequest.SerializeToString,
            response_deserializer=ReflectionReply.FromString,
        )
        try:
            return await _Questions(partial(method, timeout=timeout, metadata=metadata), where).all()
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise BackendUnavailableError(
                    f"{where}: reflection failed with {error.code().name}: {str(error.details() or '')[:500]}"
                ) from error
    raise ConfigurationError(f"{where}: the server has no reflection; give a descriptor set in `descriptors`")


class _Questions:
    """What is asked of a server, and the files that it has answered with."""

    def __init__(self, method: Callable[[Any], Any], where: str) -> None:
        self._method = method
        self._where = where
        self._files: dict[str, Any] = {}
        self._bytes = 0

    async def all(self) -> tuple[list[str], list[Any]]:
        reply = await self._ask(ReflectionRequest(list_services="*"))
        names = [service.name for service in reply.services.service if not service.name.startswith(_OWN)]
        for name in names:
            if not self._has(name):
                self._take(await self._ask(ReflectionRequest(file_containing_symbol=name)))
        await self._imports()
        return names, [*self._files.values()]

    async def _imports(self) -> None:
        """Ask for what files import and were not given with them; what the server does not have is left out."""
        asked: set[str] = set()
        while missing := self._missing() - asked:
            for name in sorted(missing):
                asked.add(name)
                self._take(await self._ask(ReflectionRequest(file_by_filename=name)))

    def _missing(self) -> set[str]:
        named = {name for file in self._files.values() for name in file.dependency}
        return {name for name in named - self._files.keys() if known_file(name) is None}

    async def _ask(self, request: Any) -> Any:
        call = self._method(request)
        try:
            reply = await call.read()
        finally:
            call.cancel()
        if reply is _EOF:
            raise ConfigurationError(f"{self._where}: the server does not answer questions on reflection")
        return reply

    def _take(self, reply: Any) -> None:
        for data in reply.files.file_descriptor_proto:
            self._bytes += len(data)
            if self._bytes > MOST_BYTES or len(self._files) >= _MOST_FILES:
                raise ConfigurationError(f"{self._where}: the server describes more than {MOST_BYTES} bytes")
            try:
                file = descriptor_pb2.FileDescriptorProto.FromString(data)
            except DecodeError as error:
                raise ConfigurationError(f"{self._where}: the server sends descriptors that are damaged") from error
            self._files.setdefault(file.name, file)

    def _has(self, service: str) -> bool:
        package, _, name = service.rpartition(".")
        return any(
            file.package == package and any(each.name == name for each in file.service) for file in self._files.values()
        )
