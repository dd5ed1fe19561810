"""Code in virtual machines of QEMU, restored from a snapshot, beside gVisor: first output, whole runs, warm, calls."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Any

from benchmarks.meter import Meter, run_program
from benchmarks.programs.sandbox import CALLS, ONE_CALL, run
from toolexec import Exec
from toolexec.runtime.containers.backend import ContainerBackend
from toolexec_containers import GvisorBackend, GvisorConfig
from toolexec_microvms import MicrovmBackend, MicrovmConfig

IMAGE = "toolexec-test-vm"


def opened(backend: ContainerBackend) -> Exec:
    """An Exec with nothing but this sandbox, and a tool."""
    ex = Exec(runtime_backends={"standard": [backend]}, max_tool_calls=1000)

    async def add(a: int, b: int) -> int:
        return a + b

    ex.add(add, "math:add")
    return ex


def qemu(**settings: Any) -> ContainerBackend:
    """A backend with the image of the tests."""
    return MicrovmBackend(MicrovmConfig(vmm="qemu", image=IMAGE, **settings))


def gvisor(**settings: Any) -> ContainerBackend:
    """The same code in gVisor, in the same image."""
    return GvisorBackend(GvisorConfig(image=IMAGE, **settings))


async def main(meter: Meter) -> None:
    """The two, in turn."""
    times = 5 if meter.quick else 20
    async with opened(qemu()) as machines, opened(gvisor()) as peers:
        for ex in (machines, peers):
            await run(ex, ONE_CALL, timeout=30)
        for _ in range(times):
            for name, ex in (("qemu", machines), ("gvisor", peers)):
                meter.record(f"microvm.{name}.first_output", await first_output(ex))
                await asyncio.sleep(0.3)
                began = perf_counter()
                result = await run(ex, ONE_CALL)
                meter.record(f"microvm.{name}.cold", perf_counter() - began)
                if name == "qemu":
                    meter.record("microvm.qemu.restore", result.backend.details["restore_ms"] / 1000)
                await asyncio.sleep(0.3)
    for name, make in (("qemu", qemu), ("gvisor", gvisor)):
        backend = make(warm=1)
        async with opened(backend) as ex:
            await run(ex, ONE_CALL, timeout=30)
            for _ in range(times):
                while backend.warm_stats.idle < 1:
                    await asyncio.sleep(0.02)
                await asyncio.sleep(0.3)
                began = perf_counter()
                await run(ex, ONE_CALL)
                meter.record(f"microvm.{name}.warm", perf_counter() - began)
            async with ex.session() as session:
                for _ in range(2 if meter.quick else 8):
                    result = await session.execute_code(CALLS)
                    assert result.error is None, result.error
                    meter.record(f"microvm.{name}.call", result.value)


async def first_output(ex: Exec) -> float:
    """Seconds from the request to the first characters that the program prints."""
    began = perf_counter()
    printed: float | None = None
    async for event in ex.stream_code("print('hi', flush=True)\nreturn 1"):
        if event.kind == "print" and printed is None:
            printed = perf_counter() - began
    assert printed is not None
    return printed


if __name__ == "__main__":
    run_program(main)
