"""Run the same program in each sandbox of this machine: its start-up time and its isolation.

    python examples/sandbox_compare.py

An unavailable sandbox is reported as such; `toolexec doctor` says how to install it.

Prints:

    wasm: 42 (isolation wasm)
    bubblewrap: 42 (isolation container)
    docker: 42 (isolation container)
    containerd: 42 (isolation container)
    gvisor: 42 (isolation gvisor)
"""

import asyncio
import sys
from time import perf_counter

from toolexec import Exec, SandboxUnavailableError
from toolexec.errors import MissingExtraError
from toolexec.runtime import Runtime
from toolexec.runtime.sandboxes import SandboxSettings, make_runtime

KINDS = ("wasm", "bubblewrap", "docker", "containerd", "gvisor")
PROGRAM = """
answer = tools.math.multiply(a=6, b=7)
return answer
"""


async def compare(kind: str, image: str) -> None:
    """Run the program twice in one kind of sandbox; print the times to stderr if it is a terminal."""
    settings = SandboxSettings(use=(kind,), image=image if kind not in ("wasm", "bubblewrap") else "")
    try:
        runtime: Runtime = make_runtime(settings)
    except MissingExtraError:  # of a package that is not installed
        print(f"{kind}: not here")
        return
    profile = "hardened" if kind == "gvisor" else "standard"
    async with Exec(runtime_backends=runtime.backends, security_profile=profile) as ex:
        ex.add(lambda a, b: a * b, "math:multiply")
        times = []
        for _ in range(2):
            began = perf_counter()
            try:
                result = await ex.execute_code(PROGRAM)
            except SandboxUnavailableError:
                print(f"{kind}: not here")
                return
            times.append(perf_counter() - began)
        print(f"{kind}: {result.value} (isolation {result.backend.isolation})")
        if sys.stderr.isatty():
            print(f"    first {times[0] * 1000:.0f} ms, again {times[1] * 1000:.0f} ms", file=sys.stderr)


async def main() -> None:
    image = sys.argv[1] if len(sys.argv) > 1 else ""
    for kind in KINDS:
        await compare(kind, image)


asyncio.run(main())
