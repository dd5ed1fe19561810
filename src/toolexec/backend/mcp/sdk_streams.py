"""Streams as the MCP SDK takes them: a class adds `receive` or `send`, and `aclose`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

import anyio
from mcp.shared.message import SessionMessage

from toolexec.backend.mcp.line_writer import LineWriter

T_co = TypeVar("T_co", covariant=True)


class ReadStream(ABC, Generic[T_co]):
    """What is received, one by one: also as an asynchronous iterator and context manager."""

    @abstractmethod
    async def receive(self) -> T_co:
        """Return the next item; raises EndOfStream."""

    @abstractmethod
    async def aclose(self) -> None:
        """Let nothing more be received."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T_co:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class LineStream:
    """Messages that are sent as lines by *writer*; *written*, if any, gets each once it is out."""

    def __init__(self, writer: LineWriter, written: Callable[[SessionMessage], None] | None = None) -> None:
        self._writer = writer
        self._written = written

    async def send(self, item: SessionMessage) -> None:
        """Send a message; raises ClosedResourceError after the end."""
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        written = self._written
        await self._writer.send(text.encode() + b"\n", None if written is None else lambda: written(item))

    async def aclose(self) -> None:
        """Send nothing more."""
        self._writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self._writer.close()
