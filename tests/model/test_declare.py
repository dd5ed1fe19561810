"""`@tool`: typed functions become tools."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from toolexec.errors import ConfigurationError, InvalidToolError, InvalidToolIDError
from toolexec.model import FunctionTool, ToolContext, declare, tool


@tool(namespace="math", tags=["Sum"], read_only=True, version="1.0.0", title="Adder")
def add(a: int, b: int = 1) -> int:
    """Adds two numbers.

    More about it.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@tool(killable=True)
def slow(n: int) -> int:
    """Takes a while."""
    return n


class TestDefinition:
    def test_everything_comes_from_the_function(self) -> None:
        """Name, description, schemas and hints."""
        definition = add.tool
        assert definition.id == "math:add:1.0.0"
        assert definition.description == "Adds two numbers.\n\nMore about it."
        assert (definition.title, definition.tags, definition.annotations.read_only) == ("Adder", ("sum",), True)
        assert definition.input_schema.to_json() == {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "description": "The first."},
                "b": {"type": "integer", "description": "The second.", "default": 1},
            },
            "required": ["a"],
            "additionalProperties": False,
        }
        assert definition.output_schema is not None
        assert definition.output_schema.to_json() == {"type": "integer"}

    def test_it_is_still_the_function(self) -> None:
        """Calling it calls the function, without any check."""
        assert add(2, b=3) == 5
        assert add("a", "b") == "ab"  # type: ignore[arg-type]
        assert (add.__name__, add.__module__, add.__wrapped__(1, 1)) == ("add", __name__, 2)
        assert repr(add) == "FunctionTool('math:add:1.0.0')"
        assert add.handler.call({"a": 1, "b": 2}) == 3

    def test_bare_decorator(self) -> None:
        """Without parentheses, all is at its default."""

        @tool
        def ping() -> str:
            return "pong"

        assert ping.tool.id == "ping"
        assert ping.tool.description == ""
        assert ping() == "pong"

    def test_whole_id_as_name(self) -> None:
        """The name may bring namespace and version along."""

        @tool("net:ping:2.0.0", description="Given")
        def anything() -> None:
            """Not this."""

        assert anything.tool.id == "net:ping:2.0.0"
        assert anything.tool.description == "Given"
        with pytest.raises(InvalidToolIDError):
            tool("a:b:c:d")(lambda: 1)

    @pytest.mark.parametrize(
        "docstring",
        [
            "Does it.\n\nArgs:\n    a (int): The one.\n",
            "Does it.\n\nParameters\n----------\na : int\n    The one.\n",
            "Does it.\n\n:param a: The one.\n",
            "Does it.\n\n@param a: The one.\n",
        ],
        ids=["google", "numpy", "sphinx", "epydoc"],
    )
    def test_docstring_styles(self, docstring: str) -> None:
        """Parameters are described in any of the four styles."""

        def function(a: int) -> None: ...

        function.__doc__ = docstring
        made = declare(function).tool
        assert made.description == "Does it."
        assert made.input_schema.to_json()["properties"]["a"]["description"] == "The one."

    def test_odd_docstrings_are_kept_as_they_are(self) -> None:
        """A text that no style understands is the description."""

        def function() -> None: ...

        function.__doc__ = "Args:\n    a b c"
        assert declare(function).tool.description

    def test_lambdas_partials_and_objects(self) -> None:
        """Other callables get the nearest legal name."""

        class Adder:
            def __call__(self, n: int) -> int:
                return n + 1

        made = declare(Adder())
        assert (made.tool.id, made.handler.call({"n": 1})) == ("Adder", 2)
        assert declare(lambda: 1).tool.id == "lambda"
        assert declare(functools.partial(add.__wrapped__, b=5), "five").handler.call({"a": 1}) == 6


class TestHandler:
    def test_kinds(self) -> None:
        """Async functions and generators keep their kind."""

        @tool
        async def one() -> int:
            return 1

        @tool
        def many() -> Iterator[int]:
            yield 1

        @tool
        async def stream() -> AsyncIterator[int]:
            yield 1

        kinds = [made.handler.kind for made in (add, one, many, stream)]
        assert kinds == ["sync", "async", "generator", "async_generator"]

    def test_context_is_no_argument(self) -> None:
        """A parameter annotated with ToolContext is filled by the runner."""

        @tool
        def report(n: int, ctx: ToolContext) -> str:
            return f"{ctx.tool_id} {n}"

        assert report.handler.wants_context
        assert list(report.tool.input_schema.to_json()["properties"]) == ["n"]
        assert report.handler.call({"n": 1}, ToolContext("x")) == "x 1"

    def test_killable(self) -> None:
        """A killable function tells where a worker process finds it."""
        assert slow.handler.mode == "process"
        assert slow.handler.source == (__name__, "slow", True)
        assert add.handler.source is None

    def test_inline(self) -> None:
        """Inline code runs on the event loop."""
        assert tool(inline=True)(lambda: 1).handler.mode == "inline"


class TestRefusals:
    def test_twice(self) -> None:
        """A tool is not declared as a tool again."""
        with pytest.raises(InvalidToolError, match="declared as a tool already"):
            declare(add)
        assert isinstance(add, FunctionTool)

    def test_killable_and_context(self) -> None:
        """A process cannot reach the caller's context."""

        def function(ctx: ToolContext) -> None: ...

        function.__qualname__ = "function"
        with pytest.raises(InvalidToolError, match="cannot take a ToolContext"):
            declare(function, killable=True)

    def test_killable_lambda(self) -> None:
        """Refuses a killable handler that cannot be imported."""
        with pytest.raises(ConfigurationError):
            declare(lambda: 1, killable=True)

    @pytest.mark.parametrize("parts", [{"namespace": "a:b"}, {"version": "1"}])
    def test_illegal_parts(self, parts: dict[str, Any]) -> None:
        """A tool's own rules apply."""
        with pytest.raises(InvalidToolError):
            declare(lambda: 1, "t", **parts)
