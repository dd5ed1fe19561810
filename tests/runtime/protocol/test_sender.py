"""What is sent to a guest: in order, together where that fits, and never much in one go."""

from __future__ import annotations

import asyncio
import json

from tests.waiting import until

from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES
from toolexec.runtime.protocol.messages import FrameReader, encode_message
from toolexec.runtime.protocol.sender import PIECE, Sender


class Sink:
    """A stream that keeps what is written, as long as it is open and not broken."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.open = asyncio.Event()
        self.open.set()
        self.broken = False

    async def read(self) -> bytes:
        """Nothing ever comes."""
        return b""

    async def write(self, data: bytes) -> None:
        """Write a frame, as `Stream.write` does."""
        await self.open.wait()
        if self.broken:
            raise BrokenPipeError
        self.written.append(data)

    async def aclose(self) -> None:
        """Nothing to close."""

    def frames(self) -> list[bytes]:
        """The frames that were written."""
        frames: list[bytes] = []
        for frame in FrameReader().feed(b"".join(self.written)):
            assert isinstance(frame, bytes)
            frames.append(frame)
        return frames


def message(number: int, size: int = 0) -> str:
    """A message of about *size* bytes."""
    return encode_message("response", str(number), json.dumps({"x": "y" * size}))


async def until_sent(sender: Sender) -> None:
    """Wait until nothing is left."""
    await until(lambda: not sender.unsent, 0)


async def test_what_is_ready_together_travels_together() -> None:
    """In one frame, in order; frames with data stay between what was put before and after them."""
    sink = Sink()
    sender = Sender(sink)
    data = (5).to_bytes(4, "big") + b"\0data"
    for item in (message(1), message(2), data, message(3)):
        sender.put(item)
    await until_sent(sender)
    first, second, third = sink.frames()
    assert [item["id"] for item in json.loads(first)] == ["1", "2"]
    assert (second, [item["id"] for item in json.loads(third)]) == (b"\0data", ["3"])
    assert len(sink.written) == 3


async def test_a_large_frame_goes_out_in_pieces() -> None:
    """Pieces leave turns to others; put together they are the frame."""
    sink = Sink()
    sender = Sender(sink)
    sizes = [3 * PIECE, 5, PIECE, 2 * PIECE + 1, 0]
    for number, size in enumerate(sizes):
        sender.put(message(number, size))
    await until_sent(sender)
    (frame,) = sink.frames()
    assert [len(item["payload"]["x"]) for item in json.loads(frame)] == sizes
    assert max(map(len, sink.written)) <= PIECE


async def test_frames_have_a_bound() -> None:
    """A ready piece that does not fit goes into the next frame; one that just fits stays."""
    sink = Sink()
    sender = Sender(sink)
    size = MAX_FRAME_BYTES // 2 - len(message(1)) - 2
    for number in range(4):
        sender.put(message(number, size))
    await until_sent(sender)
    assert [len(json.loads(frame)) for frame in sink.frames()] == [2, 2]
    assert all(MAX_FRAME_BYTES - 10 < len(frame) <= MAX_FRAME_BYTES for frame in sink.frames())


async def test_who_waits_for_room_gets_it() -> None:
    """Some frames are taken at once, the next one when others have gone; or never, and then no sender waits."""
    sink = Sink()
    sender = Sender(sink)
    sink.open.clear()
    for _ in range(4):
        await asyncio.wait_for(sender.put_when_room(bytes(PIECE)), 60)
    waiting = asyncio.create_task(sender.put_when_room(bytes(PIECE)))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    sink.open.set()
    await asyncio.wait_for(waiting, 60)
    await until_sent(sender)
    sink.open.clear()
    waiting = asyncio.create_task(sender.put_when_room(bytes(5 * PIECE)))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    sender.give_up()
    await asyncio.wait_for(waiting, 60)
    await sender.aclose()


async def test_a_broken_stream_is_the_end() -> None:
    """The close does not wait for it, and nothing more is kept."""
    sink = Sink()
    sender = Sender(sink)
    sink.broken = True
    await asyncio.wait_for(sender.put_when_room(bytes(9 * PIECE)), 60)
    sender.put("x")
    assert not sender._ready
    await sender.aclose()


async def test_closing_waits_a_moment_and_no_longer() -> None:
    """Data that the other side takes at once still go out."""
    sink = Sink()
    sender = Sender(sink)
    sender.put(message(1))
    await sender.aclose()
    assert len(sink.frames()) == 1
    sink.open.clear()
    sender = Sender(sink)
    sender.put(message(2))
    await sender.aclose()
    sender.put(message(3))
    assert len(sink.frames()) == 1
