"""Python in the embedded sandbox, from a request to a result; the suite and the battery of `tests/contract` are the
larger part of its tests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.runtime.wasm.language_kit import Kit
from tests.runtime.wasm.workers.in_workers import have_workers
from tests.waiting import reached, until

from toolexec.backend.local import LocalBackend
from toolexec.code.limits import Limits
from toolexec.code.types import CodeResult, ExecuteRequest, Output
from toolexec.errors import (
    ClosedError,
    CodeError,
    CodeTimeoutError,
    InvalidRequestError,
    LimitExceededError,
    SandboxFailedError,
    SandboxViolationError,
)
from toolexec.model.binding import LocalBinding
from toolexec.model.declare import declare
from toolexec.runtime.wasm.backend import WasmBackend
from toolexec.runtime.wasm.config import WasmConfig
from toolexec.runtime.wasm.python import PythonLanguage
from toolexec.runtime.wasm.python_session import PythonSession


def add_tool(kit: Kit, function: Callable[..., Any], tool_id: str) -> None:
    """Give the kit one more tool."""
    declared = declare(function, tool_id)
    kit._index.register(declared.tool, LocalBinding(tool_id))
    local = kit._backends.get("local")
    assert isinstance(local, LocalBackend)
    local.add(declared)


def measure(text: str) -> int:
    """The length of a text."""
    return len(text)


@pytest.fixture
async def kit() -> Kit:
    """Tools to call."""
    kit = Kit()
    add_tool(kit, measure, "kit:measure")
    return kit


@pytest.fixture(params=["here", pytest.param("in a worker", marks=pytest.mark.full)])
async def python(request: pytest.FixtureRequest) -> AsyncIterator[PythonLanguage]:
    """The language, with one guest pre-warmed; the compiled sandbox is loaded once in a process."""
    language = PythonLanguage(WasmConfig(pool_size=1, workers=1))
    if request.param == "in a worker":
        await have_workers(language)
    yield language
    await language.aclose()


async def value(python: PythonLanguage, request: ExecuteRequest) -> Any:
    """The value of a program that succeeds."""
    return (await python.execute(request)).raise_for_error().value


class TestPrograms:
    """What a program may be and have."""

    @pytest.mark.parametrize(
        ("code", "expected"),
        [
            ("import json, re, math, statistics, decimal\nstr(decimal.Decimal('1.10'))", "1.10"),
            ("import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\nreturn P(3)", {"x": 3}),
            ("import datetime\ndatetime.date(2026, 1, 2)", "2026-01-02"),
            ("{1, 2} | {3}, (4, 5)", [[1, 2, 3], [4, 5]]),
            ("import zoneinfo\nstr(zoneinfo.ZoneInfo('Europe/Zurich'))", "Europe/Zurich"),
            ("if True:\n    return 1\n2", 1),
            ("async def f():\n    return 3\nawait f()", 3),
            ("from math import *\npi > 3", True),
            ("import sqlite3\nsqlite3.connect(':memory:').execute('select 1 + 1').fetchall()", [[2]]),
            ("import hashlib\nhashlib.sha256(b'x').hexdigest()[:8]", "2d711642"),
        ],
    )
    async def test_values(self, python: PythonLanguage, kit: Kit, code: str, expected: Any) -> None:
        """The useful library is there, and values take the form that one expects."""
        assert await value(python, kit.request(code)) == expected

    async def test_errors_have_the_authors_line(self, python: PythonLanguage, kit: Kit) -> None:
        """Of the innermost place in the program, with a traceback that shows nothing else."""
        code = "def inner(x):\n    return 1 / x\n\ndef outer():\n    return inner(0)\n\nouter()"
        error = (await python.execute(kit.request(code))).error
        assert isinstance(error, CodeError)
        assert (error.line, error.column, error.source, error.kind) == (2, 12, "    return 1 / x", "ZeroDivisionError")
        assert "toolexec" not in error.traceback
        assert error.traceback.count("File") == 3
        assert "ZeroDivisionError: division by zero (line 2, col 12)" in str(error)

    async def test_tool_errors_have_their_fields(self, python: PythonLanguage, kit: Kit) -> None:
        """In the program as on the host; an uncaught one names its tool."""
        code = "try:\n    tools.kit.fail()\nexcept HandlerError as e:\n    x = [e.code, e.tool_id, e.retryable]\nx"
        assert await value(python, kit.request(code)) == ["handler_failed", "kit:fail", False]
        error = (await python.execute(kit.request("tools.kit.fail()"))).error
        assert error is not None
        assert error.tool_id == "kit:fail"

    async def test_args_and_stdin(self, python: PythonLanguage, kit: Kit) -> None:
        """As a program of the command line has them; without input, reading it finds the end."""
        request = kit.request("import sys\nsys.argv[1:], input()", args=["--x", "ü"], stdin="zwölf\n".encode())
        assert await value(python, request) == [["--x", "ü"], "zwölf"]
        assert await value(python, kit.request("import sys\nsys.stdin.read()")) == ""

    async def test_names_in_builtins(self, python: PythonLanguage, kit: Kit) -> None:
        """Find what a program puts there, whatever rules there are for its calls."""
        code = "import builtins\nbuiltins.later = 3\nlater"
        for names in ({}, {"kit:add(": "a,b"}):
            assert await value(python, kit.request(code, names=names)) == 3

    async def test_a_program_without_files(
        self, python: PythonLanguage, kit: Kit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ask nothing of its disk, as it starts in its directory, and share the objects of the image."""
        monkeypatch.setattr("toolexec.runtime.wasm.guest.MemoryFiles", None)
        code = "import json, os, sys\n[os.getcwd(), sys._is_immortal(json.dumps), sys._is_immortal([])]"
        assert await value(python, kit.request(code)) == ["/workspace", True, False]

    async def test_files(self, python: PythonLanguage, kit: Kit) -> None:
        """Only those that were made or changed come back; one that was given and deleted does not."""
        code = "import os\nopen('a.txt', 'a').write('!')\nos.remove('b.txt')\nopen('c.txt').read()"
        result = await python.execute(kit.request(code, files={"a.txt": b"1", "b.txt": b"2", "c.txt": b"3"}))
        assert (result.raise_for_error().value, result.files) == ("3", {"a.txt": b"1!"})

    async def test_a_bad_file_is_refused(self, python: PythonLanguage, kit: Kit) -> None:
        """Nothing is run."""
        with pytest.raises(InvalidRequestError, match="path"):
            await python.execute(kit.request("1", files={"../x": b""}))

    async def test_replay(self, python: PythonLanguage, kit: Kit) -> None:
        """With a seed and a clock every run is the same, whether its guest was pre-warmed or not."""
        code = "import random, time, os, uuid, secrets\n[random.random(), time.time(), str(uuid.uuid4()), secrets.token_hex()]"
        fixed = [await value(python, kit.request(code, seed=7, now=1e9)) for _ in range(3)]
        assert fixed[0] == fixed[1] == fixed[2]
        assert fixed[0][1] - 1e9 < 1
        assert await value(python, kit.request(code, seed=8, now=1e9)) != fixed[0]
        assert len({str(await value(python, kit.request(code))) for _ in range(3)}) == 3

    async def test_a_fixed_clock_goes_on_with_sleep(self, python: PythonLanguage, kit: Kit) -> None:
        """A program sees the time that it slept."""
        code = "import time, asyncio\nt = time.time()\ntime.sleep(0.01)\nawait asyncio.sleep(0.02)\ntime.time() - t"
        assert 0.03 <= await value(python, kit.request(code, now=1e9)) < 0.2

    async def test_what_the_result_tells(self, python: PythonLanguage, kit: Kit) -> None:
        """Where it ran, and what that took."""
        result = await python.execute(kit.request("1"))
        assert (result.backend.kind, result.backend.isolation, result.backend.readiness) == ("wasm", "wasm", "beta")
        assert result.backend.details["fuel_used"] > 0


class TestCalls:
    """Tools from inside of the sandbox."""

    async def test_every_road_to_a_tool(self, python: PythonLanguage, kit: Kit) -> None:
        """By attribute, by ID, blocking and awaited, in a chain; discovery too."""
        code = """
import asyncio
found = [
    tools.kit.add(a=1, b=2),
    tools.run("kit:add", {"a": 1, "b": 3}),
    tools["kit:add"](a=1, b=4),
    await tools.kit.add(a=1, b=5),
    await tools.run_tool("kit:add", {"a": 1, "b": 6}),
    tools.run_chain([{"tool_id": "kit:add", "args": {"a": 1, "b": 7}}]),
    (await asyncio.gather(tools.kit.add(a=1, b=8)))[0],
]
[*map(int, found), tools.search("add two numbers")[0].id, tools.list_namespaces(), tools.describe("kit:add").id]
"""
        tools = kit.tools()
        assert await value(python, kit.request(code, tools=tools)) == [*range(3, 10), "kit:add", ["kit"], "kit:add"]
        assert len(tools.tool_calls()) == 7

    async def test_calls_of_one_frame_run_together(self, python: PythonLanguage, kit: Kit) -> None:
        """`asyncio.gather` has them all under way."""
        code = "import asyncio\nlen(await asyncio.gather(*[tools.kit.meet(guests=20) for _ in range(20)]))"
        assert await value(python, kit.request(code)) == 20
        assert kit.most_at_once == 20

    async def test_a_call_that_nobody_awaits_is_made(self, python: PythonLanguage, kit: Kit) -> None:
        """Such a call ends before the run does."""
        tools = kit.tools()
        code = "import asyncio\nawait asyncio.sleep(0)\ntools.kit.add(a=1, b=2)\nreturn 'end'"
        assert await value(python, kit.request(code, tools=tools)) == "end"
        assert [record.value for record in tools.tool_calls()] == [3]

    async def test_a_cancelled_call_is_stopped(self, python: PythonLanguage, kit: Kit) -> None:
        """The program goes on without it."""
        code = "import asyncio\ntry:\n    await asyncio.wait_for(tools.kit.wait(), 0.05)\nexcept TimeoutError:\n    return 'late'"
        assert await value(python, kit.request(code)) == "late"
        async with asyncio.timeout(30):
            await until(lambda: kit.stopped)
        assert kit.stopped == ["wait"]

    async def test_a_large_result_is_a_handle(self, python: PythonLanguage, kit: Kit) -> None:
        """The program reads parts of it, and gives the whole to another tool by name."""
        code = """
x = tools.kit.big(size=2_000_000)
return [type(x).__name__, len(x), x[5:8], tools.run("kit:measure", {"text": x})]
"""
        assert await value(python, kit.request(code)) == ["str", 2_000_000, "xxx", 2_000_000]

    async def test_prints_come_in_the_order_of_the_calls(self, python: PythonLanguage, kit: Kit) -> None:
        """Output before a call is out before the call is made."""
        events: list[str] = []
        tools = kit.tools()
        tools._tell = lambda event: events.append(event.kind)  # the executor gives it at the start
        output = Output(tell=lambda stream, text: events.append(text.strip()))
        await value(python, kit.request("print('a')\ntools.kit.add(a=1, b=1)\nprint('b')", tools=tools, output=output))
        assert events == ["a", "call_start", "call_end", "b"]


class TestEnds:
    """How runs are ended."""

    @pytest.mark.parametrize(
        "code",
        [
            "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
            "import _thread\nlock = _thread.allocate_lock()\nwith lock, lock: pass",
            "import threading\nthreading.Event().wait()",
            "import threading\nthreading.Semaphore(0).acquire()",
            "import threading\nthreading.Barrier(2).wait()",
            "import queue\nqueue.Queue().get()",
            "import queue\nqueue.SimpleQueue().get()",
            "import concurrent.futures\nconcurrent.futures.Future().result()",
        ],
    )
    async def test_waiting_for_another_thread_is_a_deadlock(self, python: PythonLanguage, kit: Kit, code: str) -> None:
        """Nothing else runs, so that the program fails at once, and can catch it; the sandbox goes on."""
        error = (await python.execute(kit.request(code))).error
        assert isinstance(error, CodeError)
        assert error.message.startswith("RuntimeError: deadlock: this waits for ever")
        caught = "\n".join(f"    {line}" for line in code.splitlines())
        assert (
            await value(python, kit.request(f"try:\n{caught}\nexcept RuntimeError:\n    return 'caught'")) == "caught"
        )

    @pytest.mark.parametrize(
        ("code", "kind", "detail"),
        [
            ("while True: pass", LimitExceededError, "cpu"),
            ("x = [0] * 10**9", LimitExceededError, "memory"),
            ("def r(): r()\nimport sys\nsys.setrecursionlimit(10**9)\nr()", CodeError, None),
            ("import sys\nsys.exit(3)", CodeError, None),
            ("import os\nos._exit(3)", CodeError, None),
            ("import os\nos.abort()", SandboxFailedError, None),
            ("import wit_world\nwit_world.exchange('no frame')", SandboxViolationError, None),
        ],
    )
    async def test_whose_fault_it_was(
        self, python: PythonLanguage, kit: Kit, code: str, kind: type[Exception], detail: str | None
    ) -> None:
        """The program's, the limit's, or the sandbox's."""
        request = kit.request(f"print('before')\n{code}", limits=Limits(cpu_ms=300))
        result = await python.execute(request)
        assert type(result.error) is kind, result.error
        assert result.stdout == "before\n"
        if detail:
            assert result.error.details["resource"] == detail

    async def test_an_exit_that_is_none(self, python: PythonLanguage, kit: Kit) -> None:
        """`sys.exit()` ends a program well."""
        assert (await python.execute(kit.request("import sys\n__out = 4\nsys.exit()"))).value == 4

    async def test_a_forged_result(self, python: PythonLanguage, kit: Kit) -> None:
        """A guest that was taken over by its program gets no say about the host."""
        code = "import sys\nsys.modules['toolexec_guest.main'].to_text = lambda *a: 'no JSON'\nraise ValueError"
        result = await python.execute(kit.request(code))
        assert isinstance(result.error, SandboxViolationError)
        assert "forged its own result" in str(result.error)
        assert await value(python, kit.request("1")) == 1

    async def test_a_handler_in_the_guests_thread(self, python: PythonLanguage, kit: Kit) -> None:
        """A sync tool that blocks does not hold up the end of the run; the guest is left behind."""
        go, begun = threading.Event(), threading.Event()

        def block() -> None:
            begun.set()
            go.wait(60)

        add_tool(kit, block, "kit:block")
        result = await python.execute(kit.request("print(1)\ntools.kit.block()", timeout=0.3))
        assert isinstance(result.error, CodeTimeoutError)
        assert (begun.is_set(), result.stdout, result.files) == (True, "1\n", {})
        go.set()
        assert await value(python, kit.request("2")) == 2

    async def test_closing_ends_a_run(self, python: PythonLanguage, kit: Kit) -> None:
        """The caller gets an error and is not cancelled; the language can be used again."""
        task = asyncio.create_task(python.execute(kit.request("tools.kit.wait()")))
        await reached(kit.begun, task)
        await python.aclose()
        with pytest.raises(ClosedError):
            await task
        assert python.pool is None
        assert await value(python, kit.request("2")) == 2


class TestStart:
    """Getting ready."""

    async def test_once(self, python: PythonLanguage, kit: Kit) -> None:
        """Two first runs at once load it once; then it says that it is there."""
        results = await asyncio.gather(*(value(python, kit.request(str(number))) for number in range(2)))
        assert results == [0, 1]
        pool = python.pool
        await python.start()
        assert python.pool is pool
        assert (await python.check()).ok

    async def test_a_guest_made_ahead_is_used(self, python: PythonLanguage, kit: Kit) -> None:
        """The run after a run finds one."""
        python.company = 1
        await value(python, kit.request("1"))
        assert python.pool is not None
        async with asyncio.timeout(30):
            await until(lambda: python.pool.ready)
        hits = python.pool.hits
        await value(python, kit.request("1"))
        assert python.pool.hits == hits + 1

    async def test_limits_are_those_of_the_operator(self, kit: Kit) -> None:
        """A request can lower memory and disk, and not raise them."""
        language = PythonLanguage(WasmConfig(memory_bytes=80 << 20, disk_bytes=1000))
        for asked, memory, disk in ((0, 80 << 20, 1000), (1 << 40, 80 << 20, 1000), (500, 500, 500)):
            settings = language.settings(kit.request("1", limits=Limits(memory_bytes=asked, disk_bytes=asked)))
            assert (settings.memory_bytes, settings.disk_bytes) == (memory, disk)
        assert language.settings(kit.request("1")).fuel is None

    async def test_what_it_enforces(self, kit: Kit) -> None:
        """All but a rate of CPU."""
        enforced = WasmBackend().enforces(kit.request("1")).to_dict()
        assert [name for name, holds in enforced.items() if not holds] == ["cpus"]
        foreign = replace(kit.request("1"), gateway=None)
        assert not WasmBackend().enforces(foreign).tool_calls


class TestSessions:
    """A guest for several programs."""

    @pytest.fixture
    async def session(self, python: PythonLanguage, kit: Kit) -> AsyncIterator[PythonSession]:
        """A session."""
        session = await python.open_session(kit.request(files={"given.txt": b"1"}))
        yield session
        await session.aclose()

    async def run(self, session: PythonSession, kit: Kit, code: str, **fields: Any) -> CodeResult:
        """Run a program in the session."""
        return await session.execute(kit.request(code, **fields))

    async def test_names_and_files_stay(self, session: PythonSession, kit: Kit) -> None:
        """Functions, imports and files are there for the next program; `__out` is not."""
        await self.run(
            session, kit, "import math\ndef f(x): return math.floor(x)\nopen('a.txt', 'w').write('x')\n__out = 1"
        )
        result = await self.run(session, kit, "f(2.5), open('a.txt').read(), open('given.txt').read()")
        assert result.raise_for_error().value == [2, "x", "1"]
        assert (await self.run(session, kit, "x = 1")).value is None

    async def test_lines_are_those_of_each_program(self, session: PythonSession, kit: Kit) -> None:
        """A function of an earlier one shows up with its own text."""
        await self.run(session, kit, "def f():\n    raise ValueError('old')")
        error = (await self.run(session, kit, "x = 1\nf()")).error
        assert isinstance(error, CodeError)
        assert error.line == 2
        assert "raise ValueError('old')" in error.traceback

    async def test_each_program_has_its_own_tools_and_output(self, session: PythonSession, kit: Kit) -> None:
        """Trace and prints do not mix."""
        tools = [kit.tools(), kit.tools()]
        for number, each in enumerate(tools):
            output = Output()
            code = f"print({number})\ntools.kit.add(a={number}, b=0)"
            assert (await self.run(session, kit, code, tools=each, output=output)).value == number
            assert output.text() == f"{number}\n"
        assert [len(each.tool_calls()) for each in tools] == [1, 1]

    async def test_one_program_right_after_the_other(self, session: PythonSession, kit: Kit) -> None:
        """Leftover work of one program does not touch the next, however soon that comes."""
        for number in range(300):
            result = await self.run(session, kit, f"tools.kit.add(a={number}, b=1)")
            assert result.raise_for_error().value == number + 1

    async def test_a_failed_program_leaves_it_alive(self, session: PythonSession, kit: Kit) -> None:
        """Effects of the program until its failure stay."""
        assert not (await self.run(session, kit, "x = 1\n1 / 0")).ok
        assert (await self.run(session, kit, "x")).value == 1

    @pytest.mark.parametrize(
        "code",
        ["while True: pass", "import os\nos._exit(0)", "import os\nos.abort()", "import wit_world\nwit_world.post('')"],
    )
    async def test_a_stopped_program_ends_it(self, session: PythonSession, kit: Kit, code: str) -> None:
        """Its state is lost, and the next program is told so."""
        result = await self.run(session, kit, code, timeout=0.3)
        assert result.error is not None
        assert result.error.details.get("session") == ("ended" if code.startswith("while") else None)
        with pytest.raises(SandboxFailedError, match=r"the session has ended: .* its state is lost; open another one"):
            await self.run(session, kit, "1")

    async def test_a_used_up_cpu_budget_ends_it(self, python: PythonLanguage, kit: Kit) -> None:
        """The budget is for all of its programs together."""
        session = await python.open_session(kit.request(limits=Limits(cpu_ms=100)))
        assert isinstance((await self.run(session, kit, "while True: pass")).error, LimitExceededError)
        with pytest.raises(SandboxFailedError, match="the session has ended"):
            await self.run(session, kit, "1")
        await session.aclose()

    async def test_used_up_memory_does_not(self, session: PythonSession, kit: Kit) -> None:
        """Memory that could not be had was not taken."""
        assert isinstance((await self.run(session, kit, "y = 5\nx = [0] * 10**9")).error, LimitExceededError)
        assert (await self.run(session, kit, "y")).raise_for_error().value == 5

    async def test_cancelling_ends_it(self, session: PythonSession, kit: Kit) -> None:
        """It is unknown how far the program came."""
        task = asyncio.create_task(self.run(session, kit, "tools.kit.wait()"))
        await reached(kit.begun, task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(SandboxFailedError, match="state is lost"):
            await self.run(session, kit, "1")

    async def test_programs_wait_for_each_other(self, session: PythonSession, kit: Kit) -> None:
        """Those that are given at the same time run one after the other."""
        runs = [self.run(session, kit, "n = globals().get('n', 0) + 1\nn", timeout=20.0) for _ in range(5)]
        assert sorted(result.value for result in await asyncio.gather(*runs)) == [1, 2, 3, 4, 5]

    async def test_a_closed_session_says_so(self, session: PythonSession, kit: Kit) -> None:
        """Closing again does nothing, and later runs fail."""
        await session.aclose()
        await session.aclose()
        with pytest.raises(SandboxFailedError, match="it was closed"):
            await self.run(session, kit, "1")

    async def test_closing_the_language_closes_it(
        self, python: PythonLanguage, session: PythonSession, kit: Kit
    ) -> None:
        """With all that it holds."""
        await python.aclose()
        with pytest.raises(SandboxFailedError, match="it was closed"):
            await self.run(session, kit, "1")
