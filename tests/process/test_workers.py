"""Killable handlers in worker processes."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest
from tests.engines.programs import has_ended
from tests.waiting import until

from toolexec.errors import ExecutionError, HandlerError, InvalidResultError, Outcome
from toolexec.model.content import ToolReply
from toolexec.model.handler import Source
from toolexec.process import workers
from toolexec.process.workers import WorkerProcess, WorkerProcesses

pytestmark = pytest.mark.usefixtures("killable")


def source(name: str) -> Source:
    """Where a worker finds a handler of ours."""
    return Source("killable_handlers", name)


async def run(pool: WorkerProcesses, name: str, **args: Any) -> Any:
    """Call a handler."""
    return await pool.run(name, source(name), args)


@pytest.fixture
async def pool() -> Any:
    """A pool that is closed in the end."""
    pool = WorkerProcesses()
    yield pool
    await pool.aclose()


async def content_of(path: Path) -> str:
    """Return what a worker writes into a file, once it has."""
    async with asyncio.timeout(60):
        await until(lambda: path.exists() and path.read_text())
    return path.read_text()


async def until_dead(pid: int) -> None:
    """Wait until a process is no more, or only a zombie of someone else."""
    async with asyncio.timeout(30):
        await until(lambda: has_ended(pid))


async def test_a_handler_runs_in_another_process(pool: WorkerProcesses) -> None:
    """The result comes back from somewhere else."""
    assert await run(pool, "add", a=2, b=3) == 5
    assert await run(pool, "pid") != os.getpid()


async def test_types_are_converted_on_the_other_side(pool: WorkerProcesses) -> None:
    """Dataclasses, enums and dates arrive as such, and the result is JSON again."""
    answer = await run(pool, "mirror", point={"x": 1, "y": 2}, colour="red", when="2026-11-21")
    assert answer == {"x": 2, "y": 1}


async def test_a_handler_may_take_a_mapping(pool: WorkerProcesses) -> None:
    """A plain function gets all arguments as one dict; it may live inside a class."""
    assert await run(pool, "total", numbers=[1, 2, 3]) == 6
    assert await run(pool, "Group.double", number=4) == 8


async def test_a_worker_is_reused(pool: WorkerProcesses) -> None:
    """One call after the other needs one process."""
    assert await run(pool, "pid") == await run(pool, "pid")


async def test_a_worker_survives_a_handler_that_raises(pool: WorkerProcesses) -> None:
    """An exception is an answer; the process stays."""
    before = await run(pool, "pid")
    with pytest.raises(HandlerError):
        await run(pool, "fail", how="raise")
    assert await run(pool, "pid") == before


async def test_no_more_idle_workers_than_wanted() -> None:
    """Those beyond *keep* are ended when their call is over."""
    pool = WorkerProcesses(limit=4, keep=1)
    await asyncio.gather(*(run(pool, "add", a=n) for n in range(4)))
    assert len(psutil.Process().children()) == 1
    await pool.aclose()
    assert psutil.Process().children() == []


async def test_more_calls_than_processes_queue() -> None:
    """Calls beyond the limit wait, and all of them are answered."""
    pool = WorkerProcesses(limit=2)
    pids = await asyncio.gather(*(run(pool, "pid") for _ in range(12)))
    assert len(set(pids)) == 2
    await pool.aclose()


async def test_a_worker_sees_nothing_of_the_line(pool: WorkerProcesses) -> None:
    """Its stdin is empty and it has no arguments; the handler runs in its main thread, where signals work."""
    assert await run(pool, "whereabouts") == {"stdin": "", "argv": [], "main": "MainThread"}


async def test_what_a_handler_prints_does_not_disturb(pool: WorkerProcesses) -> None:
    """print, sys.__stdout__, file descriptor 1 and children all end up on stderr."""
    assert await run(pool, "noisy") == "quiet"
    assert await run(pool, "add", a=1) == 2


@pytest.mark.full
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raise", "fail raised ValueError: no luck"),
        ("SystemExit", "fail raised SystemExit: 4"),
        ("KeyboardInterrupt", "fail raised KeyboardInterrupt"),
        ("StopIteration", "fail raised StopIteration"),
        ("unreadable", "fail raised _UnreadableError: (it has no readable text)"),
        ("recursion", "fail raised RecursionError: maximum recursion depth exceeded"),
    ],
)
async def test_a_handler_that_raises(pool: WorkerProcesses, how: str, message: str) -> None:
    """Whatever it raises is a failure of its call, with type and text; its traceback is for developers only."""
    with pytest.raises(HandlerError) as caught:
        await run(pool, "fail", how=how)
    assert str(caught.value).startswith(message)
    assert "killable_handlers.py" in str(caught.value.__cause__)
    assert "killable_handlers.py" not in str(caught.value.to_dict())
    assert await run(pool, "add", a=1) == 2


@pytest.mark.parametrize(
    ("how", "outcome", "retryable", "wait"),
    [
        ("raise", Outcome.REFUSED, False, None),
        ("SystemExit", Outcome.UNKNOWN, False, None),
        ("KeyboardInterrupt", Outcome.UNKNOWN, False, None),
        ("reset", Outcome.UNKNOWN, True, None),
        ("limited", Outcome.REFUSED, True, 3),
        ("stated", Outcome.UNKNOWN, False, None),
        ("_exit", Outcome.UNKNOWN, False, None),
    ],
)
async def test_what_became_of_the_call(
    pool: WorkerProcesses, how: str, outcome: Outcome, retryable: bool, wait: float | None
) -> None:
    """A failure in a worker process says the same of its call as one in this process."""
    with pytest.raises(ExecutionError) as caught:
        await run(pool, "fail", how=how)
    error = caught.value
    assert (error.outcome, error.retryable, error.details.get("retry_after")) == (outcome, retryable, wait)


@pytest.mark.parametrize(
    ("how", "message"), [("_exit", "exit code 5"), ("segfault", "signal 11"), ("close", "closed its pipe")]
)
async def test_a_handler_that_takes_its_process_down(pool: WorkerProcesses, how: str, message: str) -> None:
    """The call fails with how the process ended, and the next call gets another one."""
    with pytest.raises(ExecutionError, match=f"the worker process of fail died .*{message}"):
        await run(pool, "fail", how=how)
    assert await run(pool, "add", a=1) == 2


async def test_a_worker_that_died_in_its_sleep_is_replaced(pool: WorkerProcesses) -> None:
    """The next call does not pay for it."""
    pid = await run(pool, "pid")
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(30):
        await until(lambda: not pool._idle[0].usable())
    assert await run(pool, "pid") != pid


async def test_a_crash_is_noticed_though_a_forked_child_lives_on(pool: WorkerProcesses, tmp_path: Path) -> None:
    """A child does not keep the line open, and dies with its parent."""
    with pytest.raises(ExecutionError, match="exit code 3"):
        await run(pool, "crash_with_child", started=str(tmp_path / "pid"))
    await until_dead(int((tmp_path / "pid").read_text()))


async def test_cancelling_kills_the_process_and_its_children(pool: WorkerProcesses, tmp_path: Path) -> None:
    """When the cancellation is through, nothing of the call is left."""
    path = tmp_path / "pids"
    task = asyncio.ensure_future(run(pool, "sleep_with_child", started=str(path)))
    worker, child = map(int, (await content_of(path)).split())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not psutil.pid_exists(worker)
    await until_dead(child)
    assert await run(pool, "add", a=1) == 2


async def test_a_time_limit_kills_the_process(pool: WorkerProcesses, tmp_path: Path) -> None:
    """A deadline is a cancellation."""
    path = tmp_path / "pid"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await run(pool, "sleep", started=str(path))
    for child in psutil.Process().children():
        assert has_ended(child.pid)


async def test_a_handler_that_keeps_pythons_lock_is_killed_too(pool: WorkerProcesses, tmp_path: Path) -> None:
    """Killing needs no cooperation."""
    task = asyncio.ensure_future(run(pool, "match_for_ever", started=str(tmp_path / "pid")))
    pid = int(await content_of(tmp_path / "pid"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not psutil.pid_exists(pid)


async def test_cancelling_at_any_moment_leaks_nothing(pool: WorkerProcesses) -> None:
    """While it is started, while it waits for a slot, while it answers: each cancelled call leaves no process."""
    for delay in (0, 0, 0.001, 0.01, 0.05, 0.1, 0.15, 0.2):
        tasks = [asyncio.ensure_future(run(pool, "add", a=n)) for n in range(6)]
        await asyncio.sleep(delay)
        for task in tasks:
            task.cancel()
        for answer in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(answer, int | asyncio.CancelledError)
    assert await run(pool, "add", a=1) == 2
    assert len(psutil.Process().children()) <= 2


async def test_a_call_cancelled_twice_leaks_nothing(tmp_path: Path) -> None:
    """Impatience does not get in the way of cleaning up."""
    pool = WorkerProcesses()
    path = tmp_path / "pid"
    task = asyncio.ensure_future(run(pool, "sleep", started=str(path)))
    pid = int(await content_of(path))
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await pool.aclose()
    assert not psutil.pid_exists(pid)


async def test_closing_ends_calls_that_are_under_way(tmp_path: Path) -> None:
    """Nothing outlives its pool: the running call fails, and so does the one that waits."""
    pool = WorkerProcesses(limit=1)
    running = asyncio.ensure_future(run(pool, "sleep", started=str(tmp_path / "pid")))
    waiting = asyncio.ensure_future(run(pool, "add", a=1))
    pid = int(await content_of(tmp_path / "pid"))
    await pool.aclose()
    assert not psutil.pid_exists(pid)
    with pytest.raises(ExecutionError, match="the backend was closed"):
        await running
    with pytest.raises(ExecutionError, match="the backend was closed"):
        await waiting
    await pool.aclose()


async def test_a_worker_that_answers_a_closed_pool_is_ended() -> None:
    """Ends such a worker, because no next call will come."""
    pool = WorkerProcesses()
    pool._closed = False
    call = asyncio.ensure_future(run(pool, "add", a=1))
    async with asyncio.timeout(60):
        await until(lambda: pool._started, 0)
    pool._closed = True
    assert await call == 2
    assert psutil.Process().children() == []


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("object", "the result is not JSON at /deep/1: function is not a JSON type"),
        ("huge", "the result has 681574.. bytes as JSON, more than 67108864"),
    ],
)
async def test_a_result_that_cannot_be_passed_on(pool: WorkerProcesses, what: str, message: str) -> None:
    """The failure says what is wrong with it, and the process stays."""
    with pytest.raises(InvalidResultError, match=message):
        await run(pool, "give", what=what)
    assert await run(pool, "add", a=1) == 2


async def test_results_that_can_be_passed_on(pool: WorkerProcesses) -> None:
    """Sets become lists, large values arrive whole, and a reply in parts stays one."""
    assert await run(pool, "give", what="set") == [1, 2]
    assert len(await run(pool, "give", what="large")) == 5 << 20
    reply = await run(pool, "give", what="reply")
    assert isinstance(reply, ToolReply)
    assert reply.structured == {"ok": True}
    assert reply.content == [{"type": "text", "text": "look"}]


async def test_large_arguments_arrive_whole(pool: WorkerProcesses) -> None:
    """Ten megabytes are no problem."""
    assert await run(pool, "length", text="x" * (10 << 20)) == 10 << 20


async def test_a_handler_that_cannot_be_imported(pool: WorkerProcesses) -> None:
    """The failure says that it is not the handler that failed."""
    with pytest.raises(HandlerError, match="a worker process cannot load t: ModuleNotFoundError: No module named 'no_"):
        await pool.run("t", Source("no_such_module", "t"), {})
    with pytest.raises(HandlerError, match="a worker process cannot load t: AttributeError"):
        await pool.run("t", source("no_such_function"), {})


async def test_a_process_that_cannot_be_started(pool: WorkerProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed start is a failure of the call, which frees its slot and leaks no descriptor."""
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    for _ in range(10):
        with pytest.raises(ExecutionError, match=r"cannot start a worker process for add: .*No such file"):
            await run(pool, "add", a=1)


async def test_a_reply_larger_than_announced_as_possible(
    pool: WorkerProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was taken over cannot fill our memory."""
    monkeypatch.setattr("toolexec.process.workers.MAX_FRAME", 1000)
    with pytest.raises(InvalidResultError, match="more than 1000"):
        await run(pool, "give", what="large")
    assert await run(pool, "add", a=1) == 2


def test_loops_one_after_the_other_share_the_workers() -> None:
    """An idle process belongs to no loop: the next loop goes on with it, also when there is a queue."""
    pool = WorkerProcesses(limit=1)

    async def use() -> list[int]:
        return await asyncio.gather(*(run(pool, "pid") for _ in range(3)))

    pids = asyncio.run(use()) + asyncio.run(use())
    assert len(set(pids)) == 1
    assert len(pool._slots) == 1
    asyncio.run(pool.aclose())


def test_two_loops_at_once_share_the_workers() -> None:
    """Every loop gets its own answers."""
    pool = WorkerProcesses(limit=2)
    results: dict[int, list[int]] = {}

    async def use(offset: int) -> None:
        results[offset] = await asyncio.gather(*(run(pool, "add", a=offset + n, b=0) for n in range(8)))

    loops = [threading.Thread(target=asyncio.run, args=(use(offset),)) for offset in (0, 1000)]
    for thread in loops:
        thread.start()
    for thread in loops:
        thread.join(60)
    asyncio.run(pool.aclose())
    assert results == {offset: list(range(offset, offset + 8)) for offset in (0, 1000)}


@pytest.mark.full
def test_a_loop_that_is_closed_in_the_middle_of_a_call(tmp_path: Path) -> None:
    """A call whose loop is gone ends with its process when it is thrown away."""
    pool = WorkerProcesses()
    path = tmp_path / "pid"
    loop = asyncio.new_event_loop()
    call = run(pool, "sleep", started=str(path))
    task = loop.create_task(call)
    pid = int(loop.run_until_complete(content_of(path)))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    call.close()
    del task, call
    gc.collect()
    asyncio.run(pool.aclose())
    assert not psutil.pid_exists(pid)


async def test_a_handler_of_an_interactive_session(pool: WorkerProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that was typed in cannot be imported elsewhere, and the failure says what to do."""
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    with pytest.raises(HandlerError, match="move it to a module"):
        await pool.run("typed", Source("__main__", "typed"), {})


async def test_a_script_without_a_main_guard_does_not_multiply(
    pool: WorkerProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a worker loads the main script, that script cannot start workers of its own."""
    monkeypatch.setattr(workers, "loading_main", True)
    with pytest.raises(HandlerError, match="if __name__ == '__main__'"):
        await run(pool, "add", a=1)


def test_how_a_process_ended_in_words() -> None:
    """A process that was not waited for, or that we killed, has no better explanation."""
    worker = WorkerProcess()
    assert worker.usable()
    assert worker.ending() == "killed, or it closed its pipe"
    worker.kill()
    while not worker.gone():
        pass
    worker.stop()
    assert not worker.usable()


SCRIPT = """
import asyncio, os, sys, time
from dataclasses import dataclass
from toolexec import Exec, tool

print("loaded", __name__, file=sys.stderr)

@dataclass
class Point:
    x: int

@tool(killable=True)
def move(point: Point, by: int) -> Point:
    return Point(point.x + by)

@tool(killable=True)
def where() -> list[str]:
    return [__name__, str(os.getpid())]

async def main():
    async with Exec() as ex:
        ex.add(move)
        ex.add(where)
        print((await ex.run_tool("move", {"point": {"x": 1}, "by": 2})).raise_for_error().value)
        name, pid = (await ex.run_tool("where")).raise_for_error().value
        print(name, pid != str(os.getpid()))

GUARD
    asyncio.run(main())
"""


@pytest.mark.full
@pytest.mark.parametrize("how", ["script", "module"])
def test_handlers_of_the_main_script(tmp_path: Path, how: str) -> None:
    """A handler may live in the program itself, started as a file or with -m; a worker does not start the program."""
    (tmp_path / "program.py").write_text(SCRIPT.replace("GUARD", 'if __name__ == "__main__":'))
    command = [sys.executable, "program.py"] if how == "script" else [sys.executable, "-m", "program"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
    name = "__toolexec_main__" if how == "script" else "program"
    assert done.stdout == f"{{'x': 3}}\n{name} True\n", done.stderr
    assert done.stderr == f"loaded __main__\nloaded {name}\n"


def test_a_script_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    """Loading it in a worker starts the program again; that ends with an explanation, not with a heap of processes."""
    (tmp_path / "program.py").write_text(SCRIPT.replace("GUARD", "if True:"))
    command = [sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 1
    assert "put what the script does under: if __name__ == '__main__'" in done.stderr
    assert done.stderr.count("loaded") == 2


LEAVING = """
import asyncio, os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import killable_handlers
from toolexec import Exec

async def main():
    ex = Exec()
    ex.add(killable_handlers.sleep_with_child)
    ex.add(killable_handlers.match_for_ever)
    ex.add(killable_handlers.pid)
    await ex.run_tool("pid")
    task = asyncio.ensure_future(ex.run_tool(sys.argv[3], {"started": sys.argv[2]}))
    while not (Path(sys.argv[2]).exists() and Path(sys.argv[2]).read_text()):
        await asyncio.sleep(0.01)
    LEAVE

asyncio.run(main())
"""


@pytest.mark.full
@pytest.mark.parametrize("handler", ["sleep_with_child", "match_for_ever"])
@pytest.mark.parametrize(
    ("leave", "code"), [("os.kill(os.getpid(), signal.SIGKILL)", -9), ("os._exit(0)", 0), ("return", 0)]
)
async def test_workers_do_not_outlive_their_parent(tmp_path: Path, leave: str, code: int, handler: str) -> None:
    """Killed, gone without a word, or ended while a call was under way: worker and children end as well, whatever they
    are doing."""
    (tmp_path / "program.py").write_text(LEAVING.replace("LEAVE", leave))
    handlers = Path(__file__).parents[1] / "backend" / "handlers"
    command = [sys.executable, "program.py", str(handlers), str(tmp_path / "pids"), handler]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == code, done.stderr
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        await until_dead(pid)
