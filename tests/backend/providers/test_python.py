"""Python modules as providers: functions, `@tool` functions, an Exec, and tools of other frameworks as they are."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.kinds import source_of
from toolexec.errors import (
    BackendUnavailableError,
    ConfigurationError,
    HandlerError,
    InputValidationError,
    RemoteToolError,
)
from toolexec.model.call import ToolCall

Make = Callable[[str], str]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Write a module that can be imported; gives its name."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[str] = []

    def make(text: str) -> str:
        name = f"provided_{abs(hash(text))}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        made.append(name)
        return name

    yield make
    for name in made:
        sys.modules.pop(name, None)


@asynccontextmanager
async def backend(target: Any, **settings: Any) -> AsyncIterator[SourceBackend]:
    """A started backend for the target."""
    made = SourceBackend("py", source_of("python", "py", {"target": target, **settings}))
    await made.start()
    try:
        yield made
    finally:
        await made.aclose()


async def call(made: SourceBackend, name: str, args: Any = None) -> Any:
    """Call a tool."""
    return await made.call(name, ToolCall(f"py:{name}", args))


FUNCTIONS = """
    import threading
    from toolexec import tool

    @tool("math:add", read_only=True)
    def add(a: int, b: int = 1) -> int:
        "Adds two numbers."
        return a + b

    @tool
    async def where() -> str:
        return threading.current_thread().name

    @tool
    def count(to: int):
        yield from range(to)

    def plain(text: str) -> str:
        "Repeats a text."
        return f"{threading.current_thread().name != 'MainThread'} {text}"

    many = [plain, add]
    class Kit:
        def get_tools(self):
            return {"a": add, "p": plain}
    kit = Kit()
    nothing = 3
"""


async def test_the_tools_of_a_module(module: Make) -> None:
    """All that are declared; each runs as it does in an Exec."""
    async with backend(module(FUNCTIONS)) as made:
        tools = {tool.id: tool for tool in await made.list_tools()}
        assert tools.keys() == {"py:add", "py:where", "py:count"}
        assert tools["py:add"].annotations.read_only
        assert await call(made, "add", {"a": 1}) == 2
        assert await call(made, "where") == threading.current_thread().name
        assert await call(made, "count", {"to": 2}) == [0, 1]
        events = [event.kind async for event in made.stream("count", ToolCall("py:count", {"to": 2}))]
        assert events == ["chunk", "chunk", "done"]
        with pytest.raises(HandlerError):
            await call(made, "add", {"a": "x", "b": 1})


async def test_what_a_name_in_a_module_holds(module: Make) -> None:
    """A function, a list, an object with tools; several targets at once."""
    name = module(FUNCTIONS)
    async with backend(f"{name}:plain", namespace="text") as made:
        (tool,) = await made.list_tools()
        assert (tool.id, tool.description) == ("text:plain", "Repeats a text.")
        assert await call(made, "plain", {"text": "x"}) == "True x"
    for target in (f"{name}:many", f"{name}:kit", [f"{name}:add", f"{name}:plain"]):
        async with backend(target) as made:
            assert {tool.name for tool in await made.list_tools()} == {"add", "plain"}
    async with backend(f"{name}:many", include=["add"]) as made:
        assert [tool.name for tool in await made.list_tools()] == ["add"]
    async with backend(f"{name}:many", include=["ad"]) as made:
        assert "no tool 'ad' to include; did you mean add" in (made.status().reason or "")
    async with backend([f"{name}:add", f"{name}:many"]) as made:
        assert "another tool has the same name" in made.status().skipped["math:add"]


async def test_an_exec_keeps_its_own_gate(module: Make) -> None:
    """Calls of its tools go through it, and it is closed with the provider."""
    name = module(
        """
        from toolexec import Exec, tool

        @tool("math:add")
        def add(a: int, b: int) -> int:
            return a + b

        @tool("math:count")
        def count(to: int):
            yield from range(to)

        def boom():
            raise ValueError("no")

        ex = Exec()
        ex.add(add)
        ex.add(count)
        ex.add(boom, "other:add")
        """
    )
    async with backend(f"{name}:ex") as made:
        assert {tool.name for tool in await made.list_tools()} == {"math.add", "count", "other.add"}
        assert await call(made, "math.add", {"a": 1, "b": 2}) == 3
        assert await call(made, "count", {"to": 2}) == [0, 1]
        events = [event.data async for event in made.stream("count", ToolCall("py:count", {"to": 2}))]
        assert events == [0, 1, [0, 1]]
        with pytest.raises(HandlerError, match="ValueError: no"):
            await call(made, "other.add")
        with pytest.raises(InputValidationError):
            await call(made, "math.add", {"a": 1})


@pytest.mark.parametrize(
    ("text", "target", "said"),
    [
        ("", "no_such_module_at_all", "there is no Python module no_such_module_at_all"),
        ("import no_such_package", "{}", "cannot be imported: ModuleNotFoundError"),
        ("raise SystemExit(3)", "{}", "cannot be imported: SystemExit: 3"),
        ("def f(:", "{}", "SyntaxError"),
        ("x = 1", "{}", "has no tools"),
        ("x = 1", "{}:y", "has no 'y'"),
        ("x = 1", "{}:x", "int has no tools"),
        ("class A:\n def tools(self): raise ValueError('t')\na = A()", "{}:a", "its tools failed: ValueError: t"),
        ("def f(*args): pass", "{}:f", "f"),
    ],
)
async def test_what_cannot_be_loaded_is_the_reason(module: Make, text: str, target: str, said: str) -> None:
    """The reason is in the status, and a call has it, too."""
    async with backend(target.format(module(text))) as made:
        status = made.status()
        assert said in (status.reason or str(status.skipped))
        if not status.available:
            with pytest.raises(BackendUnavailableError):
                await call(made, "x")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "needs a target"),
        ({"target": "a b"}, "is not package.module"),
        ({"target": "a:"}, "is not package.module"),
        ({"target": "../x"}, "is not package.module"),
        ({"target": "a", "tagret": 1}, "did you mean target"),
        ({"target": "a", "namespace": "x y"}, "its namespace"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    """Each is named at the door, and nothing is imported."""
    with pytest.raises(ConfigurationError, match=said):
        source_of("python", "py", settings)


LANGCHAIN = """
    import threading
    from langchain_core.tools import BaseTool, StructuredTool, ToolException, tool
    from pydantic import BaseModel

    class Where(BaseModel):
        city: str
        days: int = 1

    @tool(args_schema=Where)
    def weather(city: str, days: int = 1) -> str:
        "Forecasts the weather."
        return f"{city} {days} {threading.current_thread().name != 'MainThread'}"

    @tool
    async def later(n: int) -> dict:
        "Waits."
        return {"n": n}

    @tool
    def broken(n: int) -> str:
        "Fails."
        raise ToolException("it is broken")

    careful = broken.model_copy(update={"name": "careful", "handle_tool_error": True})

    @tool(response_format="content_and_artifact")
    def both(n: int):
        "Gives both."
        return f"text {n}", {"n": n}

    class Own(BaseTool):
        name: str = "own"
        description: str = "Its own class."

        def _run(self, word: str) -> str:
            return word.upper()

    own = Own()
    given = StructuredTool(name="raw", description="d", func=lambda **kw: kw,
                           args_schema={"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})
"""


async def test_tools_of_langchain(module: Make) -> None:
    """As they are: schemas, sync in threads, async on the loop, what they handle themselves as an error."""
    pytest.importorskip("langchain_core")
    async with backend(module(LANGCHAIN)) as made:
        tools = {tool.name: tool for tool in await made.list_tools()}
        assert made.status().skipped == {}
        assert tools.keys() == {"weather", "later", "broken", "careful", "both", "own", "raw"}
        assert tools["weather"].description == "Forecasts the weather."
        schema: Any = tools["weather"].input_schema.to_json()
        assert schema["required"] == ["city"]
        assert schema["properties"]["days"]["default"] == 1
        assert await call(made, "weather", {"city": "Oslo"}) == "Oslo 1 True"
        assert await call(made, "later", {"n": 3}) == {"n": 3}
        assert await call(made, "both", {"n": 1}) == "text 1"
        assert await call(made, "own", {"word": "a"}) == "A"
        assert await call(made, "raw", {"x": 1}) == {"x": 1}
        with pytest.raises(HandlerError, match="it is broken"):
            await call(made, "broken", {"n": 1})
        with pytest.raises(RemoteToolError, match="it is broken"):
            await call(made, "careful", {"n": 1})


PYDANTIC_AI = """
    import threading
    from dataclasses import dataclass
    from pydantic_ai import RunContext, Tool
    from pydantic_ai.toolsets import FunctionToolset

    @dataclass
    class Place:
        name: str
        at: tuple[float, float] = (0, 0)

    def where(place: Place, times: int = 1) -> str:
        "Says where it is."
        return f"{type(place).__name__} {place.name * times} {threading.current_thread().name != 'MainThread'}"

    async def later(n: int) -> int:
        return n + 1

    def single(place: Place) -> str:
        return place.name

    def context(ctx: RunContext[None], n: int) -> int:
        return n

    def spread(*numbers: int) -> int:
        return sum(numbers)

    def raw(**given):
        return given

    tools = [Tool(where), Tool(later, name="soon"), Tool(context), Tool(single), Tool(spread),
             Tool.from_schema(raw, "raw", "d", {"type": "object", "properties": {"x": {"type": "integer"}}})]
    kit = FunctionToolset([where, later])
"""


async def test_tools_of_pydantic_ai(module: Make) -> None:
    """As they are, with their arguments as the types that they ask for; those that need an agent's run are skipped."""
    pytest.importorskip("pydantic_ai")
    name = module(PYDANTIC_AI)
    async with backend(f"{name}:tools") as made:
        tools = {tool.name: tool for tool in await made.list_tools()}
        assert tools.keys() == {"where", "soon", "single", "spread", "raw"}
        assert "context of an agent's run" in made.status().skipped["context"]
        assert tools["where"].description == "Says where it is."
        assert await call(made, "where", {"place": {"name": "a"}, "times": 2}) == "Place aa True"
        assert await call(made, "soon", {"n": 1}) == 2
        assert await call(made, "single", {"name": "b"}) == "b"
        assert await call(made, "spread", {"numbers": [1, 2]}) == 3
        assert await call(made, "raw", {"x": 1}) == {"x": 1}
        with pytest.raises(HandlerError, match="ValidationError"):
            await call(made, "soon", {"n": "x"})
    async with backend(f"{name}:kit") as made:
        assert {tool.name for tool in await made.list_tools()} == {"where", "later"}


async def test_what_looks_like_a_tool_of_llamaindex(module: Make) -> None:
    """Its public attributes are all that is needed: metadata, call and acall."""
    name = module(
        """
        from types import SimpleNamespace

        class Output:
            def __init__(self, value, is_error=False):
                self.raw_output, self.is_error, self.content = value, is_error, str(value)

        class Tool:
            metadata = SimpleNamespace(
                name="double", description="Doubles.",
                get_parameters_dict=lambda: {"type": "object", "properties": {"n": {"type": "integer"}}},
            )

            def call(self, n):
                return Output(2 * n, is_error=n < 0)

            async def acall(self, n):
                raise AssertionError

        double = Tool()
        """
    )
    async with backend(f"{name}:double") as made:
        assert await call(made, "double", {"n": 2}) == 4
        with pytest.raises(RemoteToolError, match="double failed: -2"):
            await call(made, "double", {"n": -1})


async def test_a_module_that_hangs_is_given_up(module: Make) -> None:
    """The reading has its time limit; the event loop goes on."""
    name = module(
        "import threading\ngo = threading.Event()\n__import__('sys').modules['gate_of_test'] = go\ngo.wait(30)"
    )
    made = SourceBackend("py", source_of("python", "py", {"target": name}), timeout=0.3)
    try:
        async with asyncio.timeout(20):
            await made.start()
        assert "within 0.3 s" in (made.status().reason or "")
    finally:
        gate: Any = sys.modules.pop("gate_of_test", None)
        gate.set()
        await made.aclose()
