"""The host's half over a connection, with a client that does not keep to the rules."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from tests.memory_connection import MemoryConnection, memory_pair
from tests.waiting import until

from toolexec import Exec
from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.code.types import Output
from toolexec.errors import ConnectionClosedError
from toolexec.runtime.guest.python.protocol import PROTOCOL, VERSION
from toolexec.runtime.protocol.messages import JSONCodec, Message
from toolexec.runtime.protocol.proxy import ProxyGateway
from toolexec.runtime.protocol.serving import serve_gateway
from toolexec.testing.gateway_testbed import GatewayTestbed

CODEC = JSONCodec()
HELLO = Message("hello", "0", {"protocol": PROTOCOL, "version": VERSION})


class Client:
    """Says what it likes."""

    def __init__(self, connection: MemoryConnection, codec: Any = CODEC) -> None:
        self.connection = connection
        self.codec = codec
        self.inbox: list[Message] = []

    async def say(self, *messages: Message) -> None:
        await self.connection.send(self.codec.encode(messages))

    async def next(self) -> Message:
        while not self.inbox:
            self.inbox += self.codec.decode(await asyncio.wait_for(self.connection.receive(), 10))
        return self.inbox.pop(0)

    async def ask(self, kind: str, payload: Any, message_id: str = "1") -> Message:
        await self.say(Message(kind, message_id, payload))
        return await self.next()

    async def call(self, message_id: str = "1", **args: Any) -> Any:
        """The value of `suite:add`."""
        answer = await self.ask("run_tool", {"id": "suite:add", "args": args or {"a": 1}}, message_id)
        assert (answer.type, answer.id) == ("response", message_id), answer
        return answer.payload["structured"]


@asynccontextmanager
async def served(
    testbed: GatewayTestbed, *, max_frame_bytes: int = 16 << 20, tools: Tools | None = None, **settings: Any
) -> AsyncGenerator[Client]:
    """A client of a gateway that is served until it leaves."""
    here, there = memory_pair(max_frame_bytes)
    tools = tools or Tools(testbed.index, testbed.docs, testbed.runner)
    serving = asyncio.create_task(serve_gateway(tools, there, **settings))
    yield Client(here, settings.get("codec", CODEC))
    await here.aclose()
    await asyncio.wait_for(serving, 20)


class TestGreeting:
    """A greeting is answered; it may be left out."""

    async def test_hello(self, testbed: GatewayTestbed) -> None:
        """The host says what it speaks and which caps hold."""
        tools = Tools(testbed.index, testbed.docs, testbed.runner, limits=Limits(max_tool_calls=5))
        async with served(testbed, tools=tools) as client:
            answer = await client.ask("hello", HELLO.payload, "0")
            assert (answer.type, answer.id) == ("hello", "0")
            assert (answer.payload["protocol"], answer.payload["version"]) == (PROTOCOL, VERSION)
            assert answer.payload["limits"] == {"max_tool_calls": 5}
            assert await client.call() == 2

    async def test_no_hello(self, testbed: GatewayTestbed) -> None:
        """Requests are answered at once."""
        async with served(testbed) as client:
            assert await client.call() == 2

    async def test_another_version(self, testbed: GatewayTestbed) -> None:
        """Refuses another version, and the next try may be right."""
        async with served(testbed) as client:
            answer = await client.ask("hello", {"protocol": PROTOCOL, "version": 99}, "0")
            assert (answer.type, answer.id, answer.payload["code"]) == ("error", "0", "protocol")
            assert (await client.ask("hello", HELLO.payload, "0")).type == "hello"

    async def test_a_greeting_too_late(self, testbed: GatewayTestbed) -> None:
        """A greeting comes first or not at all."""
        async with served(testbed) as client:
            await client.call()
            assert (await client.ask("hello", HELLO.payload)).payload["code"] == "protocol"


class TestRequests:
    """Many at once, each answered under its own ID."""

    async def test_several_in_one_frame(self, testbed: GatewayTestbed) -> None:
        """Requests of a frame run at the same time; an answer goes out as soon as it is there."""
        async with served(testbed) as client:
            meet = {"id": "suite:meet", "args": {"number": 5}}
            add = {"id": "suite:add", "args": {"a": 1}}
            await client.say(Message("run_tool", "1", meet), Message("run_tool", "2", add))
            first = await client.next()
            assert (first.id, first.payload["structured"]) == ("2", 2)
            testbed.release.set()
            second = await client.next()
            assert (second.id, second.payload["structured"]) == ("1", 5)

    async def test_an_id_twice(self, testbed: GatewayTestbed) -> None:
        """As long as its request is under way it is taken; the request is not disturbed."""
        async with served(testbed) as client:
            meet = Message("run_tool", "1", {"id": "suite:meet", "args": {"number": 5}})
            await client.say(meet)
            answer = await client.ask("run_tool", {"id": "suite:add", "args": {"a": 1}}, "1")
            assert "in use" in answer.payload["error"]
            testbed.release.set()
            assert (await client.next()).payload["structured"] == 5
            assert await client.call("1") == 2

    @pytest.mark.parametrize(
        "message",
        [
            Message("run_tool", "", {"id": "suite:add"}),
            Message("run_tool", "1", {"id": 5}),
            Message("format_disk", "1", {}),
            Message("result", "", {"value": "forged"}),
            Message("result", "1", {}),
            Message("wait", "1", {}),
            Message("execute", "1", {"code": "1"}),
            Message("response", "1", {}),
            Message("error", "1", {}),
        ],
        ids=lambda message: message.type,
    )
    async def test_a_message_that_must_not_come(self, testbed: GatewayTestbed, message: Message) -> None:
        """Such a message is answered with an error of the protocol; the connection works on."""
        async with served(testbed) as client:
            await client.say(message)
            answer = await client.next()
            assert (answer.type, answer.id, answer.payload["code"]) == ("error", message.id, "protocol")
            assert await client.call() == 2

    @pytest.mark.parametrize(
        "frame", [b"", b"nonsense", b'{"type":', b'[{"type":"run_tool","id":5}]', b"\xff\xfe", b"[" * 5000], ids=repr
    )
    async def test_a_frame_that_cannot_be_read(self, testbed: GatewayTestbed, frame: bytes) -> None:
        """An error without a known request has no ID. The connection works on."""
        async with served(testbed) as client:
            await client.connection.send(frame)
            answer = await client.next()
            assert (answer.type, answer.id, answer.payload["code"]) == ("error", "", "protocol")
            assert await client.call() == 2

    async def test_an_empty_frame_of_messages(self, testbed: GatewayTestbed) -> None:
        """An empty frame is no request."""
        async with served(testbed) as client:
            await client.connection.send(b"[]")
            assert await client.call() == 2

    async def test_an_answer_that_the_connection_cannot_carry(self, testbed: GatewayTestbed) -> None:
        """The client hears that it is too large, and waits for nothing."""
        async with served(testbed, max_frame_bytes=2000) as client:
            answer = await client.ask("run_tool", {"id": "suite:grow", "args": {"size": 5000}})
            assert (answer.type, answer.id, answer.payload["code"]) == ("error", "1", "protocol")
            assert "over the limit of 2000" in answer.payload["error"]
            assert await client.call() == 2

    async def test_a_codec(self, testbed: GatewayTestbed) -> None:
        """The codec is used in both directions."""

        class Base64Codec:
            def encode(self, messages: Iterable[Message]) -> bytes:
                return base64.b64encode(CODEC.encode(messages))

            def decode(self, frame: bytes | str) -> list[Message]:
                return CODEC.decode(base64.b64decode(frame))

        async with served(testbed, codec=Base64Codec()) as client:
            assert await client.call() == 2
            assert (await client.ask("nonsense", {})).type == "error"


class TestCancelling:
    """Requests without a waiting caller."""

    async def test_one_that_runs(self, testbed: GatewayTestbed) -> None:
        """Its tool is stopped and its ID is free again."""
        async with served(testbed) as client:
            await client.say(Message("run_tool", "1", {"id": "suite:wait"}))
            await testbed.until(lambda: testbed.calls == ["wait"])
            answer = await client.ask("cancel", {}, "1")
            assert (answer.type, answer.id) == ("error", "1")
            assert "cancelled" in answer.payload["error"]
            assert testbed.stopped == ["wait"]
            assert await client.call("1") == 2

    async def test_one_that_waits(self, testbed: GatewayTestbed) -> None:
        """A call that waits is never begun."""
        async with served(testbed, max_requests=1) as client:
            await client.say(Message("run_tool", "1", {"id": "suite:meet", "args": {"number": 1}}))
            await client.say(Message("run_tool", "2", {"id": "suite:add", "args": {"a": 1}}))
            await testbed.until(lambda: testbed.calls == ["meet"])
            await client.say(Message("cancel", "2", {}))
            assert (await client.next()).id == "2"
            testbed.release.set()
            assert (await client.next()).id == "1"
            assert testbed.calls == ["meet"]

    async def test_one_that_is_unknown(self, testbed: GatewayTestbed) -> None:
        """Cancelling an unknown call does nothing."""
        async with served(testbed) as client:
            await client.say(Message("cancel", "99", {}), Message("cancel", "", {}))
            assert await client.call() == 2


class TestBounds:
    """A client cannot have the host hold more than it may."""

    async def test_at_once(self, testbed: GatewayTestbed) -> None:
        """No more than the bound run; the others wait for their turn."""
        async with served(testbed, max_requests=3) as client:
            calls = [Message("run_tool", str(n), {"id": "suite:meet", "args": {"number": n}}) for n in range(10)]
            await client.say(*calls)
            await testbed.until(lambda: len(testbed.calls) == 3)
            await asyncio.sleep(0.01)
            assert len(testbed.calls) == 3
            testbed.release.set()
            assert sorted([(await client.next()).id for _ in calls]) == sorted(message.id for message in calls)

    async def test_waiting(self, testbed: GatewayTestbed, monkeypatch: pytest.MonkeyPatch) -> None:
        """More than may wait (4 here) are refused, and their IDs are free again."""
        monkeypatch.setattr("toolexec.runtime.protocol.serving._MAX_WAITING", 4)
        async with served(testbed, max_requests=1) as client:
            calls = [Message("run_tool", str(n), {"id": "suite:meet", "args": {"number": n}}) for n in range(6)]
            await client.say(*calls)
            for message_id in ("4", "5"):
                answer = await client.next()
                assert (answer.type, answer.id) == ("error", message_id)
                assert "too many" in answer.payload["error"]
            testbed.release.set()
            assert sorted([(await client.next()).id for _ in range(4)]) == ["0", "1", "2", "3"]
            assert await client.call("4") == 2

    async def test_bytes(self, testbed: GatewayTestbed, monkeypatch: pytest.MonkeyPatch) -> None:
        """Refuses requests that are together too large (1,000 bytes here)."""
        monkeypatch.setattr("toolexec.runtime.protocol.serving._MAX_WAITING_BYTES", 1000)
        async with served(testbed, max_requests=1) as client:
            await client.say(Message("run_tool", "1", {"id": "suite:meet", "args": {"number": 1}, "pad": "x" * 500}))
            answer = await client.ask("run_tool", {"id": "suite:add", "args": {"a": 1}, "pad": "x" * 500}, "2")
            assert "too many" in answer.payload["error"]
            testbed.release.set()
            assert (await client.next()).id == "1"
            assert await client.call("2") == 2

    async def test_the_hosts_own_count(self, testbed: GatewayTestbed) -> None:
        """The cap is the host's: whatever a client says about itself does not change it."""
        tools = Tools(testbed.index, testbed.docs, testbed.runner, limits=Limits(max_tool_calls=1))
        async with served(testbed, tools=tools) as client:
            await client.say(Message("hello", "0", {**HELLO.payload, "limits": {"max_tool_calls": 1000}}))
            assert (await client.next()).type == "hello"
            await client.call()
            answer = await client.ask("run_tool", {"id": "suite:add", "args": {"a": 1}, "made": 0})
            assert answer.payload["code"] == "tool_call_limit"


class TestPrinting:
    """What the other side prints."""

    async def test_to_the_tools_output(self, testbed: GatewayTestbed) -> None:
        """Both streams; what is not text is not printed."""
        tools = Tools(testbed.index, testbed.docs, testbed.runner)
        async with served(testbed, tools=tools) as client:
            await client.say(
                Message("print", "", {"text": "a"}),
                Message("println", "", {"text": "b"}),
                Message("print", "", {"text": "e", "stream": "stderr"}),
                Message("print", "", {"text": "f", "stream": 5}),
                Message("print", "", {"text": 5}),
                Message("print", "", {}),
            )
            await client.call()
        assert (tools.output.text(), tools.output.text("stderr")) == ("ab\nf", "e")

    async def test_to_another_output(self, testbed: GatewayTestbed) -> None:
        """One that was given takes it."""
        output = Output()
        tools = Tools(testbed.index, testbed.docs, testbed.runner)
        async with served(testbed, tools=tools, output=output) as client:
            await client.say(Message("println", "", {"text": "b"}))
            await client.call()
        assert (output.text(), tools.output.text()) == ("b\n", "")

    async def test_to_nowhere(self, testbed: GatewayTestbed) -> None:
        """A gateway without an output, such as a proxy, drops it."""
        tools = Tools(testbed.index, testbed.docs, testbed.runner)
        far, near = memory_pair()
        host = asyncio.create_task(serve_gateway(tools, far))
        async with ProxyGateway(near) as proxy:
            here, there = memory_pair()
            relay = asyncio.create_task(serve_gateway(proxy, there))
            client = Client(here)
            await client.say(Message("println", "", {"text": "b"}))
            assert await client.call() == 2
            await here.aclose()
            await relay
        await host
        assert tools.output.text() == ""


class TestTheEnd:
    """Nothing is left running, whichever side ends it."""

    @pytest.mark.parametrize("how", ["bye", "close", "cancel"])
    async def test_what_runs_is_stopped(self, testbed: GatewayTestbed, how: str) -> None:
        """A goodbye, a lost connection and a cancellation stop the tools and close the connection."""
        here, there = memory_pair()
        serving = asyncio.create_task(serve_gateway(Tools(testbed.index, testbed.docs, testbed.runner), there))
        client = Client(here)
        await client.say(Message("run_tool", "1", {"id": "suite:wait"}))
        await testbed.until(lambda: testbed.calls == ["wait"])
        if how == "bye":
            await client.say(Message("bye", "", {}))
        elif how == "close":
            await here.aclose()
        else:
            serving.cancel()
        await asyncio.wait([serving], timeout=10)
        assert serving.cancelled() is (how == "cancel")
        assert testbed.stopped == ["wait"]
        with pytest.raises(ConnectionClosedError):
            await client.next()

    async def test_nobody_hears_the_answer(self, testbed: GatewayTestbed) -> None:
        """Answers and refusals to a client that is gone end the serving quietly."""

        class Deaf:
            """Takes nothing; says a few things first."""

            def __init__(self) -> None:
                self.frames = [b"nonsense"]
                self.closed = False

            async def send(self, frame: bytes) -> None:
                raise ConnectionClosedError("gone")

            async def receive(self) -> bytes:
                if self.frames:
                    return self.frames.pop()
                raise ConnectionClosedError("gone")

            async def aclose(self) -> None:
                self.closed = True

        for frames in (
            [b"nonsense"],
            [json.dumps([{"type": "nonsense"}]).encode()],
            [CODEC.encode([HELLO])],
            [CODEC.encode([Message("list_namespaces", "1", {})])],
        ):
            deaf = Deaf()
            deaf.frames = frames
            await asyncio.wait_for(serve_gateway(Tools(testbed.index, testbed.docs, testbed.runner), deaf), 10)
            assert deaf.closed

    async def test_a_tool_that_does_not_end(
        self, testbed: GatewayTestbed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Such a tool is not waited for for ever; the log has it."""
        monkeypatch.setattr("toolexec.runtime.protocol.serving._GRACE", 0.01)
        release = asyncio.Event()

        async def stubborn() -> None:
            """Not be cancelled."""
            testbed.calls.append("stubborn")
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    testbed.stopped.append("not me")

        testbed.register(stubborn, "suite")
        async with served(testbed) as client:
            await client.say(Message("run_tool", "1", {"id": "suite:stubborn"}))
            await testbed.until(lambda: testbed.calls == ["stubborn"])
            await client.say(Message("bye", "", {}))
            with pytest.raises(ConnectionClosedError):
                await client.next()
        assert "1 requests of a closed gateway do not end" in caplog.text
        release.set()
        await asyncio.sleep(0.01)


async def test_requests_that_come_at_once_start_over_many_turns_of_the_loop() -> None:
    """The loop looks at its timers in between."""
    active, started, watching = 0, [0], True
    release = asyncio.Event()

    async def hold() -> None:
        nonlocal active
        active += 1
        await release.wait()

    async def watch() -> None:
        while watching:
            started.append(active)
            await asyncio.sleep(0)

    async with Exec(default_timeout=60) as ex:
        ex.add(hold, "suite:hold")
        here, there = memory_pair()
        serving = asyncio.create_task(serve_gateway(Tools(ex.index, ex.docs, ex.runner), here))
        watcher = asyncio.create_task(watch())
        calls = [Message("run_tool", str(n), {"id": "suite:hold", "args": {}}) for n in range(200)]
        await Client(there).say(*calls)
        await until(lambda: active == 200)
        watching = False
        await watcher
        assert max(after - before for before, after in pairwise(started)) <= 32
        release.set()
        await there.aclose()
        await serving
