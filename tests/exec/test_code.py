"""Code mode of the facade, on the embedded sandbox."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec
from toolexec.code.limits import Limits
from toolexec.code.types import CodeEvent, ExecuteRequest
from toolexec.errors import (
    ClosedError,
    CodeError,
    CodeTimeoutError,
    ConfigurationError,
    HandlerError,
    InvalidLimitsError,
    InvalidRequestError,
    LimitExceededError,
    LimitNotEnforceableError,
    SandboxDeniedError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolCallLimitError,
    ToolNotAllowedError,
)
from toolexec.run import ToolCall
from toolexec.runtime.wasm.backend import WasmBackend
from toolexec.testing.scripted_sandbox import ScriptedSandbox


def add_tools(ex: Exec) -> None:
    """A few tools."""

    async def slow(number: int) -> int:
        await asyncio.sleep(0.05)
        return number

    async def wait() -> None:
        await asyncio.Event().wait()

    def fail() -> None:
        raise ValueError("no luck")

    ex.add(lambda a, b=0: a + b, "math:add")
    ex.add(slow, "math:slow")
    ex.add(wait, "math:wait")
    ex.add(fail, "math:fail")
    ex.add(lambda size: ["x" * 100] * size, "text:many")
    ex.add(lambda text: len(text), "text:count")


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An Exec with some tools."""
    async with Exec() as ex:
        add_tools(ex)
        yield ex


def scripted(sandbox: ScriptedSandbox, **options: Any) -> Exec:
    """An Exec whose code is scripted."""
    return Exec(runtime_backends=[sandbox], **options)


class TestRuns:
    """`execute_code`."""

    async def test_code_that_calls_tools(self, ex: Exec) -> None:
        """Value, output, trace and where it ran."""
        result = await ex.execute_code('print("hello")\nx = tools.math.add(a=5, b=3)\n{"sum": x}')
        assert (result.value, result.stdout, result.ok, result.language) == ({"sum": 8}, "hello\n", True, "python")
        (record,) = result.tool_calls
        assert (record.tool_id, record.args, record.value, record.backend_kind) == (
            "math:add",
            {"a": 5, "b": 3},
            8,
            "local",
        )
        assert result.backend is not None
        assert result.backend.kind == "wasm"
        assert result.limits_enforced.memory
        assert result.to_dict()["ok"]

    async def test_gathered_calls_take_as_long_as_one(self, ex: Exec) -> None:
        """A hundred of them are under way at the same time."""
        code = "import asyncio\nsum(await asyncio.gather(*[tools.math.slow(number=n) for n in range(100)]))"
        result = await ex.execute_code(code, max_tool_calls=100)
        assert result.raise_for_error().value == 4950
        started = [record.started for record in result.tool_calls]
        assert max(started) - min(started) < max(record.duration for record in result.tool_calls)

    async def test_the_one_runner(self) -> None:
        """Rules that are laid around every call hold for code, too; checks of arguments as well."""
        seen: list[str] = []

        def layer(inner: Any) -> Any:
            class Spy:
                async def run(self, call: ToolCall) -> Any:
                    seen.append(call.tool_id)
                    return await inner.run(call)

                def stream(self, call: ToolCall) -> Any:
                    return inner.stream(call)

            return Spy()

        async with Exec(layers=[layer]) as ex:
            add_tools(ex)
            await ex.execute_code("tools.math.add(a=1)\nawait tools.math.add(a=2)")
            assert seen == ["math:add", "math:add"]
            result = await ex.execute_code("try: tools.math.add(c=1)\nexcept InputValidationError as e: x = e.code\nx")
            assert result.value == "validation_input"

    async def test_failures_of_the_code(self, ex: Exec) -> None:
        """With the author's line, the traceback, and everything captured until then."""
        result = await ex.execute_code('print("before")\ntools.math.add(a=1)\nx = 1 / 0')
        assert isinstance(result.error, CodeError)
        assert (result.error.line, result.error.source, result.error.kind) == (3, "x = 1 / 0", "ZeroDivisionError")
        assert (result.stdout, len(result.tool_calls)) == ("before\n", 1)
        with pytest.raises(CodeError, match=r"division by zero \(line 3, col 5\)"):
            result.raise_for_error()

    async def test_a_tools_failure_keeps_its_name(self, ex: Exec) -> None:
        """The code's error has the tool's as its cause."""
        error = (await ex.execute_code("tools.math.fail()")).error
        assert isinstance(error, CodeError)
        assert (error.tool_id, error.kind) == ("math:fail", "HandlerError")
        assert isinstance(error.__cause__, HandlerError)

    async def test_wrong_syntax(self, ex: Exec) -> None:
        """Is the code's failure."""
        error = (await ex.execute_code("x = 1\nif x\n  y")).error
        assert isinstance(error, CodeError)
        assert (error.line, error.kind) == (2, "SyntaxError")

    async def test_nothing_to_run(self, ex: Exec) -> None:
        """Raises; so does what makes no sense."""
        for wrong, kind in (
            ({"code": " \n"}, InvalidRequestError),
            ({"language": "cobol"}, InvalidRequestError),
            ({"profile": "safe"}, InvalidRequestError),
            ({"timeout": 0}, ConfigurationError),
            ({"max_tool_calls": -1}, InvalidLimitsError),
            ({"files": {"../x": b""}}, InvalidRequestError),
            ({"speed": 3}, ConfigurationError),
        ):
            settings: Any = {"code": "1", **wrong}
            with pytest.raises(kind):
                await ex.execute_code(**settings)
        assert (await ex.execute_code("1")).value == 1

    async def test_short_names_of_languages(self, ex: Exec) -> None:
        """`py` is `python`."""
        assert (await ex.execute_code("1", language="PY")).language == "python"

    async def test_the_settings_reach_the_sandbox(self) -> None:
        """All of them, with those of the options where they hold."""
        sandbox = ScriptedSandbox(languages=["go"])
        async with scripted(sandbox, default_language="go", default_timeout=9.0, max_tool_calls=7) as ex:
            await ex.execute_code("1", env={"A": "b"}, args=["c"], stdin=b"d", seed=1, now=2.0, metadata={"k": 1})
            await ex.execute_code("1", timeout=3.0, limits=Limits(max_chain_steps=2), max_tool_calls=4)
        first, second = sandbox.requests
        assert (first.language, first.timeout, first.limits) == ("go", 9.0, Limits(max_tool_calls=7))
        assert (first.env, first.args, first.stdin) == ({"A": "b"}, ["c"], b"d")
        assert (first.seed, first.now, first.metadata) == (1, 2.0, {"k": 1})
        assert (second.timeout, second.limits) == (3.0, Limits(max_tool_calls=4, max_chain_steps=2))

    async def test_files_and_replay(self, ex: Exec) -> None:
        """Files in and out; a seed and a clock make a run repeat itself."""
        code = """
import csv, random, time
rows = list(csv.reader(open("data.csv")))
open("out.txt", "w").write(str(random.random()))
[rows, time.time()]
"""
        runs = [await ex.execute_code(code, files={"data.csv": b"a,b\n1,2\n"}, seed=3, now=1e9) for _ in range(2)]
        assert runs[0].value == runs[1].value
        assert runs[0].value[0] == [["a", "b"], ["1", "2"]]
        assert runs[0].files == runs[1].files
        assert [*runs[0].files] == ["out.txt"]

    async def test_large_results_stay_outside(self) -> None:
        """Code passes them on, and may give them back, without ever holding them."""
        async with Exec(result_bytes=1000) as ex:
            add_tools(ex)
            result = await ex.execute_code(
                "x = tools.text.many(size=200)\n[type(x).__name__, tools.text.count(text=x), len(x[0]), {'all': x}]"
            )
            assert result.raise_for_error().value[:3] == ["list", 200, 100]
            assert result.value[3] == {"all": ["x" * 100] * 200}
            result = await ex.execute_code("x = tools.text.many(size=200)\nreturn {'$handle': 'h-AAAAAAAAAAAAAAAA'}")
            assert isinstance(result.error, CodeError)
            assert "h-AAAAAAAAAAAAAAAA" in str(result.error)
            result = await ex.execute_code("x = tools.text.many(size=200)\nreturn {'$handle': 'h7'}")
            assert result.value == {"$handle": "h7"}


class TestLimits:
    """What code may do."""

    async def test_the_cap_on_calls(self, ex: Exec) -> None:
        """Swallowing the errors does not help; uncaught, it is a limit of the code."""
        loop = "n = 0\nfor _ in range(50):\n    try:\n        tools.math.add(a=1)\n        n += 1\n    except BaseException: pass\nn"
        result = await ex.execute_code(loop, max_tool_calls=5)
        assert (result.value, len(result.tool_calls)) == (5, 5)
        result = await ex.execute_code("for _ in range(150): tools.math.add(a=1)")
        assert len(result.tool_calls) == 100
        assert result.error is not None
        assert isinstance(result.error.__cause__, ToolCallLimitError)

    async def test_a_run_can_only_lower_the_cap(self) -> None:
        """That of the options is the most there is, and more is refused."""
        async with Exec(max_tool_calls=3) as ex:
            add_tools(ex)
            loop = (
                "n = 0\nwhile True:\n    try: tools.math.add(a=1)\n    except ToolCallLimitError: break\n    n += 1\nn"
            )
            assert [(await ex.execute_code(loop, max_tool_calls=n)).value for n in (0, 2, 3)] == [3, 2, 3]
            with pytest.raises(InvalidLimitsError, match="max_tool_calls 50 is above the ceiling of 3"):
                await ex.execute_code(loop, max_tool_calls=50)

    async def test_no_list_an_empty_list_and_a_string(self, ex: Exec) -> None:
        """None allows all tools, an empty list none, and a string is refused."""
        call = "tools.math.add(a=1, b=2)"
        assert (await ex.execute_code(call, allowed_tools=None)).value == 3
        result = await ex.execute_code(call, allowed_tools=[])
        assert not result.ok
        assert [record for record in result.tool_calls if record.ok] == []
        assert (await ex.execute_code("tools.list_namespaces()", allowed_tools=())).value == []
        with pytest.raises(ConfigurationError, match="allowed_tools must be a list of strings or None, not a string"):
            await ex.execute_code(call, allowed_tools="math:*")

    async def test_the_list_of_allowed_tools(self, ex: Exec) -> None:
        """Others can neither be called nor found."""
        code = "try: tools.text.count(text='x')\nexcept ToolNotAllowedError as e: x = e.tool_id\n[x, [t.id for t in tools.search('', 100)]]"
        result = await ex.execute_code(code, allowed_tools=["math:*"])
        assert result.value == ["text:count", ["math:add", "math:fail", "math:slow", "math:wait"]]
        (record,) = result.tool_calls
        assert isinstance(record.error, ToolNotAllowedError)

    async def test_the_deadline(self, ex: Exec) -> None:
        """Stops anything, and what was captured is there."""
        result = await ex.execute_code('print("before")\ntools.math.add(a=1)\nwhile True: pass', timeout=0.3)
        assert isinstance(result.error, CodeTimeoutError)
        assert isinstance(result.error, LimitExceededError)
        assert (result.stdout, len(result.tool_calls)) == ("before\n", 1)
        result = await ex.execute_code("tools.math.wait()", timeout=0.2)
        assert isinstance(result.error, CodeTimeoutError)
        assert (await ex.execute_code("1")).value == 1

    async def test_limits_of_resources(self, ex: Exec) -> None:
        """Memory, CPU and disk."""
        for limits, code in (
            (Limits(memory_bytes=64 << 20), "x = bytearray(1 << 30)"),
            (Limits(cpu_ms=50), "while True: pass"),
            (Limits(disk_bytes=1000), "with open('x', 'wb') as f: f.write(b'x' * 5000)"),
        ):
            error = (await ex.execute_code(code, limits=limits)).error
            assert type(error) is LimitExceededError

    async def test_a_limit_that_cannot_be_held(self, ex: Exec) -> None:
        """Is refused, unless best effort will do."""
        with pytest.raises(LimitNotEnforceableError, match="wasm cannot enforce cpus"):
            await ex.execute_code("1", limits=Limits(cpus=1.5))
        assert (await ex.execute_code("1", limits=Limits(cpus=1.5), best_effort=True)).value == 1

    async def test_cancelling(self, ex: Exec) -> None:
        """Stops code and tool, and the next run is fine."""
        received: list[CodeEvent] = []
        task = asyncio.create_task(ex.execute_code("tools.math.wait()", on_event=received.append))
        async with asyncio.timeout(30):
            await until(lambda: received)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await ex.execute_code("2")).value == 2


class TestProfiles:
    """Where code runs."""

    async def test_the_host_needs_an_opt_in(self) -> None:
        """Of the options or of the run; nothing else leads there."""
        host = ScriptedSandbox(kind="unsafe_host", isolation="none")

        async def opted_in(request: ExecuteRequest) -> Any:
            return request.metadata.get("unsafeOptIn")

        host.default = opted_in
        async with scripted(host) as ex:
            with pytest.raises(SandboxUnavailableError):
                await ex.execute_code("1")
            assert (await ex.execute_code("1", profile="dev", unsafe_opt_in=True)).value is True
            assert (await ex.execute_code("1", profile="dev")).value is None
        async with scripted(
            ScriptedSandbox(default=opted_in, kind="unsafe_host", isolation="none"), unsafe_opt_in=True
        ) as ex:
            assert (await ex.execute_code("1", profile="dev")).value is True

    async def test_without_an_opt_in_the_host_runs_nothing(self, ex: Exec) -> None:
        """The real one refuses."""
        with pytest.raises((SandboxDeniedError, SandboxUnavailableError), match="unsafe"):
            await ex.execute_code("1", profile="dev")

    @pytest.mark.parametrize("profile", ["standard", "hardened", "wasm"])
    async def test_profiles_of_the_embedded_sandbox(self, ex: Exec, profile: str) -> None:
        """The embedded sandbox serves all profiles."""
        result = await ex.execute_code("1", profile=profile)
        assert result.backend is not None
        assert (result.value, result.backend.kind) == (1, "wasm")

    async def test_the_profile_of_the_options(self) -> None:
        """Holds for code that asks for none."""
        sandbox = ScriptedSandbox()
        async with scripted(sandbox, security_profile="hardened") as ex:
            await ex.execute_code("1")
            assert sandbox.requests[0].profile == "hardened"
            assert ex.runtime.backends == [sandbox]

    async def test_code_can_be_switched_off(self) -> None:
        """The error says how to switch it on."""
        async with Exec(enable_code_execution=False) as ex:
            for attempt in (ex.execute_code("1"), anext(ex.stream_code("1")), ex.session().__aenter__()):
                with pytest.raises(ConfigurationError, match="enable_code_execution=True"):
                    await attempt

    async def test_a_closed_exec_runs_nothing(self) -> None:
        """A closed Exec runs nothing, and stops what ran."""
        ex = Exec()
        add_tools(ex)
        received: list[CodeEvent] = []
        task = asyncio.create_task(ex.execute_code("tools.math.wait()", on_event=received.append))
        async with asyncio.timeout(30):
            await until(lambda: received)
        await ex.aclose()
        result = await task
        assert isinstance(result.error, ClosedError)
        assert [call.tool_id for call in result.tool_calls] == ["math:wait"]
        with pytest.raises(ConfigurationError, match="closed"):
            await ex.execute_code("1")

    async def test_an_exec_without_code_makes_no_sandbox(self) -> None:
        """Closing it neither."""
        code = "import sys, asyncio\nfrom toolexec import Exec\nasyncio.run(Exec().aclose())\nprint('wasmtime' in sys.modules)"
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
        )
        assert done.stdout == "False\n"


class TestStreams:
    """`stream_code`."""

    async def test_events_in_order(self, ex: Exec) -> None:
        """Prints and calls as they happen, then the result, once."""
        received: list[CodeEvent] = []
        code = 'print("one")\ntools.math.add(a=1)\nprint("two")\n5'
        events = [event async for event in ex.stream_code(code, on_event=received.append)]
        assert [event.kind for event in events] == ["print", "call_start", "call_end", "print", "done"]
        assert [event.text for event in events if event.kind == "print"] == ["one\n", "two\n"]
        assert events[-1].result is not None
        assert (events[-1].result.value, received) == (5, events[:-1])

    async def test_they_come_while_it_runs(self, ex: Exec) -> None:
        """The first print is there before the code has ended; leaving early stops it."""
        async with aclosing(ex.stream_code('print("now")\ntools.math.wait()')) as events:
            async with asyncio.timeout(30):
                assert (await anext(events)).text == "now\n"
        assert (await ex.execute_code("1")).value == 1

    async def test_failures(self, ex: Exec) -> None:
        """That of the code is in the result; what was not run raises."""
        events = [event async for event in ex.stream_code("1 / 0")]
        assert events[-1].result is not None
        assert isinstance(events[-1].result.error, CodeError)
        with pytest.raises(InvalidRequestError):
            await anext(ex.stream_code("1", language="cobol"))


class TestSessions:
    """`session`."""

    async def test_state_stays(self, ex: Exec) -> None:
        """Names, files, and what the sandbox was given at the start."""
        async with ex.session(files={"a.txt": b"1"}, env={"A": "b"}) as session:
            await session.execute_code("import os\nx = 5\nopen('b.txt', 'w').write('2')")
            result = await session.execute_code("[x, open('a.txt').read(), open('b.txt').read(), os.environ['A']]")
            assert result.raise_for_error().value == [5, "1", "2", "b"]

    async def test_each_run_has_its_own_trace_and_limits(self, ex: Exec) -> None:
        """Those of the session are the most there is, and more is refused."""
        async with ex.session(max_tool_calls=3, allowed_tools=["math:add"]) as session:
            assert len((await session.execute_code("for _ in range(3): tools.math.add(a=1)")).tool_calls) == 3
            result = await session.execute_code("tools.math.add(a=1)\nprint('x')", max_tool_calls=3)
            assert (len(result.tool_calls), result.stdout) == (1, "x\n")
            with pytest.raises(InvalidLimitsError, match="max_tool_calls 50 is above the ceiling of 3"):
                await session.execute_code("tools.math.add(a=1)", max_tool_calls=50)
            result = await session.execute_code("for _ in range(9): tools.math.add(a=1)")
            assert (len(result.tool_calls), result.ok) == (3, False)
            result = await session.execute_code("for _ in range(9): tools.math.add(a=1)", max_tool_calls=2)
            assert len(result.tool_calls) == 2
            assert not (await session.execute_code("tools.text.count(text='x')")).ok

    async def test_a_stopped_run_loses_the_state(self, ex: Exec) -> None:
        """Its own result says why it was stopped, the next run that the state is gone."""
        async with ex.session() as session:
            result = await session.execute_code("x = 1\nwhile True: pass", timeout=0.2)
            assert isinstance(result.error, CodeTimeoutError)
            with pytest.raises(SandboxFailedError, match="state is lost"):
                await session.execute_code("x")

    async def test_a_workflow_in_a_session(self, ex: Exec) -> None:
        """The workflow runs beside the sandbox, within the settings of the session; the state of the sandbox stays."""
        async with ex.session(max_tool_calls=2, allowed_tools=["math:add"]) as session:
            await session.execute_code("x = 5")
            result = await session.execute_code('return run("math:add", {a: 1})', language="workflow")
            assert result.raise_for_error().backend is not None
            assert (result.backend.kind, len(result.tool_calls)) == ("workflow", 1)  # type: ignore[union-attr]
            result = await session.execute_code('collect i in range(3) { run("math:add", {a: i}) }', language="dsl")
            assert isinstance(result.error, ToolCallLimitError)
            assert (await session.execute_code("x")).value == 5

    async def test_two_sessions_share_nothing(self, ex: Exec) -> None:
        """Each has a guest of its own."""
        async with ex.session() as one, ex.session() as two:
            await one.execute_code("x = 1")
            assert not (await two.execute_code("x")).ok

    async def test_it_must_be_open(self, ex: Exec) -> None:
        """Before and after the block it is not."""
        session = ex.session()
        with pytest.raises(ConfigurationError, match="async with"):
            await session.execute_code("1")
        async with session:
            pass
        with pytest.raises(ConfigurationError, match="async with"):
            await session.execute_code("1")

    async def test_one_that_cannot_be_opened(self) -> None:
        """Leaves nothing to close."""
        async with scripted(ScriptedSandbox()) as ex:
            with pytest.raises(InvalidRequestError, match="has no sessions"):
                async with ex.session():
                    raise AssertionError

    async def test_events(self, ex: Exec) -> None:
        """Heard as for any run."""
        received: list[str] = []
        async with ex.session(on_event=lambda event: received.append(event.kind)) as session:
            await session.execute_code("tools.math.add(a=1)")
            await asyncio.sleep(0)
        assert received == ["call_start", "call_end"]


class TestSync:
    """The blocking twin."""

    def test_code(self) -> None:
        """From any thread, with sync tools in the guest's own."""
        with Exec().sync as ex:
            add_tools(ex.exec)
            assert ex.execute_code("tools.math.add(a=1, b=2)").value == 3
            assert [event.kind for event in ex.stream_code("print(1)")] == ["print", "done"]
            with ex.session() as session:
                session.execute_code("x = 20")
                assert session.execute_code("x + 1").value == 21


async def test_a_sync_tool_runs_in_the_guests_thread_and_does_not_block_the_loop(ex: Exec) -> None:
    """The event loop goes on while it works."""
    ex.add(lambda: time.sleep(0.3), "math:hold")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.005)
            turns += 1

    counting = asyncio.create_task(count())
    assert (await ex.execute_code("tools.math.hold()")).ok
    counting.cancel()
    assert turns > 5


async def test_runs_at_the_same_time() -> None:
    """Many at once, each with its own guest."""
    async with Exec(runtime_backends=[WasmBackend(max_guests=4)]) as ex:
        add_tools(ex)
        runs = [ex.execute_code(f"tools.math.slow(number={n})") for n in range(20)]
        assert [result.value for result in await asyncio.gather(*runs)] == [*range(20)]
