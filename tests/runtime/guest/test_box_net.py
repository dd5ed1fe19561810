"""Connections of programs through a real guest in a child process: to its loopback, over the line, to the host."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec
from toolexec.code.tools import Tools
from toolexec.code.types import ExecuteRequest, Output
from toolexec.process.stream import SocketStream
from toolexec.runtime.guest.python.protocol import MAX_CONNECTIONS
from toolexec.runtime.protocol.conversation import Conversation

LONG = 60
GUEST = """
import _thread, json, os, socket, sys, threading
_thread.start_new_thread = lambda run, args: threading.Thread(target=run, args=args, daemon=True).start()  # for coverage
from toolexec.runtime.guest.box import net
from toolexec.runtime.guest.python.stream import Line, move_descriptors, say_hello
number, port = int(sys.argv[1]), int(sys.argv[2])
line = Line(*move_descriptors(number, number), lambda: os._exit(0))
net.start(line, port)
say_hello(line, ["python", "proxy"])
while True:
    message = line.inbox.get()
    if message is None or message["type"] == "bye":
        break
    if message["type"] != "execute":
        continue
    space = {"port": port, "socket": socket, "os": os, "line": line}
    try:
        exec(message["payload"]["code"], space)
        result = {"value": space.get("value")}
    except Exception as error:
        result = {"error": {"kind": type(error).__name__, "message": str(error)}}
    line.send("result", message["id"], json.dumps(result))
"""
OPEN = "s = socket.create_connection(('127.0.0.1', port), 60)\n"


class Guest:
    """A guest whose connections are served by *serve*."""

    def __init__(self, serve: Callable[[Any], Awaitable[None]]) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-c", GUEST, str(theirs.fileno()), str(self.port)]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self.opened = 0
        self._serve = serve
        self.talk = Conversation(SocketStream(ours), self.connect)
        self.ex = Exec()

    async def connect(self, stream: Any) -> None:
        """Count, and serve."""
        self.opened += 1
        await self._serve(stream)

    async def value(self, code: str) -> Any:
        """Return the value of a program."""
        tools = Tools(self.ex.index, self.ex.docs, self.ex.runner, output=Output())
        ending = await asyncio.wait_for(self.talk.run(ExecuteRequest(code=code, gateway=tools)), LONG)
        assert ending.result is not None, ending
        assert "error" not in ending.result, ending.result
        return ending.result["value"]

    async def end(self) -> int:
        """The exit code after a good-bye."""
        await self.talk.aclose()
        return await asyncio.to_thread(self.process.wait, LONG)


@pytest.fixture
async def start() -> AsyncIterator[Callable[[Callable[[Any], Awaitable[None]]], Guest]]:
    """Starts guests, which end with 0 in the end."""
    guests: list[Guest] = []

    def start(serve: Callable[[Any], Awaitable[None]]) -> Guest:
        guests.append(Guest(serve))
        return guests[-1]

    yield start
    for guest in guests:
        assert await guest.end() == 0


async def echo(stream: Any) -> None:
    """Say what was said, until the end."""
    while data := await stream.read():
        await stream.write(data)


async def test_what_a_program_says_comes_back(start: Any) -> None:
    """Output of a program comes back, and its end, too."""
    guest = start(echo)
    code = (
        OPEN + "s.sendall(b'hello')\nfirst = s.recv(100)\ns.shutdown(1)\nvalue = [first.decode(), s.recv(100).decode()]"
    )
    assert await guest.value(code) == ["hello", ""]


async def test_megabytes_go_both_ways_at_the_same_time(start: Any) -> None:
    """Far more than may be under way."""
    guest = start(echo)
    code = f"""{OPEN}
import hashlib, threading
data = os.urandom(1 << 20) * 20 + b'rest'
def send():
    s.sendall(data); s.shutdown(1)
threading.Thread(target=send).start()
got = hashlib.sha256(); size = 0
while True:
    part = s.recv(1 << 16)
    if not part: break
    got.update(part); size += len(part)
value = [size, got.digest() == hashlib.sha256(data).digest()]
"""
    assert await guest.value(code) == [(20 << 20) + 4, True]


async def test_many_connections_each_with_its_own_words(start: Any) -> None:
    """More than there may be at once: the others wait for their turn."""
    guest = start(echo)
    count = MAX_CONNECTIONS + 20
    code = f"""
import threading
done = []
def talk(number):
    with socket.create_connection(('127.0.0.1', port), 60) as s:
        for turn in range(5):
            word = f'{{number}}-{{turn}}'.encode()
            s.sendall(word)
            if s.recv(100) != word: return
    done.append(number)
threads = [threading.Thread(target=talk, args=(n,)) for n in range({count})]
[t.start() for t in threads]; [t.join() for t in threads]
value = len(done)
"""
    assert await guest.value(code) == count
    assert guest.opened == count


async def test_one_more_than_there_may_be_waits(start: Any) -> None:
    """Until another one has ended."""
    guest = start(echo)
    code = f"""
held = [socket.create_connection(('127.0.0.1', port), 60) for _ in range({MAX_CONNECTIONS})]
for s in held: s.sendall(b'x'); s.recv(1)
more = socket.create_connection(('127.0.0.1', port), 60)
more.sendall(b'm'); more.settimeout(0.2)
try: early = more.recv(1)
except TimeoutError: early = None
held[0].close(); more.settimeout(60)
value = [early, more.recv(1).decode()]
"""
    assert await guest.value(code) == [None, "m"]


async def test_a_server_that_ends_first(start: Any) -> None:
    """Its last words arrive, and then the end; what the program still says goes nowhere."""

    async def shout(stream: Any) -> None:
        await stream.write(b"x" * 3_000_000)
        await stream.aclose()

    guest = start(shout)
    code = f"""{OPEN}
size = 0
while True:
    part = s.recv(1 << 16)
    if not part: break
    size += len(part)
try:
    for _ in range(100): s.sendall(b'y' * 100000)
    value = [size, 'sent']
except OSError:
    value = [size, 'refused']
"""
    assert await guest.value(code) == [3_000_000, "refused"]


async def test_a_server_that_ends_half(start: Any) -> None:
    """The program reads the end and can go on to say something; all of it is received, though it closes at once."""
    said = bytearray()
    received = asyncio.Event()

    async def listen(stream: Any) -> None:
        await stream.write_eof()
        while data := await stream.read():
            said.extend(data)
            await asyncio.sleep(0.001)
        received.set()

    guest = start(listen)
    waiting = asyncio.create_task(
        guest.value(
            f"{OPEN}a = s.recv(1)\ns.sendall(b'z' * 4_000_000)\ns.close()\nimport time\ntime.sleep(0.5)\nvalue = a.decode()"
        )
    )
    await asyncio.wait_for(received.wait(), LONG)
    assert len(said) == 4_000_000
    assert await waiting == ""


async def test_a_program_that_hangs_up(start: Any) -> None:
    """The server is notified, when it reads and when it writes."""
    ended: list[str] = []
    done = asyncio.Event()

    async def pour(stream: Any) -> None:
        try:
            while True:
                await stream.write(bytes(100_000))
        except OSError as error:
            ended.append(type(error).__name__)
            done.set()

    guest = start(pour)
    waiting = asyncio.create_task(guest.value(OPEN + "s.recv(1000)\ns.close()\nimport time\ntime.sleep(0.3)"))
    await asyncio.wait_for(done.wait(), LONG)
    await waiting
    assert ended == ["BrokenPipeError"]


@pytest.mark.full
async def test_a_slow_program_holds_back_only_its_own_server(start: Any) -> None:
    """The line is free for the others, and for results."""

    async def pour(stream: Any) -> None:
        await stream.write(bytes(10_000_000))

    guest = start(pour)
    code = f"""{OPEN}
t = socket.create_connection(('127.0.0.1', port), 60)
size = 0
while size < 10_000_000: size += len(t.recv(1 << 16))
value = size
"""
    assert await guest.value(code) == 10_000_000


@pytest.mark.full
async def test_the_end_of_a_run_ends_its_connections(start: Any) -> None:
    """The next one begins with none, in the same guest, which has none of the old ones open."""
    guest = start(echo)
    code = OPEN + "s.sendall(b'x'); s.recv(1); import builtins; builtins.kept = s"
    await guest.value(code)
    assert await guest.value("value = kept.recv(1).decode()") == ""
    assert await guest.value("kept.close()\n" + OPEN + "s.sendall(b'y'); value = s.recv(1).decode(); s.close()") == "y"
    code = "import time, builtins\ntime.sleep(0.2)\nvalue = len([n for n in os.listdir('/proc/self/fd')])"
    before = await guest.value(code)
    for _ in range(20):
        await guest.value(OPEN + "s.sendall(b'y'); s.recv(1); s.close()")
    assert await guest.value(code) == before


async def test_connections_of_children_and_forks(start: Any) -> None:
    """A child process connects by itself; a forked one does not keep its parent's connections open."""
    guest = start(echo)
    code = (
        OPEN
        + """
import subprocess, sys, warnings
warnings.simplefilter('ignore')
text = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); s.sendall(b'c'); print(s.recv(1))"
child = subprocess.run([sys.executable, '-I', '-c', text, str(port)], capture_output=True, text=True).stdout
ready, go = os.pipe()
pid = os.fork()
if pid == 0:
    try:
        line.sever(); s.close(); os.close(go); os.read(ready, 1)
    finally:
        os._exit(0)
os.close(ready)
s.sendall(b'x'); got = s.recv(1); s.shutdown(1)
value = [child.strip(), got.decode(), s.recv(1).decode()]
os.close(go)
os.waitpid(pid, 0)
"""
    )
    assert await guest.value(code) == ["b'c'", "x", ""]


async def test_a_port_that_is_taken(start: Any, tmp_path: Path) -> None:
    """That is told, and nothing of it stays."""
    guest = start(echo)
    code = """
from toolexec.runtime.guest.box import net
before = len(os.listdir('/proc/self/fd'))
try:
    net.start(line, port); value = 'twice'
except OSError as error:
    value = [error.strerror, len(os.listdir('/proc/self/fd')) - before]
"""
    assert await guest.value(code) == [os.strerror(98), 0]
