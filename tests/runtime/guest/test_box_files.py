"""Files into the working directory of a guest and out again: a real guest in a child process, and the module alone."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec
from toolexec.code.tools import Tools
from toolexec.code.types import ExecuteRequest, Output
from toolexec.errors import InvalidRequestError, ProtocolError
from toolexec.process.stream import PipeStream
from toolexec.runtime.guest.box import files as module
from toolexec.runtime.outcome import Ending
from toolexec.runtime.protocol.conversation import Conversation

LONG = 60
GUEST = """
import json, os, sys
from toolexec.runtime.guest.box import files
from toolexec.runtime.guest.python.stream import Line, move_descriptors, say_hello
work = sys.argv[1]
line = Line(*move_descriptors(0, 1), lambda: os._exit(0))
say_hello(line, ["python", "files"])
os.chdir(work)
while True:
    message = line.inbox.get()
    if message is None or message["type"] == "bye":
        break
    if files.handle(line, message, work) or message["type"] != "execute":
        continue
    try:
        exec(message["payload"]["code"], {"files": files, "os": os})
        result = {"value": None}
    except Exception as error:
        result = {"error": {"kind": type(error).__name__, "message": str(error)}}
    line.send("result", message["id"], json.dumps({**result, "files": files.changed(work)}))
"""


class Bench:
    """A guest over a pair of pipes, and its directory."""

    def __init__(self, talk: Conversation, process: asyncio.subprocess.Process, work: Path) -> None:
        self.talk = talk
        self.process = process
        self.work = work
        self.ex = Exec()

    async def run(self, code: str) -> Ending:
        """Run a program and return how it ended."""
        tools = Tools(self.ex.index, self.ex.docs, self.ex.runner, output=Output())
        return await asyncio.wait_for(self.talk.run(ExecuteRequest(code=code, gateway=tools)), LONG)

    async def after(self, code: str, **bounds: int) -> tuple[dict[str, bytes], tuple[str, ...]]:
        """The files after a program."""
        await self.run(code)
        return await self.take(**bounds)

    async def take(self, **bounds: int) -> tuple[dict[str, bytes], tuple[str, ...]]:
        """The files that there are to take."""
        return await asyncio.wait_for(self.talk.take_files(**bounds), LONG)

    async def put(self, **files: bytes) -> None:
        """Put files."""
        await asyncio.wait_for(self.talk.put_files(files), LONG)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Bench]]]:
    """Starts a guest, for a directory if one is given."""
    started: list[Bench] = []

    async def start(work: Path | None = None) -> Bench:
        work = work or tmp_path
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", GUEST, str(work), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        assert process.stdout is not None
        bench = Bench(Conversation(PipeStream(process.stdout, process.stdin)), process, work)
        started.append(bench)
        await asyncio.wait_for(bench.talk.start(), LONG)
        return bench

    yield start
    for bench in started:
        await bench.talk.aclose()
        await asyncio.wait_for(bench.process.wait(), LONG)
        bench.process._transport.close()  # type: ignore[attr-defined]


@pytest.fixture
async def bench(start: Callable[..., Awaitable[Bench]]) -> Bench:
    """A guest."""
    return await start()


async def test_files_go_in_and_only_what_changes_comes_out(bench: Bench) -> None:
    """New and changed ones; what stays as it was put, or is deleted, does not come."""
    await asyncio.wait_for(bench.talk.put_files({"a": b"1", "b/c/d": b"2", "empty": b"", "gone": b"x"}), LONG)
    assert (bench.work / "b" / "c" / "d").read_bytes() == b"2"
    files, left_out = await bench.after(
        "open('a', 'a').write('+')\nos.makedirs('new/x'); open('new/x/y', 'w').write('!')\nos.remove('gone')"
    )
    assert files == {"a": b"1+", "new/x/y": b"!"}
    assert left_out == ()
    assert await bench.take() == ({}, ())


def test_what_was_there_before_the_guest_is_not_handed_out(tmp_path: Path) -> None:
    """Files of a workspace that outlives its containers are known from the start; what changes in it is seen."""
    (tmp_path / "old").write_text("x")
    module.note(str(tmp_path))
    assert not module.changed(str(tmp_path))
    (tmp_path / "new").write_text("y")
    assert module.changed(str(tmp_path))


async def test_files_and_directories_are_private(bench: Bench) -> None:
    """No other process in the sandbox can read them."""
    await asyncio.wait_for(bench.talk.put_files({"d/f": b"1"}), LONG)
    assert (bench.work / "d").stat().st_mode & 0o777 == 0o700
    assert (bench.work / "d" / "f").stat().st_mode & 0o777 == 0o600


async def test_a_change_right_after_the_put_is_seen(bench: Bench) -> None:
    """Sees a change that keeps the size within one tick of the file system's clock."""
    for number in range(20):
        await bench.put(f=f"{number:03}".encode())
        assert await bench.after("open('f', 'r+').write('new')") == ({"f": b"new"}, ())


async def test_a_change_right_after_files_were_taken_is_seen(bench: Bench) -> None:
    """As above, in the next run of the same guest."""
    for number in range(20):
        text = f"{number:03}"
        assert await bench.after(f"open('f', 'w').write({text!r})") == ({"f": text.encode()}, ())


async def test_a_run_without_files_needs_no_question(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result says so already, and nothing is sent."""
    await bench.put(f=b"1")
    await bench.run("open('f').read()")
    monkeypatch.setattr(bench.talk._sender, "put", None)
    assert await bench.take() == ({}, ())
    monkeypatch.undo()


async def test_no_files_are_no_message(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """To put none is nothing."""
    monkeypatch.setattr(bench.talk._sender, "put", None)
    await bench.put()
    monkeypatch.undo()


async def test_files_of_a_program_that_failed_are_taken(bench: Bench) -> None:
    """Files of a failed program may show why."""
    ending = await bench.run("open('log', 'w').write('so far')\nraise ValueError('no')")
    assert ending.result is not None
    assert ending.result["error"]["kind"] == "ValueError"
    assert await bench.take() == ({"log": b"so far"}, ())


async def test_a_guest_that_is_gone_has_no_files(bench: Bench) -> None:
    """Its directory went with it."""
    ending = await bench.run("open('f', 'w').write('1')\nos._exit(3)")
    assert ending.result is None
    assert await bench.take() == ({}, ())
    with pytest.raises(Exception, match="hung up"):
        await bench.put(f=b"1")


async def test_a_hundred_megabytes_go_in_and_out(bench: Bench) -> None:
    """In pieces; a few bytes more than a number of whole pieces."""
    content = os.urandom(1 << 20) * 96 + b"and a bit"
    await bench.put(big=content)
    assert (bench.work / "big").stat().st_size == len(content)
    files, _ = await bench.after("data = open('big', 'rb').read(); open('out', 'wb').write(data)")
    assert list(files) == ["out"]
    assert files["out"] == content


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
async def test_files_of_any_size(bench: Bench, size: int) -> None:
    """At the borders of pieces, too."""
    content = os.urandom(size)
    await bench.put(f=content)
    assert (bench.work / "f").read_bytes() == content
    assert await bench.after("open('g', 'wb').write(open('f', 'rb').read())") == ({"g": content}, ())


async def test_many_files_go_in_and_out(bench: Bench) -> None:
    """Small ones share frames."""
    names = {f"d{n % 7}/{n}": str(n).encode() for n in range(700)}
    await asyncio.wait_for(bench.talk.put_files(names), LONG)
    assert sum(1 for path in bench.work.rglob("*") if path.is_file()) == 700
    code = "for at, _, names in os.walk('.'):\n  for n in names: open(at + '/' + n, 'a').write('!')"
    files, left_out = await bench.after(code)
    assert files == {name: content + b"!" for name, content in names.items()}
    assert left_out == ()


async def test_what_is_too_much_is_left_out(bench: Bench) -> None:
    """Names the surplus and leaves it out; the rest comes, in the order of names, as long as it fits."""
    code = "for n, size in dict(a=10, b=100, c=10, d=5).items(): open(n, 'wb').write(bytes(size))"
    assert await bench.after(code, max_bytes=30) == ({"a": bytes(10), "c": bytes(10), "d": bytes(5)}, ("b",))
    code = "for n in 'abcd': open(n, 'ab').write(b'!')"
    files, left_out = await bench.after(code, max_files=2)
    assert (list(files), left_out) == (["a", "b"], ("c", "d"))


async def test_caches_and_special_files_do_not_come(bench: Bench) -> None:
    """As little as links, of which one leads elsewhere, and names that are no text are left out."""
    code = """
import socket
for name in ('__pycache__', '.cache', '.npm', '.config', 'sub/__pycache__', '.toolexec-x'):
    os.makedirs(name); open(name + '/f', 'w').close()
os.symlink('/etc/passwd', 'link'); os.symlink('/etc', 'directory'); os.mkfifo('pipe')
socket.socket(socket.AF_UNIX).bind('socket')
open(b'odd\\xff', 'w').close(); open('fine', 'w').close()
os.mkdir('locked'); open('locked/f', 'w').close()
"""
    assert await bench.after(code) == ({"fine": b"", "locked/f": b""}, ("odd?",))


async def test_depth_and_width_are_bounded(bench: Bench) -> None:
    """Skips levels that are deeper than a path may be."""
    code = """
for depth in (19, 20):
    os.makedirs('/'.join(['d'] * depth), exist_ok=True)
    open('/'.join(['d'] * depth + ['f']), 'w').close()
"""
    files, _ = await bench.after(code)
    assert list(files) == ["/".join(["d"] * 19 + ["f"])]


async def test_a_path_that_cannot_be_put_is_told(bench: Bench) -> None:
    """The guest says why, writes nothing more of this put, and goes on."""
    await bench.put(f=b"1")
    with pytest.raises(InvalidRequestError, match=r"the file 'f/g': Not a directory"):
        await asyncio.wait_for(bench.talk.put_files({"f/g": b"2", "later": b"3"}), LONG)
    assert not (bench.work / "later").exists()
    await bench.put(f=b"2")
    assert (bench.work / "f").read_bytes() == b"2"


@pytest.mark.parametrize("trap", ["os.symlink('/', 'd')", "os.symlink('{outside}', 'd')", "os.mkfifo('d')"])
async def test_no_link_leads_out_of_the_directory(
    bench: Bench, trap: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Neither on the way nor at the end, whatever an earlier program has left there."""
    outside = tmp_path_factory.mktemp("outside")
    await bench.run(trap.format(outside=outside))
    for name in ("d/stolen", "d"):
        with pytest.raises(InvalidRequestError):
            await asyncio.wait_for(bench.talk.put_files({name: b"1"}), LONG)
    assert list(outside.iterdir()) == []


async def test_a_fifo_that_somebody_reads_is_no_file(bench: Bench) -> None:
    """A fifo with a reader could be opened, and what is written there would go elsewhere."""
    await bench.run("os.mkfifo('p'); globals()['files'].kept = os.open('p', os.O_RDONLY | os.O_NONBLOCK)")
    with pytest.raises(InvalidRequestError, match="not a plain file"):
        await bench.put(p=b"1")


async def test_a_bad_path_is_refused_before_anything_is_sent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuses a bad path even when it is the last of many."""
    monkeypatch.setattr(bench.talk._sender, "put", None)
    for bad in ("../x", "/x", "a//b", "", "\0"):
        for others in (1, 100):
            with pytest.raises(InvalidRequestError):
                await bench.talk.put_files({**{f"f{n}": b"" for n in range(others)}, bad: b""})
    monkeypatch.undo()


async def test_a_full_disk_is_told(bench: Bench) -> None:
    """Here a bound on the size of files; what was written of the file is gone, and the guest goes on."""
    await bench.run("import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))")
    with pytest.raises(InvalidRequestError, match="disk_bytes") as caught:
        await bench.put(small=b"1", big=bytes(5_000_000), other=b"2")
    assert caught.value.details == {"resource": "disk"}
    assert (bench.work / "big").stat().st_size == 0
    assert not (bench.work / "other").exists()
    await bench.put(other=b"2")
    assert await bench.after("open('x', 'w').close()") == ({"big": b"", "x": b""}, ())


async def test_files_move_only_between_runs(bench: Bench) -> None:
    """Files come out only after a run."""
    with pytest.raises(ProtocolError, match="ready"):
        await bench.take()
    run = asyncio.create_task(bench.run("import time; open('f', 'w').close(); time.sleep(0.2)"))
    await until(lambda: bench.talk._state.phase == "running", 0)
    for attempt in (bench.take(), bench.put(f=b"")):
        with pytest.raises(ProtocolError, match="running"):
            await attempt
    await run
    assert await bench.take() == ({"f": b""}, ())


async def test_a_directory_that_is_gone_has_no_files(start: Callable[..., Awaitable[Bench]], tmp_path: Path) -> None:
    """Programs may do that."""
    (tmp_path / "work").mkdir()
    bench = await start(tmp_path / "work")
    assert await bench.after("open('f', 'w').close()\nos.rename(os.getcwd(), os.getcwd() + '.moved')") == ({}, ())
    with pytest.raises(InvalidRequestError, match="No such file"):
        await bench.put(f=b"1")


# -- the module alone --------------------------------------------------------------------------------------------------


class Kept:
    """A line that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[dict[str, Any], bytes]] = []

    def send(self, kind: str, message_id: str, payload: str) -> None:
        """Record a message instead of sending it."""
        self.sent.append(({"type": kind, "id": message_id, "payload": payload}, b""))

    def send_data(self, header: dict[str, Any], data: bytes) -> None:
        """Record data instead of sending them."""
        self.sent.append((header, data))


def test_other_messages_are_for_others(tmp_path: Path) -> None:
    """Returns that the message is for another part."""
    assert not module.handle(Kept(), {"type": "execute", "id": "1"}, str(tmp_path))


@pytest.mark.parametrize("fault", ["short", "broken"])
def test_a_file_that_is_cut_off_while_it_is_read_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A file that is cut off or unreadable comes shorter, and in order."""
    (tmp_path / "f").write_bytes(bytes(3 << 20))
    read = os.read
    reads = 0

    def torn(file: int, size: int) -> bytes:
        nonlocal reads
        reads += 1
        if reads > 1 and fault == "broken":
            raise OSError(errno.EIO, "broken")
        return read(file, size) if reads == 1 else b""

    line = Kept()
    monkeypatch.setattr(module.os, "read", torn)
    module._take(line, "1", {"max_files": 5, "max_bytes": 5 << 20}, module._Directory(str(tmp_path)))
    monkeypatch.undo()
    assert [(h["type"], len(d)) for h, d in line.sent] == [("file", 1 << 20), ("file", 0), ("response", 0)]
    assert [h["payload"]["last"] for h, _ in line.sent[:2]] == [False, True]


def test_a_file_that_turns_into_something_else_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at the directory and the moment when it is opened."""
    directory = module._Directory(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(bytes(100))
    marks = {"gone": (1, 1, 1, 1), "pipe": (1, 1, 1, 1), "large": (1, 1, 1, 1)}
    monkeypatch.setattr(directory, "scan", lambda: iter(marks.items()))
    line = Kept()
    module._take(line, "1", {"max_files": 5, "max_bytes": 50}, directory)
    assert [h["payload"] for h, _ in line.sent] == ['{"left_out": ["gone", "large", "pipe"]}']


def test_only_so_many_entries_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In all directories together."""
    monkeypatch.setattr(module, "_MAX_ENTRIES", 10)
    for directory in "abc":
        (tmp_path / directory).mkdir()
        for name in range(5):
            (tmp_path / directory / str(name)).touch()
    assert len(dict(module._Directory(str(tmp_path)).scan())) < 10


@pytest.mark.parametrize("path", ["../x", "/x", "a/../b", "", "./a", None])
def test_no_path_leads_out(tmp_path: Path, path: Any) -> None:
    """Though the host checks them, too."""
    directory = module._Directory(str(tmp_path / "work"))
    (tmp_path / "work").mkdir()
    directory.put({"path": path, "last": True}, b"1")
    assert directory.finish()["code"] == "bad_path"
    assert [p.name for p in tmp_path.rglob("*")] == ["work"]


def test_a_put_that_stops_in_the_middle_leaves_nothing_open(tmp_path: Path) -> None:
    """A partial file is removed instead of being taken for whole."""
    directory = module._Directory(str(tmp_path))
    directory.put({"path": "f", "last": False}, b"1")
    assert directory.finish() is None
    assert (directory._file, (tmp_path / "f").read_bytes()) == (-1, b"")


def test_files_are_older_than_a_tick_once_they_are_known(tmp_path: Path) -> None:
    """A later change gets another time, even where clocks of file systems are coarse."""
    directory = module._Directory(str(tmp_path))
    before = time.time_ns()
    directory.put({"path": "put", "last": True}, b"1")
    (tmp_path / "made").write_bytes(b"2")
    module._take(Kept(), "1", {"max_files": 5, "max_bytes": 5}, directory)
    assert dict(directory.scan()) == directory.known
    after = time.time_ns()
    for name in ("put", "made"):
        assert before - module._TICK <= (tmp_path / name).stat().st_mtime_ns <= after - module._TICK
