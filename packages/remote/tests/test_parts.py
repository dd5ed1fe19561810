"""What each of several processes behind one port may have, and which of them a connection is for."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from packages.remote.tests.servers import KEY
from tests.waiting import until

from toolexec.errors import ConfigurationError, SandboxUnavailableError
from toolexec.remote import RuntimeServerSettings, TenantQuota
from toolexec_remote.homes import home_of, new_run
from toolexec_remote.server.member import HERE_NUMBER, Member

MINE, THEIRS, FORMER = ("a" * 64, "b" * 64, "c" * 64)


@asynccontextmanager
async def member(directory: Path) -> AsyncGenerator[Member]:
    """The first of two processes, which knows the other one."""
    ours, theirs = socket.socketpair()
    first = {"number": 1, "count": 2, "token": "t", "sockets": [], "directory": str(directory)}
    known = {"numbers": {MINE: 1, THEIRS: 2, FORMER: 2}, "there": {"1": MINE, "2": THEIRS}, "ready": []}
    with ours:
        ours.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in (first, known)))
        found = await Member.join(theirs.detach())
        try:
            await until(lambda: bool(found.others), 0.01)
            yield found
        finally:
            await found.aclose()


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"max_running": 2}, "max_running"), ({"max_held": 40 << 20}, "max_held")],
    ids=["places", "bytes"],
)
def test_there_must_be_enough_for_each_process(fields: dict[str, Any], message: str) -> None:
    """A process that could run nothing, or hold no request, is refused when the settings are made."""
    with pytest.raises(ConfigurationError, match=message):
        RuntimeServerSettings(keys=[KEY], processes=3, **fields)


def test_the_processes_divide_what_the_settings_allow() -> None:
    """Together they have as many places as one would have, and no tenant is left without any."""
    quota = TenantQuota(running=1, rate=9.0, held=600, messages=300.0)
    whole = RuntimeServerSettings(
        keys=[KEY], processes=3, max_running=8, max_queued=10, max_held=99 << 20, quota=quota, state_directory="s"
    )
    parts = [whole.part(number) for number in (1, 2, 3)]
    assert [part.max_running for part in parts] == [3, 3, 2]
    assert {(part.max_queued, part.max_held, part.processes) for part in parts} == {(4, 33 << 20, 1)}
    assert [part.state_directory for part in parts] == ["s/process-1", "s/process-2", "s/process-3"]
    assert parts[0].quota == TenantQuota(running=1, rate=3.0, held=200, messages=100.0)
    assert {home_of(new_run(number, 3), 3) for number in (1, 2, 3)} == {1, 2, 3}


@pytest.mark.parametrize(
    ("lines", "number"),
    [
        ("", HERE_NUMBER),
        (f"X-Toolruntime-Incarnation: {THEIRS}\r\n", 2),
        (f"x-toolruntime-incarnation:{FORMER}\r\n", 2),
        (f"X-Toolruntime-Incarnation: {MINE}\r\n", HERE_NUMBER),
        (f"X-Toolruntime-Incarnation: {MINE}\r\nX-Toolruntime-Process: 2\r\n", HERE_NUMBER),
        ("X-Toolruntime-Process: 2\r\n", 2),
        ("X-Toolruntime-Process: 1\r\n", HERE_NUMBER),
        ("X-Toolruntime-Process: 3\r\n", HERE_NUMBER),
        ("X-Toolruntime-Process: -1\r\n", HERE_NUMBER),
        ("X-Toolruntime-Process: \xb2\r\n", HERE_NUMBER),
        (f"X-Toolruntime-Process: {'9' * 5000}\r\n", HERE_NUMBER),
    ],
)
async def test_the_head_of_a_request_says_for_whom_it_is(tmp_path: Path, lines: str, number: int) -> None:
    """The number is known when the head is complete, not before; a former process is the one that has its state."""
    head = f"GET /v1/execute/identity HTTP/1.1\r\nHost: x\r\n{lines}\r\n".encode("latin-1")
    async with member(tmp_path) as first:
        assert all(first.number_for(head[:size]) is None for size in range(0, len(head) - 1, 7))
        assert first.number_for(head) == number
        assert first.number_for(b"x" * (64 << 10)) == HERE_NUMBER


async def test_a_run_belongs_to_the_process_that_its_id_names(tmp_path: Path) -> None:
    """The wrong process says for whom to sign, and while that one is away that it may be tried again."""
    async with member(tmp_path) as first:
        first.check_home(new_run(1, 2))
        with pytest.raises(SandboxUnavailableError) as refused:
            first.check_home(new_run(2, 2))
        assert (refused.value.code, refused.value.details) == ("wrong_incarnation", {"incarnation": THEIRS})


async def test_a_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    """The other side is gone, or sends something that makes no sense: it ends in good order."""
    for last in (b"", b"nonsense\n"):
        ours, theirs = socket.socketpair()
        ours.sendall(
            json.dumps({"number": 1, "count": 2, "token": "t", "sockets": [], "directory": "x"}).encode() + b"\n"
        )
        found, ended = await Member.join(theirs.detach()), asyncio.Event()
        found.on_end = ended.set
        ours.sendall(last)
        ours.close()
        await ended.wait()
        assert found.is_ending
        await found.aclose()
