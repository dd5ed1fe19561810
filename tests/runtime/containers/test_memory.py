"""Sandboxes start only while the host has memory for what they may take, in the order of arrival."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest

from toolexec.code.types import ExecuteRequest
from toolexec.errors import SandboxUnavailableError
from toolexec.process.memory import available_memory
from toolexec.runtime.containers.backend import ContainerBackend
from toolexec.runtime.containers.config import ContainerConfig
from toolexec.runtime.containers.engine import Image
from toolexec.runtime.containers.memory import HostMemory
from toolexec.runtime.containers.spec import ContainerSpec

pytestmark = pytest.mark.anyio
MIB = 1 << 20


class Host:
    """A host with memory as it is set here, None for one that does not say."""

    def __init__(self, available_mib: int | None) -> None:
        self.available_mib = available_mib

    def __call__(self) -> int | None:
        return None if self.available_mib is None else self.available_mib * MIB


def memory(host: Host) -> HostMemory:
    return HostMemory(host, reserve=100 * MIB, pause=0.001)


def later() -> float:
    return monotonic() + 60


async def test_what_was_promised_counts_though_it_is_not_used_yet() -> None:
    """Machines that have just started take nothing, and may take all of it."""
    room = memory(Host(1000))
    shares = [await room.admit(300 * MIB, later()) for _ in range(3)]
    with pytest.raises(SandboxUnavailableError):
        await room.admit(300 * MIB, monotonic())
    shares[0].release()
    shares[0].release()
    shares[0] = await room.admit(300 * MIB, monotonic())
    for share in shares:
        share.release()
    assert room.promised == 0


async def test_the_refusal_has_the_numbers() -> None:
    """Says that a retry is safe, and how much is there, wanted and promised."""
    room = memory(Host(1000))
    share = await room.admit(600 * MIB, later())
    with pytest.raises(
        SandboxUnavailableError, match=r"may take 400 MiB.*1000 MiB are available.*600 of 1000"
    ) as caught:
        await room.admit(400 * MIB, monotonic() + 0.01, "qemu")
    assert caught.value.retryable
    assert caught.value.details == {
        "reason": "host_memory",
        "needed_bytes": 400 * MIB,
        "reserve_bytes": 100 * MIB,
        "available_bytes": 1000 * MIB,
        "promised_bytes": 600 * MIB,
    }
    share.release()


async def test_others_on_the_host_take_memory_too() -> None:
    """Waits until they have given it back."""
    host = Host(300)
    room = memory(host)
    waiting = asyncio.create_task(room.admit(300 * MIB, later()))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    host.available_mib = 400
    (await waiting).release()


async def test_a_sandbox_may_have_a_reserve_of_its_own() -> None:
    """More stays free beside it than beside others."""
    room = memory(Host(1000))
    with pytest.raises(SandboxUnavailableError, match="500 MiB stay free") as caught:
        await room.admit(501 * MIB, monotonic(), reserve=500 * MIB)
    assert caught.value.details["reserve_bytes"] == 500 * MIB
    (await room.admit(500 * MIB, monotonic(), reserve=500 * MIB)).release()
    (await room.admit(1000 * MIB, monotonic(), reserve=0)).release()


async def test_what_this_host_has_is_measured() -> None:
    """Nothing that this machine cannot hold is admitted on it, and what it can is."""
    room = HostMemory()
    available = available_memory()
    if available is None:
        pytest.skip("this system does not say how much memory is available")
    with pytest.raises(SandboxUnavailableError, match="too little memory") as caught:
        await room.admit(1 << 50, monotonic(), "qemu")
    assert caught.value.details["available_bytes"] > 0
    (await room.admit(MIB, monotonic(), reserve=0)).release()


async def test_the_first_who_waits_is_the_first_admitted() -> None:
    """A small one does not pass a large one that waits; a large one that gives up lets it go on."""
    room = memory(Host(1000))
    share = await room.admit(600 * MIB, later())
    large = asyncio.create_task(room.admit(800 * MIB, later()))
    await asyncio.sleep(0.01)
    small = asyncio.create_task(room.admit(100 * MIB, later()))
    await asyncio.sleep(0.01)
    assert not small.done()
    large.cancel()
    (await small).release()
    share.release()
    assert room.promised == 0


async def test_a_host_that_does_not_say_admits_all() -> None:
    room = memory(Host(None))
    for _ in range(100):
        await room.admit(1 << 40, monotonic())


class FakeEngine:
    """An engine whose containers may take 300 MiB each, and never start."""

    drops: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    started = 0
    memory_reserve = 100 * MIB

    def host_memory(self, spec: ContainerSpec) -> int:
        return 300 * MIB

    async def resolve(self, image: str) -> Image:
        return Image(name=image, reference=image)

    async def start(self, image: Any, spec: ContainerSpec) -> Any:
        self.started += 1
        raise SandboxUnavailableError("it does not start")

    async def aclose(self) -> None: ...


async def test_a_run_waits_for_memory_within_its_time_limit() -> None:
    """Nothing is started before there is memory; what was promised to a container that fails to start is returned."""
    engine, host = FakeEngine(), Host(399)
    backend = ContainerBackend(engine, ContainerConfig(), kind="x", isolation="vm")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    backend.memory = memory(host)
    request = ExecuteRequest(code="1", timeout=0.05)
    with pytest.raises(SandboxUnavailableError, match="too little memory") as caught:
        await backend.execute(request)
    assert caught.value.retryable
    assert caught.value.backend == "x"
    assert engine.started == 0
    host.available_mib = 400
    with pytest.raises(SandboxUnavailableError, match="does not start"):
        await backend.execute(replace(request, timeout=60.0))
    assert engine.started == 1
    assert backend.memory.promised == 0
    assert backend.running == 0
    await backend.aclose()


async def test_thirty_machines_do_not_ask_for_more_than_there_is() -> None:
    """Thirty at once on a host with room for three: three are promised memory at a time, and none is lost."""
    room, running, most = memory(Host(1000)), 0, 0

    async def machine() -> None:
        nonlocal running, most
        share = await room.admit(300 * MIB, later())
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.002)
        running -= 1
        share.release()

    await asyncio.gather(*(machine() for _ in range(30)))
    assert most == 3
    assert room.promised == 0
