"""What one caller of a server can do to the others: `python -m tests.server.hostile WAY URL`, until its stdin ends.

It is a process of its own, as a caller on another machine is; it prints a line once it has begun, and at the end what
it did and which statuses it got, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from tests.server.crowd import HOSTILE, JSON_HEADERS, ROOT, call_of, key_of

_LEGACY: Final = "2025-11-25"
_MEGABYTE: Final = 1 << 20
_AT_ONCE: Final = 32


@dataclass
class Attack:
    """One way of it: where, and what it got."""

    url: str
    client: httpx2.AsyncClient
    seen: Counter[str] = field(default_factory=Counter[str])
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    numbers: count[int] = field(default_factory=count)

    async def post(self, body: bytes, headers: dict[str, str], *, key: str = "") -> str:
        """Send a request, and return its answer."""
        try:
            sent = {**headers, "x-api-key": key or key_of(HOSTILE)}
            answer = await self.client.post(self.url, content=body, headers=sent)
            self.seen[str(answer.status_code)] += 1
            return answer.text
        except httpx2.HTTPError as error:
            self.seen[type(error).__name__] += 1
            return ""
        finally:
            self.begun.set()

    async def again(self, once: Callable[[], Awaitable[object]], workers: int = _AT_ONCE) -> None:
        """Do something again and again, so many at a time."""

        async def work() -> None:
            while True:
                await once()

        await asyncio.gather(*(work() for _ in range(workers)))

    async def raw(self, headers: dict[str, str], body: bytes, length: int) -> tuple[Any, Any]:
        """Open a connection, and send the head of a request and the beginning of its body."""
        parts = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        every = {**headers, "x-api-key": key_of(HOSTILE), "host": parts.netloc, "content-length": str(length)}
        head = "".join(f"{key}: {value}\r\n" for key, value in every.items())
        writer.write(f"POST {parts.path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        await writer.drain()
        return reader, writer


async def sessions(attack: Attack) -> None:
    """Open sessions and leave them."""
    params = {"protocolVersion": _LEGACY, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    await attack.again(lambda: attack.post(body, JSON_HEADERS))


async def approvals(attack: Attack) -> None:
    """Have calls ask for an approval, and never answer."""
    await attack.again(
        lambda: attack.post(*call_of("run_tool", {"tool_id": "load:burn", "args": {"what": str(next(attack.numbers))}}))
    )


async def bodies(attack: Attack) -> None:
    """Send the largest bodies that are taken, with as many values as they may have, and larger ones."""
    values = [0] * 390_000
    body, headers = call_of("run_tool", {"tool_id": "load:echo", "args": {"text": values}})
    long, _ = call_of("run_tool", {"tool_id": "load:echo", "args": {"text": "x" * (4 * _MEGABYTE - 1000)}})

    async def once() -> None:
        for each in (body, long, long + b" " * 1000):
            await attack.post(each, headers)

    await attack.again(once, 8)


async def slow_reads(attack: Attack) -> None:
    """Ask for much, and read none of it."""
    body, headers = call_of(
        "run_tool", {"tool_id": "load:big", "args": {"size": _MEGABYTE}, "max_bytes": 2 * _MEGABYTE}
    )

    async def once() -> None:
        with suppress(OSError):
            _, writer = await attack.raw(headers, body, len(body))
            attack.seen["asked"] += 1
            attack.begun.set()
            await asyncio.sleep(5)
            writer.transport.abort()

    await attack.again(once, 100)


async def slow_bodies(attack: Attack) -> None:
    """Send a body byte by byte."""
    body, headers = call_of("run_tool", {"tool_id": "load:echo", "args": {"text": "x" * 10_000}})

    async def once() -> None:
        with suppress(OSError):
            _, writer = await attack.raw(headers, b"", len(body))
            attack.seen["opened"] += 1
            attack.begun.set()
            try:
                for byte in body:
                    writer.write(bytes((byte,)))
                    await writer.drain()
                    await asyncio.sleep(0.25)
            finally:
                writer.transport.abort()

    await attack.again(once, 200)


async def wrong_keys(attack: Attack) -> None:
    """Try keys that no caller has."""
    body, headers = call_of("run_tool", {"tool_id": "load:echo", "args": {"text": "x"}})
    await attack.again(lambda: attack.post(body, headers, key=f"txk_wrong-{next(attack.numbers)}"))


async def cancels(attack: Attack) -> None:
    """Begin calls, and go away before they are answered."""
    body, headers = call_of("run_tool", {"tool_id": "load:wait", "args": {"seconds": 60}})

    async def once() -> None:
        with suppress(OSError):
            _, writer = await attack.raw(headers, body, len(body))
            attack.seen["cancelled"] += 1
            attack.begun.set()
            await asyncio.sleep(0.02)
            writer.transport.abort()

    await attack.again(once)


async def lists(attack: Attack) -> None:
    """List everything, as fully as it can be had."""
    requests = [
        call_of("list_tools", {"limit": 100, "as_json": True}),
        call_of("search_tools", {"query": "one of very many tools", "limit": 100, "as_json": True}),
        call_of("search_tools", {"queries": ["one of very many"] * 10, "limit": 100}),
        call_of("", {}, method="tools/list"),
    ]

    async def once() -> None:
        for body, headers in requests:
            await attack.post(body, headers)

    await attack.again(once)


async def subscriptions(attack: Attack) -> None:
    """Listen for changes on as many streams as there can be, and open them again."""
    notifications = {"toolsListChanged": True, "resourcesListChanged": True, "promptsListChanged": True}
    body, headers = call_of("", {}, method="subscriptions/listen", notifications=notifications)

    async def once() -> None:
        with suppress(OSError):
            _, writer = await attack.raw(headers, body, len(body))
            attack.seen["opened"] += 1
            attack.begun.set()
            await asyncio.sleep(3)
            writer.transport.abort()

    await attack.again(once, 300)


async def malformed(attack: Attack) -> None:
    """Send what is not JSON, or not a message."""
    good, headers = call_of("run_tool", {"tool_id": "load:echo", "args": {"text": "x"}})
    bad = [
        b"{" * 90,
        good[:-1],
        b"[]" * 1000,
        b'{"jsonrpc": "2.0"}',
        b"\xff\xfe",
        b'"' + b"\\" * 100_001,
        b"[" * 200_000,
    ]

    async def once() -> None:
        for each in bad:
            await attack.post(each, headers)

    await attack.again(once)


async def results(attack: Attack) -> None:
    """Ask for results that are as large as they can be."""
    body, headers = call_of("run_tool", {"tool_id": "load:big", "args": {"size": 8 * _MEGABYTE}})
    whole, _ = call_of("run_tool", {"tool_id": "load:big", "args": {"size": _MEGABYTE}, "max_bytes": 2 * _MEGABYTE})

    async def once() -> None:
        for each in (body, whole):
            await attack.post(each, headers)

    await attack.again(once, 8)


async def code(attack: Attack) -> None:
    """Run programs that never end, and others that call without end."""
    requests = [
        call_of("execute_code", {"code": "while True:\n    pass", "timeout_ms": 5_000}),
        call_of("execute_code", {"code": "while True:\n    tools.load.echo(text='x')", "timeout_ms": 5_000}),
    ]

    async def once() -> None:
        for body, headers in requests:
            await attack.post(body, headers)

    await attack.again(once, 16)


async def calls(attack: Attack) -> None:
    """Call as fast as it goes."""
    body, headers = call_of("run_tool", {"tool_id": "load:echo", "args": {"text": "x"}})
    await attack.again(lambda: attack.post(body, headers))


WAYS: Final[dict[str, Callable[[Attack], Awaitable[None]]]] = {
    each.__name__: each
    for each in (
        sessions, approvals, bodies, slow_reads, slow_bodies, wrong_keys, cancels, lists, subscriptions, malformed,
        results, code, calls,
    )
}  # fmt: skip


@asynccontextmanager
async def hostility(way: str, url: str) -> AsyncGenerator[Counter[str]]:
    """Have one caller be hostile during the block, once it has begun; what it got is in the counter after it.

    It has what is left of the processor: elsewhere it would have a processor of its own.
    """
    seen = Counter[str]()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    process = await asyncio.create_subprocess_exec(
        *(["nice", "-n", "19"] if os.name == "posix" else []), sys.executable, "-m", "tests.server.hostile", way, url,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        assert (await process.stdout.readline()).strip() == b"begun"
        yield seen
        process.stdin.close()
        seen.update(json.loads(await process.stdout.readline()))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def main(way: str, url: str) -> None:
    """Be hostile until stdin ends."""
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(timeout=30, verify=False, limits=limits) as client:
        attack = Attack(url, client)
        attacking = asyncio.ensure_future(WAYS[way](attack))
        await asyncio.wait([attacking, asyncio.ensure_future(attack.begun.wait())], return_when=asyncio.FIRST_COMPLETED)
        print("begun", flush=True)
        await asyncio.wait(
            [attacking, asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))], return_when="FIRST_COMPLETED"
        )
        print(json.dumps(attack.seen), flush=True)
        attacking.cancel()
        await asyncio.wait([attacking])
        if not attacking.cancelled() and (error := attacking.exception()) is not None:
            raise error


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
