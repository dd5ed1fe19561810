"""The guest's end of the line to the host, alone."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.waiting import until, until_blocking

from toolexec.runtime.guest.python import stream
from toolexec.runtime.guest.python.errors import ToolError
from toolexec.runtime.guest.python.process import end_group, move_descriptors
from toolexec.runtime.guest.python.stream import Line

LONG = 60


class Host:
    """The other end."""

    def __init__(self) -> None:
        self.end, theirs = socket.socketpair()
        self.end.settimeout(LONG)
        self.hung_up = threading.Event()
        number = theirs.detach()
        self.line = Line(*move_descriptors(number, number), self.hung_up.set)

    def hear(self) -> list[dict[str, Any]]:
        """The messages of the next frame."""
        size = int.from_bytes(self.end.recv(4, socket.MSG_WAITALL), "big")
        return json.loads(self.end.recv(size, socket.MSG_WAITALL))

    def say(self, *messages: Any) -> None:
        """Send one frame."""
        body = json.dumps(messages if len(messages) != 1 else messages[0]).encode()
        self.end.sendall(len(body).to_bytes(4, "big") + body)

    def close(self) -> None:
        """Hang up."""
        self.end.close()


@pytest.fixture
def host() -> Iterator[Host]:
    """A host that hangs up in the end."""
    host = Host()
    yield host
    host.close()
    assert host.hung_up.wait(LONG)
    if not host.line._gone or host.line._read_fd in _open():
        host.line.sever()


def _open() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


def in_thread(function: Any) -> Any:
    """Calls *function* in a thread; gives a function that waits for what comes of it."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(function())
        except ToolError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def wait() -> Any:
        thread.join(LONG)
        return found[0]

    return wait


def test_an_answer_reaches_the_one_who_asked(host: Host) -> None:
    """In whatever order they come."""
    waits = [in_thread(lambda n=n: host.line.ask("run_tool", {"n": n})) for n in range(3)]
    asked = [host.hear()[0] for _ in range(3)]
    for message in reversed(asked):
        host.say({"type": "response", "id": message["id"], "payload": message["payload"]})
    assert sorted(wait()["n"] for wait in waits) == [0, 1, 2]


def test_whoever_waits_when_the_host_goes_hears_of_it(host: Host) -> None:
    """Fails the waiting calls and all later ones."""
    wait = in_thread(lambda: host.line.ask("run_tool", {}))
    host.hear()
    host.close()
    assert wait().code == "connection_closed"
    assert host.hung_up.wait(LONG)
    assert host.line.inbox.get(timeout=LONG) is None
    with pytest.raises(ToolError, match="the host is gone"):
        host.line.ask("run_tool", {})
    host.line.post("print", {"text": "nobody hears this"})


def test_garbage_of_the_host_is_the_end(host: Host) -> None:
    """Garbage ends the connection: it is not from a host of ours."""
    host.end.sendall(b"\x00\x00\x00\x01{")
    assert host.line.inbox.get(timeout=LONG) is None


def with_data(message: Any, data: bytes) -> bytes:
    """A frame with data, as it goes over the line."""
    head = json.dumps(message).encode()
    frame = b"\0" + len(head).to_bytes(4, "big") + head + data
    return len(frame).to_bytes(4, "big") + frame


def test_data_come_as_they_are(host: Host) -> None:
    """Beside their message, in order with others."""
    data = bytes(range(256)) * 5000
    host.say({"type": "a"})
    host.end.sendall(with_data({"type": "b", "id": "1"}, data) + with_data({"type": "c"}, b""))
    host.say({"type": "d"})
    first, second, third, fourth = (host.line.inbox.get(timeout=LONG) for _ in range(4))
    assert (first, fourth) == ({"type": "a"}, {"type": "d"})
    assert (host.line.take_data(second), host.line.take_data(third)) == (data, b"")
    assert (second, third) == ({"type": "b", "id": "1"}, {"type": "c"})


def test_only_so_much_data_waits(host: Host) -> None:
    """The host has to wait then; taking some frames makes room, and nothing is lost."""
    frame = with_data({"type": "b"}, bytes(1 << 20))
    sent: list[int] = []

    def send() -> None:
        for number in range(40):
            host.end.sendall(frame)
            sent.append(number)

    threading.Thread(target=send).start()
    taken = [host.line.inbox.get(timeout=LONG)]
    time.sleep(0.3)
    assert len(sent) < 15
    for _ in range(39):
        assert len(host.line.take_data(taken.pop())) == 1 << 20
        taken.append(host.line.inbox.get(timeout=LONG))
    until_blocking(lambda: len(sent) >= 40)


def test_who_handles_a_type_of_message_gets_it(host: Host) -> None:
    """With its data, and instead of the inbox; the rest goes there."""
    received: list[Any] = []
    host.line.handlers["b"] = received.append
    host.end.sendall(with_data({"type": "b"}, b"1"))
    host.say({"type": "b"}, {"type": "c"})
    assert host.line.inbox.get(timeout=LONG) == {"type": "c"}
    assert received == [{"type": "b", "data": b"1"}, {"type": "b"}]


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
def test_data_go_out_whole(host: Host, size: int) -> None:
    """However much of it a pipe takes at a time, with other senders at the same time."""
    data = os.urandom(size)
    header = {"type": "file", "id": "ä", "payload": {"path": "x"}}
    for _ in range(2):
        threading.Thread(target=host.line.send_data, args=(header, data)).start()
    threading.Thread(target=host.line.send, args=("note", "1", "{}")).start()
    frames = []
    for _ in range(3):
        with host.end.makefile("rb", 0) as reader:
            frame = b""
            length = int.from_bytes(reader.read(4), "big")
            while len(frame) < length:
                frame += reader.read(length - len(frame))
            frames.append(frame)
    for frame in sorted(frames)[:2]:
        end = 5 + int.from_bytes(frame[1:5], "big")
        assert (frame[0], json.loads(frame[5:end]), frame[end:]) == (0, header, data)
    assert json.loads(sorted(frames)[2])[0]["type"] == "note"


def test_data_for_a_host_that_is_gone_go_nowhere(host: Host) -> None:
    """As other messages do."""
    host.close()
    for _ in range(3):
        host.line.send_data({"type": "file"}, bytes(1 << 20))


def test_other_messages_go_to_the_inbox(host: Host) -> None:
    """Those that answer nothing are dropped."""
    host.say({"type": "response", "id": "77", "payload": {}}, {"type": "execute", "id": "1"})
    assert host.line.inbox.get(timeout=LONG)["type"] == "execute"


def test_a_severed_line_is_silent(host: Host) -> None:
    """Nothing is sent, and asking fails."""
    host.line.sever()
    host.line.post("print", {"text": "x"})
    with pytest.raises(ToolError, match="the host is gone"):
        host.line.ask("run_tool", {})


def test_settling_what_is_settled_does_nothing(host: Host) -> None:
    """There is nothing to wait for."""
    host.line.settle("12")


def test_what_a_loop_queues_in_one_round_is_one_frame(host: Host) -> None:
    """Requests of one round are one frame, and answers come back on that loop."""

    async def main() -> list[Any]:
        received: list[Any] = []
        for n in range(3):
            host.line.submit("run_tool", {"n": n}, received.append)
        frame = await asyncio.to_thread(host.hear)
        assert [message["payload"]["n"] for message in frame] == [0, 1, 2]
        host.say(*({"type": "response", "id": message["id"], "payload": {}} for message in frame))
        await until(lambda: len(received) >= 3)
        return received

    assert len(asyncio.run(main())) == 3


def test_an_answer_for_a_closed_loop_is_dropped(host: Host) -> None:
    """The line goes on."""

    async def main() -> Any:
        host.line.submit("run_tool", {}, print)
        return (await asyncio.to_thread(host.hear))[0]

    message = asyncio.run(main())
    host.say({"type": "response", "id": message["id"], "payload": {}})
    host.say({"type": "execute", "id": "1"})
    assert host.line.inbox.get(timeout=LONG)["type"] == "execute"


def test_a_group_of_its_own_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise only the process ends."""
    done: list[Any] = []
    monkeypatch.setattr(stream.os, "killpg", lambda *args: done.append(args))
    monkeypatch.setattr(stream.os, "_exit", done.append)
    monkeypatch.setattr(stream.os, "getpgrp", lambda: 1)
    end_group()
    monkeypatch.setattr(stream.os, "getpgrp", os.getpid)
    end_group()
    assert done == [0, (0, 9), 0]
