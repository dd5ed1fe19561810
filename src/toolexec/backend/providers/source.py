"""What a provider of tools has to give: its tools, each with the function that makes its calls."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from toolexec.errors import ConfigurationError, InputValidationError, Violation
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONObject
from toolexec.model.tool import Tool

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SAFE: Final = ("GET", "HEAD", "OPTIONS", "QUERY")

MakeCall: TypeAlias = Callable[[ToolCall], Awaitable[Any]]
"""Makes a call and returns its raw answer; see `Backend.call`."""
MakeStream: TypeAlias = Callable[[ToolCall], AsyncGenerator[StreamEvent, None]]
"""Makes a call piece by piece; see `StreamingBackend.stream`."""


@dataclass(frozen=True, slots=True)
class ProvidedTool:
    """One tool, and what makes its calls; `stream` is None for one that answers in one piece.

    `destination` is where they go, without secrets: each origin, as `net.hosts.origin_of` writes it, or the program.
    """

    tool: Tool
    call: MakeCall
    stream: MakeStream | None = None
    destination: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What was read: the tools in a stable order, and what could not become a tool with the reason for each."""

    tools: Sequence[ProvidedTool] = ()
    skipped: Mapping[str, str] = field(default_factory=dict[str, str])


class Source(Protocol):
    """Reads a definition, such as an OpenAPI document, and makes the calls of the tools in it.

    It is read again when the definition may have changed; calls that are under way go on with what was read before.
    """

    @property
    def kind(self) -> str:
        """What it is: `openapi`, `grpc`, `command`, ..."""
        ...

    async def load(self) -> Definition:
        """Read the definition; the same object as before means that nothing has changed.

        Raises ConfigurationError (or a subclass) for one that cannot ever be used, BackendError for one that may be
        there later.
        """
        ...

    async def aclose(self) -> None:
        """Free connections and end processes, also when called twice or before `load`."""
        ...

    def info(self) -> JSONObject:
        """Return what is worth showing in the backend's status: where it is, which version. No secrets."""
        ...


def key_of(call: ToolCall) -> str:
    """Return the idempotency key that goes with a call to its service, "" for none.

    Raises InputValidationError for one that cannot be sent: it must be printable ASCII.
    """
    key = call.idempotency_key
    if key and not (key.isascii() and key.isprintable()):
        message = "an idempotency key is sent as a header or the like, so it must be printable ASCII"
        raise InputValidationError([Violation(path="", keyword="idempotency_key", message=message)], op="send")
    return key


def check_header(where: str, name: str) -> None:
    """Raise ConfigurationError for an `idempotency_header` that cannot be the name of a header; "" stands for none."""
    if name and not _TOKEN.fullmatch(name):
        raise ConfigurationError(f"{where}: idempotency_header: no header can be called {name[:100]!r}")


def key_header(method: str, name: str, key: str, headers: Iterable[str]) -> list[tuple[str, str]]:
    """Return the header *name* with the idempotency key where a request takes it: it changes something, and does not
    have the header among its *headers* already."""
    if not (name and key) or method in _SAFE or name.lower() in map(str.lower, headers):
        return []
    return [(name, key)]
