"""Watch a tool while it works: progress, chunks of the answer, and exactly one final event.

    python examples/streaming.py

Prints:

    chunk 3
    chunk 2
    chunk 1
    done [3, 2, 1]
    progress 1 of 3: fetch
    progress 2 of 3: unpack
    progress 3 of 3: install
    done 3 packages
    chunk 5
    ... that is enough; the tool was stopped
    error math:countdown raised ValueError: cannot count down from -1
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from toolexec import Exec, StreamEvent, ToolContext, tool


@tool(namespace="math")
async def countdown(start: int) -> AsyncIterator[int]:
    """Counts down to one."""
    if start < 0:
        raise ValueError(f"cannot count down from {start}")
    for number in range(start, 0, -1):
        yield number


@tool(namespace="system")
async def install(packages: int, ctx: ToolContext) -> str:
    """Pretends to install packages and reports its progress."""
    for number, what in enumerate(("fetch", "unpack", "install"), start=1):
        ctx.report(number, 3, what)
    return f"{packages} packages"


def show(event: StreamEvent) -> None:
    match event.kind:
        case "progress":
            print(f"progress {event.data['progress']} of {event.data['total']}: {event.data['message']}")
        case "chunk" | "done":
            print(event.kind, event.data)
        case "error":
            print("error", event.error)


async def main() -> None:
    async with Exec() as ex:
        ex.add(countdown)
        ex.add(install)

        # Values that a generator yields arrive immediately as chunks; the last event has all of them.
        async for event in ex.stream_tool("math:countdown", {"start": 3}):
            show(event)

        # Any handler may report progress. Tools of MCP servers stream theirs the same way.
        async for event in ex.stream_tool("system:install", {"packages": 3}):
            show(event)

        # Leaving early stops the tool; `aclosing` makes sure that it stops immediately.
        async with aclosing(ex.stream_tool("math:countdown", {"start": 5})) as events:
            async for event in events:
                show(event)
                break
        print("... that is enough; the tool was stopped")

        # A failure is the last event, not an exception.
        async for event in ex.stream_tool("math:countdown", {"start": -1}):
            show(event)


if __name__ == "__main__":
    asyncio.run(main())
