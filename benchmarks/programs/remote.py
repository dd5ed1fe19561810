"""Programs on a remote runtime over loopback, beside the same sandbox in this process: a run, a nested call, many runs
on two servers. `... remote serve DIRECTORY` is one of the servers."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.meter import Meter, run_program
from benchmarks.spent import spent
from toolexec import Exec
from toolexec.runtime.router import Runtime
from toolexec.runtime.sandboxes import SandboxSettings
from toolexec.runtime.wasm import WasmBackend
from toolexec_remote import RemoteSettings, SigningKey

KEY = SigningKey(id="bench", token="the token of the benchmarks", secret="the secret of the benchmarks")
ONE_CALL = "return tools.math.add(a=1, b=2)"
CALLS = """
import time
tools.math.add(a=1, b=2)
began = time.perf_counter()
for _ in range(100):
    tools.math.add(a=1, b=2)
return (time.perf_counter() - began) / 100
"""
GATHERED = """
import asyncio, time
await asyncio.gather(*(tools.math.add(a=1, b=2) for _ in range(100)))
began = time.perf_counter()
await asyncio.gather(*(tools.math.add(a=1, b=2) for _ in range(100)))
return (time.perf_counter() - began) / 100
"""


async def serve(directory: str) -> None:
    """Be a server; its first line is its address."""
    from toolexec_remote.server import RuntimeServerSettings, serve_runtime

    settings = RuntimeServerSettings(port=0, keys=[KEY], max_running=8)
    async with Runtime([WasmBackend()]) as runtime:
        await serve_runtime(runtime, settings, Path(directory), ready=lambda address: print(address, flush=True))


@contextmanager
def servers(count: int) -> Iterator[tuple[str, ...]]:
    """So many servers, each a process; gives their addresses."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.programs.remote", "serve"]
        processes = [
            subprocess.Popen([*command, f"{folder}/{number}"], stdout=subprocess.PIPE, text=True)
            for number in range(count)
        ]
        try:
            yield tuple(process.stdout.readline().strip() for process in processes if process.stdout is not None)
        finally:
            for process in processes:
                process.kill()
                process.wait(30)


def opened(*endpoints: str) -> Exec:
    """An Exec with one tool; its code runs at these endpoints, or in this process."""
    use = SandboxSettings(use=("wasm",))
    if endpoints:
        remote = RemoteSettings(endpoints=endpoints, key_id=KEY.id, token=KEY.token, signing_key=KEY.secret)
        use = SandboxSettings(use=("remote",), remote=remote)
    ex = Exec(runtime_backends=use, max_tool_calls=10_000)

    async def add(a: int, b: int) -> int:
        return a + b

    ex.add(add, "math:add")
    return ex


async def value(ex: Exec, code: str) -> Any:
    """The value of a program, which must succeed."""
    return (await ex.execute_code(code, timeout=120)).raise_for_error().value


async def timed(ex: Exec) -> float:
    """Seconds of a run with one call."""
    began = perf_counter()
    assert await value(ex, ONE_CALL) == 3
    return perf_counter() - began


async def pairs(meter: Meter, here: Exec, there: Exec) -> None:
    """Runs and calls here and there, in turn."""
    rounds = 20 if meter.quick else 200
    for ex in (here, there):
        for _ in range(5):
            await timed(ex)
    for _ in range(rounds):
        local, remote = await timed(here), await timed(there)
        meter.record("remote.local_run", local)
        meter.record("remote.run", remote)
    meter.record("remote.run_added", meter.median("remote.run") - meter.median("remote.local_run"))
    for _ in range(3 if meter.quick else 15):
        for name, code in (("call", CALLS), ("gathered", GATHERED)):
            meter.record(f"remote.local_{name}", await value(here, code))
            meter.record(f"remote.{name}", await value(there, code))
    meter.record("remote.call_added", meter.median("remote.call") - meter.median("remote.local_call"))


async def costs(meter: Meter, here: Exec, there: Exec) -> None:
    """Processor time of a run with one call here and there, one after the other: of the caller, and of the server."""
    runs = 50 if meter.quick else 300
    for _ in range(2 if meter.quick else 5):
        before = spent()
        for _ in range(runs):
            await timed(here)
        local = spent().since(before, runs)
        before = spent()
        for _ in range(runs):
            await timed(there)
        remote = spent().since(before, runs)
        meter.record("remote.cpu_local", local.caller)
        meter.record("remote.cpu_caller", remote.caller)
        meter.record("remote.cpu_loop", remote.loop)
        meter.record("remote.cpu_server", remote.server)
        meter.record("remote.cpu_added", remote.server - local.caller)


async def many(meter: Meter, ex: Exec, name: str) -> None:
    """Seconds for a run, of many at once."""
    count = 100 if meter.quick else 500
    await asyncio.gather(*(value(ex, ONE_CALL) for _ in range(16)))
    for _ in range(1 if meter.quick else 3):
        began = perf_counter()
        await asyncio.gather(*(value(ex, ONE_CALL) for _ in range(count)))
        meter.record(f"remote.{name}", (perf_counter() - began) / count)


async def measure(meter: Meter) -> None:
    """Everything."""
    with servers(2) as addresses:
        async with opened() as here, opened(addresses[0]) as there:
            await pairs(meter, here, there)
            await costs(meter, here, there)
            await many(meter, here, "many_local")
            await many(meter, there, "many_one")
        async with opened(*addresses) as both:
            await many(meter, both, "many_two")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(sys.argv[2]))
    else:
        run_program(measure)
