"""The guest protocol: messages, frames and the order they come in. No I/O.

A message has a `type`, an `id` and a `payload`; a frame is a JSON list of messages (or one message), so that several
calls travel together. On a stream of bytes each frame is preceded by its length in four bytes, most significant first.

```
guest → host   hello {protocol, version, capabilities}          first, on a stream
               run_tool, run_chain, search_tools, list_namespaces, help, describe_tool, list_tool_examples, read_result
               note {text}                                      for the result: what was understood in another way
               cancel {}                                        of an earlier request, by its id
               release {handles}                                results that the guest holds no longer, by their ids
               exit {code}                                      over host calls: of a program that ends itself
               print {text, stream, dropped}, println {text}
               wait {timeout}                                   over host calls only: block until there is an answer
               result {value} or {error}                        the end of a run; with {files: false} it left no files,
                                                                with {interrupted, left} it was cancelled
               file {path, last}, with data                     a piece of a file, after `take_files`
               response {left_out} or error {error, code}       the end of `files_end` or `take_files`, by its id
               bye {}
host → guest   hello {protocol, version, limits}
               execute {code, language, env, args, seed, output_limit, ...}
               response {...} or error {error, code, ...}       the answer to a request, by its id
               put_file {path, last}, with data                 a piece of a file, before a run
               files_end {}                                     all files are there
               take_files {max_files, max_bytes}                the files that are new or changed, after a run
               cancel {}                                        of the run, by its id; for capability "interrupt"
               bye {}
both ways      net_data {}, with data                           of a network connection, by its id
               net_ack {bytes}                                  so much of its data is consumed
               net_eof {}                                       no more data from this side
               net_close {}                                     the end; the other side answers with the same
guest → host   net_open {}                                      a new connection, with its id
```

A message with data travels in a frame of its own: a zero, the length of the message as JSON in four bytes, the message,
and then the data as it is. Files come in pieces, one file after the other, the last piece of each with `last`. All that
the host says of network connections is in frames with data, if only with none, so that it is never among answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from toolexec.errors import InvalidRequestError, ProtocolError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, refuse_constant
from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES, NETWORK, PROTOCOL, VERSION

GREETING: Final[JSONObject] = {"protocol": PROTOCOL, "version": VERSION}
"""What a hello has that is answered by this version; `limits` may come with it."""
MAX_HEADER_BYTES: Final = 64 << 10
"""How long the message of a frame with data may be; and the hello of a guest."""
REQUESTS: Final = frozenset(
    {
        "run_tool",
        "run_chain",
        "search_tools",
        "list_namespaces",
        "help",
        "note",
        "describe_tool",
        "list_tool_examples",
        "read_result",
    }
)
"""The kinds of messages that ask for an answer."""
_VALUES: Final = {"run_tool": "args", "run_chain": "steps", "result": "value"}
"""What of the payload of a message belongs to tools and programs."""
_HALF: Final[JSONObject] = {
    "error": {
        "kind": "ValueError",
        "message": "ValueError: the value has a text with a lone surrogate, which UTF-8 cannot carry; give the text in "
        "another form, such as its `ascii()`",
    }
}
_NOTES: Final = frozenset({"cancel", "exit", "print", "println", "release", "wait"})
_WITH_DATA: Final = frozenset({"file", "net_data"})
_SMALL: Final = 1 << 14
_MAX_IDS: Final = 64
_MAX_CAPABILITIES: Final = 64
MAX_CONTAINERS: Final = 1_000_000
"""How many lists and objects there may be in a frame: each takes some twenty times the memory that it takes there."""

Phase: TypeAlias = Literal["new", "ready", "running", "done", "closed"]
Transfer: TypeAlias = Literal["", "put", "take"]


class Message(NamedTuple):
    """One message of the protocol."""

    type: str
    id: str
    payload: JSONObject
    refused: InvalidRequestError | None = None
    """Why the payload was not read, and is empty; see `decode_frame`."""


class Codec(Protocol):
    """Turns messages into the bytes of a frame and back."""

    def encode(self, messages: Iterable[Message]) -> bytes:
        """Return the frame of *messages*."""
        ...

    def decode(self, frame: bytes | str) -> list[Message]:
        """Return the messages of a frame; raises ProtocolError when it is malformed."""
        ...


class JSONCodec:
    """The codec that both sides speak unless they agree on another one."""

    def encode(self, messages: Iterable[Message]) -> bytes:
        """Return the frame of *messages*; raises ProtocolError for a payload that is not JSON."""
        try:
            return json.dumps([_plain(message) for message in messages], allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ProtocolError(f"a message cannot be encoded: {error}") from error

    def decode(self, frame: bytes | str) -> list[Message]:
        """Return the messages of a frame; raises ProtocolError when it is malformed."""
        try:
            text = frame if isinstance(frame, str) else frame.decode("utf-8", "replace")
            data = whole_text(decode_json(text), text)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"a frame is not JSON: {error}") from error
        return [read_message(item) for item in (data if isinstance(data, list) else [data])]


_decoder = json.JSONDecoder(parse_constant=refuse_constant)


class TooManyPartsError(ValueError):
    """A text that may be right, but has over `MAX_CONTAINERS` lists and objects."""

    def __init__(self) -> None:
        super().__init__(f"there are more than {MAX_CONTAINERS:,} lists and objects in it; send less, or send text")


_HEAD: Final = re.compile(r'\s*\{\s*"type"\s*:\s*"(\w{1,64})"\s*,\s*"id"\s*:\s*"(\w{0,64})"')
_TOKENS: Final = re.compile(r'"(?:[^"\\]++|\\.)*"?|[\[\]{}]', re.DOTALL)
# A string without an end is one match as well: beginning again at each of its quotes would take quadratic time.
_STRINGS: Final = re.compile(r'"(?:[^"\\]++|\\.)*"?', re.DOTALL)


def check_parts(text: str, count: int) -> None:
    """Raise TooManyPartsError for JSON *text* that has too many lists and objects; *count* is that of all brackets, in
    strings too."""
    if count > MAX_CONTAINERS:
        bare = _STRINGS.sub("", text)
        if bare.count("[") + bare.count("{") > MAX_CONTAINERS:
            raise TooManyPartsError


def decode_json(text: str) -> JSONValue:
    """Return what JSON *text* of a guest says; it may have halves of characters, see `whole_text`. Raises ValueError,
    RecursionError, and TooManyPartsError, which is a ValueError, for over `MAX_CONTAINERS` lists and objects.
    """
    if len(text) > MAX_CONTAINERS:
        check_parts(text, text.count("[") + text.count("{"))
    return _decoder.decode(text)


def decode_frame(text: str) -> list[Message]:
    """Return the messages of a guest's frame. Those that have too many lists and objects, by themselves or with those
    before them, are `refused` and have no payload: the program asked too much, and has broken no rule.

    Raises ProtocolError when the frame is malformed.
    """
    try:
        if len(text) > MAX_CONTAINERS:
            check_parts(text, text.count("[") + text.count("{"))
    except TooManyPartsError as error:
        return _sorted_out(text, error)
    return JSONCodec().decode(text)


def _sorted_out(text: str, error: TooManyPartsError) -> list[Message]:
    """Return the messages of a frame that has too many lists and objects in all."""
    messages: list[Message] = []
    outermost = 1 if text.lstrip().startswith("[") else 0
    depth = start = count = total = 0
    for token in _TOKENS.finditer(text):
        bracket = token[0][0]
        if bracket in "[{":
            if depth == outermost:
                start, count = token.start(), 0
            depth += 1
            count += 1
        elif bracket != '"':
            depth -= 1
            if depth != outermost:
                continue
            if total + count <= MAX_CONTAINERS:
                total += count
                messages += JSONCodec().decode(text[start : token.end()])
                continue
            head = _HEAD.match(text, start, start + 300)
            if head is None:
                raise ProtocolError(f"a frame is not JSON: {error}") from error
            refused = InvalidRequestError(f"what is sent is too large: {error}", details={"containers": MAX_CONTAINERS})
            messages.append(Message(head[1], head[2], {}, refused))
    return messages


def too_large_result(error: object) -> JSONDict:
    """Return the payload of a `result` in place of one that is too large, as *error* says: the program failed, and can
    do better.
    """
    return {"error": {"kind": "ValueError", "message": f"the program's value is too large: {error}"}}


def decode_first(text: str) -> tuple[JSONValue, int]:
    """Return the value that JSON *text* begins with, and where it ends; otherwise as `decode_json`."""
    return _decoder.raw_decode(text)


def whole_text(frame: JSONValue, text: str | bytes) -> JSONValue:
    """Return the messages of a *frame* without halves of characters, which only escapes in its *text* can make.

    They are replaced by a question mark in what is shown. In the arguments of calls they stay, as a call refuses them
    itself, and a program whose value has some has failed.
    """
    if not _has_halves(text):
        return frame
    return [_sound(message) for message in frame] if isinstance(frame, list) else _sound(frame)


def _has_halves(text: str | bytes) -> bool:
    """Return whether JSON text may have halves of characters. To look for a single backslash first takes a fiftieth of
    the time, and most large strings have none."""
    if isinstance(text, str):
        return "\\" in text and ("\\ud" in text or "\\uD" in text)
    return b"\\" in text and (b"\\ud" in text or b"\\uD" in text)


def _sound(message: JSONValue) -> JSONValue:
    if not isinstance(message, dict):
        return _replace(message)
    kind, payload = message.get("type"), message.get("payload")
    name = _VALUES.get(kind) if isinstance(kind, str) else None
    if name is None or not isinstance(payload, dict) or name not in payload:
        return _replace(message)
    value = payload[name]
    if name == "steps":
        value = [_sound_step(step) for step in value] if isinstance(value, list) else _replace(value)
    if name == "value" and _replace(value) != value:
        return {**_replace({**message, "payload": None}), "payload": _HALF}
    return {**_replace({**message, "payload": None}), "payload": {**_replace({**payload, name: None}), name: value}}


def _sound_step(step: JSONValue) -> JSONValue:
    if not isinstance(step, dict) or "args" not in step:
        return _replace(step)
    return {**_replace({**step, "args": None}), "args": step["args"]}


def _replace(value: JSONValue) -> JSONValue:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_replace(key): _replace(item) for key, item in value.items()}
    return [_replace(item) for item in value] if isinstance(value, list) else value


def read_message(data: JSONValue) -> Message:
    """Return a message from decoded JSON; raises ProtocolError that names what is wrong with it."""
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
    """Return a message as JSON, around a payload that is JSON already."""
    quoted = f'"{message_id}"' if message_id.isalnum() and message_id.isascii() else json.dumps(message_id)
    return f'{{"type":"{kind}","id":{quoted},"payload":{payload_text}}}'


def is_data_frame(frame: bytes) -> bool:
    """Return whether a frame has data behind its message; JSON never begins with a zero."""
    return frame[:1] == b"\0"


def read_data_frame(frame: bytes) -> tuple[Message, bytes]:
    """Return the message of a frame with data, and the data; raises ProtocolError when it is malformed."""
    size = int.from_bytes(frame[1:5], "big")
    if not is_data_frame(frame) or len(frame) < 5 + size:
        raise ProtocolError("a frame with data is cut off")
    if size > MAX_HEADER_BYTES:
        raise ProtocolError(f"the message of a frame with data has {size} bytes, over the limit of {MAX_HEADER_BYTES}")
    try:
        text = frame[5 : 5 + size].decode()
        data = whole_text(decode_json(text), text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the message of a frame with data is not JSON: {error}") from error
    return read_message(data), frame[5 + size :]


def encode_data_frame(kind: str, message_id: str, payload_text: str, data: bytes | memoryview) -> bytes:
    """Return a frame with data, as it goes into a stream: with its length, and around a payload that is JSON already.

    Raises ProtocolError when it is over the limits.
    """
    message = encode_message(kind, message_id, payload_text).encode()
    size = 5 + len(message) + len(data)
    if len(message) > MAX_HEADER_BYTES or size > MAX_FRAME_BYTES:
        raise ProtocolError(f"a message of {len(message)} bytes with {len(data)} bytes of data is over the limits")
    return b"".join((size.to_bytes(4, "big"), b"\0", len(message).to_bytes(4, "big"), message, data))


def _plain(message: Message) -> JSONDict:
    data: JSONDict = {"type": message.type, "id": message.id}
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
        """Return the frames that *data* completes."""
        frames: list[bytes | ProtocolError] = []
        buffer = self._buffer
        buffer += data
        at = 0
        while True:
            if self._skip:
                skipped = min(self._skip, len(buffer) - at)
                at += skipped
                self._skip -= skipped
                if self._skip:
                    break
            if len(buffer) - at < 4:
                break
            size = int.from_bytes(buffer[at : at + 4], "big")
            if size > self._max:
                frames.append(ProtocolError(f"a frame of {size} bytes is over the limit of {self._max}"))
                at += 4
                self._skip = size
                continue
            if len(buffer) - at < 4 + size:
                break
            at += 4
            if size <= _SMALL:
                frames.append(bytes(buffer[at : at + size]))
            else:
                with memoryview(buffer) as view:  # to copy it once and not twice
                    frames.append(bytes(view[at : at + size]))
            at += size
        del buffer[:at]  # once: what is left would be moved for every frame
        return frames

    def pack(self, frame: bytes) -> bytes:
        """Return *frame* as it goes into a stream; raises ProtocolError when it is over the limit."""
        if len(frame) > self._max:
            raise ProtocolError(f"a frame of {len(frame)} bytes is over the limit of {self._max}")
        return len(frame).to_bytes(4, "big") + frame

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished frame there are: more than 0 at the end of a stream means half a frame."""
        return len(self._buffer) + self._skip


class HostState:
    """What the host may expect from one guest; every message is checked here before anything is done about it."""

    def __init__(self, *, handshake: bool = True, network: bool = False) -> None:
        """Without *handshake* (over host calls) the guest is ready at once. With *network* it may open connections."""
        self.phase: Phase = "new" if handshake else "ready"
        self.run_id = ""
        self.transfer: Transfer = ""
        """Whether files are on their way, and where to."""
        self.capabilities: tuple[str, ...] = ()
        """What the guest said that it can do."""
        self._transfer_id = ""
        self._network = network
        self._open: set[str] = set()

    def execute(self, run_id: str) -> None:
        """Begin a run; raises ProtocolError while another one is under way, or when the guest is not there."""
        if self.phase not in ("ready", "done"):
            raise ProtocolError(f"the guest is {self.phase}; it cannot run anything now")
        self._check_transfer()
        self.phase = "running"
        self.run_id: str = run_id
        self._open.clear()

    def begin_transfer(self, transfer: Literal["put", "take"], transfer_id: str) -> None:
        """Begin to put or take files; raises ProtocolError while that must not be: files come out only after a run."""
        if self.phase != "done" and (transfer == "take" or self.phase != "ready"):
            raise ProtocolError(f"the guest is {self.phase}; it cannot {transfer} files now")
        self._check_transfer()
        self.transfer = transfer
        self._transfer_id = transfer_id

    def end_transfer(self) -> None:
        """End it without an answer of the guest."""
        self.transfer = ""

    def _check_transfer(self) -> None:
        if self.transfer:
            raise ProtocolError(f"the guest has not answered yet that it has {self.transfer} its files")

    def receive(self, message: Message, *, with_data: bool = False) -> None:
        """Record a message of the guest; raises ProtocolError, with the state as before, for one that must not
        come now."""
        kind = message.type
        if with_data != (kind in _WITH_DATA):
            raise ProtocolError(f"a message of type {kind[:50]!r} comes {'without' if with_data else 'with'} data")
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
        elif self.transfer and kind in ("response", "error", "file"):
            self._transferred(message)
        elif kind in NETWORK:
            if not self._network or self.phase == "new":
                raise ProtocolError("the guest may not open network connections")
        elif kind not in _NOTES:
            raise ProtocolError(f"unknown message type {kind[:50]!r}")

    @property
    def open_ids(self) -> frozenset[str]:
        """The IDs of the requests that wait for their answers."""
        return frozenset(self._open)

    @property
    def open_requests(self) -> int:
        """How many requests wait for their answers."""
        return len(self._open)

    def is_open(self, message_id: str) -> bool:
        """Return whether a request with this ID waits for its answer."""
        return message_id in self._open

    def answered(self, message_id: str) -> None:
        """Note that an answer was sent; the ID is free again."""
        self._open.discard(message_id)

    def _transferred(self, message: Message) -> None:
        if message.id != self._transfer_id:
            raise ProtocolError(f"a message of type {message.type!r} came that nobody asked for")
        if message.type != "file":
            self.transfer = ""
        elif self.transfer != "take":
            raise ProtocolError("a file came while files were put")

    def _hello(self, message: Message) -> None:
        if self.phase != "new":
            raise ProtocolError("the guest said hello twice")
        protocol, version = message.payload.get("protocol"), message.payload.get("version")
        if protocol != PROTOCOL or version != VERSION:
            raise ProtocolError(
                f"the guest speaks {str(protocol)[:50]!r} version {str(version)[:20]}, not {PROTOCOL!r} {VERSION}; "
                "host and guest must be of the same release"
            )
        found = message.payload.get("capabilities") or []
        if not isinstance(found, list) or len(found) > _MAX_CAPABILITIES or not all(map(_is_short, found)):
            raise ProtocolError("the capabilities of a guest are a few short strings")
        self.capabilities = tuple(found)
        self.phase = "ready"


def _is_short(value: JSONValue) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_IDS
