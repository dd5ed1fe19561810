"""Worker processes of the embedded sandbox: when there are any, and what becomes of runs when they end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import psutil
import pytest
from tests.runtime.wasm.language_kit import Kit
from tests.runtime.wasm.test_python import add_tool, value
from tests.runtime.wasm.workers.in_workers import have_workers
from tests.waiting import reached, until

from toolexec.code.limits import Limits
from toolexec.errors import CodeTimeoutError, LimitExceededError, SandboxFailedError
from toolexec.runtime.json_text import AS_JSON, JSONText
from toolexec.runtime.runs import ALARMS, Alarm
from toolexec.runtime.wasm.config import WasmConfig
from toolexec.runtime.wasm.python import PythonLanguage
from toolexec.runtime.wasm.workers import instance, pool
from toolexec.runtime.wasm.workers.pool import Workers, worker_count
from toolexec.runtime.wasm.workers.process import WorkerProcess, can_start

pytestmark = [pytest.mark.full, pytest.mark.skipif(not can_start(), reason="there are no workers on this system")]


@pytest.fixture
async def kit() -> Kit:
    """Tools to call."""
    return Kit()


@pytest.fixture
async def python() -> AsyncIterator[PythonLanguage]:
    """The language, as it is used."""
    language = PythonLanguage(WasmConfig(pool_size=0, workers=2))
    yield language
    await language.aclose()


@pytest.fixture
async def workers(python: PythonLanguage) -> Workers:
    """Two workers, which get every program."""
    return await have_workers(python)


def only(workers: Workers) -> WorkerProcess:
    """The worker that has a run."""
    (busy,) = [worker for worker in workers.ready if worker.runs]
    return busy


async def test_closing_waits_for_a_worker_that_is_being_started(python: PythonLanguage) -> None:
    """It is gone then, and no other one is started."""
    before = {child.pid for child in psutil.Process().children()}
    starting = asyncio.create_task(python.start_workers())
    await until(lambda: python.workers is not None and python.workers.starting)
    starting.cancel()
    await asyncio.wait({starting})
    await python.aclose()
    assert {child.pid for child in psutil.Process().children()} == before


class TestWhen:
    """When there are workers."""

    async def test_one_program_at_a_time_needs_none(self, python: PythonLanguage, kit: Kit) -> None:
        """Runs in turn start nothing, however many there are."""
        for _ in range(30):
            await value(python, kit.request("1"))
        assert python.workers is not None
        assert (python.workers.ready, python.workers.starting) == ([], False)

    async def test_programs_that_meet_have_some_started(self, python: PythonLanguage, kit: Kit) -> None:
        """Without waiting for it, and the next ones go there; one alone does not."""
        rush = [value(python, kit.request(f"tools.kit.add(a={n}, b=1)")) for n in range(40)]
        assert await asyncio.gather(*rush) == [n + 1 for n in range(40)]
        assert python.workers is not None
        await until(lambda: python.workers is not None and python.workers.ready)
        meeting = [asyncio.create_task(value(python, kit.request("tools.kit.meet(guests=2)"))) for _ in range(2)]
        await until(lambda: python.workers is not None and any(worker.runs for worker in python.workers.ready))
        assert await asyncio.gather(*meeting) == [2, 2]
        waiting = asyncio.create_task(python.execute(kit.request("tools.kit.wait()")))
        await reached(kit.begun, waiting)
        assert not any(worker.runs for worker in python.workers.ready)
        waiting.cancel()
        await asyncio.wait([waiting])

    async def test_many_that_begin_at_once_have_all_started(self, python: PythonLanguage, kit: Kit) -> None:
        """Each rush asks for one more, also where none of its programs is in a worker yet when the last one begins."""
        for count in (1, 2):
            rush = [value(python, kit.request(f"tools.kit.add(a={n}, b=1)")) for n in range(40)]
            assert await asyncio.gather(*rush) == [n + 1 for n in range(40)]
            workers = python.workers
            assert workers is not None
            await until(lambda workers=workers, count=count: len(workers.ready) >= count)

    async def test_idle_workers_end(
        self, python: PythonLanguage, workers: Workers, kit: Kit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those that have had no program for a while."""
        monkeypatch.setattr(pool, "IDLE_SECONDS", 0.0)
        processes = [psutil.Process(worker.pid) for worker in workers.ready]
        assert await value(python, kit.request("1")) == 1
        workers.end_idle()
        await until(lambda: not any(process.is_running() for process in processes))
        assert workers.ready == []
        assert await value(python, kit.request("2")) == 2

    @pytest.mark.parametrize(("wanted", "cores", "count"), [("auto", 1, 0), ("auto", 4, 4), (3, 1, 3), (0, 4, 0)])
    def test_how_many(self, monkeypatch: pytest.MonkeyPatch, wanted: Any, cores: int, count: int) -> None:
        """With `auto` one for each core, if there are several."""
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
        assert worker_count(wanted) == count

    async def test_a_program_with_python_in_it_has_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Starting its executable would not start an interpreter."""
        monkeypatch.setattr("sys.executable", "/usr/bin/app")
        assert worker_count(2) == 0

    async def test_without_a_process_to_start_programs_run(
        self, python: PythonLanguage, kit: Kit, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """In this process, and the log says why."""

        def refuse(*_: Any, **__: Any) -> None:
            raise OSError("no more processes")

        await python.start()
        python.company = 0
        monkeypatch.setattr(pool, "WorkerProcess", refuse)
        assert python.workers is not None
        await asyncio.to_thread(python.workers.start)
        assert await value(python, kit.request("1")) == 1
        assert "no more processes" in caplog.text


class TestWhatAWorkerHas:
    """What a worker is given of this process."""

    async def test_nothing_but_guests(self, python: PythonLanguage, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
        """No environment, and none of the files that are open here; a core of its own."""
        monkeypatch.setenv("TOOLEXEC_SECRET", "hush")
        with open(__file__) as mine:
            os.set_inheritable(mine.fileno(), True)
            workers = await have_workers(python)
        processes = [psutil.Process(worker.pid) for worker in workers.ready]
        assert all("TOOLEXEC_SECRET" not in process.environ() for process in processes)
        assert not [file.path for process in processes for file in process.open_files() if file.path == __file__]
        cores = [process.cpu_affinity() for process in processes]
        assert all(len(each) == 1 for each in cores)
        if len(os.sched_getaffinity(0)) > 1:
            assert cores[0] != cores[1]


class TestRuns:
    """Programs in workers."""

    async def test_64_at_once_with_tools_of_both_kinds(
        self, python: PythonLanguage, workers: Workers, kit: Kit
    ) -> None:
        """Every one gets its own answers, output and files."""

        async def later(a: int) -> int:
            await asyncio.sleep(0)
            return a

        add_tool(kit, later, "kit:later")
        code = """
import asyncio
print({n})
open("n.txt", "w").write("{n}")
both = await asyncio.gather(tools.kit.later(a={n}), tools.kit.add(a={n}, b=1))
return [*both, len(tools.kit.big(size=1_500_000 + {n})), tools.kit.later(a=-{n})]
"""
        runs = [python.execute(kit.request(code.replace("{n}", str(n)))) for n in range(64)]
        for n, result in enumerate(await asyncio.gather(*runs)):
            assert result.raise_for_error().value == [n, n + 1, 1_500_000 + n, -n]
            assert (result.stdout, result.files) == (f"{n}\n", {"n.txt": str(n).encode()})
        await until(lambda: [worker.runs for worker in workers.ready] == [0, 0])  # a thread gives the last one back

    async def test_one_after_the_other_on_one_lane(self, python: PythonLanguage, workers: Workers, kit: Kit) -> None:
        """Nothing of a program is left for the next, and nothing piles up."""
        code = "import os, builtins\nx = [os.listdir('.'), hasattr(builtins, 'left')]\nbuiltins.left = 1\nopen('f', 'w')\nx"
        for _ in range(20):
            assert await value(python, kit.request(code)) == [[], False]
        assert all(psutil.Process(worker.pid).num_threads() < 6 for worker in workers.ready)

    async def test_cancelling_in_mid_call(self, python: PythonLanguage, workers: Workers, kit: Kit) -> None:
        """The call is cancelled, and the worker goes on."""
        task = asyncio.create_task(python.execute(kit.request("tools.kit.wait()")))
        await reached(kit.begun, task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: kit.stopped and not any(worker.runs for worker in workers.ready))
        assert kit.stopped == ["wait"]
        assert len(workers.ready) == 2

    @pytest.mark.parametrize("code", ["while True: pass", "import time\ntime.sleep(60)", "tools.kit.wait()"])
    async def test_the_deadline(self, python: PythonLanguage, workers: Workers, kit: Kit, code: str) -> None:
        """The program ends with what there was, and the worker goes on."""
        pids = [worker.pid for worker in workers.ready]
        code = f"print('a')\nopen('f', 'w').write('b')\n{code}"
        result = await python.execute(kit.request(code, timeout=0.5))
        assert isinstance(result.error, CodeTimeoutError)
        assert result.stdout == "a\n"
        await until(lambda: not any(worker.runs for worker in workers.ready))
        assert [worker.pid for worker in workers.ready] == pids

    async def test_a_machine_that_stood_still(
        self, python: PythonLanguage, workers: Workers, kit: Kit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker that had no core meanwhile has time to stop its program, though what it had is over."""
        rung: list[Alarm] = []

        class Late:
            def at(self, due: float, ring: Callable[[], None]) -> Alarm:
                rung.append(ALARMS.at(due if rung else 0.0, ring))
                return rung[-1]

        monkeypatch.setattr(instance, "ALARMS", Late())
        pids = [worker.pid for worker in workers.ready]
        result = await python.execute(kit.request("while True: pass", timeout=0.5))
        assert isinstance(result.error, CodeTimeoutError)
        await until(lambda: not any(worker.runs for worker in workers.ready))
        assert rung
        assert [worker.pid for worker in workers.ready] == pids

    async def test_the_memory_limit(self, python: PythonLanguage, workers: Workers, kit: Kit) -> None:
        """One program ends, and the one beside it goes on."""
        beside = asyncio.create_task(python.execute(kit.request("tools.kit.meet(guests=2), 5")))
        code = "tools.kit.meet(guests=2)\nbytearray(1 << 26)"
        result = await python.execute(kit.request(code, limits=Limits(memory_bytes=32 << 20)))
        assert isinstance(result.error, LimitExceededError)
        assert (await beside).value == [2, 5]

    async def test_sessions_stay_here(self, python: PythonLanguage, workers: Workers, kit: Kit) -> None:
        """While other programs run in workers."""
        session = await python.open_session(kit.request())
        (await session.execute(kit.request("x = 1"))).raise_for_error()
        rush = [value(python, kit.request("'x' in globals()")) for _ in range(8)]
        results = await asyncio.gather(session.execute(kit.request("tools.kit.add(a=x, b=1)")), *rush)
        assert results[0].value == 2
        assert results[1:] == [False] * 8
        await session.aclose()


class TestLost:
    """Workers that end, or do not obey."""

    async def test_a_worker_that_is_killed(self, python: PythonLanguage, workers: Workers, kit: Kit) -> None:
        """The runs in it fail as with a dead sandbox, those of others go on, and it is replaced."""
        kit_too = Kit()
        lost = asyncio.create_task(python.execute(kit.request("print('a')\ntools.kit.wait()")))
        await reached(kit.begun, lost)
        victim = only(workers)
        beside = asyncio.create_task(python.execute(kit_too.request("tools.kit.meet(guests=1), 5")))
        os.kill(victim.pid, signal.SIGKILL)
        result = await lost
        assert isinstance(result.error, SandboxFailedError)
        assert "killed by SIGKILL" in str(result.error)
        assert (result.error.details["reason"], result.error.retryable) == ("worker_ended", True)
        assert result.stdout == "a\n"
        assert (await beside).value == [1, 5]
        await until(lambda: len(workers.ready) == 1)
        assert await value(python, kit.request("2")) == 2
        await asyncio.to_thread(workers.start)
        assert len(workers.ready) == 2

    async def test_a_worker_that_dies_idle(self, python: PythonLanguage, workers: Workers, kit: Kit) -> None:
        """The next program does not notice."""
        processes = [psutil.Process(worker.pid) for worker in workers.ready]
        for process in processes:
            process.kill()
        await until(lambda: not any(worker.is_alive() for worker in workers.ready))
        assert await value(python, kit.request("1")) == 1
        assert workers.ready == []

    async def test_one_that_does_not_obey_is_killed(self, python: PythonLanguage, workers: Workers, kit: Kit) -> None:
        """The run ends at its deadline all the same, and the other runs of that worker as with a dead sandbox."""
        beside = asyncio.create_task(python.execute(kit.request("tools.kit.wait()")))
        await reached(kit.begun, beside)
        frozen = only(workers)
        for worker in workers.ready:
            if worker is not frozen:
                workers.end(worker)
        stuck = asyncio.create_task(
            python.execute(kit.request("tools.kit.meet(guests=1)\nwhile True: pass", timeout=2))
        )
        await until(lambda: kit.most_at_once)
        os.kill(frozen.pid, signal.SIGSTOP)
        assert isinstance((await stuck).error, CodeTimeoutError)
        error = (await beside).error
        assert isinstance(error, SandboxFailedError)
        assert "did not stop a program in time" in str(error)
        assert await value(python, kit.request("1")) == 1

    async def test_one_that_breaks_the_protocol(
        self, python: PythonLanguage, workers: Workers, kit: Kit, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The worker is killed, and the run fails as with a dead sandbox."""
        monkeypatch.setattr("toolexec.runtime.wasm.workers.instance.unpack", lambda _: ({"how": "answer"}, []))
        result = await python.execute(kit.request("1"))
        assert isinstance(result.error, SandboxFailedError)
        assert "broke the protocol" in str(result.error)

    async def test_a_line_that_was_lost_is_not_used_again(
        self, python: PythonLanguage, workers: Workers, kit: Kit
    ) -> None:
        """Only the program whose line is lost fails, and the worker goes on."""
        ready = workers.ready
        lane = ready[0].open()  # the first one has the next program
        lane.line.socket.shutdown(socket.SHUT_RDWR)
        ready[0].give_back(lane)
        assert isinstance((await python.execute(kit.request("1"))).error, SandboxFailedError)
        await until(lambda: not any(worker.runs for worker in ready))
        assert [await value(python, kit.request("2")) for _ in range(2)] == [2, 2]
        assert workers.ready == ready

    async def test_closing_ends_them(self, python: PythonLanguage, workers: Workers, kit: Kit) -> None:
        """Every process is gone when it returns; the language can be used again."""
        processes = [psutil.Process(worker.pid) for worker in workers.ready]
        await python.aclose()
        assert not any(process.is_running() for process in processes)
        python.company = 1
        assert await value(python, kit.request("3")) == 3

    async def test_closing_while_they_start(self, python: PythonLanguage, kit: Kit) -> None:
        """One that is ready too late is ended, and no more are started."""
        await python.start()
        workers = python.workers
        assert workers is not None
        starting = asyncio.create_task(asyncio.to_thread(workers.start))
        await until(lambda: workers.starting)
        await python.aclose()
        await starting
        assert workers.ready == []
        assert not [child for child in psutil.Process().children() if "workers.main" in " ".join(child.cmdline())]


async def test_a_large_value_is_passed_on_as_json(python: PythonLanguage, workers: Workers, kit: Kit) -> None:
    """A host that wants it so gets the JSON text that the worker has written, with the files that the program made; a small
    value, and an error, are as ever."""
    AS_JSON.set(True)
    large = await python.execute(kit.request("open('a.txt', 'w').write('a')\nreturn ['é', 'x' * 100_000]"))
    assert isinstance(large.value, JSONText)
    assert (json.loads(large.value.text), large.files) == (["é", "x" * 100_000], {"a.txt": b"a"})
    assert (await python.execute(kit.request("return ['é']"))).value == ["é"]
    failed = await python.execute(kit.request("raise ValueError('x' * 100_000)"))
    assert (failed.value, failed.error is not None) == (None, True)
