"""Many callers at one `toolexec serve` over HTTP, each with a key of its own, and what their calls came to."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Self

import httpx2
import psutil
from tests.servers import server_environment
from tests.waiting import until_blocking

MODERN: Final = "2026-07-28"
HANDSHAKE: Final = "2025-11-25"
HOSTILE: Final = "hostile"
ROOT: Final = Path(__file__).parents[2]
TOOLS = '''
"""The tools of the server."""

import asyncio

from toolexec import tool


@tool("load:echo", read_only=True)
async def echo(text: str) -> str:
    """Return a text."""
    return text


@tool("load:big", read_only=True)
async def big(size: int) -> list[str]:
    """Return so many bytes."""
    return ["x" * 1000] * (size // 1000)


@tool("load:wait", read_only=True)
async def wait(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return "waited"


@tool("load:burn", destructive=True)
async def burn(what: str) -> str:
    """Burn something, once a person has said yes."""
    return f"burnt {what}"


def _numbered(number: int):
    @tool(f"many:tool_{number}", read_only=True)
    async def one(text: str = "", count: int = 1, mode: str = "plain") -> str:
        """One of very many tools, each of which does a little of what the others do."""
        return text

    return one


globals().update({f"numbered_{number}": _numbered(number) for number in range(300)})
'''


def key_of(name: str) -> str:
    """Return the API key of a caller."""
    return f"txk_the-key-of-{name}"


def settings_of(callers: list[str], more: str = "") -> str:
    """Return the file of a server for these callers."""
    digests = [(name, hashlib.sha256(key_of(name).encode()).hexdigest()) for name in callers]
    keys = ",\n".join(f'  {{ id = "{name}", sha256 = "{digest}" }}' for name, digest in digests)
    return f"""
[sources]
python = ["crowd_tools.py"]
[server]
transport = "http"
port = 0
expose = "meta"
[[policy.rules]]
effect = "ask"
tools = "load:burn"
{more}
[auth]
api_keys = [
{keys}
]
"""


@dataclass
class Server:
    """A server that is up."""

    url: str
    process: subprocess.Popen[bytes]
    directory: Path

    @property
    def resident(self) -> int:
        """How many bytes of memory it and its children have."""
        own = psutil.Process(self.process.pid)
        return sum(each.memory_info().rss for each in (own, *own.children(recursive=True)))

    @property
    def log(self) -> str:
        """What it wrote."""
        return (self.directory / "log").read_text(errors="replace")


@contextmanager
def served(directory: Path, callers: list[str], more: str = "") -> Generator[Server]:
    """Run a server for these callers, and for the hostile one; it is killed at the end."""
    (directory / "crowd_tools.py").write_text(TOOLS)
    (directory / "toolexec.toml").write_text(settings_of([*callers, HOSTILE], more))
    words = [sys.executable, "-m", "toolexec", "serve", "-c", "toolexec.toml"]
    environment = server_environment(XDG_STATE_HOME=str(directory / "state"), PYTHONPATH=str(ROOT / "src"))
    with (
        (directory / "log").open("wb") as log,
        subprocess.Popen(words, stderr=log, cwd=directory, env=environment) as process,
    ):
        server = Server("", process, directory)
        try:
            found = until_blocking(
                lambda: process.poll() is not None or re.search(r"at (http://\S+)", server.log), 0.05
            )
            assert isinstance(found, re.Match), server.log
            server.url = found[1]
            yield server
        finally:
            process.kill()


def call_of(
    name: str, args: dict[str, Any], *, method: str = "tools/call", **params: Any
) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a request of the newer era."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "crowd", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    own = {"name": name, "arguments": args} if name else {}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**own, **params, "_meta": meta}}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method} | ({"mcp-name": name} if name else {})
    return json.dumps(message).encode(), headers | JSON_HEADERS


JSON_HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@dataclass
class Crowd:
    """Callers that call now and then, each with a connection of its own, every second one in a session of the older
    era; each calls the *tools* in turn. `answered` counts their calls, `errors` what was wrong with some, `took` is how
    many seconds each took. `kinds` counts the errors by who made them: an answer of the server, by its status, or the
    client, by what it raised and where. `late` is how many seconds the client itself began each call too late."""

    url: str
    callers: list[str]
    tools: tuple[str, ...] = ("load:echo",)
    answered: Counter[str] = field(default_factory=Counter[str])
    errors: list[str] = field(default_factory=list[str])
    took: list[float] = field(default_factory=list[float])
    kinds: Counter[str] = field(default_factory=Counter[str])
    late: list[float] = field(default_factory=list[float])

    async def __aenter__(self) -> Self:
        """Connect them all."""
        self._stack = AsyncExitStack()
        self._clients: dict[str, tuple[httpx2.AsyncClient, dict[str, str]]] = {}
        for number, name in enumerate(self.callers):
            headers = {"x-api-key": key_of(name)}
            client = await self._stack.enter_async_context(
                httpx2.AsyncClient(headers=headers, timeout=60, verify=False)
            )
            self._clients[name] = client, await self._opened(client) if number % 2 else {}
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _opened(self, client: httpx2.AsyncClient) -> dict[str, str]:
        """Open a session, and return the headers of its requests."""
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "crowd", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        answer = await client.post(self.url, json=message, headers=JSON_HEADERS)
        headers = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": HANDSHAKE}
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await client.post(self.url, json=done, headers=JSON_HEADERS | headers)
        return JSON_HEADERS | headers

    async def call(self, name: str, number: int) -> None:
        """Have a caller make one call."""
        client, headers = self._clients[name]
        text = f"{name}-{number}"
        arguments = {"tool_id": self.tools[number % len(self.tools)], "args": {"text": text}}
        if headers:
            params = {"name": "run_tool", "arguments": arguments}
            body = json.dumps({"jsonrpc": "2.0", "id": number + 2, "method": "tools/call", "params": params}).encode()
        else:
            body, headers = call_of("run_tool", arguments)
        began = perf_counter()
        try:
            answer = await client.post(self.url, content=body, headers=headers)
        except httpx2.HTTPError as error:
            self.errors.append(f"{name}: {type(error).__name__}: {error}")
            self.kinds[f"the client: {_raised(error)}"] += 1
            return
        self.took.append(perf_counter() - began)
        if answer.status_code != 200 or text not in answer.text or '"isError":true' in answer.text:
            self.errors.append(f"{name}: {answer.status_code} {answer.text[:300]}")
            self.kinds[f"the server: {answer.status_code}"] += 1
        else:
            self.answered[name] += 1

    async def calls(self, each: int, pause: float = 0.0) -> None:
        """Have each caller make so many calls, one after the other, *pause* seconds apart; they begin spread over that
        time."""

        async def work(place: int, name: str) -> None:
            begin = asyncio.get_running_loop().time() + pause * place / len(self.callers)
            for number in range(each):
                due = max(begin + number * pause, asyncio.get_running_loop().time())
                await asyncio.sleep(due - asyncio.get_running_loop().time())
                self.late.append(asyncio.get_running_loop().time() - due)
                await self.call(name, number)

        await asyncio.gather(*(work(place, name) for place, name in enumerate(self.callers)))


def _raised(error: Exception) -> str:
    """Return what the client raised first, and where."""
    first: BaseException = error
    while (before := first.__cause__ or first.__context__) is not None:
        first = before
    at = traceback.extract_tb(first.__traceback__)[-1]
    return f"{type(error).__name__}, from {type(first).__name__} in {Path(at.filename).name}:{at.name}"
