"""What the tests of retries, breakers and their like share: time that can be set, and a backend that can fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from typing import Any

from tests.run.conftest import Workshop

from toolexec.backend import ProviderBackend
from toolexec.errors import ExecutionError, ToolExecError
from toolexec.model import ProviderBinding, Tool, ToolAnnotations, ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.origin import Caller, Origin
from toolexec.run import Resolver, Result, Runner
from toolexec.run.gate import Gate
from toolexec.run.layers.timeout import Timeout
from toolexec.run.policy import Policy

READING = ToolAnnotations(read_only=True)
IDEMPOTENT = ToolAnnotations(idempotent=True)
DESTRUCTIVE = ToolAnnotations(idempotent=True, destructive=True)
UNMARKED = ToolAnnotations()


class Clock:
    """Time that passes when it is set, and when anyone sleeps."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let time pass at once."""
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Service:
    """A remote backend with tools of all kinds, that answers or raises what it is given next."""

    def __init__(self, shop: Workshop, name: str = "hub") -> None:
        self.name = name
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.next: list[Any] = []
        self._shop = shop
        self.down: ToolExecError | None = None
        shop.backends.register(_Provider(self))
        for tool, hints in (
            ("read", READING),
            ("put", IDEMPOTENT),
            ("delete", DESTRUCTIVE),
            ("post", UNMARKED),
        ):
            self.add(tool, hints)

    def add(self, name: str, hints: ToolAnnotations = UNMARKED, **parts: Any) -> Tool:
        """Add a tool, which takes anything unless *parts* say otherwise."""
        parts = {"input_schema": {"type": "object"}, **parts}
        tool = Tool(name=name, namespace=self.name, annotations=hints, **parts)
        self._shop.index.register(tool, ProviderBinding(self.name, name))
        return tool

    def fail(self, *failures: BaseException, then: Iterable[Any] = ()) -> None:
        """Raise these, one a call, and then answer."""
        self.next += [*failures, *then]

    async def answer(self, name: str, args: dict[str, Any]) -> Any:
        """Answer a call, or raise."""
        self.calls.append((name, args))
        if not self.next:
            return {"number": len(self.calls)}
        what = self.next.pop(0)
        if isinstance(what, BaseException):
            raise what
        return await what() if callable(what) else what

    @property
    def count(self) -> int:
        """Return how many calls have reached it."""
        return len(self.calls)


class _Provider(ProviderBackend):
    def __init__(self, service: Service) -> None:
        super().__init__(service.name, service.answer)
        self._service = service
        self.keys: list[str] = []

    async def call(self, name: str, call: ToolCall) -> Any:
        if self._service.down is not None:
            raise self._service.down
        self.keys.append(call.idempotency_key)
        return await super().call(name, call)


def behind(shop: Workshop, *, limit: float | None = 30.0, **parts: Any) -> Runner:
    """Return a runner as an Exec has it: the gate's parts around a time limit around the pipeline."""
    resolver = Resolver(shop.index, shop.backends)
    runner = Timeout(shop.runner(resolver=resolver), limit)
    parts.setdefault("policy", Policy(remote_destructive="allow"))
    return Gate(**parts).wrap(runner, resolver.resolve)


def by(caller: str = "", tenant: str = "", **parts: Any) -> Origin:
    """Return the origin of a caller's calls."""
    return Origin(caller=Caller(id=caller, tenant=tenant), **parts)


def busy(**details: Any) -> ExecutionError:
    """Return a failure that may pass."""
    return ExecutionError("busy just now", retryable=True, details=details)


async def events_of(runner: Runner, call: ToolCall) -> list[StreamEvent]:
    """Return all events of a stream."""
    async with aclosing(runner.stream(call)) as stream:
        return [event async for event in stream]


async def raised(runner: Runner, call: ToolCall) -> ToolExecError:
    """Return what a call raises."""
    try:
        result = await runner.run(call)
    except ToolExecError as error:
        return error
    raise AssertionError(f"{call} gave {result}")


async def in_thread(runner: Any, call: ToolCall) -> Result | None:
    """Make the call in a thread of its own, and what it waits for on this loop."""
    loop = asyncio.get_running_loop()

    def wait(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(_awaited(work), loop).result(20)

    return await asyncio.to_thread(runner.run_in_thread, call, wait, 20.0)


async def _awaited(work: Any) -> Any:
    return await work


def counting(answers: Callable[[int], Any]) -> tuple[list[int], Callable[[], AsyncIterator[Any]]]:
    """Return a generator function that counts how often it was begun, and gives what *answers* says."""
    begun: list[int] = []

    async def give() -> AsyncIterator[Any]:
        begun.append(len(begun))
        for each in answers(len(begun)):
            if isinstance(each, BaseException):
                raise each
            yield each

    return begun, give
