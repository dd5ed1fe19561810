"""The gateway of a guest that calls functions of the host: here the guest is a thread of the test."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any

import pytest
from tests.waiting import until_blocking

from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.code.types import Output
from toolexec.errors import ProtocolError
from toolexec.process.threads import WorkerThreads
from toolexec.runtime.protocol.hostcalls import GuestStoppedError, HostCalls, result_payload
from toolexec.runtime.protocol.server import RequestServer
from toolexec.testing.gateway_testbed import GatewayTestbed

_who: contextvars.ContextVar[str] = contextvars.ContextVar("_who", default="nobody")


def frame(*messages: Any) -> str:
    """Messages as (type, id, payload)."""
    return json.dumps([{"type": kind, "id": message_id, "payload": payload} for kind, message_id, payload in messages])


def add(message_id: str, a: int = 1) -> Any:
    return ("run_tool", message_id, {"id": "suite:add", "args": {"a": a}})


def wait(message_id: str = "0", timeout: Any = None) -> Any:
    return ("wait", message_id, {"timeout": timeout})


class Guest:
    """Makes host calls from a thread, as a guest does."""

    def __init__(self, gateway: HostCalls, output: Output) -> None:
        self.gateway = gateway
        self.output = output

    async def exchange(self, *messages: Any) -> list[Any]:
        return json.loads(await asyncio.to_thread(self.gateway.exchange, frame(*messages)))

    async def post(self, *messages: Any) -> None:
        await asyncio.to_thread(self.gateway.post, frame(*messages))

    async def all_of(self, count: int) -> dict[str, Any]:
        """The next *count* answers by ID."""
        answers: dict[str, Any] = {}
        while len(answers) < count:
            answers |= {answer["id"]: answer for answer in await self.exchange(wait())}
        return answers


@asynccontextmanager
async def guest_of(
    testbed: GatewayTestbed,
    *,
    helpers: WorkerThreads | None = None,
    limits: Limits | None = None,
    seconds: float = 60.0,
) -> AsyncGenerator[Guest]:
    tools = Tools(testbed.index, testbed.docs, testbed.runner, limits=limits)
    output = Output()
    gateway = HostCalls(RequestServer(tools), output, monotonic() + seconds, helpers)
    try:
        yield Guest(gateway, output)
    finally:
        await gateway.aclose()


def add_sync_tools(testbed: GatewayTestbed) -> None:
    def thread() -> str:
        """The name of the thread that it runs in."""
        return threading.current_thread().name

    def later() -> Any:
        """Something to wait for on the loop."""

        async def value() -> str:
            return threading.current_thread().name

        return value()

    def fail_later() -> Any:
        """Something to wait for in vain."""

        async def fail() -> None:
            raise ValueError("in vain")

        return fail()

    for function in (thread, later, fail_later):
        testbed.register(function, "sync")


class TestOneByOne:
    """A frame with one request blocks until that is answered."""

    async def test_an_async_tool(self, testbed: GatewayTestbed) -> None:
        """An async tool runs on the caller's event loop."""
        async with guest_of(testbed) as guest:
            (answer,) = await guest.exchange(add("1"))
            assert (answer["type"], answer["id"], answer["payload"]["structured"]) == ("response", "1", 2)

    async def test_a_sync_tool(self, testbed: GatewayTestbed) -> None:
        """A sync tool runs in the guest's own thread, except for what it has to wait for on the loop."""
        add_sync_tools(testbed)
        async with guest_of(testbed) as guest:

            def call() -> list[str]:
                threading.current_thread().name = "the guest"
                names = ("thread", "later", "fail_later")
                return [guest.gateway.exchange(frame(("run_tool", name, {"id": f"sync:{name}"}))) for name in names]

            thread, later, failed = [json.loads(text)[0] for text in await asyncio.to_thread(call)]
            assert thread["payload"]["structured"] == "the guest"
            assert later["payload"]["structured"] == threading.current_thread().name
            assert failed["payload"]["code"] == "handler_failed"
            assert "in vain" in failed["payload"]["error"]

    async def test_other_requests(self, testbed: GatewayTestbed) -> None:
        """Searches and the like are answered, too, and so are refusals."""
        async with guest_of(testbed) as guest:
            (answer,) = await guest.exchange(("list_namespaces", "1", {}))
            assert answer["payload"] == {"namespaces": ["suite", "vault"]}
            (answer,) = await guest.exchange(("run_tool", "2", {"id": 5}))
            assert (answer["type"], answer["payload"]["code"]) == ("error", "protocol")

    async def test_an_id_is_free_after_its_answer(self, testbed: GatewayTestbed) -> None:
        """The same one may be used again."""
        async with guest_of(testbed) as guest:
            for _ in range(3):
                assert (await guest.exchange(add("1")))[0]["type"] == "response"

    async def test_the_callers_context(self, testbed: GatewayTestbed) -> None:
        """Tools see the context variables of the caller that started the run."""

        async def who() -> str:
            """Say who asks."""
            return _who.get()

        testbed.register(who, "suite")
        _who.set("the caller")
        async with guest_of(testbed) as guest:
            _who.set("somebody else")
            (answer,) = await guest.exchange(("run_tool", "1", {"id": "suite:who"}))
            assert answer["payload"]["structured"] == "the caller"


class TestTogether:
    """Several requests in one frame run at the same time."""

    async def test_waiting_for_any(self, testbed: GatewayTestbed) -> None:
        """Answers come as they are there; those that wait longer come later."""
        async with guest_of(testbed) as guest:
            meet = ("run_tool", "slow", {"id": "suite:meet", "args": {"number": 5}})
            answers = await guest.exchange(meet, add("fast"), wait())
            assert [answer["id"] for answer in answers] == ["fast"]
            testbed.release.set()
            (answer,) = await guest.exchange(wait())
            assert (answer["id"], answer["payload"]["structured"]) == ("slow", 5)

    async def test_waiting_for_one(self, testbed: GatewayTestbed) -> None:
        """Other answers that are ready by then come along."""
        async with guest_of(testbed) as guest:
            meet = ("run_tool", "slow", {"id": "suite:meet", "args": {"number": 5}})
            await guest.post(meet, add("fast"))
            waiting = asyncio.ensure_future(guest.exchange(wait("slow")))
            await testbed.until(lambda: len(testbed.calls) == 2)
            testbed.release.set()
            assert {answer["id"] for answer in await waiting} == {"fast", "slow"}

    async def test_waiting_for_a_time(self, testbed: GatewayTestbed) -> None:
        """When it has passed there is no answer, and the call goes on."""
        async with guest_of(testbed) as guest:
            meet = ("run_tool", "1", {"id": "suite:meet", "args": {"number": 5}})
            assert await guest.exchange(meet, wait("0", 0.01)) == []
            assert await guest.exchange(wait("0", 0)) == []
            assert await guest.exchange(wait("0", -5)) == []
            testbed.release.set()
            assert (await guest.exchange(wait("1", True)))[0]["id"] == "1"

    @pytest.mark.parametrize("helped", [False, True])
    async def test_many(self, testbed: GatewayTestbed, helped: bool) -> None:
        """A hundred at once, sync and async, each answered once, with or without helpers."""
        add_sync_tools(testbed)
        helpers = WorkerThreads(8) if helped else None
        async with guest_of(testbed, helpers=helpers) as guest:
            calls = [add(f"a{number}", number) for number in range(50)]
            calls += [("run_tool", f"s{number}", {"id": "sync:thread"}) for number in range(50)]
            await guest.post(*calls)
            answers = await guest.all_of(100)
            assert all(answers[f"a{number}"]["payload"]["structured"] == number + 1 for number in range(50))
            assert all(answers[f"s{number}"]["type"] == "response" for number in range(50))

    async def test_helpers_make_blocking_calls_together(self, testbed: GatewayTestbed) -> None:
        """Sync handlers that wait for each other all get a thread."""
        barrier = threading.Barrier(5, timeout=30)

        def meet_here() -> int:
            """Wait until five are here."""
            return barrier.wait()

        testbed.register(meet_here, "sync")
        async with guest_of(testbed, helpers=WorkerThreads(8)) as guest:
            await guest.post(*(("run_tool", str(number), {"id": "sync:meet_here"}) for number in range(5)))
            answers = await guest.all_of(5)
            assert sorted(answer["payload"]["structured"] for answer in answers.values()) == [0, 1, 2, 3, 4]

    async def test_the_cap_holds(self, testbed: GatewayTestbed) -> None:
        """However they are made, no more calls are made than there may be."""
        add_sync_tools(testbed)
        for helpers in (None, WorkerThreads(8)):
            async with guest_of(testbed, helpers=helpers, limits=Limits(max_tool_calls=7)) as guest:
                calls = [
                    (
                        "run_tool",
                        str(n),
                        {"id": "sync:thread" if n % 2 else "suite:add", "args": {"a": 1} if n % 2 == 0 else {}},
                    )
                    for n in range(20)
                ]
                await guest.post(*calls)
                answers = await guest.all_of(20)
                codes = [answer["payload"].get("code") for answer in answers.values()]
                assert codes.count("tool_call_limit") == 13
                assert codes.count(None) == 7

    async def test_cancelling(self, testbed: GatewayTestbed) -> None:
        """The tool is stopped, the guest gets an error for it; unknown IDs are nothing to speak of."""
        async with guest_of(testbed) as guest:
            await guest.post(("run_tool", "1", {"id": "suite:wait"}))
            await testbed.until(lambda: testbed.calls == ["wait"])
            (answer,) = await guest.exchange(("cancel", "1", {}), ("cancel", "99", {}), wait())
            assert (answer["id"], answer["type"]) == ("1", "error")
            assert testbed.stopped == ["wait"]

    async def test_cancelling_before_it_begins(self, testbed: GatewayTestbed) -> None:
        """Answer a call that comes together with its cancellation."""
        async with guest_of(testbed) as guest:
            frame = (("run_tool", "1", {"id": "suite:wait"}), ("cancel", "1", {}), wait())
            (answer,) = await asyncio.wait_for(guest.exchange(*frame), 30)
            assert (answer["id"], answer["type"]) == ("1", "error")

    async def test_stopping_before_it_begins(self, testbed: GatewayTestbed) -> None:
        """Let the guest's thread go when it is stopped right after its call reached the event loop."""
        async with guest_of(testbed) as guest:
            call = asyncio.ensure_future(guest.exchange(("run_tool", "1", {"id": "suite:wait"})))
            await asyncio.sleep(0)  # the thread starts, and asks the loop for the call while the loop is held
            time.sleep(0.2)
            asyncio.get_running_loop().call_soon(guest.gateway.stop)
            with pytest.raises(GuestStoppedError):
                await asyncio.wait_for(call, 30)


class TestNotes:
    """Messages without an answer."""

    async def test_printing(self, testbed: GatewayTestbed) -> None:
        """To both streams; what is not text is dropped."""
        async with guest_of(testbed) as guest:
            await guest.post(
                ("print", "0", {"text": "a"}),
                ("println", "0", {"text": "b"}),
                ("print", "0", {"text": "e", "stream": "stderr"}),
                ("print", "0", {"text": 5}),
            )
            await guest.exchange(("print", "0", {"text": "c"}), add("1"))
            assert (guest.output.text(), guest.output.text("stderr")) == ("ab\nc", "e")


class TestBreaches:
    """A guest that does not keep to the protocol."""

    @pytest.mark.parametrize("text", ["", "nonsense", "[5]", '[{"type":5}]', "[" * 5000], ids=lambda text: text[:10])
    async def test_nonsense(self, testbed: GatewayTestbed, text: str) -> None:
        """Nonsense is an error for the guest, and the next call works."""
        async with guest_of(testbed) as guest:
            for call in (guest.gateway.exchange, guest.gateway.post):
                with pytest.raises(ProtocolError):
                    await asyncio.to_thread(call, text)
            assert (await guest.exchange(add("1")))[0]["type"] == "response"

    @pytest.mark.parametrize("messages", [[], [add("1"), add("2")], [("print", "0", {"text": ""})]], ids=len)
    async def test_a_frame_that_blocks_without_a_reason(self, testbed: GatewayTestbed, messages: list[Any]) -> None:
        """A blocking frame has one request, or says what it waits for."""
        async with guest_of(testbed) as guest:
            with pytest.raises(ProtocolError, match="one request"):
                await guest.exchange(*messages)

    @pytest.mark.parametrize("message", [("result", "1", {}), ("bye", "0", {})], ids=lambda message: message[0])
    async def test_messages_that_do_not_go_this_way(self, testbed: GatewayTestbed, message: Any) -> None:
        """A result is what the guest's function gives back, not a message of a host call."""
        async with guest_of(testbed) as guest:
            with pytest.raises(ProtocolError, match="does not go over host calls"):
                await guest.post(message)

    async def test_after_its_result(self, testbed: GatewayTestbed) -> None:
        """A forged result ends the run for the guest: its calls are refused from then on."""
        async with guest_of(testbed) as guest:
            with pytest.raises(ProtocolError):
                await guest.post(("result", "1", {"value": "forged"}))
            (answer,) = await guest.exchange(add("1"), wait())
            assert "run is over" in answer["payload"]["error"]
            assert testbed.calls == []

    @pytest.mark.parametrize("message", [("format_disk", "1", {}), ("hello", "1", {}), add("")], ids=str)
    async def test_messages_out_of_order(self, testbed: GatewayTestbed, message: Any) -> None:
        """Each is answered with an error."""
        async with guest_of(testbed) as guest:
            (answer,) = await guest.exchange(message, wait())
            assert (answer["type"], answer["payload"]["code"]) == ("error", "protocol")

    async def test_too_large_a_frame(self, testbed: GatewayTestbed) -> None:
        """Refuses it before it is read."""
        async with guest_of(testbed) as guest:
            with pytest.raises(ProtocolError, match="over the limit"):
                await asyncio.to_thread(guest.gateway.post, " " * ((16 << 20) + 1))


class TestTheEnd:
    """A run that is stopped gets its guest out of every call."""

    @pytest.mark.parametrize("how", ["one", "wait", "timed wait"])
    async def test_a_guest_that_waits(self, testbed: GatewayTestbed, how: str) -> None:
        """Such a guest is woken with an error, and the tool is stopped."""
        async with guest_of(testbed) as guest:
            call = ("run_tool", "1", {"id": "suite:wait"})
            messages = {"one": [call], "wait": [call, wait()], "timed wait": [call, wait("0", 600)]}[how]
            task = asyncio.ensure_future(guest.exchange(*messages))
            await testbed.until(lambda: testbed.calls == ["wait"])
            await guest.gateway.aclose()
            with pytest.raises(GuestStoppedError):
                await asyncio.wait_for(task, 20)
            assert testbed.stopped == ["wait"]

    async def test_a_guest_that_goes_on(self, testbed: GatewayTestbed) -> None:
        """Every later call fails, and nothing is run."""
        async with guest_of(testbed) as guest:
            guest.gateway.stop()
            for call in (guest.gateway.exchange, guest.gateway.post):
                with pytest.raises(GuestStoppedError):
                    await asyncio.to_thread(call, frame(add("1")))
            assert testbed.calls == []

    async def test_calls_on_their_way(self, testbed: GatewayTestbed) -> None:
        """A call that has not begun by then does not begin."""
        async with guest_of(testbed) as guest:
            # The loop is busy here until the thread has posted its call and the run has been stopped.
            thread = threading.Thread(target=guest.gateway.post, args=(frame(add("1"), add("2")),))
            thread.start()
            thread.join()
            guest.gateway.stop()
            await asyncio.sleep(0.01)
            assert testbed.calls == []

    async def test_a_loop_that_ends_before_the_call(self, testbed: GatewayTestbed) -> None:
        """Nothing is left of a call that its loop never got to, and stopping the run gets the guest out of it."""
        ended: list[type[BaseException]] = []

        async def make() -> HostCalls:
            return HostCalls(
                RequestServer(Tools(testbed.index, testbed.docs, testbed.runner)), Output(), monotonic() + 60
            )

        def call(gateway: HostCalls) -> None:
            try:
                gateway.exchange(frame(("run_tool", "1", {"id": "suite:wait"})))
            except GuestStoppedError as error:
                ended.append(type(error))

        def play() -> None:
            loop = asyncio.new_event_loop()
            gateway = loop.run_until_complete(make())
            thread = threading.Thread(target=call, args=(gateway,))
            thread.start()
            until_blocking(lambda: len(gateway._events) == 1)
            loop.close()
            gateway.stop()
            thread.join(20)

        await asyncio.to_thread(play)
        gc.collect()  # a coroutine that was never awaited would warn here
        assert ended == [GuestStoppedError]


class TestResults:
    """The last word of a guest."""

    def test_a_result(self) -> None:
        """Its payload."""
        assert result_payload('{"type":"result","id":"1","payload":{"value":5}}') == {"value": 5}

    @pytest.mark.parametrize("text", ["", "x", "[" * 5000], ids=lambda text: text[:5])
    def test_no_json(self, text: str) -> None:
        """A result that is not JSON is an error."""
        with pytest.raises(ProtocolError, match="not JSON"):
            result_payload(text)

    @pytest.mark.parametrize(
        "text",
        ["5", "[]", "{}", '{"type":"response","payload":{}}', '{"type":"result"}', '{"type":"result","payload":5}'],
    )
    def test_no_result(self, text: str) -> None:
        """Anything but a result is an error."""
        with pytest.raises(ProtocolError, match="without a result"):
            result_payload(text)


class TestLimits:
    """A guest that means harm finds an end."""

    @pytest.mark.parametrize("timeout", [10**400, 1e300, True, "soon"])
    async def test_odd_waits(self, testbed: GatewayTestbed, timeout: Any) -> None:
        """A wait of any length ends with the answer."""
        async with guest_of(testbed) as guest:
            answers = await guest.exchange(add("1"), wait("1", timeout))
            assert [answer["id"] for answer in answers] == ["1"]

    async def test_an_id_that_is_in_use(self, testbed: GatewayTestbed) -> None:
        """A second request must not take the answer of the first."""
        async with guest_of(testbed) as guest:
            with pytest.raises(ProtocolError, match="in use"):
                await guest.post(add("1"), add("1"))

    @pytest.mark.full
    async def test_answers_that_nobody_hears(self, testbed: GatewayTestbed) -> None:
        """Unread answers cannot pile up without end."""
        async with guest_of(testbed) as guest:
            with pytest.raises(ProtocolError, match="wait for the guest"):
                for number in range(20):
                    await guest.post(*(("no_such_type", f"{number}x{i}", {}) for i in range(5_000)))
