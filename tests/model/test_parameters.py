"""Parameters as pydantic reads them: the same functions, beside `TypeAdapter` and `validate_call`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Optional

import pydantic
import pytest
from pydantic import Field
from typing_extensions import Doc

from toolexec import Exec
from toolexec.errors import InputValidationError
from toolexec.model import declare


def required_field(n: int = Field(..., le=5)) -> Any:
    return n


def bare_field(n: int = Field(le=5, description="How many.")) -> Any:
    return n


def field_with_default(n: int = Field(3, ge=1, le=5)) -> Any:
    return n


def field_with_factory(n: list[int] = Field(default_factory=list, max_length=2)) -> Any:  # noqa: B008
    return n


def annotated(n: Annotated[int, Field(le=5)]) -> Any:
    return n


def annotated_default(n: Annotated[int, Field(le=5)] = 2) -> Any:
    return n


def default_in_annotation(n: Annotated[int, Field(default=4, le=5)]) -> Any:
    return n


def optional(n: int | None = None) -> Any:
    return n


def optional_field(n: Optional[str] = Field(None, max_length=3)) -> Any:  # noqa: UP045
    return n


def pattern(n: str = Field("ab", pattern="^a")) -> Any:
    return n


def plain(n: int, m: str = "x") -> Any:
    return n, m


SIGNATURES = [
    required_field,
    bare_field,
    field_with_default,
    field_with_factory,
    annotated,
    annotated_default,
    default_in_annotation,
    optional,
    optional_field,
    pattern,
    plain,
]
VALUES: list[dict[str, Any]] = [
    {},
    *({"n": value} for value in (1, 5, 9, 0, "abc", "abcd", "b", [], [1], [1, 2, 3], None)),
    {"n": 1, "unknown": 2},
]


@pytest.mark.parametrize("function", SIGNATURES)
async def test_the_schema_is_that_of_pydantic(function: Callable[..., Any]) -> None:
    """Required names, constraints and defaults; titles apart."""
    expected = pydantic.TypeAdapter(function).json_schema()
    schema = declare(function).tool.input_schema.to_json()
    assert schema.get("required", []) == expected.get("required", [])
    for name, each in expected["properties"].items():
        each.pop("title", None)
        assert schema["properties"][name] == each


@pytest.mark.parametrize("function", SIGNATURES)
async def test_a_call_is_that_of_pydantic(function: Callable[..., Any]) -> None:
    """Accept and refuse the same values, and hand the same ones to the handler."""
    checked = pydantic.validate_call(config={"strict": True})(function)
    async with Exec() as ex:
        tool = ex.add(function, "t:f")
        for args in VALUES:
            optional = tool.input_schema.to_json().get("required", []) == []
            try:
                expected = checked(**({} if optional and args == {"n": None} else args))  # null: as if left out
            except pydantic.ValidationError:
                with pytest.raises(InputValidationError):
                    await ex.run_tool(tool.id, args)
            else:
                value = (await ex.run_tool(tool.id, args)).raise_for_error().value
                assert value == (list(expected) if isinstance(expected, tuple) else expected)


async def test_a_factory_makes_a_new_value_for_each_call() -> None:
    """No call sees what another has put into its default."""

    def grow(n: list[int] = Field(default_factory=list)) -> Any:  # noqa: B008
        n.append(1)
        return n

    async with Exec() as ex:
        ex.add(grow, "t:grow")
        assert [(await ex.run_tool("t:grow")).value for _ in range(2)] == [[1], [1]]


async def test_none_as_the_default_of_any_type_admits_null() -> None:
    """`city: str = None` may be left out, and may be null."""

    def weather(city: str = None) -> Any:  # type: ignore[assignment]  # noqa: RUF013
        return city

    async with Exec() as ex:
        tool = ex.add(weather, "t:weather")
        assert "required" not in tool.input_schema.to_json()
        assert [(await ex.run_tool(tool.id, args)).value for args in ({}, {"city": None}, {"city": "Bern"})] == [
            None,
            None,
            "Bern",
        ]
        with pytest.raises(InputValidationError):
            await ex.run_tool(tool.id, {"city": 5})


def test_doc_describes_a_parameter() -> None:
    """`Doc` of PEP 727 does, as a text in the annotation, and as `Field` does."""

    def find(a: Annotated[str, Doc("The name.")], b: Annotated[int, "How many."], c: int = Field(1, description="C.")):
        """Finds."""

    properties = declare(find).tool.input_schema.to_json()["properties"]
    assert [each["description"] for each in properties.values()] == ["The name.", "How many.", "C."]


SPHINX = """Finds a city.

:param city: The name.
:type city: str
:param int days: How many,
    at least one.
:returns: A list."""
NUMPY = """Finds a city.

Parameters
----------
city : str
    The name.
days : int, optional
    How many, at least one.

Returns
-------
list
    The cities."""
MIXED = """Finds a city.

:param city: The name.

Args:
    days: How many, at least one.

Returns:
    A list."""


@pytest.mark.parametrize("text", [SPHINX, NUMPY, MIXED])
def test_styles_of_docstrings(text: str) -> None:
    """Sphinx, numpy, and Sphinx within another: none of the markup is left in the description."""

    def find(city: str, days: int = 1) -> Any:
        return city, days

    find.__doc__ = text
    tool = declare(find).tool
    assert tool.description == "Finds a city."
    described = {
        name: " ".join(each["description"].split()) for name, each in tool.input_schema.to_json()["properties"].items()
    }
    assert described == {"city": "The name.", "days": "How many, at least one."}


def test_only_fields_in_a_docstring() -> None:
    """A docstring of nothing but fields has no description."""

    def find(city: str) -> Any:
        """:param city: The name."""
        return city

    tool = declare(find).tool
    assert tool.description == ""
    assert tool.input_schema.to_json()["properties"]["city"]["description"] == "The name."
    assert inspect.getdoc(find) == ":param city: The name."
