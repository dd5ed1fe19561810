"""Connections over the standard streams of child processes."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import psutil
import pytest
from tests.waiting import until

from toolexec.errors import ConnectionClosedError, ProtocolError, SandboxUnavailableError
from toolexec.runtime.protocol.stdio import ProcessConnection, start_process

ECHO = """
import asyncio, os, sys
from toolexec.errors import ConnectionClosedError
from toolexec.runtime.protocol.stdio import own_stdio

async def main():
    connection = await own_stdio()
    print("a stray print")
    os.write(1, b"and one past Python")
    assert sys.stdin.read() == ""
    try:
        while True:
            await connection.send(await connection.receive())
    except ConnectionClosedError:
        await connection.aclose()

asyncio.run(main())
"""


async def start(program: str, *arguments: str, **settings: object) -> ProcessConnection:
    """A child that runs *program*."""
    env = {"PATH": os.environ["PATH"], **{key: value for key, value in os.environ.items() if key.startswith("COV")}}
    return await start_process([sys.executable, "-c", program, *arguments], env=env, **settings)  # type: ignore[arg-type]


async def test_a_child_that_talks() -> None:
    """Frames go both ways, large ones too; what the child prints does not get between them."""
    child = await start(ECHO)
    for frame in (b"one", b"", os.urandom(2 << 20)):
        await child.send(frame)
        assert await child.receive() == frame
    assert child.exit_code is None
    await child.aclose()
    assert child.exit_code == 0


async def test_a_child_inherits_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an environment of its own it gets PATH alone."""
    monkeypatch.setenv("TOKEN_OF_THE_HOST", "xyzzy")
    program = "import os, sys; names = ' '.join(sorted(os.environ)); sys.stdout.buffer.write(len(names).to_bytes(4, 'big') + names.encode())"
    child = await start_process([sys.executable, "-I", "-c", program])
    assert set((await child.receive()).decode().split()) <= {"PATH", "LC_CTYPE"}
    await child.aclose()


async def test_a_child_that_ends() -> None:
    """The connection is closed, and how it ended can be read."""
    child = await start("import sys; sys.exit(3)")
    with pytest.raises(ConnectionClosedError):
        await child.receive()
    await child.aclose()
    assert child.exit_code == 3
    with pytest.raises(ConnectionClosedError):
        await child.send(b"x")


async def test_a_child_that_writes_nonsense() -> None:
    """Text on stdout is taken for the length of a frame, and that is far too large."""
    child = await start("print('hello there'); input()")
    with pytest.raises(ProtocolError, match="over the limit"):
        await child.receive()
    await child.aclose()


async def test_a_child_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills the child and its descendants, even when those hold the pipes open."""
    monkeypatch.setattr("toolexec.runtime.protocol.stdio._GRACE", 0.2)
    program = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
data = str(child.pid).encode()
sys.stdout.buffer.write(len(data).to_bytes(4, "big") + data)
sys.stdout.buffer.flush()
time.sleep(600)
"""
    child = await start(program)
    grandchild = int(await child.receive())
    await child.aclose()
    assert child.exit_code == -9
    async with asyncio.timeout(10):
        await until(
            lambda: not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE
        )


async def test_a_child_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unread output does not hold up the end."""
    monkeypatch.setattr("toolexec.runtime.protocol.stdio._GRACE", 0.2)
    monkeypatch.setattr("toolexec.runtime.protocol.connections._GRACE", 0.2)
    child = await start("import time; time.sleep(600)")
    stuck = asyncio.ensure_future(child.send(b"x" * (4 << 20)))
    await asyncio.sleep(0.05)
    await child.aclose()
    with pytest.raises(ConnectionClosedError):
        await stuck


@pytest.mark.parametrize("command", [["/no/such/program"], ["a\0b"]], ids=["unknown", "not a name"])
async def test_a_command_that_cannot_be_started(command: list[str]) -> None:
    """The error names it."""
    with pytest.raises(SandboxUnavailableError, match="cannot start"):
        await start_process(command)


async def test_a_working_directory(tmp_path: Path) -> None:
    """The child begins where it is told."""
    program = "import os, sys; d = os.getcwd().encode(); sys.stdout.buffer.write(len(d).to_bytes(4, 'big') + d)"
    child = await start(program, cwd=tmp_path)
    assert (await child.receive()).decode() == str(tmp_path)
    await child.aclose()
