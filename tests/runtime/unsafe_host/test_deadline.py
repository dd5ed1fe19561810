"""Code on the host ends at its deadline, with all that it has started."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.engines.programs import has_ended

from toolexec.errors import (
    CodeTimeoutError,
)
from toolexec.runtime.unsafe_host.backend import UnsafeHostBackend


@pytest.mark.full
@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time\ntime.sleep(1000)",
        "tools.test.wait()",
        "await tools.test.wait()",
        "import re\nre.match(r'(a+)+$', 'a' * 50 + 'b')",
        "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\nwhile True: pass",
    ],
    ids=["loop", "sleep", "call", "await", "regex", "deaf"],
)
async def test_a_program_is_stopped_at_its_deadline(host: Any, code: str) -> None:
    """Whatever it does; what it printed and called is there, and no process is left."""
    code = "import os\nprint(os.getpid(), flush=True)\ntools.math.add(a=1, b=1)\n" + code
    result = await host.run(code, timeout=0.7)
    assert isinstance(result.error, CodeTimeoutError)
    assert result.tool_calls[0].value == 2
    assert has_ended(int(result.stdout))
    assert result.limits_enforced.timeout


async def test_a_deadline_before_the_guest_is_up_is_a_deadline(host: Any) -> None:
    """The whole run has one time limit, and the error says that the program had not begun."""
    result = await host.run("1", timeout=0.001)
    assert isinstance(result.error, CodeTimeoutError)
    assert result.error.message.startswith(
        "limit exceeded: the code had not begun after 0.001 s, which went into preparing"
    )
    assert result.error.details == {"timeout": 0.001}


async def test_a_compiler_that_takes_too_long_is_told(
    host: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first compilation on a cold machine can take all of the time: the limit is named, and what used it up."""
    compiler = tmp_path / "go"
    compiler.write_text("#!/bin/sh\n[ $1 = version ] && echo go version go1.21.0 linux/amd64 || exec sleep 1000\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    result = await host.run("return 1", language="go", timeout=1.5)
    assert isinstance(result.error, CodeTimeoutError)
    assert "had not begun after 1.5 s" in result.error.message
    assert "compiling" in result.error.message
    assert result.error.details == {"timeout": 1.5}


@pytest.mark.full
async def test_grandchildren_that_hide_are_ended_too(host: Any) -> None:
    """Deaf ones, those in a session of their own, and daemons whose parents are gone."""
    code = """
import os, subprocess, sys
hidden = "import os, signal, time; signal.signal(15, 1); print(os.getpid(), flush=True); time.sleep(1000)"
ask = dict(stdout=subprocess.PIPE, text=True)
plain = subprocess.Popen([sys.executable, "-c", hidden], **ask)
apart = subprocess.Popen([sys.executable, "-c", hidden], start_new_session=True, **ask)
bare = subprocess.Popen([sys.executable, "-c", hidden], start_new_session=True, env={}, **ask)
daemon = subprocess.Popen(
    [sys.executable, "-c", f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {hidden!r}], start_new_session=True)"],
    **ask)
pids = [int(child.stdout.readline()) for child in (plain, apart, bare, daemon)]
daemon.wait()
print(*pids)
while True: pass
"""
    result = await host.run(code, timeout=3)
    pids = [int(word) for word in result.stdout.split()]
    assert len(pids) == 4
    assert [pid for pid in pids if not has_ended(pid)] == []


@pytest.mark.full
async def test_a_fork_bomb_ends_with_its_time(host: Any) -> None:
    """The group goes as one."""
    code = """
import os, time
root = os.getpid()
for _ in range(7):
    os.fork()
os.write(1, b"%d\\n" % os.getpid())
while True: time.sleep(10)
"""
    result = await host.run(code, timeout=2)
    assert isinstance(result.error, CodeTimeoutError)
    pids = [int(line) for line in result.stdout.split()]
    assert len(pids) > 1
    assert [pid for pid in pids if not has_ended(pid)] == []


async def test_background_processes_end_with_the_run(host: Any) -> None:
    """Background processes end even when the program itself has ended well."""
    code = "import subprocess\nreturn subprocess.Popen(['sleep', '1000']).pid"
    assert has_ended(await host.value(code))


async def test_many_runs_at_once_do_not_mix(host: Any) -> None:
    """Each has its own tools, output and directory."""
    results = await asyncio.gather(*(host.run(f"print({n})\nopen('f', 'w').write('{n}')\n{n}") for n in range(6)))
    assert [(r.value, r.stdout, r.files) for r in results] == [(n, f"{n}\n", {"f": b"%d" % n}) for n in range(6)]


async def test_closing_twice_is_fine() -> None:
    """As with everything that has aclose."""
    backend = UnsafeHostBackend()
    await backend.aclose()
    await backend.aclose()
