"""Worker processes and the process that has them: none outlives it, and a fork leaves them to the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from tests.waiting import until_blocking

from toolexec.runtime.wasm.programs import load_program
from toolexec.runtime.wasm.workers.lost import WorkerLostError
from toolexec.runtime.wasm.workers.process import WorkerProcess, can_start

pytestmark = [pytest.mark.full, pytest.mark.skipif(not can_start(), reason="there are no workers on this system")]

HOST = """
import asyncio
from toolexec import Exec
from toolexec.runtime.wasm import WasmBackend

async def main():
    backend = WasmBackend(workers=2)
    ex = Exec(runtime_backends=[backend])
    await backend.start()
    language = backend._python()
    await asyncio.to_thread(language.workers.start)
    language.company = 0
    print((await ex.execute_code("40 + 2")).value, *(worker.pid for worker in language.workers.ready), flush=True)
    {then}

asyncio.run(main())
"""


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    """One worker."""
    file = load_program().file
    assert file is not None
    worker = WorkerProcess(file, core=None, idle_bytes=0, most_bytes=1 << 20)
    yield worker
    worker.end()


@pytest.mark.parametrize(
    "then", ["return", "import os; os._exit(3)", "import sys; sys.exit(1)", "await asyncio.sleep(60)"]
)
def test_no_worker_outlives_its_host(then: str) -> None:
    """The host is given on stdin, does not close its sandbox, and returns, exits, or is killed."""
    host = subprocess.Popen([sys.executable, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert host.stdin is not None
        assert host.stdout is not None
        host.stdin.write(HOST.replace("{then}", then).encode())
        host.stdin.close()
        value, *pids = host.stdout.readline().split()
        assert (value, len(pids)) == (b"42", 2)
        if "sleep" in then:
            host.kill()
        host.wait(60)
        until_blocking(lambda: not any(psutil.pid_exists(int(pid)) for pid in pids))
    finally:
        host.kill()
        host.wait()
        assert host.stdout is not None
        host.stdout.close()


def test_a_forked_child_leaves_it_alone(worker: WorkerProcess) -> None:
    """Neither its exit nor what it does with the worker ends that of the parent."""
    child = os.fork()
    if not child:
        worker.end()
        os._exit(0 if not worker.is_alive() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert worker.is_alive()
    lane = worker.open()
    worker.give_back(lane)
    assert worker.open() is lane
    lane.line.socket.close()


def test_how_it_ended(worker: WorkerProcess) -> None:
    """By which signal, for those who wait and for those who come too late."""
    ends: list[str] = []
    worker.add_listener(ends.append)
    os.kill(worker.pid, signal.SIGTERM)
    until_blocking(lambda: ends)
    assert ends == ["its worker process was killed by SIGTERM"]
    worker.add_listener(ends.append)
    assert ends[1:] == ends[:1]
    with pytest.raises(WorkerLostError, match="SIGTERM"):
        worker.open()


def test_one_that_cannot_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exit is reported, and nothing of it is left."""
    monkeypatch.setattr("toolexec.runtime.wasm.workers.process._PROGRAM", "raise SystemExit(7)")
    file = load_program().file
    assert file is not None
    with pytest.raises(WorkerLostError, match="exit code 7"):
        WorkerProcess(file, core=None, idle_bytes=0, most_bytes=1 << 20)


def test_the_environment_is_not_passed_on(worker: WorkerProcess) -> None:
    """Only what the interpreter needs to load."""
    assert psutil.Process(worker.pid).environ().keys() <= {"LD_LIBRARY_PATH", "LC_CTYPE"}


def test_priorities_are_those_of_its_host(worker: WorkerProcess) -> None:
    """A worker is in the session of its host, as the kernel compares priorities within a session alone
    (`sched_autogroup`), but in a process group of its own: Ctrl-C is for the host."""
    assert os.getsid(worker.pid) == os.getsid(0)
    assert os.getpgid(worker.pid) == worker.pid
