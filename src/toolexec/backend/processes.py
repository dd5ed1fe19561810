"""Worker processes for killable handlers: a call that is cancelled ends with its process, and with all it started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from toolexec.errors import ExecutionError, HandlerError

__all__ = ["WorkerProcesses"]

_MAX_FRAME = 64 << 20


class WorkerProcesses:
    """At most *limit* processes that run importable handlers, one call at a time each; up to *keep* wait idle."""

    def __init__(self, limit: int | None = None, keep: int = 2) -> None:
        self._slots = asyncio.Semaphore(limit or max(4, 2 * (os.cpu_count() or 1)))
        self._keep = keep
        self._idle: list[asyncio.subprocess.Process] = []

    async def run(self, name: str, source: tuple[str, str], args: Mapping[str, Any]) -> Any:
        """Call the function at *source* (module, qualified name) with *args* and return its JSON result.

        Raises HandlerError as the function raised, ExecutionError when the process died. Cancelling kills the process
        and everything in its process group.
        """
        async with self._slots:
            process = self._idle.pop() if self._idle else await self._spawn()
            try:
                reply = await self._exchange(process, {"source": source, "args": args})
            except BaseException as error:
                await _kill(process)
                if isinstance(error, asyncio.IncompleteReadError | ConnectionError):
                    raise ExecutionError(f"the worker process of {name} died ({_ending(process)})") from None
                raise
            if len(self._idle) < self._keep:
                self._idle.append(process)
            else:
                await _kill(process)
        if "error" in reply:
            kind, message, trace = reply["error"]
            text = f"{name} raised {kind}{f': {message}' if message else ''}"
            raise HandlerError(text, details={"type": kind, "traceback": trace})
        return reply["value"]

    async def aclose(self) -> None:
        """Kill the idle processes; busy ones are killed by their calls' cancellation."""
        idle, self._idle = self._idle, []
        for process in idle:
            await _kill(process)

    async def _spawn(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "toolexec.backend.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=_MAX_FRAME,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )

    async def _exchange(self, process: asyncio.subprocess.Process, request: dict[str, Any]) -> dict[str, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        main = sys.modules.get("__main__")
        request["main"] = getattr(main, "__file__", None)
        body = json.dumps(request).encode()
        process.stdin.write(len(body).to_bytes(4, "big") + body)
        await process.stdin.drain()
        size = int.from_bytes(await process.stdout.readexactly(4), "big")
        return json.loads(await process.stdout.readexactly(size))


async def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    transport = getattr(process, "_transport", None)  # nothing public closes the pipes before the process is gone
    if transport is not None:
        transport.close()
    await process.wait()


def _ending(process: asyncio.subprocess.Process) -> str:
    code = process.returncode
    if code is None or code == -signal.SIGKILL:
        return "killed, or it closed its pipe"
    return f"signal {-code}" if code < 0 else f"exit code {code}"
