"""The guest protocol: messages, frames and the order they come in."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.errors import ProtocolError
from toolexec.runtime.guest.python import protocol
from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES, PROTOCOL, VERSION
from toolexec.runtime.protocol import messages
from toolexec.runtime.protocol.messages import (
    MAX_HEADER_BYTES,
    REQUESTS,
    FrameReader,
    HostState,
    JSONCodec,
    Message,
    encode_data_frame,
    encode_message,
    is_data_frame,
    read_data_frame,
    read_message,
)

CODEC = JSONCodec()
HELLO = Message("hello", "", {"protocol": PROTOCOL, "version": VERSION})


class TestCodec:
    """Messages become frames and frames messages."""

    def test_several_messages_in_one_frame(self) -> None:
        """Messages come back in order, with every character and digit."""
        messages = [
            Message("run_tool", "1", {"id": "a:b", "args": {"x": 2**70, "y": "ä\u0000\U0001f642", "z": [None, 0.5]}}),
            Message("cancel", "2", {}),
        ]
        frame = CODEC.encode(messages)
        assert CODEC.decode(frame) == messages
        assert CODEC.decode(frame.decode()) == messages

    def test_an_empty_payload_is_left_out(self) -> None:
        """The envelope is type and id, and the payload if there is one."""
        assert json.loads(CODEC.encode([Message("bye", "", {})])) == [{"type": "bye", "id": ""}]

    def test_a_single_message_is_a_frame(self) -> None:
        """A single message needs no list around it; an absent payload is an empty one."""
        assert CODEC.decode(b'{"type":"response","id":"7","payload":null}') == [Message("response", "7", {})]
        assert CODEC.decode(b'{"type":"bye"}') == [Message("bye", "", {})]
        assert CODEC.decode(b"[]") == []

    def test_an_encoded_payload_is_taken_as_it_is(self) -> None:
        """The text around it is a message with that payload."""
        text = encode_message("response", 'odd"id', '{"structured":[1]}')
        assert CODEC.decode(text) == [Message("response", 'odd"id', {"structured": [1]})]

    @pytest.mark.parametrize("payload", [{"x": float("nan")}, {"x": {1, 2}}, {"x": b"bytes"}], ids=str)
    def test_what_is_not_json_cannot_be_sent(self, payload: dict[str, Any]) -> None:
        """Refuses such a value instead of guessing."""
        with pytest.raises(ProtocolError, match="cannot be encoded"):
            CODEC.encode([Message("run_tool", "1", payload)])

    def test_what_contains_itself_cannot_be_sent(self) -> None:
        """Nor can a value without an end."""
        payload: dict[str, Any] = {}
        payload["x"] = payload
        with pytest.raises(ProtocolError):
            CODEC.encode([Message("run_tool", "1", payload)])

    @pytest.mark.parametrize(
        "frame",
        [
            b"",
            b"{",
            b"nope",
            b"\xff\xfe\xfd",
            b'{"type":"x","payload":{"n":NaN}}',
            b'{"type":"x","payload":{"n":-Infinity}}',
            b'{"type":"x"} {"type":"y"}',
            b"[" * 100_000,
            b'{"type":"x","payload":{"n":' + b"9" * 10_000 + b"}}",
        ],
        ids=lambda frame: repr(frame[:20]),
    )
    def test_what_is_not_json_cannot_be_read(self, frame: bytes) -> None:
        """Half a value, two values, no text, NaN, bombs of depth and of digits."""
        with pytest.raises(ProtocolError, match="not JSON"):
            CODEC.decode(frame)

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (1, "not int"),
            ("text", "not str"),
            (None, "not NoneType"),
            ({}, "no type"),
            ({"type": ""}, "no type"),
            ({"type": 5}, "no type"),
            ({"type": "x", "id": 1}, "not a short text"),
            ({"type": "x", "id": None}, "not a short text"),
            ({"type": "x", "id": "9" * 65}, "not a short text"),
            ({"type": "x", "payload": []}, "not an object"),
            ({"type": "x", "payload": "{}"}, "not an object"),
        ],
        ids=str,
    )
    def test_a_message_of_the_wrong_shape(self, data: Any, reason: str) -> None:
        """The error says what is wrong with it, alone and in a list."""
        with pytest.raises(ProtocolError, match=reason):
            read_message(data)
        with pytest.raises(ProtocolError, match=reason):
            CODEC.decode(json.dumps([{"type": "bye"}, data]))


class TestFrames:
    """A stream of bytes is cut into frames wherever it was broken up."""

    def test_byte_by_byte(self) -> None:
        """Each frame is there with its last byte and not before."""
        reader = FrameReader()
        stream = reader.pack(b"one") + reader.pack(b"") + reader.pack(b"three")
        arrived = [(position, frame) for position, byte in enumerate(stream) for frame in reader.feed(bytes([byte]))]
        assert arrived == [(6, b"one"), (10, b""), (19, b"three")]
        assert reader.pending == 0

    @pytest.mark.parametrize("seed", range(50))
    def test_any_split(self, seed: int) -> None:
        """However the stream is cut, the same frames come out, those over the limit as errors."""
        chance = random.Random(seed)
        sizes = [chance.choice((0, 1, 3, 4, 5, 99, 100, 101, 250, 1000)) for _ in range(30)]
        frames = [chance.randbytes(size) for size in sizes]
        stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
        reader = FrameReader(max_bytes=100)
        out: list[bytes | ProtocolError] = []
        position = 0
        while position < len(stream):
            step = chance.choice((1, 2, 3, 7, 50, 500))
            out += reader.feed(stream[position : position + step])
            position += step
        seen = [None if isinstance(frame, ProtocolError) else frame for frame in out]
        assert seen == [frame if len(frame) <= 100 else None for frame in frames]
        assert reader.pending == 0

    def test_a_frame_at_the_limit(self) -> None:
        """The limit itself fits, one byte more does not; the error is there before the frame is."""
        reader = FrameReader(max_bytes=8)
        assert reader.feed(reader.pack(b"12345678")) == [b"12345678"]
        (error,) = reader.feed((9).to_bytes(4, "big"))
        assert isinstance(error, ProtocolError)
        assert "9 bytes" in str(error)
        assert reader.feed(b"123456789" + reader.pack(b"next")) == [b"next"]

    def test_a_huge_length_costs_nothing(self) -> None:
        """A guest that announces 4 GiB has nothing kept for it."""
        reader = FrameReader(max_bytes=8)
        assert len(reader.feed(b"\xff\xff\xff\xff")) == 1
        for _ in range(100):
            assert reader.feed(bytes(1000)) == []
        assert len(reader._buffer) == 0
        assert reader.pending == 0xFFFFFFFF - 100_000

    def test_half_a_frame_shows(self) -> None:
        """At the end of a stream `pending` tells that something is missing."""
        reader = FrameReader()
        reader.feed(reader.pack(b"whole") + b"\x00\x00")
        assert reader.pending == 2
        reader.feed(b"\x00\x05ab")
        assert reader.pending == 6

    def test_too_large_a_frame_is_not_sent(self) -> None:
        """Refuses it before a byte of it goes out."""
        with pytest.raises(ProtocolError, match="over the limit of 8"):
            FrameReader(max_bytes=8).pack(b"123456789")
        assert MAX_FRAME_BYTES == 16 << 20


class TestFramesWithData:
    """A message, and bytes behind it as they are."""

    @pytest.mark.full
    @given(
        kind=st.sampled_from(["file", "net_data"]),
        message_id=st.text(st.characters(exclude_categories=["Cs"]), max_size=64),
        payload=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers() | st.text("ab\0[{")),
        data=st.binary(max_size=5000),
        cuts=st.lists(st.integers(1, 5000)),
    )
    def test_there_and_back(
        self, kind: str, message_id: str, payload: dict[str, Any], data: bytes, cuts: list[int]
    ) -> None:
        """Whatever the data are and however the stream is cut, among frames of JSON."""
        json_frame = CODEC.encode([Message("print", "1", {})])
        reader = FrameReader()
        frame = encode_data_frame(kind, message_id, json.dumps(payload), memoryview(data))
        stream = reader.pack(json_frame) + frame * 2 + reader.pack(json_frame)
        out: list[bytes | ProtocolError] = []
        for cut in cuts:
            out += reader.feed(stream[:cut])
            stream = stream[cut:]
        out += reader.feed(stream)
        assert [is_data_frame(found) for found in out if isinstance(found, bytes)] == [False, True, True, False]
        for found in out[1:3]:
            assert isinstance(found, bytes)
            assert read_data_frame(found) == (Message(kind, message_id, payload), data)

    @given(st.binary(max_size=200))
    def test_anything_at_all(self, frame: bytes) -> None:
        """Either it makes sense or it is an error of the protocol; as a frame of JSON it never makes sense."""
        for text in (frame, b"\0" + frame):
            try:
                message, data = read_data_frame(text)
            except ProtocolError:
                continue
            assert text.endswith(data)
            assert len(message.id) <= 64
            with pytest.raises(ProtocolError):
                CODEC.decode(text)

    @given(size=st.integers(0, 2**32 - 1), head=st.binary(max_size=100))
    def test_any_length_of_the_message(self, size: int, head: bytes) -> None:
        """Refuses a message whose announced bytes are missing."""
        with pytest.raises(ProtocolError):
            read_data_frame(b"\0" + size.to_bytes(4, "big") + b"[" + head)

    @pytest.mark.parametrize(
        ("frame", "reason"),
        [
            (b"", "cut off"),
            (b"\0", "cut off"),
            (b"\0\0\0\0\x05{}", "cut off"),
            (b'[{"type":"file"}]', "cut off"),
            (b"\0\0\0\0\0", "not JSON"),
            (b"\0\0\0\0\x01\xff", "not JSON"),
            (b"\0\0\0\0\x02[]", "is an object"),
            (b"\0\0\0\0\x02{}", "no type"),
            (b"\0\0\1\0\1" + bytes(70_000), "over the limit"),
            (b"\0\0\0\xff\xff" + b"[" * 65_535, "not JSON"),
        ],
    )
    def test_what_is_wrong_is_told(self, frame: bytes, reason: str) -> None:
        """In few words."""
        with pytest.raises(ProtocolError, match=reason) as caught:
            read_data_frame(frame)
        assert len(str(caught.value)) < 200

    def test_what_is_too_large_is_not_sent(self) -> None:
        """The message has a bound of its own, as the frame has."""
        for payload, data in (('{"a":"' + "x" * MAX_HEADER_BYTES + '"}', b""), ("{}", bytes(MAX_FRAME_BYTES))):
            with pytest.raises(ProtocolError, match="over the limits"):
                encode_data_frame("file", "1", payload, data)


class TestHostState:
    """The host knows what may come next, and refuses the rest with its state as before."""

    def _running(self) -> HostState:
        state = HostState(handshake=False)
        state.execute("r1")
        return state

    def test_a_whole_life(self) -> None:
        """Hello, a run with requests, its result, another run, bye."""
        state = HostState()
        assert state.phase == "new"
        state.receive(HELLO)
        assert state.phase == "ready"
        state.execute("r1")
        assert state.phase == "running"
        for number, kind in enumerate(sorted(REQUESTS)):
            state.receive(Message(kind, str(number), {}))
        for kind in ("cancel", "print", "println", "wait"):
            state.receive(Message(kind, "1", {}))
        state.receive(Message("result", "r1", {"value": 1}))
        assert state.phase == "done"
        state.execute("r2")
        state.receive(Message("run_tool", "1", {}))
        state.receive(Message("result", "r2", {}))
        state.receive(Message("bye", "", {}))
        assert state.phase == "closed"

    def test_over_host_calls_there_is_no_handshake(self) -> None:
        """The guest is ready at once, and says no hello."""
        state = HostState(handshake=False)
        assert state.phase == "ready"
        with pytest.raises(ProtocolError, match="twice"):
            state.receive(HELLO)

    @pytest.mark.parametrize("phase", ["new", "running", "closed"])
    def test_a_run_needs_a_guest_that_is_free(self, phase: str) -> None:
        """One run at a time, none before hello, none after bye."""
        state = HostState()
        if phase == "running":
            state = self._running()
        if phase == "closed":
            state.receive(Message("bye", "", {}))
        with pytest.raises(ProtocolError, match=phase):
            state.execute("r2")
        assert state.phase == phase

    @pytest.mark.parametrize(
        "payload",
        [
            {},
            {"protocol": PROTOCOL},
            {"protocol": PROTOCOL, "version": VERSION + 1},
            {"protocol": PROTOCOL, "version": str(VERSION)},
            {"protocol": "other", "version": VERSION},
            {"protocol": ["x" * 1000], "version": "9" * 1000},
        ],
        ids=lambda payload: str(payload)[:40],
    )
    def test_another_version(self, payload: dict[str, Any]) -> None:
        """Refuses another version with a short message that names the fix."""
        state = HostState()
        with pytest.raises(ProtocolError, match="same release") as caught:
            state.receive(Message("hello", "", payload))
        assert len(str(caught.value)) < 250
        assert state.phase == "new"

    def test_hello_twice(self) -> None:
        """The second one is refused."""
        state = HostState()
        state.receive(HELLO)
        with pytest.raises(ProtocolError, match="twice"):
            state.receive(HELLO)

    @pytest.mark.parametrize("kind", sorted(REQUESTS))
    @pytest.mark.parametrize("phase", ["new", "ready", "done", "closed"])
    def test_tools_are_for_runs(self, kind: str, phase: str) -> None:
        """Before and after a run no request is taken."""
        state = HostState(handshake=phase == "new")
        if phase == "done":
            state.execute("r1")
            state.receive(Message("result", "r1", {}))
        if phase == "closed":
            state.receive(Message("bye", "", {}))
        with pytest.raises(ProtocolError, match="run is over"):
            state.receive(Message(kind, "1", {}))
        assert state.phase == phase

    @pytest.mark.parametrize("message", [Message("result", "r2", {}), Message("result", "", {})], ids=lambda m: m.id)
    def test_a_forged_result(self, message: Message) -> None:
        """Only the run's own result ends it."""
        state = self._running()
        with pytest.raises(ProtocolError, match="nobody asked for"):
            state.receive(message)
        assert state.phase == "running"

    def test_a_second_result(self) -> None:
        """The first one counts."""
        state = self._running()
        state.receive(Message("result", "r1", {"value": 1}))
        with pytest.raises(ProtocolError, match="second one"):
            state.receive(Message("result", "r1", {"value": 2}))
        with pytest.raises(ProtocolError):
            HostState(handshake=False).receive(Message("result", "", {}))

    def test_request_ids(self) -> None:
        """Each is used by one request at a time; an answer, or a new run, sets it free."""
        state = self._running()
        state.receive(Message("run_tool", "1", {}))
        for message_id in ("1", ""):
            with pytest.raises(ProtocolError, match="in use or empty"):
                state.receive(Message("run_tool", message_id, {}))
        state.answered("1")
        state.receive(Message("run_tool", "1", {}))
        state.answered("never asked")
        state.receive(Message("result", "r1", {}))
        state.execute("r2")
        state.receive(Message("run_tool", "1", {}))

    @pytest.mark.parametrize("kind", ["response", "error", "execute", "evil" * 100])
    def test_an_unknown_type(self, kind: str) -> None:
        """Refuses a type that a guest does not send, with its name cut short."""
        with pytest.raises(ProtocolError, match="unknown message type") as caught:
            self._running().receive(Message(kind, "1", {}))
        assert len(str(caught.value)) < 100


class TestTransfers:
    """Files move between runs, one transfer at a time, and only an answer of the guest ends it."""

    def _done(self) -> HostState:
        state = HostState(handshake=False)
        state.execute("r1")
        state.receive(Message("result", "r1", {}))
        return state

    def test_a_whole_one(self) -> None:
        """Put, run, take."""
        state = HostState(handshake=False)
        state.begin_transfer("put", "f1")
        state.receive(Message("response", "f1", {}))
        state.execute("r1")
        state.receive(Message("result", "r1", {}))
        state.begin_transfer("take", "f2")
        state.receive(Message("file", "f2", {}), with_data=True)
        state.receive(Message("error", "f2", {}))
        state.begin_transfer("put", "f3")
        state.end_transfer()
        state.execute("r2")

    @pytest.mark.parametrize("kind", ["put", "take"])
    def test_not_while_something_else_goes_on(self, kind: Any) -> None:
        """No transfer before hello, in a run or in a transfer; no run in a transfer."""
        for state in (HostState(), HostState(handshake=False)):
            if state.phase == "ready":
                state.execute("r1")
            with pytest.raises(ProtocolError, match=state.phase):
                state.begin_transfer(kind, "f1")
        state = self._done()
        state.begin_transfer(kind, "f1")
        with pytest.raises(ProtocolError, match="not answered"):
            state.begin_transfer("put", "f2")
        with pytest.raises(ProtocolError, match="not answered"):
            state.execute("r2")
        assert (state.phase, state.transfer) == ("done", kind)

    def test_files_come_out_after_a_run_only(self) -> None:
        """A guest that is new has none."""
        with pytest.raises(ProtocolError, match="ready"):
            HostState(handshake=False).begin_transfer("take", "f1")

    @pytest.mark.parametrize("kind", ["response", "error", "file"])
    def test_what_nobody_asked_for(self, kind: str) -> None:
        """Another ID, or no transfer at all; nothing changes."""
        state = self._done()
        with pytest.raises(ProtocolError, match="unknown message type"):
            state.receive(Message(kind, "f1", {}), with_data=kind == "file")
        state.begin_transfer("take", "f1")
        with pytest.raises(ProtocolError, match="nobody asked for"):
            state.receive(Message(kind, "f2", {}), with_data=kind == "file")
        assert state.transfer == "take"

    def test_no_file_comes_while_files_are_put(self) -> None:
        """That would be the wrong way."""
        state = self._done()
        state.begin_transfer("put", "f1")
        with pytest.raises(ProtocolError, match="while files were put"):
            state.receive(Message("file", "f1", {}), with_data=True)

    @pytest.mark.parametrize("kind", ["file", "net_data", "net_ack", "print", "result", "run_tool", "bye"])
    def test_data_come_with_the_messages_that_have_some(self, kind: str) -> None:
        """Data come with the messages that have some, and with no other one."""
        state = HostState(handshake=False, network=True)
        with pytest.raises(ProtocolError, match="data"):
            state.receive(Message(kind, "1", {}), with_data=kind not in ("file", "net_data"))
        assert state.phase == "ready"

    @pytest.mark.parametrize("kind", ["net_open", "net_data", "net_ack", "net_eof", "net_close"])
    def test_the_network_is_for_those_who_may(self, kind: str) -> None:
        """Refuses such a message without the permission, and before hello."""
        for state in (HostState(handshake=False), HostState(network=True)):
            with pytest.raises(ProtocolError, match="may not open"):
                state.receive(Message(kind, "1", {}), with_data=kind == "net_data")
        HostState(handshake=False, network=True).receive(Message(kind, "1", {}), with_data=kind == "net_data")

    @pytest.mark.parametrize("found", ["x", {"a": 1}, [1], ["x" * 65], ["x"] * 65], ids=lambda found: str(found)[:9])
    def test_capabilities_are_a_few_short_strings(self, found: Any) -> None:
        """Whatever else is refused, with nothing kept."""
        state = HostState()
        with pytest.raises(ProtocolError, match="capabilities"):
            state.receive(Message("hello", "", {**HELLO.payload, "capabilities": found}))
        assert (state.phase, state.capabilities) == ("new", ())
        state.receive(Message("hello", "", {**HELLO.payload, "capabilities": ["python", "files"]}))
        assert state.capabilities == ("python", "files")


class TestHalvesOfCharacters:
    """Escapes can make what no text may have: half of a pair."""

    @pytest.mark.parametrize("half", ["\\ud83d", "\\uDE42", "\\ud83dx", "\\udead\\ud83d"])
    def test_they_are_replaced(self, half: str) -> None:
        """By a question mark, in strings and in keys, however deep; what comes out can be encoded."""
        (message,) = CODEC.decode(f'{{"type":"x","payload":{{"{half}":["{half}"], "ok":"\\u00e4"}}}}')
        assert json.dumps(message.payload, ensure_ascii=False).encode()
        key, value = next(iter(message.payload.items()))
        assert value == [key]
        assert "?" in key
        assert message.payload["ok"] == "ä"

    def test_pairs_stay(self) -> None:
        """Two halves that belong together are one character."""
        (message,) = CODEC.decode('{"type":"x","payload":{"a":"\\ud83d\\ude42 \\ud83d", "n":[1,null]}}')
        assert message.payload == {"a": "\U0001f642 ?", "n": [1, None]}

    def test_bytes_that_are_no_text(self) -> None:
        """Inside a text they are replaced, too."""
        assert CODEC.decode(b'{"type":"x","payload":{"a":"\xff"}}') == [Message("x", "", {"a": "\ufffd"})]


_RUNTIME = Path(messages.__file__).parents[1]
_ASKED = re.compile(r'(?:\b|_)(?:ask|askNow|structured|list)\((?:ctx, )?"([a-z_]+)"')


@pytest.mark.parametrize(
    "guest", ["guest/python/tools.py", "guest/javascript/guest.cjs", "guest/go/tools.go", "wasm/javascript_guest.js"]
)
def test_guests_ask_for_requests_that_there_are(guest: str) -> None:
    """Each guest is written in a language of its own; what it asks for is defined here."""
    asked = {*_ASKED.findall((_RUNTIME / guest).read_text())}
    assert {"run_tool", "search_tools"} <= asked <= REQUESTS


_FRAME = re.compile(r"(?:MAX_FRAME|toolexecMaxFrame|MOST_MESSAGE) = \(?(\d+) << (\d+)")
_GREETING = re.compile(r'"?protocol"?: "([a-z-]+)", "?version"?: (\d+)')


@pytest.mark.parametrize("guest", ["guest/javascript/guest.cjs", "guest/go/tools.go", "wasm/javascript_guest.js"])
def test_guests_in_other_languages_agree(guest: str) -> None:
    """A guest that cannot import what both sides agree on repeats it; the embedded sandbox has no greeting."""
    text = (_RUNTIME / guest).read_text()
    assert [int(number) << int(by) for number, by in _FRAME.findall(text)] == [MAX_FRAME_BYTES]
    greetings = [(PROTOCOL, str(VERSION))] if "hello" in text else []
    assert _GREETING.findall(text) == greetings


def test_what_both_sides_agree_on_is_defined_once() -> None:
    """No other Python file of the guests or of the host defines a name of `protocol.py`."""
    names = {*filter(str.isupper, vars(protocol)), "_MAX_FRAME", "_PROTOCOL", "_VERSION", "_WINDOW"}
    for path in [*(_RUNTIME / "guest").rglob("*.py"), *(_RUNTIME / "protocol").glob("*.py")]:
        if path == Path(protocol.__file__):
            continue
        text = path.read_text()
        defined = {*re.findall(r"^(_?[A-Z_]+)(?:: Final)? = ", text, re.MULTILINE)}
        assert defined.isdisjoint(names), path
        assert f'"{PROTOCOL}"' not in text, path
