"""Which files of toolexec one warm call passes, threads included.

    python -m tests.files_per_call [--list] local | served | direct | code | shell

`served` is a call of `run_tool` over HTTP with an API key and a policy; `direct` is one of a tool that the server shows
under its own name.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

import toolexec
from toolexec import Exec, Tool
from toolexec.run.gate import Gate
from toolexec.run.policy import Policy, Rule
from toolexec.server.app import ToolServer
from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import HttpSettings, serve_http
from toolexec.server.settings import ServeSettings

Call = Callable[[], Awaitable[object]]
KINDS = ("local", "served", "direct", "code", "shell")
_TICKS = {"server/pauses.py", "server/http/serving.py"}  # the watcher of the loop ticks whether or not there are calls
_ROOT = str(Path(toolexec.__file__).parent) + "/"
_KEY = "txk_the-key-of-a-caller-who-counts-files"


def count(kind: str) -> Counter[str]:
    """Return the files that one warm call of this kind passes, each with the number of functions called in it."""
    seen: Counter[str] = Counter()
    counting = threading.Event()

    def profile(frame: FrameType, event: str, arg: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(_ROOT) and counting.is_set():
            if (short := name.removeprefix(_ROOT)) not in _TICKS:
                seen[short] += 1

    async def main() -> None:
        async with _caller(kind) as call:
            for _ in range(10):  # by then the checks of settings are compiled, too
                await call()
            await asyncio.sleep(0.5)  # what the calls before have left to do is not counted
            gc.disable()  # a collection comes when it comes, and calls `server/short_steps.py`
            sys.setprofile(profile)
            counting.set()
            await call()
            counting.clear()
            sys.setprofile(None)
            gc.enable()

    threading.setprofile(profile)
    try:
        asyncio.run(main())
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]
    return seen


@contextlib.asynccontextmanager
async def _caller(kind: str) -> AsyncGenerator[Call]:
    """Give the call to count."""
    served = kind in ("served", "direct")
    rules = {"gate": Gate(policy=Policy([Rule(effect="allow", tools=("t:*",))]))} if served else {}
    async with Exec(**rules) as ex:
        ex.add(Tool(name="one", namespace="t", input_schema={"type": "object"}), handler=_one)
        if served:
            async with _served(ex, kind) as call:
                yield call
            return

        async def local() -> None:
            assert (await ex.run_tool("t:one", {})).value == 1

        async def code() -> None:
            assert (await ex.execute_code("return tools.t.one()")).error is None

        async def shell() -> None:
            assert (await ex.execute_code("tool run t:one", language="bash")).error is None

        yield {"local": local, "code": code, "shell": shell}[kind]


async def _one(args: object) -> int:
    return 1


@contextlib.asynccontextmanager
async def _served(ex: Exec, kind: str) -> AsyncGenerator[Call]:
    """Give a call over HTTP, made by the SDK's client with an API key."""
    settings = ServeSettings(expose="meta" if kind == "served" else "direct")
    auth = AuthSettings(api_keys=(ApiKey(id="ann", roles=("ops",), sha256=hash_key(_KEY)),))
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    async with ToolServer(ex, settings) as server, contextlib.AsyncExitStack() as stack:
        serving = asyncio.create_task(
            serve_http(server, HttpSettings(port=0), auth, ready=address.set_result, stop=stop)
        )
        try:
            http = await stack.enter_async_context(httpx2.AsyncClient(headers={"authorization": f"Bearer {_KEY}"}))
            transport = streamable_http_client(await address, http_client=http)
            client = await stack.enter_async_context(Client(transport))
            if kind == "served":
                yield lambda: _answered(client, "run_tool", {"tool_id": "t:one"})
            else:
                name = (await client.list_tools()).tools[0].name
                yield lambda: _answered(client, name, {})
        finally:
            await stack.aclose()
            stop.set()
            await serving


async def _answered(client: Client, name: str, args: dict[str, Any]) -> None:
    result = await client.call_tool(name, args)
    assert not result.is_error, result


def main(words: list[str]) -> None:
    """Print the count, and with `--list` the files."""
    kind = next((word for word in words if word in KINDS), "code")
    seen = count(kind)
    print(f"{len(seen)} files, {seen.total()} calls of functions")
    if "--list" in words:
        for name, calls in seen.items():
            print(f"  {calls:5d}  {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
