"""The guest's end of the line to the host, alone."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from toolexec.runtime.guest.python import stream
from toolexec.runtime.guest.python.errors import ToolError
from toolexec.runtime.guest.python.stream import Line, end_group, move_descriptors

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
    """And so does whoever asks later."""
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
    """It is no host of ours then."""
    host.end.sendall(b"\x00\x00\x00\x01{")
    assert host.line.inbox.get(timeout=LONG) is None


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
    """And answers come back on that loop."""

    async def main() -> list[Any]:
        heard: list[Any] = []
        for n in range(3):
            host.line.submit("run_tool", {"n": n}, heard.append)
        frame = await asyncio.to_thread(host.hear)
        assert [message["payload"]["n"] for message in frame] == [0, 1, 2]
        host.say(*({"type": "response", "id": message["id"], "payload": {}} for message in frame))
        while len(heard) < 3:
            await asyncio.sleep(0.001)
        return heard

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
