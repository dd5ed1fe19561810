"""The messages of the duplex route: many runs over one WebSocket, each in order and without loss.

A message is one binary WebSocket message: its head as JSON on one line, then its body as it is.

```
server → client   challenge {protocol, version, incarnation, nonce}       first; no run
client → server   hello {nonce, timestamp, signature, key}  no run; over the incarnation, the path and its nonce
server → client   welcome {proof, remembers, keeps, limits, capacity, backends, ...}   no run; `WELCOME`
                  denied {}                                 no run; body: a response with an error; then it is closed
client → server   execute {timestamp, signature, key, go, traceparent, session}   a run; body: the request (`wire`)
                  open {timestamp, signature, key, go}        a session; body: a request, whose code is not run
                  go {seconds}                                the answer to `ready`: start it, with so much time left
                  frame {}                                    body: a frame of the guest protocol, with answers
                  cancel {}                                   stop it; there is a `result` all the same
                  close {}                                    of a session; its `result` has no body
                  resume {incarnation}                        not in order: what is the matter with this run of yours
server → client   capacity {free, running, queued, ...}       no run; when it has changed
                  ready {seconds}                             there is room: `go` is waited for, for so long
                  started {}                                  the program has begun: it calls, or prints
                  frame {}                                    body: a frame of the guest protocol: calls, prints
                  result {}                                   the end; body: the response (`wire`)
                  refused {proof}                             the end: it never started; body: a response with an error
                  opened {}                                   a session is open
                  gone {state, proof}                         not in order, the answer to `resume`
both ways         ack {}                                      not in order: all up to `ack` has arrived
```

`run` names the run (or the session), `seq` counts the messages of a run that are in order, from 1 on, each way; `ack`
is the number of the last one that arrived from the other side. Who reconnects sends `resume` with its `ack` for each
run that is not over; the other side answers with an `ack` of its own, and both send again what the other has not. A
server that no longer has the run in memory answers `gone` with a state: `never_started` (and it never will be: its ID
is used up), `was_running`, or sends the `result` again, with `seq` 0. `never_started` is believed with a `proof` alone,
a statement of the incarnation that took the run; another one can only pass on how it ended, with the `statement` of
that incarnation (see `incarnation`).
"""

from __future__ import annotations

import json
from collections import deque
from types import MappingProxyType
from typing import Final, NamedTuple, cast

from toolexec.errors import ProtocolError
from toolexec.remote import MAX_HEAD_BYTES, JSONDict, JSONObject, JSONValue

SUBPROTOCOL: Final = "toolexec.runtime.v2"
VERSION: Final = 2
MAX_UNACKNOWLEDGED: Final = 64 << 20
"""How many bytes of a run may be on their way without an acknowledgement."""
MAX_RUN_ID: Final = 128

HELLO_METHOD: Final = "GET"
"""The method of the request that a connection begins with, which is signed in `hello`."""
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_IN_ORDER: Final = frozenset(
    {
        "execute",
        "open",
        "go",
        "frame",
        "cancel",
        "close",
        "ready",
        "started",
        "result",
        "refused",
        "opened",
    }
)
_LAST: Final = frozenset({"result", "refused"})
_ACK_MESSAGES: Final = 64
_ACK_BYTES: Final = 1 << 20


class RemoteMessage(NamedTuple):
    """One message; see this module."""

    type: str
    run: str = ""
    fields: JSONObject = MappingProxyType[str, JSONValue]({})
    body: bytes = b""
    seq: int = 0
    ack: int = 0


def encode_remote(message: RemoteMessage) -> bytes:
    """Return a message as it travels."""
    head: JSONDict = {"type": message.type}
    if message.run:
        head["run"] = message.run
    if message.seq:
        head["seq"] = message.seq
    if message.ack:
        head["ack"] = message.ack
    if message.fields:
        head["fields"] = dict(message.fields)
    return _encode(head).encode() + b"\n" + message.body


def decode_remote(data: bytes) -> RemoteMessage:
    """Return the message that has arrived; raises ProtocolError for one that is malformed."""
    end = data.find(b"\n", 0, MAX_HEAD_BYTES)
    if end < 0:
        raise ProtocolError("a message has no head, or one that is too long")
    try:
        head = decode_json(data[:end].decode())
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the head of a message is not JSON: {error}") from error
    if not isinstance(head, dict):
        raise ProtocolError("the head of a message is not an object")
    given = cast("JSONDict", head)
    kind, run, fields = given.get("type"), given.get("run", ""), given.get("fields", {})
    if not isinstance(kind, str) or not kind or len(kind) > 64:
        raise ProtocolError("a message has no type")
    if not isinstance(run, str) or len(run) > MAX_RUN_ID:
        raise ProtocolError(f"the run of a message of type {kind} is not a short string")
    if not isinstance(fields, dict):
        raise ProtocolError(f"the fields of a message of type {kind} are not an object")
    return RemoteMessage(kind, run, fields, data[end + 1 :], _count(given, "seq"), _count(given, "ack"))


class Link:
    """One side's end of one run: numbers what is sent, keeps it until it is acknowledged, and knows what has arrived.

    It does no I/O: the owner of the connection sends what `send` and `again` return, as long as there is one, and gives
    `receive` what comes. *most* bounds the bytes that are kept.
    """

    __slots__ = ("_due", "_due_bytes", "_kept", "_most", "_sent", "kept_bytes", "received", "run")

    def __init__(self, run: str, most: int = MAX_UNACKNOWLEDGED) -> None:
        self.run = run
        self.received = 0
        """The number of the last message that has arrived."""
        self.kept_bytes = 0
        self._most = most
        self._sent = 0
        self._kept: deque[tuple[int, RemoteMessage]] = deque()
        self._due = 0
        self._due_bytes = 0

    def send(
        self, kind: str, fields: JSONObject | None = None, body: bytes = b"", *, keeps_body: bool = True
    ) -> RemoteMessage:
        """Return the next message, numbered, and keep it; without its body where its owner has that elsewhere. Raises
        ProtocolError when too much is unacknowledged."""
        if kind not in _IN_ORDER:
            raise ProtocolError(f"a message of type {kind} is not one of a run")
        kept = body if keeps_body else b""
        if kind not in _LAST and self.kept_bytes + len(kept) > self._most and self._kept:
            raise ProtocolError(
                f"{self.kept_bytes} bytes of a run wait to be acknowledged; the other side is away, or too slow"
            )
        self._sent += 1
        self._due = self._due_bytes = 0
        message = RemoteMessage(kind, self.run, fields or {}, kept, self._sent, self.received)
        self._kept.append((self._sent, message))
        self.kept_bytes += len(kept)
        return message

    def receive(self, message: RemoteMessage) -> bool:
        """Record what has arrived; return whether it is new, and to be acted on.

        False for what came before, and for a mere acknowledgement. Raises ProtocolError when messages before it are
        missing, or when it acknowledges what was never sent.
        """
        if message.ack > self._sent:
            raise ProtocolError(f"message {message.ack} of run {self.run} is acknowledged, which was never sent")
        while self._kept and self._kept[0][0] <= message.ack:
            self.kept_bytes -= len(self._kept.popleft()[1].body)
        if not message.seq:
            return message.type not in ("ack", "resume")
        if message.seq <= self.received:
            return False
        if message.seq != self.received + 1:
            raise ProtocolError(f"messages of run {self.run} are missing: {message.seq} came after {self.received}")
        self.received = message.seq
        self._due += 1
        self._due_bytes += len(message.body)
        return True

    def again(self) -> list[RemoteMessage]:
        """Return what is not acknowledged, in order, to be sent over a new connection."""
        self._due = self._due_bytes = 0
        return [
            RemoteMessage(kept.type, kept.run, kept.fields, kept.body, number, self.received)
            for number, kept in self._kept
        ]

    def ack(self) -> RemoteMessage:
        """Return the acknowledgement of all that has arrived."""
        self._due = self._due_bytes = 0
        return RemoteMessage("ack", self.run, ack=self.received)

    @property
    def kept_count(self) -> int:
        """How many messages were sent and are not acknowledged."""
        return len(self._kept)

    @property
    def ack_is_due(self) -> bool:
        """Whether so much has arrived since the last acknowledgement that one should be sent."""
        return self._due >= _ACK_MESSAGES or self._due_bytes >= _ACK_BYTES


def _refuse_constant(name: str) -> JSONValue:
    raise ValueError(f"{name} is not JSON")


decode_json: Final = json.JSONDecoder(parse_constant=_refuse_constant).decode
"""Returns what a text of JSON says; raises ValueError and RecursionError, also for `NaN` and infinities."""


def _count(head: JSONObject, name: str) -> int:
    value: JSONValue = head.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ProtocolError(f"{name} of a message is not a number, 0 or more")
    return value
