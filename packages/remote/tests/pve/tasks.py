"""Tasks of Proxmox VE: what takes time gets an ID at once, and a state that is asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from packages.remote.tests.pve.faults import Faults
from packages.remote.tests.pve.lxc import LxcError


class Tasks:
    """The tasks of a node."""

    def __init__(self, node: str, faults: Faults) -> None:
        self._node = node
        self._faults = faults
        self._numbers = count(0xA00)
        self._states: dict[str, dict[str, Any]] = {}
        self._logs: dict[str, list[str]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def begin(
        self,
        kind: str,
        vmid: int,
        user: str,
        work: Callable[[], Awaitable[None]],
        undo: Callable[[], None] = lambda: None,
    ) -> str:
        """Begin a task, and return its ID; *undo* is for one that fails."""
        if self._faults.ha:
            kind = {"vzstart": "hastart", "vzstop": "hastop", "vzshutdown": "hastop"}.get(kind, kind)
        pid, start = next(self._numbers), int(time.time())
        upid = f"UPID:{self._node}:{pid:08X}:{start & 0xFFFFFFFF:08X}:{start:08X}:{kind}:{vmid}:{user}:"
        self._states[upid] = {
            "upid": upid,
            "node": self._node,
            "pid": pid,
            "pstart": start,
            "starttime": start,
            "type": kind,
            "id": str(vmid),
            "user": user,
            "status": "running",
        }
        self._logs[upid] = [f"{kind} of CT {vmid}"]
        if self._faults.ha and kind.startswith("hast"):
            work = self._later(work)
        task = asyncio.create_task(self._run(upid, kind, work, undo))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return upid

    def _later(self, work: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Have the manager of high availability do it, once it gets to it."""

        async def do(seconds: float) -> None:
            await asyncio.sleep(seconds)
            await work()

        async def ask() -> None:
            task = asyncio.create_task(do(self._faults.ha))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

        return ask

    async def _run(self, upid: str, kind: str, work: Callable[[], Awaitable[None]], undo: Callable[[], None]) -> None:
        status = "OK"
        try:
            await asyncio.sleep(self._faults.task_delays.get(kind, 0))
            failure = self._faults.task_failures.get(kind)
            if failure:
                raise LxcError(failure)
            await work()
        except LxcError as error:
            status = str(error).strip()
            undo()
        self._logs[upid].append(f"TASK {status}" if status == "OK" else f"TASK ERROR: {status}")
        self._states[upid] |= {"status": "stopped", "exitstatus": status}

    def status(self, upid: str) -> dict[str, Any] | None:
        """Return the state of a task; None for an unknown one."""
        return self._states.get(upid)

    def log(self, upid: str) -> list[dict[str, Any]]:
        """Return the lines of its log."""
        return [{"n": number, "t": line} for number, line in enumerate(self._logs.get(upid, ()), 1)]

    async def close(self) -> None:
        """Wait until all have ended."""
        if self._running:
            await asyncio.wait([*self._running])
