"""One program, run in this process and in a worker: its caller cannot see from the result which it was."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from benchmarks.repair import add_tools, programs
from tests.runtime.wasm.workers.both_paths import OVER_A_FRAME, PROGRAMS, Program, made_up, program
from tests.waiting import reached

from toolexec import Exec
from toolexec.code.types import CodeEvent, CodeResult
from toolexec.errors import ToolExecError
from toolexec.model.json_value import JSONDict
from toolexec.runtime.priority import ranked
from toolexec.runtime.wasm.backend import WasmBackend
from toolexec.runtime.wasm.workers.process import can_start

pytestmark = [pytest.mark.full, pytest.mark.skipif(not can_start(), reason="there are no workers on this system")]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def fail(why: str) -> None:
    """Fail."""
    raise ValueError(why)


async def later(n: int) -> int:
    """Give back a number in the next turn of the loop."""
    await asyncio.sleep(0)
    return n


async def hang() -> None:
    """Never end."""
    await asyncio.get_running_loop().create_future()


GO_ON = threading.Event()


def block() -> None:
    """Hold up the thread until the program is over."""
    GO_ON.wait(60)


def echo(x: Any) -> Any:
    """Give back what it gets."""
    return x


def text(size: int) -> str:
    """Give a long text."""
    return "x" * size


def length(text: str) -> int:
    """Count characters."""
    return len(text)


def interrupt() -> None:
    """Raise what is not an Exception."""
    raise SystemExit(5)


def odd() -> Any:
    """Give what is not JSON."""
    return {1, 2}


TOOLS = (add, fail, later, hang, block, echo, text, length, interrupt, odd)


@asynccontextmanager
async def library(backend: WasmBackend | None = None, **settings: Any) -> AsyncGenerator[Exec]:
    """Open a library with tools of each kind."""
    async with Exec(runtime_backends=[backend or WasmBackend(workers=1, pool_size=0)], **settings) as ex:
        for function in TOOLS:
            ex.add(function, f"t:{function.__name__}")

        async def run(code: str) -> JSONDict:
            """Run a program."""
            return seen(await ex.execute_code(code))

        async def close() -> None:
            """Close all of it."""
            await ex.aclose()

        ex.add(run, "t:run")
        ex.add(close, "t:close")
        yield ex


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """A library, and one worker for the programs that are to be apart."""
    async with library() as made:
        yield made


def seen(result: CodeResult) -> JSONDict:
    """Return all that a caller sees of a result but for times and what the sandbox says of its guest."""
    data: Any = without_times(result.to_dict())
    data["files"] = {name: content.decode("latin-1") for name, content in result.files.items()}
    data.get("backend", {}).pop("details", None)
    return data


def without_times(data: Any) -> Any:
    """Return the same data without the times that something took, and with the digests of long strings."""
    if isinstance(data, dict):
        return {key: without_times(value) for key, value in data.items() if key != "durationMs"}
    if isinstance(data, str) and len(data) > 5000:
        return f"{data[:50]} {len(data)} {sha256(data.encode()).hexdigest()}"
    return [without_times(each) for each in data] if isinstance(data, list) else data


def call_of(event: CodeEvent) -> Any:
    """Return the call of an event; one that has begun may have ended by now."""
    if event.call is None:
        return None
    return event.call.tool_id if event.kind == "call_start" else without_times(event.call.to_dict())


async def outcome(running: Awaitable[CodeResult]) -> Any:
    """Return what a caller sees of a run, also where it raises."""
    try:
        return seen(await running)
    except ToolExecError as error:
        return [type(error).__name__, error.to_dict()]
    except (asyncio.CancelledError, BaseExceptionGroup) as error:
        return [type(error).__name__, str(error)]


async def shown(ex: Exec, program: Program, *, apart: bool) -> Any:
    """Run a program, and return what its caller sees, also while it runs."""
    events: list[list[Any]] = []

    def on_event(event: CodeEvent) -> None:
        if event.kind == "print" and events and events[-1][:2] == ["print", event.stream]:
            events[-1][2] += event.text
        else:
            events.append([event.kind, event.stream, event.text, call_of(event)])

    settings: Any = {"on_event": on_event, "timeout": 30.0, **program.settings}
    GO_ON.clear()
    try:
        with ranked(apart=apart, gives_way=False):
            result = await outcome(ex.execute_code(program.code, **settings))
        found = [[*each] for each in events]  # what ends after the program is not of it
    finally:
        GO_ON.set()
    if "gather" in program.code:  # calls at once end in any order
        found.sort(key=str)
    return [result, found]


async def check(ex: Exec, program: Program, name: str) -> None:
    """Run a program on both paths; each caller sees the same."""
    here, apart = [without_times(await shown(ex, program, apart=apart)) for apart in (False, True)]
    assert (name, apart) == (name, here)


@pytest.mark.parametrize("part", range(4))
async def test_programs_end_alike(ex: Exec, part: int) -> None:
    """The value, output, notes, error, calls, files, events and enforced limits are the same."""
    for name in [*PROGRAMS][part::4]:
        await check(ex, PROGRAMS[name], name)


async def test_programs_that_are_made_up_end_alike(ex: Exec) -> None:
    """Statements in any order do the same on both paths."""
    for seed in range(60):
        await check(ex, made_up(seed), str(seed))


@pytest.mark.parametrize("name", ["kept", "ways"])
async def test_programs_of_models_end_alike(name: str) -> None:
    """Each program of the corpus has the same value, or the same advice."""
    async with Exec(runtime_backends=[WasmBackend(workers=1, pool_size=0)]) as ex:
        add_tools(ex)
        for each in programs(name):
            if each.language == "python":
                await check(ex, program(each.code), each.name)


@pytest.mark.parametrize("name", OVER_A_FRAME)
async def test_what_a_guest_cannot_hold_is_refused_alike(name: str) -> None:
    """A program that is sent more than its sandbox has room for ends in the same way."""
    async with library(WasmBackend(workers=1, pool_size=0, memory_bytes=40 << 20, disk_bytes=1 << 20)) as ex:
        await check(ex, OVER_A_FRAME[name], name)


class Scene:
    """What happens to one program, in this process or apart."""

    def __init__(self, directory: Path, *, apart: bool) -> None:
        self.directory = directory
        self.apart = apart
        self.begun = asyncio.Event()
        self.events: list[Any] = []
        self.ended: list[str] = []

    def note(self, event: CodeEvent) -> None:
        """Note an event; the first one says that the program has begun."""
        self.events.append([event.kind, event.text, call_of(event)])
        self.begun.set()

    async def wait(self) -> None:
        """Wait for ever."""
        self.begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise

    async def cancelled(self, code: str) -> Any:
        """Cancel a program once it has begun; another one runs after it."""
        async with library() as ex:
            ex.add(self.wait, "t:wait")
            note = None if "wait" in code else self.note
            running = asyncio.create_task(ex.execute_code(code, on_event=note))
            await reached(self.begun, running)
            running.cancel()
            return [await outcome(running), self.ended, await outcome(ex.execute_code("2"))]

    async def closed(self, code: str) -> Any:
        """Close the library of a program while it waits."""
        async with library() as ex:
            ex.add(self.wait, "t:wait")
            running = asyncio.create_task(ex.execute_code(code))
            if "wait" in code:
                await reached(self.begun, running)
                await ex.aclose()
            return [await outcome(running), self.ended]

    async def streamed(self, code: str) -> Any:
        """Receive what a program prints before it goes on."""
        async with library() as ex:
            ex.add(self.begun.wait, "t:received")
            return await outcome(ex.execute_code(code, on_event=self.note)), self.events

    async def in_session(self, code: str) -> Any:
        """Run the paragraphs of a program in one session."""
        async with library() as ex, ex.session() as session:
            return [await outcome(session.execute_code(each)) for each in code.split("\n\n")]

    async def replayed(self, code: str) -> Any:
        """Record a program, and make it again where it was not recorded."""
        results: list[Any] = []
        for mode, apart in (("record", self.apart), ("replay", not self.apart)):
            cassette: Any = {"cassette": self.directory / f"{self.apart}.cassette", "cassette_mode": mode}
            with ranked(apart=apart, gives_way=False):
                async with library(**cassette) as ex:
                    results.append(await outcome(ex.execute_code(code, seed=3, now=1e9)))
        assert results[0] == results[1]
        return results

    async def durable(self, code: str) -> Any:
        """Run a durable program, and ask for it again."""
        async with library(journal=self.directory / f"{self.apart}.db") as ex:
            return [await outcome(ex.execute_code(code, durable="run")) for _ in range(2)]

    async def recorded(self, code: str) -> Any:
        """Run a program that is recorded in a journal, and make it again from there."""
        async with library(journal=self.directory / f"{self.apart}.db", record=1.0) as ex:
            result = await outcome(ex.execute_code(code))
            (run,) = await ex.runs.list()
            return [result, run.state, without_times((await ex.runs.replay(run.id)).to_dict()).get("value")]


SCENES: list[tuple[Callable[[Scene, str], Awaitable[Any]], str]] = [
    (Scene.cancelled, "print('a')\ntools.t.wait()"),
    (Scene.cancelled, "import asyncio\nawait asyncio.gather(tools.t.wait(), tools.t.wait())"),
    (Scene.cancelled, "import time\nprint('a')\ntime.sleep(600)"),
    (Scene.cancelled, "print('a')\nwhile True: pass"),
    (Scene.closed, "print('a')\ntools.t.wait()"),
    (Scene.closed, "print('a')\ntools.t.close()\nprint('b')\ntools.t.add(a=1, b=1)"),
    (Scene.streamed, "print('a')\nreturn tools.t.received()"),
    (Scene.streamed, "import os\nos.write(2, b'a')\nreturn tools.t.received()"),
    (Scene.in_session, "x = tools.t.add(a=1, b=2)\n\nprint(x)\n\n1 / 0\n\nx\n\nimport os\nos._exit(2)\n\nx"),
    (Scene.replayed, "import random\na = [await tools.t.later(n=3), random.random()]\nprint(a)\ntools.t.fail(why='x')"),
    (Scene.durable, "import asyncio\na = await tools.t.later(n=1)\nawait asyncio.sleep(0.01)\nprint(a)\nreturn a"),
    (Scene.recorded, "a = tools.t.add(a=1, b=2)\nprint('a')\nreturn a"),
]


@pytest.mark.parametrize(("happens", "code"), SCENES)
async def test_what_happens_to_a_program_is_seen_alike(
    tmp_path: Path, happens: Callable[[Scene, str], Awaitable[Any]], code: str
) -> None:
    """Cancelling, closing, streaming, sessions and recordings show the same on both paths."""
    results: list[Any] = []
    for apart in (False, True):
        with ranked(apart=apart, gives_way=False):
            results.append(await happens(Scene(tmp_path, apart=apart), code))
    assert results[0] == results[1]
