"""The gateway that asks another process, seen from its own side: the other side is played by the tests."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.memory_connection import MemoryConnection, memory_pair

from toolexec.errors import (
    ConfigurationError,
    ConnectionClosedError,
    GatewayTimeoutError,
    ProtocolError,
    ToolExecError,
    ToolNotFoundError,
    ToolTimeoutError,
)
from toolexec.run.steps import Step
from toolexec.runtime.guest.python.protocol import PROTOCOL, VERSION
from toolexec.runtime.protocol.messages import JSONCodec, Message
from toolexec.runtime.protocol.proxy import ProxyGateway

CODEC = JSONCodec()
STEP = Step(tool_id="a:b", args={"x": 1}, use_previous=True)


class Peer:
    """The other side, by hand."""

    def __init__(self, connection: MemoryConnection, codec: Any = CODEC) -> None:
        self.connection = connection
        self.codec = codec
        self.inbox: list[Message] = []

    async def next(self) -> Message:
        """The next message of the gateway."""
        while not self.inbox:
            self.inbox += self.codec.decode(await asyncio.wait_for(self.connection.receive(), 10))
        return self.inbox.pop(0)

    async def say(self, *messages: Message) -> None:
        """Send messages in one frame."""
        await self.connection.send(self.codec.encode(messages))

    async def answer(self, payload: Any, kind: str = "response") -> Message:
        """Answer the next request."""
        message = await self.next()
        await self.say(Message(kind, message.id, payload))
        return message

    async def greet(self, **payload: Any) -> None:
        """Answer the greeting."""
        await self.answer({"protocol": PROTOCOL, "version": VERSION, **payload}, "hello")


@asynccontextmanager
async def opened(**settings: Any) -> AsyncGenerator[tuple[ProxyGateway, Peer]]:
    """A gateway that was greeted, and its other side."""
    here, there = memory_pair()
    gateway, peer = ProxyGateway(here, **settings), Peer(there, settings.get("codec", CODEC))
    greeting = asyncio.ensure_future(peer.greet())
    async with gateway:
        await greeting
        yield gateway, peer


OPERATIONS: dict[str, Callable[[ProxyGateway], Any]] = {
    "search_tools": lambda gateway: gateway.search_tools("x"),
    "list_namespaces": lambda gateway: gateway.list_namespaces(),
    "describe_tool": lambda gateway: gateway.describe_tool("a:b"),
    "list_tool_examples": lambda gateway: gateway.list_tool_examples("a:b"),
    "run_tool": lambda gateway: gateway.run_tool("a:b", {}),
    "run_chain": lambda gateway: gateway.run_chain([STEP]),
    "read_result": lambda gateway: gateway.read_result("h1"),
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS)


class TestRequests:
    """What goes over the wire."""

    @pytest.mark.parametrize(
        ("ask", "kind", "payload"),
        [
            (lambda g: g.search_tools("words", 3), "search_tools", {"query": "words", "limit": 3}),
            (lambda g: g.list_namespaces(), "list_namespaces", {}),
            (lambda g: g.describe_tool("a:b", "schema"), "describe_tool", {"id": "a:b", "level": "schema"}),
            (lambda g: g.list_tool_examples("a:b"), "list_tool_examples", {"id": "a:b", "max": 0}),
            (lambda g: g.list_tool_examples("a:b", 2), "list_tool_examples", {"id": "a:b", "max": 2}),
            (lambda g: g.run_tool("a:b"), "run_tool", {"id": "a:b", "args": None}),
            (lambda g: g.run_tool("a:b", {"x": 1}), "run_tool", {"id": "a:b", "args": {"x": 1}}),
            (lambda g: g.run_tool("a:b", {}, timeout=2), "run_tool", {"id": "a:b", "args": {}, "timeout": 2}),
            (
                lambda g: g.run_chain([STEP]),
                "run_chain",
                {"steps": [{"toolId": "a:b", "args": {"x": 1}, "usePrevious": True}]},
            ),
            (
                lambda g: g.read_result("h1", path="a", limit=5),
                "read_result",
                {"handle": "h1", "path": "a", "offset": 0, "limit": 5},
            ),
        ],
    )
    async def test_names_and_fields(self, ask: Callable[[ProxyGateway], Any], kind: str, payload: Any) -> None:
        """Each operation has its message, with these fields."""
        async with opened() as (gateway, peer):
            task = asyncio.ensure_future(ask(gateway))
            message = await peer.answer({})
            await task
            assert message == Message(kind, "1", payload)

    async def test_ids_count_up(self) -> None:
        """From "1", by one for each request."""
        async with opened() as (gateway, peer):
            for number in range(1, 4):
                task = asyncio.ensure_future(gateway.list_namespaces())
                assert (await peer.answer({})).id == str(number)
                await task

    async def test_answers_find_their_requests(self) -> None:
        """In whatever order they come, alone or together."""
        async with opened() as (gateway, peer):
            tasks = [asyncio.ensure_future(gateway.run_tool("a:b", {"n": number})) for number in range(5)]
            requests = [await peer.next() for _ in tasks]
            answers = [Message("response", each.id, {"structured": each.payload["args"]["n"]}) for each in requests]
            await peer.say(*answers[3:])
            for answer in reversed(answers[:3]):
                await peer.say(answer)
            assert [result.value for result in await asyncio.gather(*tasks)] == [0, 1, 2, 3, 4]

    async def test_printing(self) -> None:
        """Strings go to the other side as `print` would write them."""
        async with opened() as (gateway, peer):
            await gateway.println("hello", 42)
            assert await peer.next() == Message("println", "", {"text": "hello 42"})

    async def test_arguments_that_are_no_json(self) -> None:
        """Refuses such arguments before anything is sent, and nothing stays pending."""
        async with opened() as (gateway, peer):
            with pytest.raises(ProtocolError, match="cannot be encoded"):
                await gateway.run_tool("a:b", {"x": object()})
            assert gateway._pending == {}
            task = asyncio.ensure_future(gateway.list_namespaces())
            assert (await peer.answer({})).type == "list_namespaces"
            await task

    async def test_too_large_a_request(self) -> None:
        """Refuses it before anything is sent, with the advice to send less; the gateway works on."""
        async with opened(max_frame_bytes=1000) as (gateway, peer):
            with pytest.raises(ProtocolError, match="over the limit of 1000"):
                await gateway.run_tool("a:b", {"x": "y" * 1000})
            task = asyncio.ensure_future(gateway.list_namespaces())
            await peer.answer({})
            await task

    async def test_an_empty_chain(self) -> None:
        """Nothing is sent for it."""
        here, there = memory_pair()
        gateway = ProxyGateway(here)
        assert await gateway.run_chain([]) == (None, [])
        assert not there._incoming.frames
        await gateway.aclose()
        with pytest.raises(ConnectionClosedError):
            await gateway.run_chain([])

    async def test_a_codec(self) -> None:
        """The codec is used in both directions."""

        class Base64Codec:
            def encode(self, messages: Iterable[Message]) -> bytes:
                return base64.b64encode(CODEC.encode(messages))

            def decode(self, frame: bytes | str) -> list[Message]:
                return CODEC.decode(base64.b64decode(frame))

        async with opened(codec=Base64Codec()) as (gateway, peer):
            task = asyncio.ensure_future(gateway.list_namespaces())
            await peer.answer({"namespaces": ["a"]})
            assert await task == ["a"]

    @pytest.mark.parametrize("timeout", [0, -1])
    def test_a_timeout_is_above_zero(self, timeout: float) -> None:
        """Anything else is refused."""
        with pytest.raises(ConfigurationError, match="above 0"):
            ProxyGateway(None, timeout=timeout)  # type: ignore[arg-type]


class TestAnswers:
    """What comes back."""

    @every_operation
    async def test_an_error(self, operation: str) -> None:
        """An error is raised as the class that it was, with the same message."""
        async with opened() as (gateway, peer):
            task = asyncio.ensure_future(OPERATIONS[operation](gateway))
            await peer.answer({"error": "no such thing", "code": "tool_not_found", "toolId": "a:b"}, "error")
            with pytest.raises(ToolNotFoundError) as caught:
                await task
            assert (str(caught.value), caught.value.tool_id) == ("no such thing", "a:b")

    @pytest.mark.parametrize("payload", [{}, {"error": ""}, {"error": 5}], ids=str)
    async def test_an_error_without_a_text(self, payload: Any) -> None:
        """Such an error is an unknown one."""
        async with opened() as (gateway, peer):
            task = asyncio.ensure_future(gateway.run_tool("a:b"))
            await peer.answer(payload, "error")
            with pytest.raises(ToolExecError, match="unknown error"):
                await task

    async def test_a_timeout_over_there(self) -> None:
        """A tool's TimeoutError is not taken for one of this gateway."""
        async with opened(timeout=30) as (gateway, peer):
            task = asyncio.ensure_future(gateway.run_tool("a:b"))
            await peer.answer({"error": "late", "code": "timeout"}, "error")
            with pytest.raises(ToolTimeoutError, match="late"):
                await task

    @every_operation
    async def test_an_empty_answer(self, operation: str) -> None:
        """Missing fields are empty results, whatever type the answer has."""
        async with opened() as (gateway, peer):
            task = asyncio.ensure_future(OPERATIONS[operation](gateway))
            await peer.answer({}, "anything")
            result = await task
            assert not getattr(result, "value", None)

    async def test_a_value_that_stays_there(self) -> None:
        """Such a value comes as a dict that stands for it; its parts can be read."""
        async with opened() as (gateway, peer):
            task = asyncio.ensure_future(gateway.run_tool("a:b"))
            await peer.answer({"handle": {"id": "h1", "bytes": 5000}})
            assert (await task).value == {"$handle": "h1", "bytes": 5000}
            reading = asyncio.ensure_future(gateway.read_result("h1", offset=2))
            await peer.answer({"structured": [3]})
            assert await reading == [3]


class TestByHand:
    """Another task receives and delivers."""

    async def test_delivering(self) -> None:
        """A request is answered by what is delivered under its ID."""
        here, there = memory_pair()
        gateway, peer = ProxyGateway(here), Peer(there)
        task = asyncio.ensure_future(gateway.list_namespaces())
        message = await peer.next()
        assert message == Message("list_namespaces", "1", {})
        gateway.deliver(Message("response", "1", {"namespaces": ["a"]}))
        assert await task == ["a"]
        with pytest.raises(ProtocolError, match="no pending request for ID '1'"):
            gateway.deliver(Message("response", "1", {}))
        await gateway.aclose()

    async def test_twice(self) -> None:
        """The first answer counts, the second is an error of who delivers it."""
        here, _ = memory_pair()
        gateway = ProxyGateway(here)
        task = asyncio.ensure_future(gateway.list_namespaces())
        await asyncio.sleep(0)
        gateway.deliver(Message("response", "1", {"namespaces": ["a"]}))
        with pytest.raises(ProtocolError, match="answered already"):
            gateway.deliver(Message("response", "1", {"namespaces": ["b"]}))
        assert await task == ["a"]
        await gateway.aclose()

    async def test_an_unknown_id(self) -> None:
        """An unknown ID is an error, too."""
        gateway = ProxyGateway(memory_pair()[0])
        with pytest.raises(ProtocolError, match="no pending request"):
            gateway.deliver(Message("response", "99", {}))
        await gateway.aclose()

    async def test_a_connection_that_does_not_send(self) -> None:
        """Its error comes as it is, and nothing stays pending."""

        class Broken:
            closed = False

            async def send(self, frame: bytes) -> None:
                raise RuntimeError("no way out")

            async def receive(self) -> bytes:
                raise AssertionError

            async def aclose(self) -> None:
                if self.closed:
                    raise AssertionError("closed twice")
                self.closed = True
                raise RuntimeError("cannot close")

        gateway = ProxyGateway(Broken())
        with pytest.raises(RuntimeError, match="no way out"):
            await gateway.run_tool("a:b")
        assert gateway._pending == {}
        with pytest.raises(RuntimeError, match="cannot close"):
            await gateway.aclose()
        await gateway.aclose()


class TestGreeting:
    """Both sides make sure that they speak the same."""

    async def test_what_is_said(self) -> None:
        """Protocol, version and what this side can do; the other side's limits are kept."""
        here, there = memory_pair()
        peer, gateway = Peer(there), ProxyGateway(here)
        limits = {"max_tool_calls": 5}
        greeting = asyncio.ensure_future(
            peer.answer({"protocol": PROTOCOL, "version": VERSION, "limits": limits}, "hello")
        )
        async with gateway:
            hello = await greeting
            assert hello.type == "hello"
            assert (hello.payload["protocol"], hello.payload["version"]) == (PROTOCOL, VERSION)
            assert gateway.limits == limits

    @pytest.mark.parametrize(
        "payload", [{}, {"protocol": PROTOCOL, "version": VERSION + 1}, {"protocol": 5, "version": VERSION}], ids=str
    )
    async def test_another_version(self, payload: Any) -> None:
        """Refuses another version, and closes the connection."""
        here, there = memory_pair()
        greeting = asyncio.ensure_future(Peer(there).answer(payload, "hello"))
        with pytest.raises(ProtocolError, match="speaks"):
            async with ProxyGateway(here):
                pass
        await greeting
        with pytest.raises(ConnectionClosedError):
            await here.receive()

    async def test_a_refusal(self) -> None:
        """A refusal by the other side is raised."""
        here, there = memory_pair()
        greeting = asyncio.ensure_future(Peer(there).answer({"error": "go away", "code": "protocol"}, "error"))
        with pytest.raises(ProtocolError, match="go away"):
            async with ProxyGateway(here):
                pass
        await greeting

    async def test_silence(self) -> None:
        """Silence is not waited for for ever."""
        here, _ = memory_pair()
        with pytest.raises(GatewayTimeoutError, match="hello"):
            async with ProxyGateway(here, timeout=0.01):
                pass

    async def test_twice(self) -> None:
        """A gateway that is open cannot be opened."""
        async with opened() as (gateway, peer):
            with pytest.raises(ConfigurationError, match="open already"):
                await gateway.__aenter__()
            task = asyncio.ensure_future(gateway.list_namespaces())
            await peer.answer({})
            await task


class TestGivingUp:
    """Timeouts and cancellations."""

    @every_operation
    async def test_no_answer_in_time(self, operation: str) -> None:
        """The error says what was asked; the other side is told; a late answer is ignored."""
        async with opened() as (gateway, peer):
            gateway._timeout = 0.02  # not before: the greeting has the same limit
            with pytest.raises(GatewayTimeoutError) as caught:
                await OPERATIONS[operation](gateway)
            assert isinstance(caught.value, TimeoutError)
            assert (caught.value.op, caught.value.retryable) == (operation, True)
            assert operation in str(caught.value)
            assert (await peer.next()).type == operation
            assert await peer.next() == Message("cancel", "1", {})
            await peer.say(Message("response", "1", {}))
            assert gateway._pending == {}

    async def test_cancelling(self) -> None:
        """The other side is told at once."""
        async with opened() as (gateway, peer):
            task = asyncio.ensure_future(gateway.run_tool("a:b"))
            assert (await peer.next()).type == "run_tool"
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await peer.next() == Message("cancel", "1", {})

    async def test_another_timeout(self) -> None:
        """A TimeoutError of the connection is not taken for one of the gateway."""

        class Slow:
            async def send(self, frame: bytes) -> None:
                raise TimeoutError("of the network")

            async def receive(self) -> bytes:
                raise AssertionError

            async def aclose(self) -> None:
                pass

        gateway = ProxyGateway(Slow(), timeout=30)
        with pytest.raises(TimeoutError, match="of the network"):
            await gateway.run_tool("a:b")
        await gateway.aclose()

    async def test_cancelling_while_closing(self) -> None:
        """A cancellation is not sent any more."""
        here, there = memory_pair()
        gateway = ProxyGateway(here)
        task = asyncio.ensure_future(gateway.run_tool("a:b"))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(gateway.aclose())
        task.cancel()
        await asyncio.wait([task, closing])
        assert CODEC.decode(await there.receive())[0].type == "run_tool"
        with pytest.raises(ConnectionClosedError):
            await there.receive()

    async def test_cancelling_over_a_dead_connection(self) -> None:
        """A cancellation that cannot be sent is dropped."""
        here, there = memory_pair()
        gateway = ProxyGateway(here)
        task = asyncio.ensure_future(gateway.run_tool("a:b"))
        await asyncio.sleep(0)
        await there.aclose()
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0.01)
        assert task.cancelled()
        await gateway.aclose()


class TestTheEnd:
    """Closing, and losing the connection."""

    @every_operation
    async def test_after_closing(self, operation: str) -> None:
        """Every operation says that it is closed."""
        async with opened() as (gateway, _):
            pass
        with pytest.raises(ConnectionClosedError, match="closed"):
            await OPERATIONS[operation](gateway)
        with pytest.raises(ConnectionClosedError):
            await gateway.println("x")

    async def test_closing_wakes_who_waits(self) -> None:
        """Requests under way fail; the other side hears bye and sees the connection closed."""
        async with opened() as (gateway, peer):
            tasks = [asyncio.ensure_future(gateway.run_tool("a:b")) for _ in range(3)]
            for _ in tasks:
                await peer.next()
            await gateway.aclose()
            for task in tasks:
                with pytest.raises(ConnectionClosedError):
                    await task
            assert (await peer.next()).type == "bye"
            with pytest.raises(ConnectionClosedError):
                await peer.next()

    async def test_a_lost_connection(self) -> None:
        """A lost connection fails the pending calls and all later ones."""
        async with opened() as (gateway, peer):
            task = asyncio.ensure_future(gateway.run_tool("a:b"))
            await peer.next()
            await peer.connection.aclose()
            with pytest.raises(ConnectionClosedError, match="lost"):
                await task
            with pytest.raises(ConnectionClosedError, match="lost"):
                await gateway.run_tool("a:b")

    async def test_bye(self) -> None:
        """A bye ends the connection as well."""
        async with opened() as (gateway, peer):
            task = asyncio.ensure_future(gateway.run_tool("a:b"))
            await peer.next()
            await peer.say(Message("bye", "", {}))
            with pytest.raises(ConnectionClosedError, match="ended it"):
                await task

    @pytest.mark.parametrize("frame", [b"nonsense", b'[{"type":5}]', b"\xff"], ids=repr)
    async def test_an_answer_that_cannot_be_read(self, frame: bytes) -> None:
        """Whose it is cannot be known, so all that wait for one fail; later requests work."""
        async with opened() as (gateway, peer):
            task = asyncio.ensure_future(gateway.run_tool("a:b"))
            await peer.next()
            await peer.connection.send(frame)
            with pytest.raises(ProtocolError, match="cannot be read"):
                await task
            task = asyncio.ensure_future(gateway.list_namespaces())
            await peer.answer({"namespaces": ["a"]})
            assert await task == ["a"]

    async def test_a_request_that_cannot_be_read_over_there(self) -> None:
        """An error that belongs to no request is one for all that are under way."""
        async with opened() as (gateway, peer):
            task = asyncio.ensure_future(gateway.run_tool("a:b"))
            await peer.next()
            await peer.say(Message("error", "", {"error": "a frame is not JSON", "code": "protocol"}))
            with pytest.raises(ProtocolError, match="a frame is not JSON"):
                await task

    async def test_messages_that_do_not_belong_here(self) -> None:
        """Answers to nothing are ignored."""
        async with opened() as (gateway, peer):
            await peer.say(Message("execute", "99", {}), Message("response", "5", {}), Message("cancel", "", {}))
            task = asyncio.ensure_future(gateway.list_namespaces())
            await peer.answer({"namespaces": ["a"]})
            assert await task == ["a"]

    async def test_json_goes_over_the_wire(self) -> None:
        """Frames are the plain JSON that any language can read."""
        here, there = memory_pair()
        gateway = ProxyGateway(here)
        task = asyncio.ensure_future(gateway.run_tool("a:b", {"x": 1}))
        frame = await there.receive()
        assert json.loads(frame) == [
            {"type": "run_tool", "id": "1", "payload": {"id": "a:b", "args": {"x": 1}}},
        ]
        task.cancel()
        await asyncio.wait([task])
        await gateway.aclose()
