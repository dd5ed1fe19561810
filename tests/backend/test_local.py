"""Tools that are Python functions: every kind of handler, and how it is found."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
import os
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any

import pydantic
import pytest
from tests.waiting import until

from toolexec import LocalBackend, Progress, StreamEvent, Tool, ToolContext, ToolReply, tool
from toolexec.backend import StreamingBackend
from toolexec.errors import (
    BackendDisabledError,
    BackendNotFoundError,
    ConfigurationError,
    HandlerError,
    InputValidationError,
    RemoteToolError,
)
from toolexec.model.binding import LocalBinding
from toolexec.model.call import ToolCall
from toolexec.model.content import text
from toolexec.model.handler import Handler, mapping_handler

OBJECT = {"type": "object"}


@pytest.fixture
async def backend() -> Any:
    """A local backend that is closed in the end."""
    backend = LocalBackend()
    await backend.start()
    yield backend
    await backend.aclose()


async def call(backend: LocalBackend, function: Any, args: Any = None, on_progress: Any = None) -> Any:
    """Add a function that is declared as a tool, and call it."""
    added = backend.add(function if hasattr(function, "handler") else tool(function))
    return await backend.call(added.id, ToolCall(added.id, args, on_progress=on_progress))


class Colour(Enum):
    """An enum to convert."""

    RED = "red"


@dataclass
class Point:
    """A dataclass to convert."""

    x: int
    y: int = 0


class Person(pydantic.BaseModel):
    """A model to convert."""

    name: str
    born: dt.date


# -- kinds ----------------------------------------------------------------------------------------------------------


async def test_an_async_handler_runs_on_the_event_loop(backend: LocalBackend) -> None:
    """An async handler may await, in the caller's own task."""

    async def where() -> list[Any]:
        await asyncio.sleep(0)
        return [threading.get_ident(), asyncio.current_task() is task]

    task = asyncio.current_task()
    assert await call(backend, where) == [threading.get_ident(), True]


async def test_a_sync_handler_runs_in_a_thread(backend: LocalBackend) -> None:
    """A sync handler may block."""

    def where() -> int:
        return threading.get_ident()

    assert await call(backend, where) != threading.get_ident()


async def test_an_inline_handler_runs_where_it_is_called(backend: LocalBackend) -> None:
    """An inline handler costs no thread."""

    @tool(inline=True)
    def where() -> int:
        return threading.get_ident()

    assert await call(backend, where) == threading.get_ident()


async def test_a_killable_handler_runs_in_a_process(backend: LocalBackend, killable: ModuleType) -> None:
    """Its arguments are converted there, its result here is JSON."""
    assert await call(backend, killable.pid) != os.getpid()
    args = {"point": {"x": 1, "y": 2}, "colour": "red", "when": "2026-11-21"}
    assert await call(backend, killable.mirror, args) == {"x": 2, "y": 1}


async def test_a_killable_mapping_handler(backend: LocalBackend, killable: ModuleType) -> None:
    """A handler without types can be killable too."""
    backend.register("total", mapping_handler(killable.total, killable=True))
    assert await backend.call("total", ToolCall("total", {"numbers": (1, 2)})) == 3


async def test_a_killable_handler_takes_only_json(backend: LocalBackend, killable: ModuleType) -> None:
    """Refuses a value that cannot be sent, with its location, before anything runs."""
    backend.register("total", mapping_handler(killable.total, killable=True))
    with pytest.raises(InputValidationError) as caught:
        await backend.call("total", ToolCall("total", {"numbers": [1, object()]}))
    assert [violation.path for violation in caught.value.violations] == ["/numbers/1"]


async def test_a_killable_handler_gets_arguments_of_its_types(backend: LocalBackend, killable: ModuleType) -> None:
    """Checks the arguments here first."""
    with pytest.raises(InputValidationError):
        await call(backend, killable.mirror, {"point": {"x": "one"}, "colour": "green", "when": "never"})


async def test_a_generator_gives_the_list_of_its_values(backend: LocalBackend) -> None:
    """A call without streaming gets all chunks at once, for a generator of either kind and mode."""

    def count(to: int) -> Iterator[int]:
        yield from range(to)

    async def acount(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    assert await call(backend, count, {"to": 3}) == [0, 1, 2]
    assert await call(backend, acount, {"to": 3}) == [0, 1, 2]
    assert await call(backend, tool(inline=True)(count), {"to": 3}) == [0, 1, 2]


async def test_the_items_of_a_generator_are_made_json(backend: LocalBackend) -> None:
    """As the annotation says what they are."""

    def points(to: int) -> Iterator[Point]:
        for number in range(to):
            yield Point(number)

    assert await call(backend, points, {"to": 2}) == [{"x": 0, "y": 0}, {"x": 1, "y": 0}]


async def test_a_generator_may_yield_events(backend: LocalBackend) -> None:
    """Chunks count as values, progress goes to the callback, and done replaces the list."""
    received: list[Progress] = []

    def work(how: str) -> Iterator[Any]:
        yield StreamEvent(kind="progress", data={"progress": 1, "total": 2, "message": "half"})
        yield StreamEvent(kind="progress", data=Progress(done=2))
        yield StreamEvent(kind="progress", data="nearly")
        yield Progress(done=3)
        yield StreamEvent(kind="chunk", data="a")
        yield "b"
        if how == "done":
            yield StreamEvent(kind="done", data="all")
            yield "never"
        if how == "error":
            yield StreamEvent(kind="error", error=RemoteToolError("down"))
        if how == "data":
            yield StreamEvent(kind="error", data={"message": "out of order"})

    assert await call(backend, work, {"how": "end"}, received.append) == ["a", "b"]
    assert received == [
        Progress(done=1, total=2, message="half"),
        Progress(done=2),
        Progress(done=0, message="nearly"),
        Progress(done=3),
    ]
    assert await call(backend, work, {"how": "done"}) == "all"
    with pytest.raises(RemoteToolError, match="down"):
        await call(backend, work, {"how": "error"})
    with pytest.raises(HandlerError, match=r"work ended with the error .*out of order"):
        await call(backend, work, {"how": "data"})


async def test_partials_and_callable_objects_are_handlers(backend: LocalBackend) -> None:
    """Any callable can be a handler, async or not."""

    class Adder:
        async def __call__(self, args: dict[str, Any]) -> int:
            return args["a"] + 1

    async def add(b: int, args: dict[str, Any]) -> int:
        return args["a"] + b

    backend.register("object", Adder())
    backend.register("partial", functools.partial(add, 5))
    assert await backend.call("object", ToolCall("object", {"a": 1})) == 2
    assert await backend.call("partial", ToolCall("partial", {"a": 1})) == 6


async def test_a_sync_handler_may_give_an_awaitable(backend: LocalBackend) -> None:
    """A lambda around an async function looks sync, and works."""

    async def add(a: int) -> int:
        return a + 1

    backend.register("thread", lambda args: add(args["a"]))
    backend.register("inline", mapping_handler(lambda args: add(args["a"]), inline=True))
    assert await backend.call("thread", ToolCall("thread", {"a": 1})) == 2
    assert await backend.call("inline", ToolCall("inline", {"a": 1})) == 2


# -- types ----------------------------------------------------------------------------------------------------------


async def test_typed_arguments_and_results(backend: LocalBackend) -> None:
    """Dataclasses, models, enums and dates go in as such and come out as JSON."""

    async def meet(person: Person, where: Point, colour: Colour, at: dt.datetime) -> Person:
        assert isinstance(person, Person)
        assert isinstance(where, Point)
        assert colour is Colour.RED
        assert at.year == 2026
        return person.model_copy(update={"name": person.name.upper()})

    args = {
        "person": {"name": "ada", "born": "1815-12-10"},
        "where": {"x": 1},
        "colour": "red",
        "at": "2026-11-21T08:00:00Z",
    }
    assert await call(backend, meet, args) == {"name": "ADA", "born": "1815-12-10"}


@pytest.mark.parametrize("kind", ["async", "generator"])
async def test_arguments_that_cannot_be_converted(backend: LocalBackend, kind: str) -> None:
    """Every one is named, and the handler is not called."""

    async def meet(where: Point, at: dt.date) -> None:
        raise AssertionError

    def stream(where: Point, at: dt.date) -> Iterator[int]:
        raise AssertionError
        yield 1

    with pytest.raises(InputValidationError) as caught:
        await call(backend, meet if kind == "async" else stream, {"where": {"x": "one"}, "at": "never"})
    assert {violation.path for violation in caught.value.violations} == {"/where/x", "/at"}


async def test_a_type_that_fails_to_convert(backend: LocalBackend) -> None:
    """A validator that raises what it should not is a failure of the call."""

    class Moody(pydantic.BaseModel):
        name: str

        @pydantic.field_validator("name")
        @classmethod
        def check(cls, _: str) -> str:
            raise SystemExit(1)

    async def greet(who: Moody) -> None:
        raise AssertionError

    with pytest.raises(HandlerError, match="tried to end the process"):
        await call(backend, tool(greet), {"who": {"name": "x"}})


async def test_a_result_of_another_type_is_passed_on(backend: LocalBackend) -> None:
    """Whatever the annotation says, the runner gets the value and says what is wrong with it."""
    thing = object()

    async def lie() -> Point:
        return thing  # type: ignore[return-value]

    assert await call(backend, lie) is thing


async def test_a_reply_in_parts_is_passed_on(backend: LocalBackend) -> None:
    """A handler may send more than a value."""
    reply = ToolReply(content=[text("hello")])

    async def speak() -> ToolReply:
        return reply

    assert await call(backend, speak) is reply


async def test_a_mapping_handler_gets_its_own_copy(backend: LocalBackend) -> None:
    """A handler's changes of its arguments do not reach the caller."""
    args = {"a": 1}
    backend.register("pop", lambda given: given.pop("a"))
    assert await backend.call("pop", ToolCall("pop", args)) == 1
    assert args == {"a": 1}
    backend.register("count", len)
    assert await backend.call("count", ToolCall("count")) == 0


# -- progress -------------------------------------------------------------------------------------------------------


async def test_progress_from_the_event_loop(backend: LocalBackend) -> None:
    """Progress arrives at once, and the handler knows which call it serves."""
    received: list[Progress] = []

    async def work(ctx: ToolContext) -> list[Any]:
        ctx.report(1, 2, "half")
        return [ctx.tool_id, len(received)]

    assert await call(backend, work, None, received.append) == ["work", 1]
    assert received == [Progress(done=1, total=2, message="half")]
    assert await call(backend, work) == ["work", 1]


@pytest.mark.parametrize("inline", [True, False])
async def test_progress_from_a_sync_handler(backend: LocalBackend, inline: bool) -> None:
    """All of it is received, in order, on the event loop's thread, before the result."""
    received: list[tuple[float, bool]] = []
    here = threading.get_ident()

    @tool(inline=inline)
    def work(ctx: ToolContext) -> str:
        for number in range(100):
            ctx.report(number)
        return "done"

    await call(backend, work, None, lambda p: received.append((p.done, threading.get_ident() == here)))
    assert received == [(number, True) for number in range(100)]


async def test_progress_from_a_generator(backend: LocalBackend) -> None:
    """A generator may report through its context as well."""
    received: list[Progress] = []

    def work(ctx: ToolContext) -> Iterator[int]:
        ctx.report(1)
        yield 1
        ctx.report(2)

    assert await call(backend, work, None, received.append) == [1]
    assert [progress.done for progress in received] == [1, 2]


async def test_a_progress_callback_that_raises(backend: LocalBackend, caplog: pytest.LogCaptureFixture) -> None:
    """An exception of the callback is logged; neither the handler nor the call notices."""

    def deaf(_: Progress) -> None:
        raise ValueError("not listening")

    async def work(ctx: ToolContext) -> str:
        ctx.report(1)
        return "done"

    assert await call(backend, work, None, deaf) == "done"
    assert await call(backend, tool(inline=False)(lambda: "done"), None, deaf) == "done"
    assert "a progress callback failed" in caplog.text


async def test_progress_after_the_end_is_not_received(backend: LocalBackend) -> None:
    """A handler that was left behind in its thread has no caller to report to."""
    received: list[float] = []
    started, gate, over = threading.Event(), threading.Event(), threading.Event()

    def work(ctx: ToolContext) -> None:
        ctx.report(1)
        started.set()
        gate.wait(30)
        ctx.report(2)
        over.set()

    task = asyncio.ensure_future(call(backend, work, None, lambda p: received.append(p.done)))
    await until(lambda: started.is_set() and received)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    await until(over.is_set)
    await asyncio.sleep(0.01)
    assert received == [1]


def test_progress_to_a_loop_that_is_closed() -> None:
    """Reporting never disturbs the handler, even when the loop has gone."""
    backend = LocalBackend()
    started, gate = threading.Event(), threading.Event()
    outcome: list[str] = []

    @tool
    def work(ctx: ToolContext) -> None:
        started.set()
        gate.wait(30)
        ctx.report(1)
        outcome.append("undisturbed")

    async def leave() -> None:
        task = asyncio.ensure_future(call(backend, work, None, print))
        await until(started.is_set)
        task.cancel()

    asyncio.run(leave())
    gate.set()
    while not outcome:
        pass
    asyncio.run(backend.aclose())


# -- names ----------------------------------------------------------------------------------------------------------


async def test_a_handler_is_found_by_key_and_by_name(backend: LocalBackend) -> None:
    """By what it was registered under, and by its tool's name and ID."""
    backend.register("key", lambda _: "found", Tool(name="name", namespace="ns", input_schema=OBJECT))
    for name in ("key", "name", "ns:name", "local:key", "local:name"):
        assert backend.has(name)
        assert await backend.call(name, ToolCall(name)) == "found"
    assert not backend.has("other")


async def test_a_name_that_could_be_two_is_not_found(backend: LocalBackend) -> None:
    """Nothing is guessed."""
    for namespace in ("a", "b"):
        backend.register(namespace, len, Tool(name="same", namespace=namespace, input_schema=OBJECT))
    assert not backend.has("same")
    assert backend.has("a:same")


async def test_a_binding_leads_back_whatever_the_backend_is_called() -> None:
    """A binding works even when an index has put the tool into the backend's namespace."""
    for backend_name in ("local", "math"):
        backend = LocalBackend(backend_name)
        bare = Tool(name="add", input_schema=OBJECT)
        backend.register("plus", lambda _: "bare", bare)
        backend.register("other", lambda _: "other", Tool(name="add", namespace="ns", version="1", input_schema=OBJECT))
        placed = bare.replace(namespace=backend_name)
        for each, answer in [(bare, "bare"), (placed, "bare"), ((await backend.list_tools())[1], "other")]:
            assert await backend.call(backend.bind(each).tool, ToolCall("x")) == answer
    assert LocalBackend().bind(Tool(name="unknown", input_schema=OBJECT)) == LocalBinding("unknown")


async def test_listing_binding_and_status(backend: LocalBackend) -> None:
    """Tools with a definition are listed in order; the others can be called all the same."""

    @tool(namespace="ns")
    def one() -> int:
        return 1

    assert backend.add(one) is one.tool
    backend.register("two", lambda _: 2)
    backend.register("three", one, Tool(name="three", input_schema=OBJECT))
    assert [each.id for each in await backend.list_tools()] == ["ns:one", "three"]
    assert backend.bind(one.tool) == LocalBinding("ns:one")
    assert backend.status().tools == 3
    backend.unregister("ns:one")
    backend.unregister("unknown")
    assert [each.id for each in await backend.list_tools()] == ["three"]
    assert isinstance(backend, StreamingBackend)


async def test_live_handlers_are_looked_up_at_each_call() -> None:
    """A mapping of handlers may change under our hands."""
    handlers: dict[str, Any] = {}
    backend = LocalBackend(handlers=handlers)
    with pytest.raises(BackendNotFoundError):
        await backend.call("now", ToolCall("now"))
    handlers["now"] = lambda _: 1
    assert [await backend.call("now", ToolCall("now")) for _ in range(2)] == [1, 1]
    handlers["now"] = tool("now", inline=True)(lambda a=3: a)
    assert await backend.call("now", ToolCall("now")) == 3
    assert backend.status().tools == 1
    await backend.aclose()


async def test_an_unknown_handler(backend: LocalBackend) -> None:
    """The error says what there is, up to ten."""
    with pytest.raises(BackendNotFoundError, match="no handler 'x'; it has none"):
        await backend.call("x", ToolCall("x"))
    for number in range(12):
        backend.register(f"h{number:02}", len)
    with pytest.raises(BackendNotFoundError, match=r"it has h00, h01, .*h09, \.\.\.$"):
        await backend.call("x", ToolCall("x"))


async def test_a_backend_that_is_switched_off(backend: LocalBackend) -> None:
    """A disabled backend refuses calls first, still lists its tools, and reports that it is disabled."""
    backend.register("x", len, Tool(name="x", input_schema=OBJECT))
    backend.enabled = False
    for name in ("x", "unknown"):
        with pytest.raises(BackendDisabledError):
            await backend.call(name, ToolCall(name))
    assert len(await backend.list_tools()) == 1
    assert backend.status().reason == "switched off"
    assert backend.status().available is False


async def test_what_cannot_be_a_handler(backend: LocalBackend) -> None:
    """Refuses an unsuitable handler when it is registered, not at the first call."""
    with pytest.raises(ConfigurationError, match="must be a function"):
        backend.register("x", None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no source to import it from"):
        backend.register("x", Handler(call=len, kind="sync", mode="process"))
    assert not backend.has("x")


@pytest.mark.full
async def test_a_backend_can_be_used_after_closing(killable: ModuleType) -> None:
    """Threads and processes come back when they are needed."""
    backend = LocalBackend()
    for _ in range(2):
        assert await call(backend, killable.add, {"a": 1}) == 2
        assert await call(backend, tool(lambda: 1)) == 1
        await backend.aclose()
        await backend.aclose()


@pytest.mark.full
def test_one_backend_serves_one_loop_after_the_other(killable: ModuleType) -> None:
    """Nothing in it belongs to a loop."""
    backend = LocalBackend()
    backend.add(killable.add)
    backend.register("thread", lambda _: threading.get_ident())

    async def use() -> None:
        answers = await asyncio.gather(*(backend.call("add", ToolCall("add", {"a": n})) for n in range(6)))
        assert answers == list(range(1, 7))
        assert await backend.call("thread", ToolCall("thread")) != threading.get_ident()

    asyncio.run(use())
    asyncio.run(use())
    asyncio.run(backend.aclose())
