"""`dir` and `help` in a program show tools, their signatures and descriptions, and nothing of the inside."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from toolexec import Exec


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """A library with tools in two namespaces, one with a hyphen in its name, and one without a namespace."""

    def add(a: int, b: int = 1) -> int:
        """Adds two numbers."""
        return a + b

    async with Exec() as made:
        made.add(add, "math:add")
        made.add(add, "math:add-twice")
        made.add(add, "my-space:add")
        made.add(add, "alone")
        yield made


async def _value(ex: Exec, code: str) -> object:
    return (await ex.execute_code(code)).raise_for_error().value


async def _printed(ex: Exec, code: str) -> str:
    done = await ex.execute_code(code)
    done.raise_for_error()
    return done.stdout


async def test_dir_lists_what_can_be_called(ex: Exec) -> None:
    """Namespaces and tools by the names that a program writes, and the functions of `tools`."""
    names = await _value(ex, "return dir(tools)")
    assert isinstance(names, list)
    assert {"math", "my_space", "alone", "run", "search"} <= {*names}
    assert [name for name in names if isinstance(name, str) and name.startswith("_")] == []
    assert await _value(ex, "return dir(tools.math)") == ["add", "add_twice"]
    assert await _value(ex, "return dir(tools.my_space)") == ["add"]
    assert await _value(ex, "return dir(tools.math.add)") == []
    assert await _value(ex, "return dir(tools.nothing)") == []


async def test_help_shows_a_signature(ex: Exec) -> None:
    """Of a tool its arguments with their types and defaults, and what it does."""
    shown = await _printed(ex, "help(tools.math.add)")
    assert "def add(" in shown
    assert "a: int" in shown
    assert "default 1" in shown
    assert "Adds two numbers." in shown


async def test_help_lists_a_namespace(ex: Exec) -> None:
    """Of a namespace its tools, of `tools` all namespaces."""
    assert "tools.math.add_twice: Adds two numbers." in await _printed(ex, "help(tools.math)")
    shown = await _printed(ex, "help(tools)")
    assert "tools.my_space" in shown
    assert "tools.alone" in shown


async def test_help_on_nothing_says_so(ex: Exec) -> None:
    """A name that leads nowhere fails as its call would, with the nearest right one."""
    done = await ex.execute_code("help(tools.math.ad)")
    assert done.error is not None
    assert "math:add" in done.error.message


async def test_help_is_still_that_of_python(ex: Exec) -> None:
    """Describe whatever is not a tool as Python does."""
    assert "Return the number of items" in await _printed(ex, "help(len)")


async def test_names_are_shown_as_they_are_written(ex: Exec) -> None:
    """The text of a namespace or tool is the way to it."""
    assert await _value(ex, "return [repr(tools), repr(tools.math), str(tools.math.add)]") == [
        "tools",
        "tools.math",
        "tools.math.add",
    ]


async def test_only_tools_that_may_be_called_are_shown() -> None:
    """List those alone that a program is given."""
    async with Exec() as ex:
        ex.add(lambda: 1, "a:x")
        ex.add(lambda: 1, "b:y")
        done = await ex.execute_code("return [dir(tools), dir(tools.b)]", allowed_tools=["a:x"])
    value = done.raise_for_error().value
    assert isinstance(value, list)
    assert "a" in value[0]
    assert "b" not in value[0]
    assert value[1] == []
