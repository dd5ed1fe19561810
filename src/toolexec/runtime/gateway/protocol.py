"""The guest protocol: messages, frames and the order they come in. No I/O.

A message has a `type`, an `id` and a `payload`; a frame is a JSON list of messages (or one message), so that several
calls travel together. On a stream of bytes each frame is preceded by its length in four bytes, most significant first.

```
guest → host   hello {protocol, version, capabilities}          first, on a stream
               run_tool, run_chain, search_tools, list_namespaces, describe_tool, list_tool_examples, read_result
               cancel {}                                        of an earlier request, by its id
               print {text, stream, dropped}, println {text}
               wait {timeout}                                   over host calls only: block until there is an answer
               result {value} or {error}                        the end of a run
               bye {}
host → guest   hello {protocol, version, limits}
               execute {code, language, env, args, files, seed, output_limit, ...}
               response {...} or error {error, code, ...}       the answer to a request, by its id
               cancel {}                                        of the run
               bye {}
```
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from toolexec.errors import ProtocolError

__all__ = [
    "MAX_FRAME_BYTES",
    "PROTOCOL",
    "REQUESTS",
    "VERSION",
    "Codec",
    "FrameReader",
    "HostState",
    "JSONCodec",
    "Message",
    "Phase",
    "decode_json",
    "encode_message",
    "read_message",
]

PROTOCOL: Final = "toolexec-guest"
VERSION: Final = 1
MAX_FRAME_BYTES: Final = 16 << 20
REQUESTS: Final = frozenset(
    {
        "run_tool",
        "run_chain",
        "search_tools",
        "list_namespaces",
        "describe_tool",
        "list_tool_examples",
        "read_result",
    }
)
_NOTES: Final = frozenset({"cancel", "print", "println", "wait"})
_MAX_IDS: Final = 64
_MAX_CONTAINERS: Final = 1_000_000

Phase: TypeAlias = Literal["new", "ready", "running", "done", "closed"]


class Message(NamedTuple):
    """One message of the protocol."""

    type: str
    id: str
    payload: Mapping[str, Any]


class Codec(Protocol):
    """Turns messages into the bytes of a frame and back."""

    def encode(self, messages: Iterable[Message]) -> bytes:
        """The frame of *messages*."""
        ...

    def decode(self, frame: bytes | str) -> list[Message]:
        """The messages of a frame; raises ProtocolError when it is malformed."""
        ...


class JSONCodec:
    """The codec that both sides speak unless they agree on another one."""

    def encode(self, messages: Iterable[Message]) -> bytes:
        """The frame of *messages*; raises ProtocolError for a payload that is not JSON."""
        try:
            return json.dumps([_plain(message) for message in messages], allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ProtocolError(f"a message cannot be encoded: {error}") from error

    def decode(self, frame: bytes | str) -> list[Message]:
        """The messages of a frame; raises ProtocolError when it is malformed."""
        try:
            data = decode_json(frame if isinstance(frame, str) else frame.decode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"a frame is not JSON: {error}") from error
        return [read_message(item) for item in (data if isinstance(data, list) else [data])]


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


def decode_json(text: str) -> Any:
    """What JSON *text* of a guest says; halves of characters, which no text may have and only escapes can make, are
    replaced by a question mark. Raises ValueError, also for more than a million lists and objects (each takes
    some twenty times the memory that it takes in the text), and RecursionError."""
    if len(text) > _MAX_CONTAINERS and text.count("[") + text.count("{") > _MAX_CONTAINERS:
        raise ValueError(f"there are more than {_MAX_CONTAINERS} lists and objects in it")
    data = _decode(text)
    return _whole(data) if "\\ud" in text or "\\uD" in text else data


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


def read_message(data: Any) -> Message:
    """A message from decoded JSON; raises ProtocolError that names what is wrong with it."""
    if not isinstance(data, dict):
        raise ProtocolError(f"a message is an object, not {type(data).__name__}")
    kind, message_id, payload = data.get("type"), data.get("id", ""), data.get("payload", {})
    if not isinstance(kind, str) or not kind:
        raise ProtocolError("a message has no type")
    if not isinstance(message_id, str) or len(message_id) > _MAX_IDS:
        raise ProtocolError(f"the id of a message of type {kind[:50]!r} is not a short text")
    if payload is None:
        payload = {}
    if not isinstance(payload, dict):
        raise ProtocolError(f"the payload of a message of type {kind[:50]!r} is not an object")
    return Message(kind, message_id, payload)


def encode_message(kind: str, message_id: str, payload_text: str) -> str:
    """A message as JSON, around a payload that is JSON already."""
    quoted = f'"{message_id}"' if message_id.isalnum() and message_id.isascii() else json.dumps(message_id)
    return f'{{"type":"{kind}","id":{quoted},"payload":{payload_text}}}'


def _plain(message: Message) -> dict[str, Any]:
    data: dict[str, Any] = {"type": message.type, "id": message.id}
    if message.payload:
        data["payload"] = message.payload
    return data


class FrameReader:
    """Cuts a stream of bytes into frames.

    A frame over the limit is skipped and gives a ProtocolError in its place; the ones after it are read as usual.
    """

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max = max_bytes
        self._buffer = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> list[bytes | ProtocolError]:
        """The frames that *data* completes."""
        frames: list[bytes | ProtocolError] = []
        self._buffer += data
        while True:
            if self._skip:
                skipped = min(self._skip, len(self._buffer))
                del self._buffer[:skipped]
                self._skip -= skipped
                if self._skip:
                    return frames
            if len(self._buffer) < 4:
                return frames
            size = int.from_bytes(self._buffer[:4], "big")
            if size > self._max:
                frames.append(ProtocolError(f"a frame of {size} bytes is over the limit of {self._max}"))
                del self._buffer[:4]
                self._skip = size
                continue
            if len(self._buffer) < 4 + size:
                return frames
            frames.append(bytes(self._buffer[4 : 4 + size]))
            del self._buffer[: 4 + size]

    def pack(self, frame: bytes) -> bytes:
        """*frame* as it goes into a stream; raises ProtocolError when it is over the limit."""
        if len(frame) > self._max:
            raise ProtocolError(f"a frame of {len(frame)} bytes is over the limit of {self._max}")
        return len(frame).to_bytes(4, "big") + frame

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished frame there are: more than 0 at the end of a stream means half a frame."""
        return len(self._buffer) + self._skip


class HostState:
    """What the host may expect from one guest; every message is checked here before anything is done about it."""

    def __init__(self, *, handshake: bool = True) -> None:
        """Without *handshake* (over host calls) the guest is ready at once."""
        self.phase: Phase = "new" if handshake else "ready"
        self.run_id = ""
        self._open: set[str] = set()

    def execute(self, run_id: str) -> None:
        """A run begins; raises ProtocolError while another one is under way, or when the guest is not there."""
        if self.phase not in ("ready", "done"):
            raise ProtocolError(f"the guest is {self.phase}; it cannot run anything now")
        self.phase = "running"
        self.run_id = run_id
        self._open.clear()

    def receive(self, message: Message) -> None:
        """Take note of a message of the guest; raises ProtocolError, with the state as before, for one that must not
        come now."""
        kind = message.type
        if kind == "bye":
            self.phase = "closed"
        elif kind == "hello":
            self._hello(message)
        elif kind == "result":
            if self.phase != "running" or message.id != self.run_id:
                raise ProtocolError("a result came that nobody asked for, or a second one")
            self.phase = "done"
        elif kind in REQUESTS:
            if self.phase != "running":
                raise ProtocolError("the run is over; its code cannot call tools any more")
            if not message.id or message.id in self._open:
                raise ProtocolError(f"the request id {message.id!r} is in use or empty")
            self._open.add(message.id)
        elif kind not in _NOTES:
            raise ProtocolError(f"unknown message type {kind[:50]!r}")

    @property
    def open_requests(self) -> int:
        """How many requests wait for their answers."""
        return len(self._open)

    def is_open(self, message_id: str) -> bool:
        """Whether a request with this ID waits for its answer."""
        return message_id in self._open

    def answered(self, message_id: str) -> None:
        """An answer was sent; the ID is free again."""
        self._open.discard(message_id)

    def _hello(self, message: Message) -> None:
        if self.phase != "new":
            raise ProtocolError("the guest said hello twice")
        protocol, version = message.payload.get("protocol"), message.payload.get("version")
        if protocol != PROTOCOL or version != VERSION:
            raise ProtocolError(
                f"the guest speaks {str(protocol)[:50]!r} version {str(version)[:20]}, not {PROTOCOL!r} {VERSION}; "
                "host and guest must be of the same release"
            )
        self.phase = "ready"
