"""Exec: adding tools, finding them, reading about them, running and streaming them."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

import pytest

from toolexec import (
    DocEntry,
    Exec,
    Filters,
    LocalBinding,
    Progress,
    Step,
    StreamEvent,
    Tool,
    ToolContext,
    ToolExample,
    tool,
)
from toolexec.backend import ProviderBackend
from toolexec.errors import (
    BackendNotFoundError,
    ConfigurationError,
    DocNotFoundError,
    InputValidationError,
    InvalidToolError,
    InvalidToolIDError,
    NoBackendsError,
    SandboxUnavailableError,
    StreamNotSupportedError,
    ToolConflictError,
    ToolExecError,
    ToolNotFoundError,
    ToolTimeoutError,
)
from toolexec.model import ProviderBinding
from toolexec.run import TraceEvent

ANY = {"type": "object"}
STARTED = Progress(done=0, total=1, message="started")
COMPLETED = Progress(done=1, total=1, message="completed")
FAILED = Progress(done=1, total=1, message="error")


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An Exec without arguments."""
    async with Exec() as ex:
        yield ex


class TestAdding:
    """Everything that can be a tool."""

    async def test_a_lambda(self, ex: Exec) -> None:
        """A lambda needs a name; its arguments may be anything."""
        added = ex.add(lambda a, b: a + b, "math:add")
        assert added.id == "math:add"
        assert (await ex.run_tool("math:add", {"a": 5, "b": 3})).value == 8

    async def test_a_typed_function(self, ex: Exec) -> None:
        """Its name is the tool's, its types are the schema."""

        def shout(text: str, times: int = 1) -> str:
            """Make a text loud."""
            return text.upper() * times

        added = ex.add(shout)
        assert (added.id, added.description) == ("shout", "Make a text loud.")
        assert (await ex.run_tool("shout", {"text": "a", "times": 2})).value == "AA"
        with pytest.raises(InputValidationError):
            await ex.run_tool("shout", {"text": 5})

    async def test_a_declared_function(self, ex: Exec) -> None:
        """A declared function brings its definition along."""

        @tool(namespace="text", tags=["loud"], read_only=True)
        async def shout(text: str) -> str:
            return text.upper()

        assert ex.add(shout) is shout.tool
        assert (await ex.run_tool("text:shout", {"text": "a"})).value == "A"

    async def test_a_tool_with_a_handler(self, ex: Exec) -> None:
        """The handler takes all arguments as one dict."""
        ex.add(Tool(name="t", namespace="ns", input_schema=ANY), handler=lambda args: args)
        assert (await ex.run_tool("ns:t", {"a": 1})).value == {"a": 1}

    async def test_a_tool_with_a_binding(self, ex: Exec) -> None:
        """The binding says where it lives."""
        ex.add_backends(ProviderBackend("acme", lambda name, args: name))
        ex.add(Tool(name="t", input_schema=ANY), binding=ProviderBinding("acme", "tool-17"))
        assert (await ex.run_tool("t")).value == "tool-17"

    async def test_a_tool_with_a_name_for_its_handler(self) -> None:
        """A binding may name an entry of `local_handlers`, which may be added later."""
        handlers: dict[str, Any] = {}
        async with Exec(local_handlers=handlers) as ex:
            ex.add(Tool(name="t", input_schema=ANY), binding=LocalBinding("h"))
            with pytest.raises(BackendNotFoundError, match="no handler 'h'"):
                await ex.run_tool("t")
            handlers["h"] = lambda args: 5
            assert (await ex.run_tool("t")).value == 5

    async def test_with_documentation(self, ex: Exec) -> None:
        """Notes and examples can come along."""
        entry = DocEntry(notes="Mind the gap.", examples=[ToolExample(title="one", args={"a": 1, "b": 2})])
        ex.add(lambda a, b: a + b, "math:add", doc=entry)
        doc = await ex.get_tool_doc("math:add")
        assert doc.notes == "Mind the gap."
        assert [example.title for example in doc.examples] == ["one"]

    @pytest.mark.parametrize("parts", [{}, {"handler": len, "binding": LocalBinding("h")}], ids=["neither", "both"])
    async def test_a_tool_needs_one_place(self, ex: Exec, parts: dict[str, Any]) -> None:
        """Either a handler or a binding, not both, not none."""
        with pytest.raises(ConfigurationError, match="either a handler or a binding"):
            ex.add(Tool(name="t", input_schema=ANY), **parts)
        assert len(ex.index) == 0

    async def test_a_function_is_its_own_handler(self, ex: Exec) -> None:
        """A function takes no other handler."""
        with pytest.raises(ConfigurationError, match="its own handler"):
            ex.add(lambda: 1, "t", handler=len)

    async def test_the_same_again(self, ex: Exec) -> None:
        """The same tool may be added twice."""

        @tool
        def answer() -> int:
            return 42

        ex.add(answer)
        ex.add(answer)
        assert len(ex.index) == 1

    async def test_another_under_the_same_id(self, ex: Exec) -> None:
        """Another definition is refused, and the first one still runs."""
        ex.add(lambda a: a, "t")
        with pytest.raises(ToolConflictError):
            ex.add(lambda b: b, "t")
        assert (await ex.run_tool("t", {"a": 1})).value == 1

    async def test_a_handler_that_is_none(self, ex: Exec) -> None:
        """A handler that cannot be called is refused, with nothing added."""
        with pytest.raises(ConfigurationError, match="must be a function"):
            ex.add(Tool(name="t", input_schema=ANY), handler=5)  # type: ignore[arg-type]
        assert len(ex.index) == 0

    @pytest.mark.parametrize("name", ["a b", "a:b:c:d", "a:"])
    async def test_a_name_that_is_no_id(self, ex: Exec, name: str) -> None:
        """Refuses an invalid ID."""
        with pytest.raises((InvalidToolError, InvalidToolIDError)):
            ex.add(lambda: 1, name)
        assert len(ex.index) == 0


class TestFinding:
    """Search and documentation."""

    @pytest.fixture(autouse=True)
    def tools(self, ex: Exec) -> None:
        """Two tools to distinguish."""
        ex.add(tool("demo:greet", description="Greets a user with a friendly message", read_only=True)(lambda: "hi"))
        ex.add(tool("demo:farewell", description="Says goodbye to a user")(lambda: "bye"))

    async def test_by_words(self, ex: Exec) -> None:
        """The best first, each with a score and no schema."""
        found = await ex.search_tools("greet")
        assert [summary.id for summary in found] == ["demo:greet"]
        assert found[0].score is not None
        assert found[0].short_description == "Greets a user with a friendly message"

    async def test_without_words(self, ex: Exec) -> None:
        """An empty query gives the first by ID, up to the limit."""
        assert [s.id for s in await ex.search_tools("")] == ["demo:farewell", "demo:greet"]
        assert [s.id for s in await ex.search_tools("", 1)] == ["demo:farewell"]

    async def test_with_filters(self, ex: Exec) -> None:
        """Filters narrow the search down."""
        found = await ex.search_tools("user", filters=Filters(read_only=True))
        assert [summary.id for summary in found] == ["demo:greet"]

    async def test_documentation(self, ex: Exec) -> None:
        """Three levels of it."""
        for level in ("summary", "schema", "full"):
            doc = await ex.get_tool_doc("demo:greet", level)
            assert doc.summary == "Greets a user with a friendly message"
            assert (doc.tool is None) is (level == "summary")

    async def test_documentation_of_nothing(self, ex: Exec) -> None:
        """Unknown tools and unknown levels are refused."""
        with pytest.raises((DocNotFoundError, ToolNotFoundError)):
            await ex.get_tool_doc("demo:great")
        with pytest.raises(ConfigurationError):
            await ex.get_tool_doc("demo:greet", "everything")  # pyright: ignore[reportArgumentType]

    async def test_a_backend_that_is_switched_off(self, ex: Exec) -> None:
        """Its tools are found, and say why they cannot be called."""
        backend = ProviderBackend("acme", print, tools=[Tool(name="pay", input_schema=ANY)])
        await ex.add_backends(backend)
        assert (await ex.search_tools("pay"))[0].unavailable is None
        backend.enabled = False
        assert (await ex.search_tools("pay"))[0].unavailable == "switched off"
        assert (await ex.get_tool_doc("acme:pay")).unavailable == "switched off"


class TestRunning:
    """One tool."""

    async def test_limits(self) -> None:
        """The default limit counts unless the call has its own."""

        async def stuck() -> None:
            await asyncio.Event().wait()

        async with Exec(default_timeout=0.02) as ex:
            ex.add(stuck)
            assert isinstance((await ex.run_tool("stuck")).error, ToolTimeoutError)
        async with Exec(default_timeout=None) as ex:
            ex.add(stuck)
            assert isinstance((await ex.run_tool("stuck", timeout=0.02)).error, ToolTimeoutError)

    @pytest.mark.parametrize("timeout", [0, -1])
    async def test_a_senseless_limit(self, ex: Exec, timeout: float) -> None:
        """Refuses an invalid limit."""
        ex.add(lambda: 1, "t")
        with pytest.raises(ConfigurationError):
            await ex.run_tool("t", timeout=timeout)

    async def test_progress(self, ex: Exec) -> None:
        """A callback is notified, from a thread as well."""

        def work(ctx: ToolContext) -> None:
            ctx.report(1, 2, "half")

        ex.add(work)
        received: list[Progress] = []
        await ex.run_tool("work", on_progress=received.append)
        assert received == [STARTED, Progress(done=1, total=2, message="half"), COMPLETED]

    async def test_progress_of_every_ending(self, ex: Exec) -> None:
        """Each call begins with 0 of 1 and ends with 1 of 1, whatever comes of it; what the callback raises is logged."""

        async def wait() -> None:
            await asyncio.Event().wait()

        ex.add(lambda: 1, "fine")
        ex.add(lambda: 1 / 0, "fails")
        ex.add(wait, "waits")
        received: list[Progress] = []

        def hear(progress: Progress) -> None:
            received.append(progress)
            raise ValueError("not now")

        for tool_id, ending in (
            ("fine", COMPLETED),
            ("fails", FAILED),
            ("waits", FAILED),
            ("no:such", FAILED),
            ("a::b", FAILED),
        ):
            received.clear()
            with suppress(ToolExecError):
                await ex.run_tool(tool_id, timeout=0.02, on_progress=hear)
            assert received == [STARTED, ending], tool_id

    async def test_progress_of_a_cancelled_call(self, ex: Exec) -> None:
        """The progress of a cancelled call only says that it began."""

        async def wait() -> None:
            await asyncio.Event().wait()

        ex.add(wait, "waits")
        received: list[Progress] = []
        task = asyncio.create_task(ex.run_tool("waits", on_progress=received.append))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert received == [STARTED]

    async def test_a_done_event_keeps_its_own_tool_id(self, ex: Exec) -> None:
        """As the other events of a generator do; those without one get that of the tool."""

        async def forwarding(own: bool, kind: str) -> AsyncIterator[Any]:
            own_id = "inner:tool" if own else ""
            yield StreamEvent(kind="chunk", data=1, tool_id=own_id)
            yield StreamEvent(kind=kind, data=["end"], tool_id=own_id)

        async def forwarding_with_context(own: bool, kind: str, context: ToolContext) -> AsyncIterator[Any]:
            async for event in forwarding(own, kind):
                yield event

        ex.add(forwarding)
        ex.add(forwarding_with_context)
        for name in ("forwarding", "forwarding_with_context"):
            for kind in ("done", "error"):
                for own, expected in ((True, "inner:tool"), (False, name)):
                    events = [event async for event in ex.stream_tool(name, {"own": own, "kind": kind})]
                    assert [(e.kind, e.tool_id) for e in events] == [("chunk", expected), (kind, expected)]

    async def test_checks_can_be_switched_off(self) -> None:
        """Without checks the handler sees what comes, and gives what it likes."""
        async with Exec(validate_input=False, validate_output=False) as ex:

            async def add(a: int, b: int) -> int:
                return a + b

            ex.add(add)
            assert (await ex.run_tool("add", {"a": "x", "b": "y"})).value == "xy"

    async def test_context(self, ex: Exec) -> None:
        """An async handler shares the caller's context variables, as with a plain await."""
        variable = contextvars.ContextVar("variable", default=0)

        async def bump() -> int:
            variable.set(variable.get() + 1)
            return variable.get()

        ex.add(bump)
        variable.set(10)
        assert (await ex.run_tool("bump")).value == 11
        assert variable.get() == 11

    async def test_a_handler_that_calls_other_tools(self, ex: Exec) -> None:
        """A tool may use the Exec that runs it."""

        async def twice(value: int) -> int:
            first = await ex.run_tool("double", {"value": value})
            return (await ex.run_tool("double", {"value": first.value})).value

        ex.add(lambda value: 2 * value, "double")
        ex.add(twice)
        assert (await ex.run_tool("twice", {"value": 3})).value == 12

    async def test_trace(self) -> None:
        """A hook is notified of calls, steps and streams: they all go through the one runner."""
        received: list[TraceEvent] = []
        async with Exec(trace=received.append) as ex:
            ex.add(lambda: 1, "t")
            await ex.run_tool("t")
            await ex.run_chain([Step(tool_id="t"), Step(tool_id="t")])
            async for _ in ex.stream_tool("t"):
                pass
        assert [event.kind for event in received] == ["start", "end"] * 4

    async def test_layers(self) -> None:
        """Rules of one's own go around every call: inside of the trace, outside of the time limit, the first outermost."""
        log: list[str] = []

        class Rule:
            def __init__(self, name: str, inner: Any) -> None:
                self.name, self.inner = name, inner
                self.stream = inner.stream

            async def run(self, call: Any) -> Any:
                log.append(f"{self.name} in")
                result = await self.inner.run(call)
                log.append(f"{self.name} out")
                return result

        async with Exec(
            layers=[lambda inner: Rule("one", inner), lambda inner: Rule("two", inner)],
            trace=lambda event: log.append(event.kind),
        ) as ex:
            ex.add(lambda: 1, "t")
            await ex.run_chain([Step("t")])
        assert log == ["start", "one in", "two in", "two out", "one out", "end"]

    async def test_resolvers(self) -> None:
        """Tools that the index does not know may come from elsewhere."""
        known = Tool(name="t", namespace="far", input_schema=ANY)
        async with Exec(
            tool_resolver=lambda tool_id: known if tool_id == "far:t" else None,
            bindings_resolver=lambda _: [ProviderBinding("acme", "t")],
            provider_executor=lambda provider, name, args: [provider, name],
        ) as ex:
            assert (await ex.run_tool("far:t")).value == ["acme", "t"]
            with pytest.raises(ToolNotFoundError):
                await ex.run_tool("far:u")
        async with Exec(tool_resolver=lambda _: known) as ex:
            with pytest.raises(NoBackendsError):
                await ex.run_tool("far:t")

    async def test_nothing_stands_in(self, ex: Exec) -> None:
        """Without an executor for it, a provider's tool cannot be called."""
        ex.add(Tool(name="t", input_schema=ANY), binding=ProviderBinding("acme", "t"))
        with pytest.raises(BackendNotFoundError, match="acme"):
            await ex.run_tool("t")


class TestStreaming:
    """One tool, piece by piece."""

    async def test_a_generator(self, ex: Exec) -> None:
        """Chunks, then the whole."""

        async def count(to: int) -> AsyncIterator[int]:
            for number in range(to):
                yield number

        ex.add(count)
        assert [(e.kind, e.data) async for e in ex.stream_tool("count", {"to": 2})] == [
            ("chunk", 0),
            ("chunk", 1),
            ("done", [0, 1]),
        ]

    async def test_a_plain_tool(self, ex: Exec) -> None:
        """One event, or a refusal if that is asked for."""
        ex.add(lambda: 1, "t")
        assert [(e.kind, e.data) async for e in ex.stream_tool("t")] == [("done", 1)]
        with pytest.raises(StreamNotSupportedError):
            await anext(ex.stream_tool("t", fallback=False))

    async def test_a_limit(self, ex: Exec) -> None:
        """A limit ends the stream with an error, and stops the tool."""

        async def stuck() -> AsyncIterator[int]:
            yield 1
            await asyncio.Event().wait()

        ex.add(stuck)
        events = [event async for event in ex.stream_tool("stuck", timeout=0.5)]
        assert [event.kind for event in events] == ["chunk", "error"]
        assert isinstance(events[-1].error, ToolTimeoutError)

    async def test_leaving_early(self, ex: Exec) -> None:
        """Closing the iterator stops the tool."""
        closed: list[bool] = []

        async def endless() -> AsyncIterator[int]:
            try:
                while True:
                    yield 0
            finally:
                closed.append(True)

        ex.add(endless)
        async with aclosing(ex.stream_tool("endless")) as events:
            await anext(events)
        assert closed == [True]


class TestCode:
    """Code that calls tools comes later; what there is says so."""

    async def test_switched_off(self) -> None:
        """The error names the switch."""
        async with Exec(enable_code_execution=False) as ex:
            with pytest.raises(ConfigurationError, match="enable_code_execution=True"):
                await ex.execute_code("1 + 1")

    async def test_no_sandbox(self) -> None:
        """The error names the profile that nothing serves."""
        async with Exec(runtime_backends=[], security_profile="hardened") as ex:
            with pytest.raises(SandboxUnavailableError, match="hardened"):
                await ex.execute_code("1 + 1", language="python", timeout=1, max_tool_calls=1, env={"A": "b"})
