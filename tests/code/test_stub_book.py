"""Names for the types of stubs."""

from __future__ import annotations

import ast

import pytest

from toolexec.code.stub_book import FROM_BUILTINS, FROM_TYPING, TypeBook, needed, unshadowed
from toolexec.code.stub_types import Definition, Field


def record(number: int, *types: str, words: tuple[str, ...] = ("make", "result"), title: str = "") -> Definition:
    fields = tuple(Field(name=f"f{i}", type=type, required=True) for i, type in enumerate(types))
    return Definition(token=token(number), words=words, title=title, fields=fields)


def token(number: int) -> str:
    return f"\x00{number}\x00"


def test_names_come_from_the_way_or_the_title() -> None:
    """Names come from the path or the title, with tokens in place of values."""
    book = TypeBook()
    book.add([record(1, "int"), record(2, "str", title="address")])
    assert book.resolve(f"list[{token(1)} | {token(2)}] | {token(9)}") == "list[MakeResult | Address] | Any"


def test_equal_types_are_one() -> None:
    """Equal types of different tools, recursive ones too, are one; comments make no difference."""
    book = TypeBook()
    book.add([record(1, "int", f"list[{token(1)}]")])
    book.add([record(2, "int", f"list[{token(2)}]", words=("other", "result"))], "ns")
    assert book.resolve(token(2)) == "MakeResult"
    assert len(book.blocks) == 1


def test_names_that_are_taken() -> None:
    """The tool before the title, then the way, then the namespace, then a number."""
    book = TypeBook(["Make"])
    for number, (namespace, title) in enumerate(
        [("a", "X"), ("a", "X"), ("a", "X"), ("b", "X"), ("b", "X"), ("b", "X"), ("", "Make")]
    ):
        book.add([record(number, f"T{number}", title=title)], namespace)
    names = [book.resolve(token(number)) for number in range(7)]
    assert names == ["X", "MakeX", "MakeResult", "BMakeResult", "X2", "X3", "MakeMake"]


@pytest.mark.parametrize("title", sorted(FROM_BUILTINS | FROM_TYPING | {"Tools", "ToolError"}))
def test_names_that_mean_something_are_never_given(title: str) -> None:
    """A schema cannot give `Any` another meaning."""
    book = TypeBook()
    book.add([record(1, "int", title=title, words=(title,))])
    assert book.resolve(token(1)) != title


def test_types_without_any_word_get_a_name() -> None:
    """A letter and a number."""
    book = TypeBook(["T"])
    book.add([record(1, "int", words=("__",)), record(2, "str", words=("__",))])
    assert [book.resolve(token(1)), book.resolve(token(2))] == ["T2", "T3"]


def test_types_that_need_each_other() -> None:
    """Each has its name where the other one uses it."""
    book = TypeBook()
    book.add([record(1, token(2), title="Left"), record(2, token(1), title="Right")])
    assert book.blocks == [
        ["class Left(TypedDict):", "    f0: Right"],
        ["class Right(TypedDict):", "    f0: Left"],
    ]


def test_needed_leaves_out_what_nothing_leads_to() -> None:
    """Directly or by way of others."""
    one, two, three = record(1, token(2)), record(2, "int"), record(3, token(1))
    assert needed([f"list[{token(1)}]"], [two, one, three]) == (two, one)


@pytest.mark.parametrize(
    ("type", "names", "expected"),
    [
        ("list[str]", ["other"], "list[str]"),
        ("list[str]", ["list"], "builtins.list[str]"),
        ("dict[str, Any] | None", ["str", "Any"], "dict[builtins.str, typing.Any] | None"),
        ("tuple[int, *tuple[Any, ...]]", ["tuple"], "builtins.tuple[int, *builtins.tuple[Any, ...]]"),
        ('Literal["list"]', ["list"], "Literal['list']"),
    ],
)
def test_unshadowed(type: str, names: list[str], expected: str) -> None:
    """Where a tool is called `list`, the type is `builtins.list`; text in literals stays."""
    assert unshadowed(type, names) == expected
    ast.parse(expected, mode="eval")
