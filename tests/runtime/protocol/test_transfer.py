"""Files over the guest protocol, with a guest that is played by the test: one that lies, that is silent, that is gone."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec
from toolexec.code.tools import Tools
from toolexec.code.types import ExecuteRequest, Output
from toolexec.errors import ConnectionClosedError, InvalidRequestError, ProtocolError
from toolexec.process.stream import SocketStream
from toolexec.runtime.guest.python.protocol import PROTOCOL, VERSION
from toolexec.runtime.protocol.conversation import Conversation
from toolexec.runtime.protocol.messages import FrameReader, encode_data_frame, is_data_frame, read_data_frame
from toolexec.runtime.protocol.sender import PIECE

LONG = 60


class Bench:
    """A conversation, and the guest's end of it."""

    def __init__(self) -> None:
        ours, self.end = socket.socketpair()
        self.end.setblocking(False)
        self.talk = Conversation(SocketStream(ours))
        self.ex = Exec()
        self._frames: list[bytes] = []
        self._reader = FrameReader()

    async def say(self, kind: str, message_id: str = "0", **payload: Any) -> None:
        """Send a message."""
        body = json.dumps({"type": kind, "id": message_id, "payload": payload}).encode()
        await self.raw(self._reader.pack(body))

    async def give(self, path: Any, data: bytes = b"", *, last: Any = True, transfer: str = "files1") -> None:
        """Send a piece of a file."""
        await self.raw(encode_data_frame("file", transfer, json.dumps({"path": path, "last": last}), data))

    async def raw(self, data: bytes) -> None:
        """Send bytes."""
        await asyncio.get_running_loop().sock_sendall(self.end, data)

    async def hear(self) -> list[tuple[str, str, Any, bytes]]:
        """The messages of the next frame: type, id, payload and data."""
        while not self._frames:
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.end, 1 << 18), LONG)
            assert data, "the host has hung up"
            self._frames += [frame for frame in self._reader.feed(data) if isinstance(frame, bytes)]
        frame = self._frames.pop(0)
        if is_data_frame(frame):
            message, data = read_data_frame(frame)
            return [(message.type, message.id, message.payload, data)]
        return [(message["type"], message["id"], message["payload"], b"") for message in json.loads(frame)]

    async def greet(self) -> None:
        """Say hello and hear the answer."""
        await self.say("hello", protocol=PROTOCOL, version=VERSION)
        assert (await self.hear())[0][0] == "hello"

    async def ran(self, **result: Any) -> None:
        """Greet, and have a run behind us."""
        await self.greet()
        tools = Tools(self.ex.index, self.ex.docs, self.ex.runner, output=Output())
        run = asyncio.create_task(self.talk.run(ExecuteRequest(code="x", gateway=tools)))
        assert (await self.hear())[0][0] == "execute"
        await self.say("result", "1", value=1, **result)
        await run

    async def taking(self, **bounds: int) -> asyncio.Task[Any]:
        """A run is over, and the host asks for its files."""
        await self.ran()
        task = asyncio.create_task(self.talk.take_files(**bounds))
        ((kind, message_id, payload, _),) = await self.hear()
        assert (kind, message_id) == ("take_files", "files1")
        assert payload == {"max_files": 1000, "max_bytes": 256 << 20, **bounds}
        return task


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A bench that is put away in the end."""
    bench = Bench()
    yield bench
    bench.end.close()
    await bench.talk.aclose()


# -- in ----------------------------------------------------------------------------------------------------------------


async def test_what_goes_over_the_line(bench: Bench) -> None:
    """Pieces of at most 1 MiB, each file to its end before the next one; then the question whether all is well."""
    await bench.greet()
    large = bytes(range(256)) * 4096 + b"rest"
    task = asyncio.create_task(bench.talk.put_files({"a": b"1", "b": large, "c": b""}))
    received = [(await bench.hear())[0] for _ in range(5)]
    assert [(kind, payload, len(data)) for kind, _, payload, data in received] == [
        ("put_file", {"path": "a", "last": True}, 1),
        ("put_file", {"path": "b", "last": False}, PIECE),
        ("put_file", {"path": "b", "last": True}, 4),
        ("put_file", {"path": "c", "last": True}, 0),
        ("files_end", {}, 0),
    ]
    assert received[1][3] + received[2][3] == large
    assert {message_id for _, message_id, _, _ in received} == {"files1"}
    assert not task.done()
    await bench.say("response", "files1")
    await task


async def test_files_wait_for_hello(bench: Bench) -> None:
    """As a run does."""
    task = asyncio.create_task(bench.talk.put_files({"a": b"1"}))
    await asyncio.sleep(0)
    await bench.greet()
    assert (await bench.hear())[0][0] == "put_file"
    assert (await bench.hear())[0][0] == "files_end"
    await bench.say("response", "files1")
    await task


async def test_a_refusal_is_cut_short(bench: Bench) -> None:
    """The guest may say whatever it likes."""
    await bench.greet()
    for number, (payload, reason) in enumerate(
        [
            ({"error": "x" * 9999, "code": "disk_full"}, "disk_bytes"),
            ({"error": ["odd"] * 999}, "cannot be put"),
            ({}, "cannot be put"),
        ]
    ):
        task = asyncio.create_task(bench.talk.put_files({"a": b"1"}))
        assert [(await bench.hear())[0][0] for _ in range(2)] == ["put_file", "files_end"]
        await bench.say("error", f"files{number + 1}", **payload)
        with pytest.raises(InvalidRequestError, match=reason) as caught:
            await task
        assert len(str(caught.value)) < 700


async def test_a_guest_that_does_not_read_holds_no_memory(bench: Bench) -> None:
    """Only a few pieces of it are prepared; the waiting caller can be cancelled, and then the guest is of no more use."""
    await bench.greet()
    task = asyncio.create_task(bench.talk.put_files({"a": bytes(100 << 20)}))
    await asyncio.sleep(0.2)
    assert not task.done()
    assert bench.talk._sender.unsent < 8 * PIECE
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProtocolError, match="not answered"):
        await bench.talk.put_files({"a": b""})


@pytest.mark.parametrize("moment", ["sending", "waiting"])
async def test_hanging_up_ends_it(bench: Bench, moment: str) -> None:
    """Hanging up ends the transfer, with unsent data or without."""
    await bench.greet()
    task = asyncio.create_task(bench.talk.put_files({"a": bytes(100 << 20) if moment == "sending" else b"1"}))
    assert (await bench.hear())[0][0] == "put_file"
    if moment == "waiting":
        assert (await bench.hear())[0][0] == "files_end"
    bench.end.close()
    with pytest.raises(ConnectionClosedError):
        await task
    with pytest.raises(ConnectionClosedError):
        await bench.talk.put_files({"a": b"1"})


async def test_closing_ends_it() -> None:
    """From this side."""
    bench = Bench()
    await bench.greet()
    task = asyncio.create_task(bench.talk.put_files({"a": bytes(100 << 20)}))
    await bench.hear()
    await bench.talk.aclose()
    bench.end.close()
    with pytest.raises(ConnectionClosedError):
        await task


# -- out ---------------------------------------------------------------------------------------------------------------


async def test_files_come_in_pieces(bench: Bench) -> None:
    """Several of one file are joined."""
    task = await bench.taking()
    await bench.give("a", b"1")
    await bench.give("b/c", bytes(PIECE), last=False)
    await bench.give("b/c", b"x" * PIECE, last=False)
    await bench.give("b/c")
    await bench.say("response", "files1", left_out=["d", 5, "e" * 9999])
    files, left_out = await task
    assert files == {"a": b"1", "b/c": bytes(PIECE) + b"x" * PIECE}
    assert left_out == ("d", "e" * 500)


@pytest.mark.parametrize("odd", [None, "x", {"a": 1}, 5])
async def test_names_that_are_none_count_as_absent(bench: Bench, odd: Any) -> None:
    """Those of what was left out."""
    task = await bench.taking()
    await bench.say("response", "files1", left_out=odd)
    assert await task == ({}, ())


async def test_only_so_many_names_are_kept(bench: Bench) -> None:
    """Of what was left out."""
    task = await bench.taking()
    await bench.say("response", "files1", left_out=["x"] * 5000)
    assert len((await task)[1]) == 1000


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([("../x", b"", True)], "under a path that is none"),
        ([("/etc/passwd", b"", True)], "under a path that is none"),
        ([("", b"", True)], "under a path that is none"),
        ([("x" * 300, b"", True)], "under a path that is none"),
        ([("/".join("x" * 30), b"", True)], "under a path that is none"),
        ([("a\0b", b"", True)], "under a path that is none"),
        ([(5, b"", True)], "has no path"),
        ([("a", b"", "yes")], "whether it is the last"),
        ([("a", b"", None)], "whether it is the last"),
        ([("a", b"", True), ("a", b"", True)], "came twice"),
        ([("a", bytes(PIECE), False), ("b", b"", True)], "before the end of 'a'"),
        ([("a", b"", False)], "pieces of 0 bytes"),
        ([("a", b"x", False)], "pieces of 1 bytes"),
        ([("a", bytes(60), True), ("b", bytes(60), True)], "larger than they may be"),
        ([("a", bytes(101), True)], "larger than they may be"),
        ([("a", b"", True), ("b", b"", True), ("c", b"", True)], "more than 2 files"),
        ([("a", bytes(PIECE), False), None], "has no end"),
    ],
)
async def test_whoever_lies_about_files_is_cut_off(bench: Bench, pieces: Any, reason: str) -> None:
    """None of them is believed; the run that was before keeps its result."""
    task = await bench.taking(max_files=2, max_bytes=PIECE if any(p and len(p[1]) == PIECE for p in pieces) else 100)
    for piece in pieces:
        if piece is None:
            await bench.say("response", "files1")
        else:
            await bench.give(piece[0], piece[1], last=piece[2])
    with pytest.raises(ProtocolError, match=reason) as caught:
        await task
    assert len(str(caught.value)) < 600
    assert bench.talk.over
    with pytest.raises(ProtocolError, match=reason):
        await bench.talk.take_files()


async def test_a_file_cannot_be_a_directory(bench: Bench) -> None:
    """Refuses such a file, which only shows at the end."""
    task = await bench.taking()
    for path in ("a", "a/b"):
        await bench.give(path)
    await bench.say("response", "files1")
    with pytest.raises(ProtocolError, match="file and a directory"):
        await task


async def test_a_guest_that_cannot_give_its_files_says_so(bench: Bench) -> None:
    """That is no crime."""
    task = await bench.taking()
    await bench.say("error", "files1", error="no " * 999)
    with pytest.raises(ProtocolError, match="could not give back its files: no no"):
        await task
    assert not bench.talk.over


async def test_files_of_another_transfer_are_refused(bench: Bench) -> None:
    """An offence, after which the right ones still come."""
    task = await bench.taking()
    await bench.give("a", b"wrong", transfer="files9")
    assert (await bench.hear())[0][:2] == ("error", "files9")
    await bench.give("a", b"right")
    await bench.say("response", "files1")
    assert await task == ({"a": b"right"}, ())


async def test_files_that_nobody_asked_for_are_refused(bench: Bench) -> None:
    """Before, and after; a flood of them ends the talk."""
    await bench.greet()
    for _ in range(101):
        await bench.give("a", bytes(1000))
    await until(lambda: bench.talk.over)


async def test_what_comes_after_a_cancelled_take_is_dropped(bench: Bench) -> None:
    """The guest may go on to send; nothing of it is kept, and nothing else is done with this guest."""
    task = await bench.taking()
    await bench.give("a", bytes(PIECE), last=False)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(20):
        await bench.give("b", bytes(PIECE), last=False)
    with pytest.raises(ProtocolError, match="not answered"):
        await bench.talk.take_files()
    assert bench.talk._files._received is None
    await bench.say("response", "files1")
    await until(lambda: not bench.talk._state.transfer)


async def test_a_guest_that_hangs_up_has_no_files(bench: Bench) -> None:
    """Not even those that came."""
    task = await bench.taking()
    await bench.give("a", b"1")
    bench.end.close()
    assert await task == ({}, ())
    assert await bench.talk.take_files() == ({}, ())


async def test_a_result_without_files_is_believed(bench: Bench) -> None:
    """Until the next run; only a plain false counts."""
    await bench.ran(files=False)
    assert await bench.talk.take_files() == ({}, ())
    assert await bench.talk.take_files() == ({}, ())
    await bench.say("print", text="x")
    bench.talk._nothing_new = False
    task = asyncio.create_task(bench.talk.take_files())
    assert (await bench.hear())[0][:2] == ("take_files", "files3")
    await bench.say("response", "files3")
    assert await task == ({}, ())
