"""A real HTTP service that fails in every way: what may run twice succeeds, what must not is sent once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import pytest
from tests.loop_clock import LoopClock, loop_clock

from toolexec import Exec, tool
from toolexec.errors import BackendUnavailableError, ConnectionLostError, ExecutionError, PolicyError
from toolexec.run.gate import Gate
from toolexec.run.layers.breaker import Breaker
from toolexec.run.layers.bulkhead import Bulkhead
from toolexec.run.layers.ledger import Ledger
from toolexec.run.layers.retry import Retry
from toolexec.run.types import Result

CALLS: Final = 100
FAILURES: Final = ("500", "reset", "hang", "half")
DEADLINE: Final = 30.0
ATTEMPT: Final = 0.4
AT_ONCE: Final = 20


class FlakyService:
    """Answers requests on a loopback port, but for three in ten, which fail in one of four ways.

    Which ones is decided by the request and how often it came, so that each run of the tests is the same. A request
    fails at most three times. Time passes only when nothing else can happen: when all calls that are under way hang.
    """

    def __init__(self, clock: LoopClock, at_once: int) -> None:
        self.seen: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.port = 0
        self._clock = clock
        self._at_once = at_once
        self._open = 0
        self._hanging = 0
        self._stopped = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection, or fail."""
        try:
            line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
            name = line.split()[1]
            self.seen[name] += 1
            match self._failure(name):
                case "":
                    self._send(writer, "200 OK", {"name": name})
                case "500":
                    self._send(writer, "500 Internal Server Error", {"error": "try again"})
                case "reset":
                    writer.transport.abort()
                case "half":
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
                case _:
                    self._hanging += 1
                    self._let_time_pass()
                    await self._stopped.wait()
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _failure(self, name: str) -> str:
        times = self.seen[name]
        draw = blake2b(f"{name} {times}".encode(), digest_size=2).digest()
        if times > 3 or draw[0] >= 0.3 * 256:
            return ""
        how = FAILURES[draw[1] % len(FAILURES)]
        self.failed[how] += 1
        return how

    @staticmethod
    def _send(writer: asyncio.StreamWriter, status: str, data: object) -> None:
        body = json.dumps(data).encode()
        head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        writer.write(head.encode() + b"connection: close\r\n\r\n" + body)

    @contextmanager
    def called(self) -> Generator[None]:
        """Count the block as a call that is under way."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            self._let_time_pass()

    def _let_time_pass(self) -> None:
        """End the attempts under way at their limit, when all of them hang."""
        if self._hanging and self._hanging == min(self._open, self._at_once):
            self._hanging = 0
            self._clock.advance(ATTEMPT * 1.01)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[FlakyService]:
        """Listen until the block ends."""
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._stopped.set()
            server.close()


@asynccontextmanager
async def flaky(at_once: int = CALLS, **parts: Any) -> AsyncGenerator[tuple[FlakyService, Exec]]:
    """Run a flaky service, and an Exec that makes at most so many calls at once, and retries them."""
    with loop_clock() as clock:
        retry = Retry(attempts=20, attempt_timeout=ATTEMPT, pause=0, budget=1.0, clock=clock)
        async with FlakyService(clock, at_once).running() as service, Exec(gate=Gate(retry=retry, **parts)) as ex:
            yield service, ex


async def run(ex: Exec, service: FlakyService, name: str, number: int) -> Result:
    """Call one of the tools."""
    with service.called():
        return await ex.run_tool(f"flaky:{name}", {"number": number}, timeout=DEADLINE)


async def send(service: FlakyService, method: str, path: str) -> Any:
    """Make a request; what fails on the way says so in the errors of toolexec."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    except OSError as error:
        raise BackendUnavailableError("the service is down") from error
    try:
        writer.write(f"{method} {path} HTTP/1.1\r\nhost: flaky\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split()[0]))
    except (ConnectionError, EOFError) as error:
        raise ConnectionLostError(f"{type(error).__name__} in the middle") from error
    finally:
        writer.close()
    status = int(head.split()[1])
    if status >= 500:
        raise ExecutionError("the service failed", retryable=True, details={"status": status})
    return json.loads(body)


def tools(service: FlakyService) -> list[Any]:
    """Return a tool for each kind of request."""

    @tool("flaky:read", read_only=True)
    async def read(number: int) -> Any:
        return await send(service, "GET", f"/read/{number}")

    @tool("flaky:put", idempotent=True, destructive=False)
    async def put(number: int) -> Any:
        return await send(service, "PUT", f"/put/{number}")

    @tool("flaky:post")
    async def post(number: int) -> Any:
        return await send(service, "POST", f"/post/{number}")

    return [read, put, post]


@pytest.mark.parametrize("name", ["read", "put"])
async def test_what_may_run_twice_succeeds(name: str) -> None:
    """With three requests in ten failing, every idempotent call succeeds within its deadline."""
    parts = {
        "breaker": Breaker(failures=10),
        "bulkhead": Bulkhead(AT_ONCE, limits={"local": AT_ONCE}, wait=DEADLINE, queue=CALLS),
    }
    async with flaky(AT_ONCE, **parts) as (service, ex):
        for each in tools(service):
            ex.add(each)
        results = await asyncio.gather(*[run(ex, service, name, number) for number in range(CALLS)])
    assert [result.raise_for_error().value for result in results] == [{"name": f"/{name}/{n}"} for n in range(CALLS)]
    assert sum(result.attempts for result in results) == sum(service.seen.values()) > CALLS
    assert {*service.failed} == {*FAILURES}


async def test_what_must_not_run_twice_reaches_the_service_once(tmp_path: Path) -> None:
    """A call that is not idempotent is sent once, also when its caller makes it again after a failure."""
    ledger = Ledger(tmp_path / "effects.db")
    refused = failed = 0
    async with flaky(ledger=ledger) as (service, ex):
        for each in tools(service):
            ex.add(each)

        async def insist(number: int) -> None:
            nonlocal refused, failed
            result = await run(ex, service, "post", number)
            if result.error is not None:
                failed += 1
                try:
                    await run(ex, service, "post", number)
                except PolicyError:
                    refused += 1

        await asyncio.gather(*(insist(number) for number in range(CALLS)))
    assert {*service.seen.values()} == {1}
    assert 0 < refused == failed == len(ledger.effects.unsettled())
    assert len(service.seen) >= CALLS - failed
    ledger.close()


TOOLS: Final = {
    "read": {"path": "/read/{number}"},
    "put": {"method": "PUT", "path": "/put/{number}"},
    "post": {"method": "POST", "path": "/post/{number}"},
}


class TestProviders:
    """The same with tools of providers, whose requests are those of the client that all of them use."""

    @staticmethod
    async def add(ex: Exec, kind: str, service: FlakyService) -> None:
        """Add the three tools as endpoints, or as operations of a document."""
        url = f"http://127.0.0.1:{service.port}"
        if kind == "http":
            await ex.add_http("flaky", url, tools=TOOLS)
            return
        number = {"name": "number", "in": "path", "required": True, "schema": {"type": "integer"}}
        answer = {"200": {"description": "done"}}
        paths = {
            str(each["path"]): {
                each.get("method", "GET").lower(): {"operationId": name, "parameters": [number], "responses": answer}
            }
            for name, each in TOOLS.items()
        }
        document = {"openapi": "3.1.0", "info": {"title": "flaky", "version": "1"}, "servers": [{"url": url}]}
        await ex.add_openapi("flaky", {**document, "paths": paths})

    @pytest.mark.parametrize("kind", ["http", "openapi"])
    @pytest.mark.parametrize("name", ["read", "put"])
    async def test_what_may_run_twice_succeeds(self, kind: str, name: str) -> None:
        """Every idempotent call succeeds within its deadline."""
        bulkhead = Bulkhead(AT_ONCE, wait=DEADLINE, queue=CALLS)
        async with flaky(AT_ONCE, breaker=Breaker(failures=10), bulkhead=bulkhead) as (service, ex):
            await self.add(ex, kind, service)
            results = await asyncio.gather(*[run(ex, service, name, number) for number in range(CALLS)])
        assert [result.raise_for_error().value for result in results] == [
            {"name": f"/{name}/{n}"} for n in range(CALLS)
        ]
        assert {*service.failed} == {*FAILURES}

    @pytest.mark.parametrize("kind", ["http", "openapi"])
    async def test_what_must_not_run_twice_reaches_the_service_once(self, kind: str, tmp_path: Path) -> None:
        """A call that is not idempotent is sent once, also when its caller makes it again after a failure."""
        ledger = Ledger(tmp_path / "effects.db")
        refused = failed = 0
        async with flaky(ledger=ledger) as (service, ex):
            await self.add(ex, kind, service)
            for number in range(CALLS):
                if (await run(ex, service, "post", number)).error is not None:
                    failed += 1
                    with pytest.raises(PolicyError):
                        await run(ex, service, "post", number)
                    refused += 1
        assert {*service.seen.values()} == {1}
        assert len(service.seen) == CALLS
        assert 0 < refused == failed
        ledger.close()
