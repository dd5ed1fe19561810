"""The control channel of a machine, whose other side may say anything."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from toolexec.errors import SandboxUnavailableError
from toolexec.machines import MAX_LINE, SocketStream
from toolexec.sandbox import ContainerSpec
from toolexec_microvms.guest import GuestEnd, MachineControl, begin_message

pytestmark = pytest.mark.anyio
READY = {"ready": {"protocol": 1, "python": "3.11.2", "kernel": "6.1"}}
ENDED = {"ended": {"code": 3, "signal": None, "oom": False, "pids": False, "said": "bye"}}


@asynccontextmanager
async def talking() -> AsyncIterator[tuple[MachineControl, SocketStream]]:
    """A control channel, and the guest's end of it."""
    ours, theirs = socket.socketpair()
    stream, guest = SocketStream(ours), SocketStream(theirs)
    control = MachineControl(stream)
    try:
        yield control, guest
    finally:
        await control.aclose()
        await stream.aclose()
        await guest.aclose()


async def send(guest: SocketStream, *messages: Any) -> None:
    await guest.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))


async def test_a_machine_from_its_boot_to_its_end() -> None:
    """Each message arrives once, in its turn."""
    async with talking() as (control, guest):
        await send(guest, READY)
        assert (await control.ready())["kernel"] == "6.1"
        loading = asyncio.create_task(control.load(b"program", ("python",)))
        line, _, program = (await guest.read()).partition(b"\n")
        assert (json.loads(line), program) == ({"load": {"bytes": 7, "warm": ["python"]}}, b"program")
        await send(guest, {"loaded": {}})
        await loading
        beginning = asyncio.create_task(control.begin(begin_message(ContainerSpec(image="", command=("x",)))))
        assert json.loads(await guest.read())["begin"]["command"] == ["x"]
        await send(guest, {"begun": {}})
        await beginning
        asking = asyncio.create_task(control.cpu_seconds())
        number = json.loads(await guest.read())["cpu"]["id"]
        await send(guest, {"cpu": {"id": number, "seconds": 1.5}}, ENDED)
        assert await asking == 1.5
        await control.over
        assert control.end == GuestEnd(code=3, said="bye")
        assert control.broken == ""


@pytest.mark.parametrize(
    "said",
    [
        b"x" * (MAX_LINE + 1),
        b"x" * (MAX_LINE + 1) + b"\n",
        b"no json\n",
        b'{"ready": {"protocol": NaN, "python": "", "kernel": ""}}\n',
        b"[1]\n",
        b'{"ready": {}, "loaded": {}}\n',
        b'{"later": {}}\n',
        b'{"loaded": {"more": 1}}\n',
        b'{"ready": {"protocol": true, "python": "", "kernel": ""}}\n',
        b'{"pong": {"id": 1}}\n',
        b'{"loaded": {}}\n{"ready": {"protocol": 1, "python": "", "kernel": ""}}\n',
        b'{"begun": {}}\n{"begun": {}}\n',
        b'{"begun": {}}\n{"failed": {"reason": "late"}}\n',
        b"[" * 60_000 + b"\n",
    ],
    ids=lambda said: said[:40].decode(),
)
async def test_what_a_guest_must_not_say(said: bytes) -> None:
    """Anything else ends the conversation, with the reason, and nothing more is read."""
    async with talking() as (control, guest):
        await guest.write(said)
        await control.over
        assert control.broken
        with pytest.raises(SandboxUnavailableError, match="broke the protocol") as caught:
            await control.ping()
        assert (caught.value.retryable, caught.value.details["hostile"]) == (False, True)


async def test_a_guest_that_floods() -> None:
    """A flood is not taken in: the guest is stopped at the first message that it may not send."""
    async with talking() as (control, guest):
        await send(guest, READY)
        flood = b'{"pong": {"id": 1}}\n' * 100_000
        writing = asyncio.create_task(guest.write(flood))
        await control.over
        assert control.broken == "an answer (pong) to nothing"
        assert not writing.done()
        writing.cancel()


async def test_a_guest_that_is_gone() -> None:
    """Each task that waits gets an error that says that a retry is safe."""
    async with talking() as (control, guest):
        waiting = [asyncio.create_task(work) for work in (control.ready(), control.cpu_seconds())]
        await asyncio.sleep(0)
        await guest.aclose()
        for task in waiting:
            with pytest.raises(SandboxUnavailableError, match="gone") as caught:
                await task
            assert caught.value.retryable


async def test_a_guest_that_cannot_begin() -> None:
    """The reason is in the error; and one with another protocol is refused."""
    async with talking() as (control, guest):
        await send(guest, {"failed": {"reason": "no room"}})
        with pytest.raises(SandboxUnavailableError, match="no room"):
            await control.begin({})
    async with talking() as (control, guest):
        await send(guest, {"ready": {"protocol": 2, "python": "", "kernel": ""}})
        with pytest.raises(SandboxUnavailableError, match="build its image again"):
            await control.ready()


async def test_questions_without_answers() -> None:
    """A silent guest is asked a bounded number of times; a late answer is allowed."""
    async with talking() as (control, guest):
        for _ in range(16):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await control.cpu_seconds()
        with pytest.raises(SandboxUnavailableError, match="16 questions"):
            await control.cpu_seconds()
        await send(guest, {"cpu": {"id": 1, "seconds": None}}, READY)
        await control.ready()
        asking = asyncio.create_task(control.ping())
        while b'"ping"' not in await guest.read():
            pass
        assert not control.over.done()
        asking.cancel()
