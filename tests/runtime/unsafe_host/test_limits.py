"""Limits on a run of the unsafe backend, and what it says about them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.engines.programs import has_ended

from toolexec.code.limits import Limits
from toolexec.errors import CodeError, LimitExceededError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits are held on Linux only")
MB = 1 << 20

BURN = "sum(i * i for i in range(10 ** 11))"


def resource_of(result: Any) -> str:
    assert isinstance(result.error, LimitExceededError), result.error
    return result.error.details["resource"]


async def test_what_is_enforced_is_said_truthfully(host: Any) -> None:
    """A limit that is watched from outside can be passed unseen, so it is a best effort and not enforced."""
    enforced = host.backend.enforces(host.request("1")).to_dict()
    assert enforced == {
        "timeout": True,
        "tool_calls": True,
        "chain_steps": True,
        "memory": False,
        "cpu": False,
        "cpus": False,
        "pids": False,
        "disk": False,
    }


async def test_memory_is_bounded_in_the_program(host: Any) -> None:
    """An uncaught MemoryError means the limit."""
    result = await host.run("x = bytearray(500 << 20)", limits=Limits(memory_bytes=100 * MB))
    assert resource_of(result) == "memory"


async def test_a_program_may_go_on_after_a_memory_error(host: Any) -> None:
    """The line to the host needs no memory that the program could take away."""
    code = """
try:
    x = bytearray(500 << 20)
except MemoryError:
    return tools.math.add(a=1, b=1)
"""
    assert await host.value(code, limits=Limits(memory_bytes=100 * MB)) == 2


async def test_memory_within_the_limit_is_there(host: Any) -> None:
    """The interpreter's own does not count."""
    assert await host.value("len(bytearray(80 << 20))", limits=Limits(memory_bytes=100 * MB)) == 80 * MB


async def test_memory_is_bounded_over_all_processes(host: Any) -> None:
    """Ten children within the limit each are over it together."""
    code = """
import os, time
for _ in range(10):
    if os.fork() == 0:
        x = b"x" * (30 << 20)
        time.sleep(1000)
time.sleep(1000)
"""
    assert resource_of(await host.run(code, limits=Limits(memory_bytes=100 * MB))) == "memory"


async def test_cpu_time_is_bounded(host: Any) -> None:
    """A tight loop ends with its CPU time, long before its time limit."""
    assert resource_of(await host.run(BURN, limits=Limits(cpu_ms=300))) == "cpu"


@pytest.mark.full
async def test_cpu_time_is_bounded_over_all_processes(host: Any) -> None:
    """Children that come and go add up."""
    code = """
import subprocess, sys
while True:
    subprocess.run([sys.executable, "-c", "sum(range(2_000_000))"])
"""
    assert resource_of(await host.run(code, limits=Limits(cpu_ms=700))) == "cpu"


async def test_sleeping_costs_no_cpu_time(host: Any) -> None:
    """The budget is one of work, not of time."""
    assert await host.value("import time\ntime.sleep(0.6)\n1", limits=Limits(cpu_ms=400)) == 1


async def test_the_number_of_processes_is_bounded(host: Any) -> None:
    """A fork bomb ends with its processes, long before its time limit."""
    code = """
import os, time
while True:
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(1000)
    time.sleep(0.001)
"""
    result = await host.run(code, limits=Limits(pids=20))
    assert resource_of(result) == "pids"
    assert [line for line in result.stdout.split() if not has_ended(int(line))] == []


async def test_some_processes_are_fine(host: Any) -> None:
    """Up to the limit."""
    code = "import subprocess\nreturn subprocess.run(['echo', 'hi'], capture_output=True, text=True).stdout"
    assert await host.value(code, limits=Limits(pids=5)) == "hi\n"


async def test_a_file_is_bounded_though_the_disk_is_not(host: Any) -> None:
    """The kernel bounds one file; that is why disk is not reported as enforced."""
    result = await host.run("open('f', 'wb').write(b'x' * (2 << 20))", limits=Limits(disk_bytes=MB), best_effort=True)
    assert isinstance(result.error, CodeError)
    assert "File too large" in str(result.error)


@pytest.mark.full
async def test_a_session_gets_its_cpu_time_again_with_each_run(host: Any) -> None:
    """CPU time of earlier runs does not count."""
    session = await host.backend.open_session(host.request("None"))
    code = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n1"
    for _ in range(4):
        result = await session.execute(host.request(code, limits=Limits(cpu_ms=900)))
        assert result.value == 1, result.error
    result = await session.execute(host.request(BURN, limits=Limits(cpu_ms=300)))
    assert resource_of(result) == "cpu"
    await session.aclose()


async def test_limits_of_one_run_in_a_session_do_not_bind_the_next(host: Any) -> None:
    """Memory that one run may not have, the next may."""
    session = await host.backend.open_session(host.request("None"))
    code = "x = bytearray(300 << 20)\nlen(x)"
    first = await session.execute(host.request(code, limits=Limits(memory_bytes=100 * MB)))
    assert resource_of(first) == "memory"
    second = await session.execute(host.request(code))
    assert second.value == 300 * MB
    await session.aclose()


@pytest.mark.parametrize("language", ["bash", "javascript"])
async def test_limits_hold_for_other_languages(host: Any, language: str) -> None:
    """CPU time and memory, whatever runs."""
    loops = {"bash": "while :; do :; done", "javascript": "while (true) {}"}
    assert resource_of(await host.run(loops[language], language=language, limits=Limits(cpu_ms=400))) == "cpu"
    if language == "javascript":
        hog = "const all = []; while (true) all.push(Buffer.alloc(1 << 20, 1))"
        result = await host.run(hog, language=language, limits=Limits(memory_bytes=200 * MB))
        assert resource_of(result) == "memory"
