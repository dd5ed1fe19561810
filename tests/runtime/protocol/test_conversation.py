"""The host's talk with a guest, which is played by the test: well-behaved, clumsy, hostile."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import json
import logging
import socket
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from toolexec import Exec, Tool
from toolexec.code.tools import Tools
from toolexec.code.types import ExecuteRequest, Output
from toolexec.errors import ConnectionClosedError, InvalidRequestError, ProtocolError
from toolexec.process.stream import SocketStream
from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES, PROTOCOL, VERSION
from toolexec.runtime.protocol import conversation
from toolexec.runtime.protocol.conversation import MAX_OPEN, Conversation, execute_payload
from toolexec.runtime.protocol.messages import FrameReader

LONG = 60
CALLER: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="nobody")


class Bench:
    """Tools, a conversation, and the guest's end of it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.end = theirs
        self.talk = Conversation(SocketStream(ours))
        self.output = Output()
        self.release = asyncio.Event()
        self.active = 0
        self.cancelled = 0
        self.callers: set[str] = set()
        self.frames: list[list[dict[str, Any]]] = []
        self._reader = FrameReader()
        ex = Exec(default_timeout=LONG)
        for name in ("echo", "hold", "stubborn"):
            ex.add(Tool(name=name, input_schema={"type": "object"}), handler=getattr(self, name))
        self.ex = ex

    async def echo(self, args: dict[str, Any]) -> Any:
        """Give back the arguments."""
        self.callers.add(CALLER.get())
        return dict(args)

    async def hold(self, args: dict[str, Any]) -> str:
        """Wait until released."""
        self.active += 1
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.active -= 1
        return "held"

    async def stubborn(self, args: dict[str, Any]) -> str:
        """Refuse to be cancelled."""
        self.active += 1
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    def request(self, code: str = "code", **settings: Any) -> ExecuteRequest:
        """A request to run *code*."""
        tools = Tools(self.ex.index, self.ex.docs, self.ex.runner, output=self.output)
        return ExecuteRequest(code=code, gateway=tools, output=self.output, **settings)

    async def say(self, *messages: Any) -> None:
        """Send one frame."""
        await self.raw(self._reader.pack(json.dumps(list(messages)).encode()))

    async def raw(self, data: bytes) -> None:
        """Send bytes."""
        await asyncio.get_running_loop().sock_sendall(self.end, data)

    async def hear(self) -> list[dict[str, Any]]:
        """The messages of the host's next frame; none at its end."""
        while not self.frames:
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.end, 1 << 16), LONG)
            if not data:
                return []
            self.frames += [json.loads(frame) for frame in self._reader.feed(data) if isinstance(frame, bytes)]
        return self.frames.pop(0)

    async def hear_all(self, count: int) -> list[dict[str, Any]]:
        """The host's next *count* messages, in however many frames."""
        received: list[dict[str, Any]] = []
        while len(received) < count:
            received += await self.hear()
        return received

    async def greet(self) -> None:
        """Say hello and hear the answer."""
        await self.say(hello())
        assert (await self.hear())[0]["type"] == "hello"

    async def begin(self, **settings: Any) -> asyncio.Task[Any]:
        """Greet, have the host run something, and hear what."""
        await self.greet()
        task = asyncio.create_task(self.talk.run(self.request(**settings)))
        assert [message["type"] for message in await self.hear()] == ["execute"]
        return task

    async def until(self, condition: Any) -> None:
        """Wait for something to become true."""
        for _ in range(LONG * 100):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it never came")


def hello(**changes: Any) -> dict[str, Any]:
    return {"type": "hello", "id": "0", "payload": {"protocol": PROTOCOL, "version": VERSION, **changes}}


def result(value: Any = 1, run_id: str = "1") -> dict[str, Any]:
    return {"type": "result", "id": run_id, "payload": {"value": value}}


def call(message_id: str, tool: str = "echo", **args: Any) -> dict[str, Any]:
    return {"type": "run_tool", "id": message_id, "payload": {"id": tool, "args": args}}


def codes(messages: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(message["type"], message["id"], message["payload"].get("code", "")) for message in messages]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A bench that is put away in the end."""
    bench = Bench()
    yield bench
    bench.release.set()
    bench.end.close()
    await bench.talk.aclose()


# -- the usual ---------------------------------------------------------------------------------------------------------


async def test_hello_execute_call_print_result(bench: Bench) -> None:
    """The whole way once."""
    run = asyncio.create_task(bench.talk.run(bench.request("the code", env={"A": "1"}, args=["x"])))
    await bench.say(hello())
    received = await bench.hear_all(2)
    assert [message["type"] for message in received] == ["hello", "execute"]
    assert received[0]["payload"]["version"] == VERSION
    assert {"code": "the code", "language": "python", "env": {"A": "1"}, "args": ["x"]}.items() <= received[1][
        "payload"
    ].items()
    await bench.say(call("7", a=1))
    answer = (await bench.hear())[0]
    assert (answer["type"], answer["id"], answer["payload"]["structured"]) == ("response", "7", {"a": 1})
    await bench.say(
        {"type": "print", "id": "0", "payload": {"text": "out", "stream": "stdout"}},
        {"type": "print", "id": "0", "payload": {"text": "err", "stream": "stderr"}},
        {"type": "println", "id": "0", "payload": {"text": "line"}},
        result([1, 2]),
    )
    assert (await run).result == {"value": [1, 2]}
    assert (bench.output.text("stdout"), bench.output.text("stderr")) == ("outline\n", "err")


async def test_start_waits_for_hello(bench: Bench) -> None:
    """The start waits for hello, and only for that."""
    starting = asyncio.create_task(bench.talk.start())
    await asyncio.sleep(0)
    assert not starting.done()
    await bench.say(hello())
    await starting


async def test_what_the_guest_says_of_itself(bench: Bench) -> None:
    """Its capabilities are checked, the rest is handed on as it is, and cannot be changed."""
    assert (bench.talk.capabilities, dict(bench.talk.hello), bench.talk.over) == ((), {}, False)
    await bench.say(hello(capabilities=["python", "files"], python="3.11.2"))
    await bench.talk.start()
    assert bench.talk.capabilities == ("python", "files")
    assert bench.talk.hello["python"] == "3.11.2"
    with pytest.raises(TypeError):
        bench.talk.hello["python"] = "4"  # type: ignore[index]
    bench.end.close()
    await bench.until(lambda: bench.talk.over)


async def test_a_backend_can_tell_the_guest_more(bench: Bench) -> None:
    """Beside what the request says, or instead of it."""
    await bench.greet()
    run = asyncio.create_task(bench.talk.run(bench.request("x", env={"A": "1"}), {"cwd": "/work", "env": {}}))
    (message,) = await bench.hear()
    assert {"code": "x", "cwd": "/work", "env": {}}.items() <= message["payload"].items()
    await bench.say(result())
    await run


async def test_calls_are_answered_at_the_same_time_and_travel_together(bench: Bench) -> None:
    """Answers that are ready together share a frame, and come in whatever order they are ready."""
    run = await bench.begin()
    await bench.say(*(call(str(n), "hold") for n in range(50)), call("quick"))
    assert (await bench.hear())[0]["id"] == "quick"
    await bench.until(lambda: bench.active == 50)
    bench.release.set()
    frame = await bench.hear()
    assert {message["id"] for message in frame} == {str(n) for n in range(50)}
    await bench.say(result())
    await run


async def test_tools_run_in_the_callers_context(bench: Bench) -> None:
    """Context variables are those of the caller that runs the program."""
    CALLER.set("me")
    run = await bench.begin()
    await bench.say(call("1"))
    await bench.hear()
    await bench.say(result())
    await run
    assert bench.callers == {"me"}


async def test_a_call_can_be_cancelled(bench: Bench) -> None:
    """Its work ends, its answer says so, its ID is free again; a cancel for nothing does nothing."""
    run = await bench.begin()
    await bench.say(call("1", "hold"))
    await bench.until(lambda: bench.active == 1)
    await bench.say({"type": "cancel", "id": "1"}, {"type": "cancel", "id": "77"})
    assert codes(await bench.hear()) == [("error", "1", "protocol")]
    assert bench.cancelled == 1
    await bench.say(call("1"))
    assert codes(await bench.hear()) == [("response", "1", "")]
    await bench.say(result())
    await run


async def test_a_call_can_be_cancelled_before_it_begins(bench: Bench) -> None:
    """Answer a call that comes together with its cancellation, and free its ID."""
    run = await bench.begin()
    await bench.say(call("1", "hold"), {"type": "cancel", "id": "1"})
    assert codes(await bench.hear()) == [("error", "1", "protocol")]
    await bench.say(call("1"))
    assert codes(await bench.hear()) == [("response", "1", "")]
    await bench.say(result())
    await run


async def test_programs_run_one_after_the_other(bench: Bench) -> None:
    """Each with its own tools and ID; request IDs may be used again."""
    first = await bench.begin()
    await bench.say(call("1"), result("a"))
    assert (await first).result == {"value": "a"}
    second = asyncio.create_task(bench.talk.run(bench.request("more")))
    received = await bench.hear()
    while received[-1]["type"] != "execute":
        received = await bench.hear()
    assert received[-1]["id"] == "2"
    await bench.say(call("1"), result("b", "2"))
    assert (await second).result == {"value": "b"}


async def test_the_host_says_bye(bench: Bench) -> None:
    """A bye lets a guest end by itself."""
    await bench.greet()
    await bench.talk.aclose()
    assert [message["type"] for message in await bench.hear()] == ["bye"]
    assert await bench.hear() == []


async def test_closing_ends_a_run(bench: Bench) -> None:
    """Closing ends the run without a result."""
    run = await bench.begin()
    await bench.talk.aclose()
    assert (await run).result is None


def test_what_is_executed_is_all_in_the_message() -> None:
    """Input as base64, the seed, and nothing that is not set."""
    bare = execute_payload(ExecuteRequest(code="x"))
    assert "stdin" not in bare
    assert "seed" not in bare
    full = execute_payload(ExecuteRequest(code="x", language="bash", stdin=b"\xff", seed=0))
    assert (full["language"], base64.b64decode(full["stdin"]), full["seed"]) == ("bash", b"\xff", 0)


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_calls_under_way_are_cancelled_when_the_result_comes(bench: Bench) -> None:
    """The run is over, and nothing more is said about it."""
    run = await bench.begin()
    await bench.say(call("1", "hold"))
    await bench.until(lambda: bench.active == 1)
    await bench.say(result())
    assert (await run).result == {"value": 1}
    assert (bench.cancelled, bench.active) == (1, 0)


async def test_cancelling_a_run_cancels_its_calls(bench: Bench) -> None:
    """No other run can be begun with a guest that is still busy."""
    run = await bench.begin()
    await bench.say(call("1", "hold"))
    await bench.until(lambda: bench.active == 1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert bench.cancelled == 1
    await bench.say({"type": "print", "payload": {"text": "late"}}, call("2"))
    with pytest.raises(ProtocolError, match="running"):
        await bench.talk.run(bench.request())
    assert bench.output.text() == ""


async def test_a_tool_that_ignores_cancellation_does_not_hold_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such a tool is waited for only so long, and that is logged."""
    monkeypatch.setattr(conversation, "_GRACE", 0.05)
    run = await bench.begin()
    await bench.say(call("1", "stubborn"))
    await bench.until(lambda: bench.active == 1)
    with caplog.at_level(logging.WARNING):
        await bench.say(result())
        assert (await run).result == {"value": 1}
    assert "ignore cancellation" in caplog.text


async def test_calls_after_the_result_are_refused(bench: Bench) -> None:
    """A late call gets the error that the run is over."""
    run = await bench.begin()
    await bench.say(result(), call("9"))
    await run
    answer = (await bench.hear())[0]
    assert codes([answer]) == [("error", "9", "protocol")]
    assert "over" in answer["payload"]["error"]


async def test_a_second_result_and_one_of_another_run_are_refused(bench: Bench) -> None:
    """The first one for this run counts."""
    run = await bench.begin()
    await bench.say(result("wrong", "5"), result("right"), result("again"))
    assert (await run).result == {"value": "right"}
    assert codes(await bench.hear_all(2)) == [("error", "5", "protocol"), ("error", "1", "protocol")]


async def test_hanging_up_ends_the_run_without_a_result(bench: Bench) -> None:
    """A guest that is gone has nothing more to say; the next run ends at once, too."""
    run = await bench.begin()
    bench.end.close()
    ending = await run
    assert (ending.result, ending.stopped) == (None, "")
    assert (await bench.talk.run(bench.request())).result is None


async def test_half_a_message_at_the_end_is_told(bench: Bench) -> None:
    """The reason shows it."""
    run = await bench.begin()
    await bench.raw(b"\x00\x00\x01\x00half")
    bench.end.close()
    assert "in the middle of a message" in (await run).stderr


async def test_bye_of_the_guest_is_an_end(bench: Bench) -> None:
    """As hanging up is."""
    run = await bench.begin()
    await bench.say({"type": "bye"})
    assert (await run).result is None
    assert (await bench.talk.run(bench.request())).result is None


async def test_a_lost_connection_is_an_end() -> None:
    """The system's error is in the ending."""

    class Broken:
        async def read(self) -> bytes:
            raise ConnectionResetError("reset")

        async def write(self, data: bytes) -> None:
            raise BrokenPipeError

        async def aclose(self) -> None:
            return

    talk = Conversation(Broken())
    with pytest.raises(ConnectionClosedError, match="reset"):
        await talk.start()
    await talk.aclose()


async def test_a_guest_that_never_pauses_does_not_hold_the_event_loop(bench: Bench) -> None:
    """Though each read finds something at once, others have their turns: the deadline of the run is one of them."""
    frames = FrameReader()
    ended = asyncio.Event()

    class Flood:
        def __init__(self) -> None:
            self.reads = 0

        async def read(self) -> bytes:
            self.reads += 1
            if ended.is_set():
                return b""
            said = [hello()] if self.reads == 1 else [{"type": "print", "id": "1", "payload": {"text": "x"}}]
            return frames.pack(json.dumps(said).encode())

        async def write(self, data: bytes) -> None:
            return

        async def aclose(self) -> None:
            return

    stream = Flood()
    talk = Conversation(stream)
    await talk.start()
    running = asyncio.create_task(talk.run(bench.request()))
    asyncio.get_running_loop().call_later(0.2, ended.set)
    ending = await running
    assert ending.result is None
    assert ending.stopped == ""
    assert stream.reads > 100
    await talk.aclose()


async def test_a_failure_of_the_host_ends_the_talk(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged, and the waiting run ends."""
    run = await bench.begin()

    def fail(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(bench.output, "write", fail)
    await bench.say({"type": "print", "payload": {"text": "x"}})
    ending = await run
    assert ending.result is None
    assert "the talk with a guest failed" in caplog.text


# -- breaking the protocol ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (hello(version=99), "same release"),
        (hello(protocol="other"), "same release"),
        (call("1"), "run is over"),
        (result(), "nobody asked for"),
        (hello(capabilities="python"), "capabilities"),
        (hello(capabilities=[["python"]]), "capabilities"),
        (hello(more="x" * (64 << 10)), "says hello with"),
    ],
)
async def test_whoever_does_not_begin_with_a_fitting_hello_is_no_guest(bench: Bench, first: Any, text: str) -> None:
    """The talk is over before it began."""
    await bench.say(first)
    with pytest.raises(ProtocolError, match=text):
        await bench.talk.start()
    ending = await bench.talk.run(bench.request())
    assert ending.stopped == "violation"


async def test_hanging_up_before_hello_is_no_guest_either(bench: Bench) -> None:
    """With an error of its own."""
    bench.end.close()
    with pytest.raises(ConnectionClosedError):
        await bench.talk.start()


async def test_text_of_another_program_is_no_hello(bench: Bench) -> None:
    """An error message of a shell, for example: its first bytes are a length beyond all bounds."""
    await bench.raw(b"sh: 1: python: not found\n" * 4)
    with pytest.raises(ProtocolError):
        await bench.talk.start()


@pytest.mark.parametrize(
    "messages",
    [
        [{"type": "launch", "id": "x"}],
        [{"type": 1}],
        ["text"],
        [{"type": "run_tool", "id": ""}],
        [{"type": "run_tool", "id": 5}],
        [{"type": "run_tool", "id": "x" * 100}],
        [{"type": "run_tool", "id": "1", "payload": []}],
        [{"type": "run_tool", "id": "1", "payload": {"id": 5}}],
        [{"type": "run_tool", "id": "1", "payload": {"id": "echo", "args": 5}}],
        [{"type": "run_tool", "id": "1", "payload": {"id": "echo", "timeout": "x"}}],
        [hello()],
        [{"type": "print", "payload": {"text": 5}}],
        [{"type": "wait", "payload": {}}],
    ],
)
async def test_what_breaks_the_protocol_is_answered_and_the_run_goes_on(bench: Bench, messages: Any) -> None:
    """An error answer, and nothing has changed."""
    run = await bench.begin()
    await bench.say(*messages)
    assert (await bench.hear())[0]["type"] == "error"
    await bench.say(result())
    assert (await run).result == {"value": 1}


@pytest.mark.parametrize("frame", [b"{", b"\xff\xfe", b"[" * 100_000, b"", b"1"])
async def test_a_frame_that_is_no_json_is_answered(bench: Bench, frame: bytes) -> None:
    """Answers such a frame, and reads on."""
    run = await bench.begin()
    await bench.raw(len(frame).to_bytes(4, "big") + frame)
    assert codes(await bench.hear()) == [("error", "0", "protocol")]
    await bench.say(result())
    assert (await run).result == {"value": 1}


@pytest.mark.parametrize("frame", [b"[" * 100_000, b'["' + b"x" * 100_000, b"[1]" + b" " * 100_000, b"\xff" * 100_000])
async def test_a_large_frame_that_is_no_message_is_answered(bench: Bench, frame: bytes) -> None:
    """As a small one is."""
    run = await bench.begin()
    await bench.raw(len(frame).to_bytes(4, "big") + frame)
    assert codes(await bench.hear()) == [("error", "0", "protocol")]
    await bench.say(result())
    assert (await run).result == {"value": 1}


@pytest.mark.parametrize(
    "frame", [b"\0", b"\0\0\0\0\x02[]", b'\0\0\0\0\x0f{"type":"file"}x', b'\0\0\0\0\x0e{"type":"bye"}']
)
async def test_a_frame_with_data_that_makes_no_sense_is_answered(bench: Bench, frame: bytes) -> None:
    """Answers such a frame, and changes nothing."""
    run = await bench.begin()
    await bench.raw(len(frame).to_bytes(4, "big") + frame)
    assert (await bench.hear())[0]["type"] == "error"
    await bench.say(result())
    assert (await run).result == {"value": 1}


async def test_an_id_in_use_is_refused(bench: Bench) -> None:
    """A second request cannot take the place of the first."""
    run = await bench.begin()
    await bench.say(call("1", "hold"), call("1"))
    assert codes(await bench.hear()) == [("error", "1", "protocol")]
    bench.release.set()
    assert codes(await bench.hear()) == [("response", "1", "")]
    await bench.say(result())
    await run


async def test_a_frame_over_the_limit_is_read_over(bench: Bench) -> None:
    """A frame over the limit costs an error answer and no memory; the next frames are read as usual."""
    run = await bench.begin()
    size = MAX_FRAME_BYTES + 1
    await bench.raw(size.to_bytes(4, "big") + bytes(size))
    assert codes(await bench.hear()) == [("error", "0", "protocol")]
    await bench.say(call("1"))
    assert codes(await bench.hear()) == [("response", "1", "")]
    await bench.say(result())
    await run


async def test_a_frame_far_over_the_limit_ends_the_talk(bench: Bench) -> None:
    """To read over it would take for ever."""
    run = await bench.begin()
    await bench.raw(b"\xff\xff\xff\xff")
    ending = await run
    assert (ending.stopped, "too large" in ending.stderr) == ("violation", True)


async def test_a_flood_of_offences_ends_the_talk(bench: Bench) -> None:
    """A hundred are forgiven."""
    run = await bench.begin()
    await bench.say(*({"type": "odd", "id": "x"} for _ in range(100)))
    await bench.say(call("1"))
    assert codes(await bench.hear_all(101))[-1] == ("response", "1", "")
    await bench.say({"type": "odd", "id": "x"})
    assert (await run).stopped == "violation"


async def test_half_characters_do_not_get_through(bench: Bench) -> None:
    """A surrogate would make every later use of the text fail."""
    run = await bench.begin()
    await bench.say({"type": "print", "payload": {"text": "ä\ud800"}}, result())
    await run
    assert bench.output.text() == "ä?"


# -- what is large -----------------------------------------------------------------------------------------------------


@pytest.mark.full
async def test_messages_stay_in_order_whatever_their_size(bench: Bench) -> None:
    """Large frames are read bit by bit, and none overtakes another one, or is overtaken."""
    run = await bench.begin()
    sizes = [1, 300_000, 2, 2_000_000, 3, 70_000, 60_000, 4, 1_000_000]
    frames = [
        json.dumps([{"type": "println", "payload": {"text": f"{n}", "x": [0] * (size // 3)}}]).encode()
        for n, size in enumerate(sizes)
    ]
    frames.append(json.dumps(result()).encode())
    await bench.raw(b"".join(bench._reader.pack(frame) for frame in frames))
    assert (await run).result == {"value": 1}
    assert bench.output.text() == "".join(f"{n}\n" for n in range(len(sizes)))


async def test_a_large_frame_does_not_hold_up_the_others(bench: Bench) -> None:
    """Everybody else in the process has many turns while it is read."""
    run = await bench.begin()
    frame = json.dumps([result([[n, str(n)] for n in range(100_000)])]).encode()
    turns = 0
    await bench.raw(bench._reader.pack(frame))
    while not run.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > len(frame) // (1 << 14)
    assert (await run).result["value"][-1] == [99_999, "99999"]


# -- bounds ------------------------------------------------------------------------------------------------------------


async def test_only_so_many_requests_are_open_and_the_rest_waits(bench: Bench) -> None:
    """Nothing more is read meanwhile; when there is room it goes on, and all are answered."""
    run = await bench.begin()
    count = MAX_OPEN + 300
    await bench.say(*(call(str(n), "hold") for n in range(count)))
    await bench.until(lambda: bench.active == MAX_OPEN)
    await asyncio.sleep(0.05)
    assert bench.active == MAX_OPEN
    bench.release.set()
    assert {message["id"] for message in await bench.hear_all(count)} == {str(n) for n in range(count)}
    await bench.say(result())
    await run


async def test_requests_that_come_at_once_start_over_many_turns_of_the_loop(bench: Bench) -> None:
    """The loop looks at its timers in between: a thousand that start in one turn would hold up the deadline."""
    run = await bench.begin()
    started = [bench.active]
    watching = True

    async def watch() -> None:
        while watching:
            started.append(bench.active)
            await asyncio.sleep(0)

    watcher = asyncio.create_task(watch())
    await bench.say(*(call(str(n), "hold") for n in range(MAX_OPEN)))
    await bench.until(lambda: bench.active == MAX_OPEN)
    watching = False
    await watcher
    assert max(after - before for before, after in pairwise(started)) <= 32
    run.cancel()
    await asyncio.wait({run})


async def test_a_run_that_ends_while_requests_wait_for_room_ends_well(bench: Bench) -> None:
    """Waiting requests are not begun."""
    run = await bench.begin()
    await bench.say(*(call(str(n), "hold") for n in range(MAX_OPEN + 5)))
    await bench.until(lambda: bench.active == MAX_OPEN)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (bench.cancelled, bench.active) == (MAX_OPEN, 0)


async def test_a_guest_that_never_reads_its_answers_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unsent answers are bounded."""
    monkeypatch.setattr(conversation, "_MAX_UNSENT", 1 << 20)
    run = await bench.begin()

    async def ask() -> None:
        for n in range(100):
            await bench.say(call(str(n), text="x" * 100_000))

    asking = asyncio.create_task(ask())  # which nobody listens to in the end
    ending = await run
    asking.cancel()
    await asyncio.wait({asking})
    assert (ending.stopped, "does not read" in ending.stderr) == ("violation", True)


@pytest.mark.full
async def test_answers_over_a_frame_travel_in_several(bench: Bench) -> None:
    """Each frame keeps the limit, and none is lost."""
    run = await bench.begin()
    text = "x" * 900_000
    await bench.say(*(call(str(n), text=text[: 900_000 - n]) for n in range(10)))
    await bench.say(*(call(str(n), text=text[: 900_000 - n]) for n in range(10, 25)))
    assert len({message["id"] for message in await bench.hear_all(25)}) == 25
    await bench.say(result())
    await run


async def test_a_program_that_does_not_fit_is_refused(bench: Bench) -> None:
    """Before anything is said."""
    await bench.greet()
    with pytest.raises(InvalidRequestError, match="at most"):
        await bench.talk.run(bench.request("x" * MAX_FRAME_BYTES))
