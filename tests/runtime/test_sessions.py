"""A run in a session that is stopped: its program is interrupted, and the session stays, with nothing of that run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.engines.backends import maker
from tests.waiting import reached

from toolexec import Exec
from toolexec.errors import CodeTimeoutError, SandboxFailedError
from toolexec.exec.code import CodeSession
from toolexec.exec.options import SecurityProfile
from toolexec.runtime import sessions
from toolexec.runtime.containers import guest as containers_guest
from toolexec.runtime.outcome import Ending, judge
from toolexec.runtime.sessions import Stop
from toolexec.runtime.unsafe_host import guest as unsafe_host_guest
from toolexec.runtime.unsafe_host.backend import UnsafeHostBackend

pytestmark = pytest.mark.anyio
SOON = 1.0
OBSTINATE = """
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""


class Place:
    """An Exec whose sessions are in one sandbox, and what its tools noticed."""

    def __init__(self, backend: Any, profile: SecurityProfile) -> None:
        self.ex = Exec(
            runtime_backends={profile: [backend]}, security_profile=profile, unsafe_opt_in=True, default_timeout=60
        )
        self.began = asyncio.Event()
        self.cancelled = 0
        self.ex.add(self.wait, "test:wait")
        self.ex.add(self.began.set, "test:begin")
        self.ex.add(lambda a, b: a + b, "math:add")

    async def wait(self) -> None:
        """Take for ever."""
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@pytest.fixture(params=["unsafe_host", pytest.param("bubblewrap", marks=pytest.mark.full)])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A place for each sandbox whose guests are processes that these tests may start."""
    if request.param == "unsafe_host":
        place = Place(UnsafeHostBackend(), "dev")
    else:
        place = Place(maker("bubblewrap", request)(), "standard")
    async with place.ex:
        yield place


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give programs that obey an interrupt the time that they need on a busy machine; obstinate ones never do."""
    if "obstinate" not in request.node.name:
        for module in (sessions, containers_guest, unsafe_host_guest):
            monkeypatch.setattr(module, "GRACE", 20.0)


@asynccontextmanager
async def opened(place: Place) -> AsyncGenerator[CodeSession]:
    """A session with a name of an earlier run, which has imported what takes long to."""
    code = "import asyncio, subprocess, threading, time\nkept = ['first']\nopen('kept', 'w').write('x')"
    async with place.ex.session() as session:
        (await session.execute_code(code)).raise_for_error()
        yield session


async def stopped(session: CodeSession, code: str) -> CodeTimeoutError:
    """Run a program that does not end by itself, and return the error of its run."""
    result = await session.execute_code(code, timeout=SOON)
    assert isinstance(result.error, CodeTimeoutError), result.error
    assert result.value is None
    return result.error


async def is_as_before(session: CodeSession) -> None:
    """Require that names, files and tools are there, and that a run has its own output and value."""
    code = "print('next')\nreturn [kept[0], open('kept').read(), tools.math.add(a=1, b=2)]"
    result = (await session.execute_code(code)).raise_for_error()
    assert (result.value, result.stdout, result.stderr) == (["first", "x", 3], "next\n", "")
    assert [call.tool_id for call in result.tool_calls] == ["math:add"]


async def cancelled(place: Place, session: CodeSession, code: str) -> None:
    """Cancel a run once its program has said that it got there, by a call of test:begin."""
    place.began.clear()
    task = asyncio.ensure_future(session.execute_code(code))
    await reached(place.began, task)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


@pytest.mark.parametrize(
    "code",
    [
        "tools.test.begin()\nwhile True: pass",
        "tools.test.begin()\ntime.sleep(600)",
        "tools.test.wait()",
        "await tools.test.wait()",
        "await asyncio.gather(asyncio.sleep(600), tools.test.wait())",
        "async def main():\n    tools.test.begin()\n    await asyncio.sleep(600)\nasyncio.run(main())",
        "with subprocess.Popen(['cat'], stdin=-1) as cat:\n    tools.test.begin()\n    cat.wait()",
        "tools.test.begin()\nwhile True: print('old', end='')",
        "tools.test.begin()\nthreading.Event().wait()",
    ],
    ids=["loop", "sleep", "call", "awaited", "gathered", "asyncio.run", "process", "prints", "lock"],
)
async def test_a_program_is_stopped_and_its_session_kept(place: Place, code: str) -> None:
    """A program is stopped where it computes, sleeps, prints, or waits for a tool, for tasks or for a process."""
    async with opened(place) as session:
        await cancelled(place, session, f"kept.append(1)\n{code}")
        await is_as_before(session)
        assert (await session.execute_code("return len(kept)")).value == 2
    assert place.cancelled == ("test.wait" in code)


@pytest.mark.parametrize("code", ["while True: pass", "tools.test.wait()"])
async def test_a_time_limit_keeps_the_session(place: Place, code: str) -> None:
    """The error says so."""
    async with opened(place) as session:
        error = await stopped(session, code)
        assert error.details == {"timeout": SOON, "session": "kept"}
        assert "the session is kept" in error.message
        await is_as_before(session)


async def test_two_interrupts_in_a_row(place: Place) -> None:
    """The second run is stopped as the first one was."""
    async with opened(place) as session:
        for _ in range(2):
            assert (await stopped(session, "while True: pass")).details["session"] == "kept"
        await is_as_before(session)


async def test_an_obstinate_program_ends_the_session(place: Place) -> None:
    """The program catches what is to stop it, and goes on: the guest is ended, as no program may go on after its time."""
    async with opened(place) as session:
        error = await stopped(session, OBSTINATE)
        assert error.details["session"] == "ended"
        assert "did not stop when it was interrupted" in error.message
        with pytest.raises(SandboxFailedError, match="its last run was stopped"):
            await session.execute_code("1")


async def test_cancelling_an_obstinate_program_ends_the_session(place: Place) -> None:
    """The caller gets its cancellation all the same."""
    async with opened(place) as session:
        await cancelled(place, session, OBSTINATE.replace("while True:\n            pass", "tools.test.wait()"))
        with pytest.raises(SandboxFailedError, match="its last run was stopped"):
            await session.execute_code("1")


async def test_a_program_that_handles_it_cleans_up(place: Place) -> None:
    """Its `except` and `finally` are done before the next run."""
    code = "try:\n    tools.test.begin()\n    while True: pass\nexcept KeyboardInterrupt:\n    kept.append(2)\n    return 'late'"
    async with opened(place) as session:
        await cancelled(place, session, code)
        assert (await session.execute_code("return kept[1:]")).value == [2]


async def test_a_value_after_the_time_limit_does_not_count(place: Place) -> None:
    """The program has caught what stopped it, and its run has failed."""
    async with opened(place) as session:
        code = "try:\n    while True: pass\nexcept KeyboardInterrupt:\n    return 'late'"
        assert (await stopped(session, code)).details["session"] == "kept"


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()", "threads"),
        ("import subprocess\nsubprocess.Popen(['sleep', '600'])", "processes"),
    ],
)
async def test_what_goes_on_behind_it_ends_the_session(place: Place, code: str, left: str) -> None:
    """Threads and processes of the run cannot be stopped from within, and would speak in the next one."""
    async with opened(place) as session:
        error = await stopped(session, f"{code}\nwhile True: pass")
        assert error.details["session"] == "ended"
        assert f"it left {left} running" in error.message
        with pytest.raises(SandboxFailedError):
            await session.execute_code("1")


async def test_what_earlier_runs_left_behind_stays(place: Place) -> None:
    """A thread that was there before the run has nothing to do with it."""
    async with opened(place) as session:
        code = "import threading\ngo = threading.Event()\nthread = threading.Thread(target=go.wait)\nthread.start()"
        (await session.execute_code(code)).raise_for_error()
        assert (await stopped(session, "while True: pass")).details["session"] == "kept"
        assert (await session.execute_code("go.set()\nthread.join()\nreturn thread.is_alive()")).value is False


async def test_calls_and_tasks_of_the_stopped_run_are_gone(place: Place) -> None:
    """Both were cancelled, for later runs as well, and no call is made again."""
    code = "call = tools.test.wait()\ntask = asyncio.create_task(asyncio.sleep(600))\nawait task"
    async with opened(place) as session:
        await cancelled(place, session, code)
        result = await session.execute_code("await asyncio.sleep(0.05)\nreturn task.cancelled()")
        assert (result.value, result.tool_calls, result.stderr) == (True, [], "")
        result = await session.execute_code("return str(await call)")
        assert "CancelledError" in str(result.error)
        assert result.tool_calls == []
    assert place.cancelled == 1


async def test_files_of_a_stopped_run_are_its_own(place: Place) -> None:
    """Its result has them, and not that of the next one."""
    async with opened(place) as session:
        result = await session.execute_code("open('new', 'w').write('y')\nwhile True: pass", timeout=SOON)
        assert result.files == {"new": b"y"}
        assert (await session.execute_code("return open('new').read()")).files == {}


async def test_a_stop_gives_up_where_the_guest_cannot_be_interrupted() -> None:
    """Waiting for the program returns at once, and the run has to be ended as before."""
    stop = Stop()
    assert stop.ask() is False
    await stop.press(lambda: False)
    assert not stop.was_pressed


def test_a_guest_that_says_it_was_interrupted_and_was_not_is_believed_nothing() -> None:
    """The mark in a result counts only where the host has asked."""
    ending = Ending(result={"value": 1, "interrupted": True}, seconds=1)
    assert Stop().judged(ending, spent=False) == ending
    assert judge(ending) is None
