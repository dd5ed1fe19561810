"""Memory that guests leave to the next ones: reset, bounded, and given back."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.wasm.conftest import TestHost
from tests.waiting import until_blocking

from toolexec.runtime.wasm.engine import SLOT_BYTES
from toolexec.runtime.wasm.guest import InstanceSettings
from toolexec.runtime.wasm.instance import THREAD_STACK_BYTES, Instance, Program
from toolexec.runtime.wasm.pool import GuestPool
from toolexec.runtime.wasm.programs import load_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="slots are for Linux")

MARK = bytes(byte ^ 0x5A for byte in b"left by the run before")
LEAVE = """
import builtins, json, os, sys
mark = bytes(byte ^ 0x5A for byte in b"left by the run before")
builtins.left = json.left = mark.hex()
sys.modules["left"] = sys
os.environ["LEFT"] = mark.hex()
open("left", "wb").write(mark)
os.makedirs("/tmp/left", exist_ok=True)
kept = [(mark + bytes([count % 251])) * 45_000 for count in range(80)]
lost = [(mark + bytes([count % 251])) * 45_000 for count in range(20)]
del lost
return len(kept)
"""
LOOK = """
import builtins, json, os, sys
found = [hasattr(builtins, "left"), hasattr(json, "left"), "left" in sys.modules, "LEFT" in os.environ, "kept" in globals()]
return [*found, os.listdir("."), os.path.exists("/tmp/left")]
"""


@pytest.fixture(scope="module")
def python() -> Program:
    """The sandbox for Python, loaded once."""
    return load_program()


@pytest.fixture
def one(python: Program) -> Iterator[GuestPool]:
    """A pool with one slot, and nothing pre-warmed."""
    pool = GuestPool(python, 0, SLOT_BYTES)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def threads() -> Iterator[Executor]:
    """A thread with a stack for guests."""
    import threading

    size = threading.stack_size(2 * THREAD_STACK_BYTES)
    try:
        with ThreadPoolExecutor(1) as executor:
            executor.submit(int).result()
            threading.stack_size(size)
            yield executor
    finally:
        threading.stack_size(size)


def run(threads: Executor, instance: Instance, code: str) -> Any:
    """Return the value of a program, which must succeed."""

    def _run() -> Any:
        instance.prepare(InstanceSettings(), TestHost(), lambda *_: None)
        payload = {"code": code, "cwd": "/workspace", "output_limit": 1000, "seed": 5}
        return json.loads(instance.run(json.dumps({"type": "execute", "id": "1", "payload": payload})))["payload"]

    answer = threads.submit(_run).result(60)
    assert "error" not in answer or answer["error"] is None, answer
    return answer["value"]


def areas() -> list[tuple[int, int]]:
    """Start and end of each part of this process's memory that can be read and written.

    The heap is left out: it has copies that the test itself has read.
    """
    lines = Path("/proc/self/maps").read_text().splitlines()
    found = [re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line) for line in lines if not line.endswith("[heap]")]
    return [(int(match[1], 16), int(match[2], 16)) for match in found if match]


def marked(*within: tuple[int, int]) -> list[tuple[int, int]]:
    """Those parts in which the mark is many times; all that overlap *within*, if given, and if it is there at all."""
    found: list[tuple[int, int]] = []
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for start, end in areas():
            if within and not any(start < stop and begin < end for begin, stop in within):
                continue
            if not within and end - start < 16 << 20:
                continue
            count = 0
            for position in range(start, end, 1 << 20):
                memory.seek(position)
                count += memory.read(min(1 << 20, end - position)).count(MARK)
            if count > (0 if within else 10_000):
                found.append((start, end))
    return found


def kept_bytes(within: list[tuple[int, int]]) -> int:
    """Bytes of memory that the parts take which overlap *within*."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
        if match:
            start, end = int(match[1], 16), int(match[2], 16)
            inside = any(start < stop and begin < end for begin, stop in within)
        elif inside and line.startswith("Rss:"):
            total += int(line.split()[1]) << 10
    return total


def test_nothing_is_left_for_the_next_guest(one: GuestPool, threads: Executor) -> None:
    """No byte of a guest's memory, no global and no file is there for the next one in its slot."""
    first = one.make()
    assert run(threads, first, LEAVE) == 80
    where = marked()
    assert where
    first.close()
    assert marked(*where) == []
    second = one.make()
    try:
        assert marked(*where) == []
        assert run(threads, second, LOOK) == [False] * 5 + [[], False]
        assert run(threads, second, "return 'a' * 100_000_000 > ''")
        assert kept_bytes(where) > 100_000_000  # it is the same slot
    finally:
        second.close()


def test_an_idle_slot_keeps_no_more_than_it_may(one: GuestPool, threads: Executor) -> None:
    """A large guest's memory is given back to the system when it ends, but for that of a slot."""
    guest = one.make()
    run(threads, guest, LEAVE)
    where = marked()
    large = kept_bytes(where)
    guest.close()
    assert kept_bytes(where) <= SLOT_BYTES < large


def test_closing_gives_the_slots_back(one: GuestPool, threads: Executor) -> None:
    """When the pool is closed and its last guest has ended, the addresses are free."""
    guest = one.make()
    run(threads, guest, LEAVE)
    where = marked()
    one.close()
    assert kept_bytes(where)
    guest.close()
    del guest
    until_blocking(lambda: kept_bytes(where) == 0)  # the thread that ran it lets its last task go a moment later


def test_guests_beyond_the_slots_have_memory_of_their_own(one: GuestPool, threads: Executor) -> None:
    """There are as many guests as callers want; one that lasts leaves the slot to others."""
    slots = one._slots
    assert slots is not None
    guests = [one.make(lasting=True)]
    assert slots._free == 1
    guests += [one.make(), one.make()]
    assert slots._free == 0
    assert [run(threads, guest, "return 1") for guest in guests] == [1, 1, 1]
    for guest in guests:
        guest.close()
        guest.close()
    assert slots._free == 1


def test_without_slots(python: Program, threads: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without slots, guests run all the same."""
    monkeypatch.setattr("toolexec.runtime.wasm.instance.can_have_slots", lambda count: False)
    for pool in (GuestPool(python, 0, 4 * SLOT_BYTES), GuestPool(python, 0, 0)):
        assert pool._slots is None
        guest = pool.make()
        assert run(threads, guest, "return 1") == 1
        guest.close()
        pool.close()


@pytest.mark.parametrize("name", ["_ELEMENTS", "_INSTANCES"])
def test_a_component_that_needs_more(
    name: str, python: Program, threads: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A component that does not fit into slots runs without them."""
    monkeypatch.setattr(f"toolexec.runtime.wasm.ffi.{name}", 1)
    pool = GuestPool(python, 0, SLOT_BYTES)
    guest = pool.make()
    assert run(threads, guest, "return 1") == 1
    assert pool._slots is None
    guest.close()
    pool.close()
