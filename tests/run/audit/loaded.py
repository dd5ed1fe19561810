"""A program that makes audited calls in several tasks until it is killed: `python loaded.py LOG`."""

from __future__ import annotations

import asyncio
import sys
from itertools import count

from toolexec import Exec, tool
from toolexec.model.origin import Caller, Origin, acting
from toolexec.run.audit import AuditLog
from toolexec.run.gate import Gate
from toolexec.run.layers.audit import Audit


@tool(namespace="load", read_only=True)
async def look(n: int) -> int:
    """Looks."""
    return n


@tool(namespace="load")
async def work(n: int, words: str) -> str:
    """Works."""
    await asyncio.sleep(0)
    return words * n


async def client(ex: Exec, name: str) -> None:
    """One caller that never stops."""
    with acting(Origin(caller=Caller(id=name), session=name)):
        for n in count():
            await ex.run_tool("load:look", {"n": n})
            await ex.run_tool("load:work", {"n": n % 7, "words": "x" * (n % 3000)})
            await ex.run_chain([{"tool": "load:look", "args": {"n": n}}])


async def main(path: str) -> None:
    """Calls from several tasks, in one log."""
    log = AuditLog.open(path, args="redacted", max_bytes=200_000, keep=10_000)
    async with Exec(gate=Gate(audit=Audit(log))) as ex:
        ex.add(look)
        ex.add(work)
        print("ready", flush=True)
        await asyncio.gather(*(client(ex, f"client{n}") for n in range(4)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
