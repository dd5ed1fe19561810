"""From annotations to JSON Schema, and from JSON to typed arguments."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pydantic
import pytest

from toolexec.errors import InputValidationError, InvalidToolError
from toolexec.model import Schema, ToolReply, declare


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


ORIGIN = Point(1)


class User(pydantic.BaseModel):
    name: str
    born: dt.date | None = None


class Node(pydantic.BaseModel):
    value: int
    children: list[Node] = []


def schema_of(function: Any) -> dict[str, Any]:
    """The input schema of a function."""
    return declare(function).tool.input_schema.to_json()


class TestInput:
    def test_builtins(self) -> None:
        """Python's types become JSON's."""

        def f(a: int, b: float, c: str, d: bool, e: list[int], g: dict[str, float], h: None, i: Any, j): ...  # type: ignore[no-untyped-def]

        properties = schema_of(f)["properties"]
        types = {name: part.get("type") for name, part in properties.items()}
        assert types == {
            "a": "integer",
            "b": "number",
            "c": "string",
            "d": "boolean",
            "e": "array",
            "g": "object",
            "h": "null",
            "i": None,
            "j": None,
        }
        assert properties["e"]["items"] == {"type": "integer"}

    def test_literals_enums_and_optionals(self) -> None:
        """Closed sets become enums, optionals alternatives with null."""

        def f(mode: Literal["a", "b"], colour: Colour, maybe: int | None = None, other: int | str = 3): ...

        schema = Schema.of(schema_of(f)).guard()
        assert schema.accepts({"mode": "a", "colour": "red"})
        assert schema.accepts({"mode": "b", "colour": "blue", "maybe": None, "other": "x"})
        assert not schema.accepts({"mode": "c", "colour": "red"})
        assert not schema.accepts({"mode": "a", "colour": "green"})
        assert schema.to_json()["properties"]["maybe"]["default"] is None

    def test_annotated(self) -> None:
        """A text describes, pydantic's fields constrain."""

        def f(a: Annotated[int, "How many"], b: Annotated[int, pydantic.Field(ge=1, description="Positive")]): ...

        properties = schema_of(f)["properties"]
        assert properties["a"] == {"type": "integer", "description": "How many"}
        assert (properties["b"]["minimum"], properties["b"]["description"]) == (1, "Positive")

    def test_models(self) -> None:
        """Dataclasses and models share their definitions, recursive ones included."""

        def f(start: Point, end: Point, tree: Node, user: User): ...

        schema = Schema.of(schema_of(f)).guard()
        args = {"start": {"x": 1}, "end": {"x": 1, "y": 2}, "tree": {"value": 1, "children": [{"value": 2}]}}
        assert schema.accepts({**args, "user": {"name": "n", "born": None}})
        assert not schema.accepts({**args, "user": {}})

    def test_extra_arguments(self) -> None:
        """`**kwargs` lets other names in, of its type; without it they are refused."""

        def f(a: int, **rest: int): ...

        schema = Schema.of(schema_of(f))
        assert schema.accepts({"a": 1, "b": 2})
        assert not schema.accepts({"a": 1, "b": "x"})
        assert not Schema.of(schema_of(lambda a: a)).accepts({"a": 1, "b": 2})

    def test_defaults_without_a_json_form(self) -> None:
        """Leaves such defaults to the function."""
        marker = object()

        def f(a: Any = marker, b: Point = ORIGIN, c: float = float("nan")): ...

        properties = schema_of(f)["properties"]
        assert "default" not in properties["a"]
        assert properties["b"]["default"] == {"x": 1, "y": 0}
        assert "default" not in properties["c"] or properties["c"]["default"] is None

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: eval("lambda *args: 1"), "tool arguments go by name"),
            (lambda: eval("lambda a, /: 1"), "tool arguments go by name"),
            (lambda: max, "max does not say what it takes"),
        ],
    )
    def test_parameters_without_names(self, make: Any, message: str) -> None:
        """`*args` and positional-only parameters cannot be filled from JSON."""
        with pytest.raises(InvalidToolError, match=message):
            declare(make(), "t")

    def test_unusable_annotations(self) -> None:
        """Unknown names, and types without a JSON form, are refused."""

        def unknown(a: Missing): ...  # type: ignore[name-defined]  # noqa: F821

        class Foreign: ...

        def foreign(a: Foreign): ...

        def no_schema(a: Callable[[int], int]): ...

        with pytest.raises(InvalidToolError, match="cannot resolve the annotations of unknown"):
            declare(unknown)
        with pytest.raises(InvalidToolError, match="the type of a has no JSON form"):
            declare(foreign, local_names=locals())
        with pytest.raises(InvalidToolError, match="no JSON"):
            declare(no_schema)


class TestConvert:
    def test_plain_types_need_none(self) -> None:
        """JSON values already are what such annotations ask for."""

        def f(a: float, b: list[str], c: dict[str, Any], d: Literal["x"], e: Annotated[str, "note"], g: str | None): ...

        assert declare(f).handler.convert is None

    @pytest.mark.parametrize("annotation", [int, int | None, Annotated[int, "how many"], list[int], dict[str, int]])
    def test_whole_floats_become_ints_where_an_int_is_asked_for(self, annotation: Any) -> None:
        """`2.0` is an integer to JSON Schema; a function that asks for an int gets one, also inside of a container."""

        def f(a): ...

        f.__annotations__ = {"a": annotation}

        given = {list[int]: [2.0], dict[str, int]: {"x": 2.0}}.get(annotation, 2.0)
        convert = declare(f).handler.convert
        assert convert is not None
        args = {"a": given}
        assert repr(convert(args)["a"]) in ("2", "[2]", "{'x': 2}")
        assert args == {"a": given}

    @pytest.mark.parametrize("value", [1.5, float("inf"), True, "1"])
    def test_nothing_is_cut_off_to_make_an_int(self, value: Any) -> None:
        """An unchecked number that is not an integer reaches the function as it is."""

        def f(a: int): ...

        convert = declare(f).handler.convert
        assert convert is not None
        assert convert({"a": value})["a"] is value

    def test_floats_stay_floats_where_either_will_do(self) -> None:
        """A parameter that takes int or float gets what was sent."""

        def f(a): ...

        f.__annotations__ = {"a": int | float}
        convert = declare(f).handler.convert
        assert convert is not None
        assert repr(convert({"a": 2.0})["a"]) == "2.0"

    def test_rich_types(self) -> None:
        """JSON becomes dataclasses, models, enums and dates; other arguments stay."""

        def f(p: Point, u: User, c: Colour, when: dt.date, n: int = 0): ...

        convert = declare(f).handler.convert
        assert convert is not None
        args = {"p": {"x": 1}, "u": {"name": "n"}, "c": "red", "when": "2026-01-31", "n": 3}
        before = dict(args)
        converted = convert(args)
        assert converted == {
            "p": Point(1, 0),
            "u": User(name="n"),
            "c": Colour.RED,
            "when": dt.date(2026, 1, 31),
            "n": 3,
        }
        assert args == before
        assert convert({"n": 1}) == {"n": 1}

    def test_all_failures_at_once(self) -> None:
        """Reports every location where the schema could not express the type."""

        def f(when: dt.date, users: list[User]): ...

        convert = declare(f).handler.convert
        assert convert is not None
        with pytest.raises(InputValidationError) as caught:
            convert({"when": "2026-02-31", "users": [{"name": "n", "born": "never"}]})
        assert [v.path for v in caught.value.violations] == ["/when", "/users/0/born"]


class TestOutput:
    @pytest.mark.parametrize(
        ("annotation", "schema"),
        [
            (int, {"type": "integer"}),
            (None, {"type": "null"}),
            (list[str], {"type": "array", "items": {"type": "string"}}),
        ],
    )
    def test_plain_results(self, annotation: Any, schema: dict[str, Any]) -> None:
        """The return type is the output schema, and nothing has to be converted."""

        def f(): ...

        f.__annotations__["return"] = annotation
        made = declare(f)
        assert made.tool.output_schema is not None
        assert made.tool.output_schema.to_json() == schema
        assert made.handler.finish is None

    def test_rich_results(self) -> None:
        """Models and dataclasses become JSON that fits their schema."""

        def f() -> list[Node | Point]: ...  # type: ignore[empty-body]

        made = declare(f)
        assert made.handler.finish is not None
        value = made.handler.finish([Node(value=1, children=[Node(value=2)]), Point(1)])
        assert value == [{"value": 1, "children": [{"value": 2, "children": []}]}, {"x": 1, "y": 0}]
        assert made.tool.output_schema is not None
        assert made.tool.output_schema.accepts(value)

    def test_results_without_a_json_form(self) -> None:
        """A model with something else inside is left for the runner to report."""

        class Odd(pydantic.BaseModel):
            model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
            x: Any

        def f() -> Odd: ...  # type: ignore[empty-body]

        finish = declare(f, local_names=locals()).handler.finish
        assert finish is not None
        odd = Odd(x=object())
        assert finish(odd) is odd

    @pytest.mark.parametrize("annotation", [Any, ToolReply])
    def test_open_results_have_no_schema(self, annotation: Any) -> None:
        """`Any` and whole replies promise nothing."""

        def f(): ...

        f.__annotations__["return"] = annotation
        assert declare(f).tool.output_schema is None

    def test_untyped_results_need_no_help(self) -> None:
        """The runner writes them by what they are."""
        assert declare(lambda: 1).handler.finish is None

    def test_aliases(self) -> None:
        """A model is written by the names that its schema has."""

        class Aliased(pydantic.BaseModel):
            number: int = pydantic.Field(alias="no")

        def f() -> Aliased: ...  # type: ignore[empty-body]

        declared = declare(f, local_names=locals())
        assert declared.handler.finish is not None
        written = declared.handler.finish(Aliased(no=1))
        assert written == {"no": 1}
        assert declared.tool.output_schema is not None
        assert declared.tool.output_schema.accepts(written)

    def test_streams(self) -> None:
        """A generator's schema is a list of what it yields; without a type there is none."""

        def one() -> Iterator[int]:
            yield 1

        async def two() -> AsyncIterator[Point]:
            yield Point(1)

        def three() -> Generator[str, None, None]:
            yield ""

        def four():  # type: ignore[no-untyped-def]
            yield 1

        schemas = [declare(f).tool.output_schema for f in (one, two, three, four)]
        types = [schema.to_json()["items"].get("type", "ref") for schema in schemas if schema is not None]
        assert types == ["integer", "ref", "string"]
        assert schemas[3] is None
