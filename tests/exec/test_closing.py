"""Closing an Exec never cancels a task of its user: what runs ends with an error, and the task goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from toolexec import Exec
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import ClosedError, CodeTimeoutError
from toolexec.exec.code import CodeSettings
from toolexec.runtime.unsafe_host import UnsafeHostBackend
from toolexec.runtime.wasm.backend import WasmBackend
from toolexec.runtime.wasm.config import WasmConfig

PATIENCE = 240  # the first program on a machine waits until the sandbox is built
PROGRAM = """
print("before")
tools.t.mark()
await tools.t.wait()
"""


class Scene:
    """An Exec whose program has called a tool that waits; and the user's task that awaits it."""

    def __init__(self, ex: Exec) -> None:
        self.ex = ex
        self.waiting = asyncio.Event()
        ex.add(self.wait, "t:wait")
        ex.add(self.mark, "t:mark")

    async def wait(self) -> None:
        """Say that it is called, and never answer."""
        self.waiting.set()
        await asyncio.Event().wait()

    async def mark(self) -> int:
        """Answer at once."""
        return 1

    async def close_during(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Have a task of the user's await *work*, close the Exec meanwhile; what the task got, if it goes on after it."""

        async def users() -> tuple[Any, int]:
            outcome: Any
            try:
                outcome = await work()
            except BaseException as error:
                outcome = error
            await asyncio.sleep(0)  # which a task that is being cancelled does not survive
            task = asyncio.current_task()
            assert task is not None
            return outcome, task.cancelling()

        task = asyncio.create_task(users())
        await asyncio.wait_for(self.waiting.wait(), PATIENCE)
        await asyncio.wait_for(self.ex.aclose(), 60)
        outcome, cancelling = await asyncio.wait_for(task, 60)
        assert cancelling == 0
        return outcome


SANDBOXES: dict[str, CodeSettings] = {"wasm": {}, "unsafe_host": {"profile": "dev", "unsafe_opt_in": True}}


@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_a_sandbox_that_is_closed_has_not_failed(language: str) -> None:
    """Another Exec that shares it may have closed it. The result is that of an Exec that is closed, in each language."""
    sandbox = WasmBackend()
    async with Exec(runtime_backends=[sandbox]) as ex:
        scene = Scene(ex)
        program = 'await tools.run("t:wait", {})'
        running = asyncio.ensure_future(ex.execute_code(program, language=language))
        await asyncio.wait_for(scene.waiting.wait(), PATIENCE)
        await sandbox.aclose()
        result = await asyncio.wait_for(running, 60)
    assert isinstance(result.error, ClosedError), result


@pytest.mark.parametrize("settings", SANDBOXES.values(), ids=SANDBOXES)
class TestCode:
    """Code that runs when its Exec is closed."""

    async def test_execute_code(self, settings: CodeSettings) -> None:
        """The result says so, and has what was captured until then."""
        scene = Scene(Exec())
        result = await scene.close_during(lambda: scene.ex.execute_code(PROGRAM, **settings))
        assert isinstance(result, CodeResult), result
        assert isinstance(result.error, ClosedError)
        assert result.stdout == "before\n"
        assert [call.tool_id for call in result.tool_calls] == ["t:mark", "t:wait"]

    async def test_stream_code(self, settings: CodeSettings) -> None:
        """A stream of events ends with that result."""
        scene = Scene(Exec())

        async def last() -> Any:
            return [event async for event in scene.ex.stream_code(PROGRAM, **settings)][-1]

        event = await scene.close_during(last)
        assert not isinstance(event, BaseException), event
        assert event.kind == "done"
        assert isinstance(event.result.error, ClosedError)

    async def test_a_session(self, settings: CodeSettings) -> None:
        """A run in a session ends in the same way, whether the session or the Exec is closed."""
        scene = Scene(Exec())
        async with scene.ex.session(**settings) as session:
            result = await scene.close_during(lambda: session.execute_code(PROGRAM))
        assert isinstance(result, CodeResult), result
        assert isinstance(result.error, ClosedError)

    async def test_a_tool_that_closes_its_own_exec(self, settings: CodeSettings) -> None:
        """Such a tool does not wait for itself: the run ends, and so does the closing."""
        ex = Exec()

        async def close() -> None:
            await ex.aclose()

        ex.add(close, "t:close")
        result = await asyncio.wait_for(ex.execute_code("await tools.t.close()", **settings), PATIENCE)
        assert isinstance(result.error, ClosedError)
        await asyncio.wait_for(ex.aclose(), 60)

    async def test_a_caller_that_is_cancelled(self, settings: CodeSettings) -> None:
        """A cancellation of the user's own still comes out, and stops the program."""
        scene = Scene(Exec())
        task = asyncio.create_task(scene.ex.execute_code(PROGRAM, **settings))
        await asyncio.wait_for(scene.waiting.wait(), PATIENCE)
        task.cancel()
        await asyncio.wait([task], timeout=60)
        assert task.cancelled()
        await scene.ex.aclose()


async def test_a_sandbox_that_is_closed_by_itself() -> None:
    """A sandbox backend used without an Exec keeps to the same rule."""
    scene = Scene(Exec())
    backend = UnsafeHostBackend()
    tools, _ = scene.ex._parts.code.executor.prepare(scene.ex._parts.code.request(PROGRAM, {}))
    request = ExecuteRequest(code=PROGRAM, gateway=tools, metadata={"unsafeOptIn": True})
    task = asyncio.create_task(backend.execute(request))
    await asyncio.wait_for(scene.waiting.wait(), PATIENCE)
    await asyncio.wait_for(backend.aclose(), 60)
    with pytest.raises(ClosedError):
        await asyncio.wait_for(task, 60)
    await scene.ex.aclose()


class TestTools:
    """Single calls that are under way."""

    async def test_an_async_handler_ends_by_itself(self) -> None:
        """The handler runs in its caller's task, which is not touched."""
        ex = Exec()
        began, go = asyncio.Event(), asyncio.Event()

        async def wait() -> str:
            began.set()
            await go.wait()
            return "done"

        ex.add(wait, "t:wait")
        task = asyncio.create_task(ex.run_tool("t:wait"))
        await began.wait()
        await ex.aclose()
        go.set()
        assert (await task).value == "done"

    def test_a_call_in_another_thread(self) -> None:
        """A blocking call that is under way when another thread closes the Exec raises ClosedError."""
        ex = Exec().sync
        began = threading.Event()
        outcomes: list[BaseException] = []

        async def wait() -> None:
            began.set()
            await asyncio.Event().wait()

        def call() -> None:
            try:
                ex.run_tool("t:wait")
            except BaseException as error:
                outcomes.append(error)

        ex.add(wait, "t:wait")
        thread = threading.Thread(target=call)
        thread.start()
        assert began.wait(60)
        ex.close()
        thread.join(60)
        assert [type(outcome) for outcome in outcomes] == [ClosedError]


class TestThreadsOfGuests:
    """Guests whose threads hang in a sync tool."""

    @pytest.fixture
    async def gate(self) -> AsyncIterator[threading.Event]:
        """Give the event that the tools wait for; set it in the end."""
        gate = threading.Event()
        yield gate
        gate.set()

    @pytest.mark.full
    async def test_code_goes_on(self, gate: threading.Event) -> None:
        """More runs than there are guests hang past their limit, and the next one runs all the same."""
        backends = [WasmBackend(WasmConfig(max_guests=1))]
        async with Exec(runtime_backends=backends) as ex:
            ex.add(lambda: gate.wait(60), "t:hang")
            await ex.execute_code("1")
            for _ in range(3):
                result = await ex.execute_code("str(tools.t.hang())", timeout=0.3)
                assert result.error is not None
                assert result.error.code == "code_timeout"
                assert result.error.outcome != "not_sent"
            assert (await ex.execute_code("40 + 2")).value == 42

    async def test_a_run_that_found_no_guest_never_began(self, gate: threading.Event) -> None:
        """Its error says so."""
        backends = [WasmBackend(WasmConfig(max_guests=1))]
        async with Exec(runtime_backends=backends) as ex:
            entered = threading.Event()

            def hang() -> None:
                entered.set()
                gate.wait(60)

            ex.add(hang, "t:hang")
            await ex.execute_code("1")
            first = asyncio.create_task(ex.execute_code("str(tools.t.hang())", timeout=30))
            await asyncio.to_thread(entered.wait, 30)
            result = await ex.execute_code("1", timeout=0.2)
            assert result.error is not None
            assert result.error.outcome == "not_sent"
            assert isinstance(result.error, CodeTimeoutError)
            gate.set()
            assert (await first).ok

    @pytest.mark.full
    async def test_helpers_that_hang_are_given_up(self, gate: threading.Event) -> None:
        """Gathered sync calls hang in helpers' threads; after the run those are lost and replaced."""
        async with Exec() as ex:
            ex.add(lambda: gate.wait(60), "t:hang")
            ex.add(lambda: 1, "t:quick")
            gather = "import asyncio\nreturn await asyncio.gather(*(tools.t.{}() for _ in range({})))"
            for _ in range(3):
                result = await ex.execute_code(gather.format("hang", 40), timeout=0.5)
                assert result.error is not None
            result = await ex.execute_code(gather.format("quick", 40))
            assert result.value == [1] * 40
