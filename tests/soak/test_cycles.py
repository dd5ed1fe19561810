"""Many runs in a row leave nothing behind: no process, descriptor, control group or directory, and no growing memory."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from tests.engines.backends import (  # noqa: F401 - fixtures
    KINDS,
    containerd_daemon,
    kube_cluster,
    kube_namespace,
    maker,
)
from tests.engines.docker import DockerDaemon, docker_daemon  # noqa: F401 - a fixture
from tests.waiting import until

from toolexec import Exec
from toolexec.process.owner import this_owner

pytestmark = [pytest.mark.soak, pytest.mark.anyio]

MEBIBYTE = 1 << 20
PROGRAM = "print('hi')\nreturn tools.math.add(a=1, b=2)"


def traces() -> dict[str, set[str]]:
    """Collect what runs leave on a machine where they do not clean up."""
    return {
        "processes": {str(child.pid) for child in psutil.Process().children(recursive=True)},
        "control groups": {str(path) for path in Path("/sys/fs/cgroup").glob(f"**/toolexec/{this_owner()}-*")},
        "directories": {str(path) for path in Path(tempfile.gettempdir()).glob("toolexec-*")},
    }


def resident() -> int:
    """Measure this process's memory, in bytes."""
    gc.collect()
    return psutil.Process().memory_info().rss


async def run_many(ex: Exec, times: int) -> None:
    """Run a program with one tool call, again and again."""
    for _ in range(times):
        result = await ex.execute_code(PROGRAM)
        assert (result.error, result.value, result.stdout) == (None, 3, "hi\n")


async def test_embedded_runs() -> None:
    """3,000 runs of the embedded sandbox grow memory by less than 64 MiB after the first 300."""
    async with Exec() as ex:
        ex.add(lambda a, b: a + b, "math:add")
        await run_many(ex, 300)
        before, descriptors, memory = traces(), len(os.listdir("/proc/self/fd")), resident()
        await run_many(ex, 3_000)
        assert traces() == before
        assert len(os.listdir("/proc/self/fd")) <= descriptors + 3
        assert resident() < memory + 64 * MEBIBYTE


@pytest.mark.parametrize("kind", KINDS)
async def test_container_runs(kind: str, request: pytest.FixtureRequest) -> None:
    """500 runs of each container sandbox, five at a time, leave nothing; of machines in software, 200."""
    runs = 40 if kind == "qemu" else 100
    async with Exec(runtime_backends={"standard": [maker(kind, request)()]}) as ex:
        ex.add(lambda a, b: a + b, "math:add")
        await run_many(ex, 5)
        groups, descriptors = traces()["control groups"], len(os.listdir("/proc/self/fd"))
        await asyncio.gather(*(run_many(ex, runs) for _ in range(5)))
        async with asyncio.timeout(60):
            await until(lambda: traces()["control groups"] <= groups, 0.1)
        assert len(os.listdir("/proc/self/fd")) < descriptors + 20


async def test_open_and_close() -> None:
    """An Exec with an MCP server is opened and closed 200 times."""
    server = [sys.executable, "-m", "mcp_server_time"]

    async def cycle() -> None:
        async with Exec() as ex:
            await ex.add_mcp("time", command=server)
            result = await ex.run_tool("time:get_current_time", {"timezone": "UTC"})
            assert result.ok

    await cycle()
    before, descriptors = traces(), len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        await cycle()
    assert traces() == before
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 3
