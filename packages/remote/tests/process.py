"""A remote runtime as a process: `python -m packages.remote.tests.process '{"kind": ..., "settings": {...}}'`."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from packages.remote.tests.processes import KEY

from toolexec.remote import RuntimeServerSettings, SandboxSettings, make_runtime
from toolexec.runtime import Runtime
from toolexec.sandbox import ExecuteRequest
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote.server import serve_runtime


async def _counted(request: ExecuteRequest) -> object:
    """Do what the program `return tools.shop.count(item=N)` would, whose code is N: for a server that costs little."""
    assert request.gateway is not None
    return (await request.gateway.run_tool("shop:count", {"item": int(request.code)})).value


def _say_ready() -> None:
    print("ready", flush=True)


async def serve(
    kind: str,
    given: Mapping[str, Any],
    ready: Callable[[], None] = _say_ready,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve one sandbox until SIGTERM, or until *stop* is set; call *ready* when it listens."""
    stop = stop or asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    image = given.get("image", "")
    settings = RuntimeServerSettings(keys=[KEY], **{name: given[name] for name in given if name != "image"})
    backends = [ScriptedSandbox(default=_counted)]
    if kind != "scripted":
        backends = make_runtime(SandboxSettings(use=(kind,), image=image, max_running=64)).backends
    async with Runtime(backends, deny_unsafe=() if kind == "unsafe_host" else ("standard", "hardened")) as runtime:
        for backend in backends:  # what it starts beside its first runs would be left behind by the test of these
            if (start := getattr(backend, "start_workers", None)) is not None:
                await start()
        await serve_runtime(
            runtime,
            settings,
            Path(settings.state_directory),
            ready=lambda _: ready(),
            stop=stop,
        )


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    asyncio.run(serve(asked["kind"], asked["settings"]))
