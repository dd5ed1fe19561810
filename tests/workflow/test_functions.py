"""The standard library of workflows, called as the machine calls it."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.run.large import Budget
from toolexec.workflow.functions import FUNCTIONS
from toolexec.workflow.library.function import Context
from toolexec.workflow.values import OperationError, TooLargeError

NOON = Context(now=1_767_268_800.5)  # 2026-01-01T12:00:00.5Z


def call(name: str, *arguments: Any, context: Context = NOON) -> Any:
    return FUNCTIONS[name].call([*arguments], context)


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("string", [None], "null"),
        ("string", [{"a": "ä"}], '{"a":"ä"}'),
        ("split", ["a  b\nc"], ["a", "b", "c"]),
        ("lines", ["a\r\nb"], ["a", "b"]),
        ("pad", ["a", 3], "a  "),
        ("format_number", [1234567], "1,234,567"),
        ("format_number", [0.5, 0], "0"),
        ("match", ["a.txt", "?.t*"], True),
        ("match", ["a.txt", "*.csv"], False),
        ("match", ["", "**"], True),
        ("int", [2.9], 2),
        ("int", [" -7 "], -7),
        ("number", ["1.5e3"], 1500.0),
        ("number", [3], 3),
        ("round", [2.5], 2),
        ("round", [1234, -2], 1200),
        ("min", [["b", "a"]], "a"),
        ("max", [1, 2.5, 2], 2.5),
        ("range", [3], [0, 1, 2]),
        ("range", [3, 0, -1], [3, 2, 1]),
        ("range", [2.0], [0, 1]),
        ("first", [[]], None),
        ("last", ["abc"], "c"),
        ("sort", [["b", "a"]], ["a", "b"]),
        ("sort", [[{"n": {"v": 2}}, {"n": {"v": 1}}], "n.v"], [{"n": {"v": 1}}, {"n": {"v": 2}}]),
        ("unique", [[1, 1.0, True, "1", [1], [1.0], {"a": 1}, {"a": 1}]], [1, True, "1", [1], {"a": 1}]),
        ("unique", [[{"k": 1, "n": 1}, {"k": 1, "n": 2}], "k"], [{"k": 1, "n": 1}]),
        ("count", ["banana", "an"], 2),
        ("group_by", [[{"k": 1}, {"k": "1"}], "k"], {"1": [{"k": 1}, {"k": "1"}]}),
        ("sum", [[{"n": 1}, {"n": 2}], "n"], 3),
        ("pluck", [[{"a": {"b": 1}}, {}], "a.b"], [1, None]),
        ("index_of", [[1, 2], 3], -1),
        ("concat", [[1], [2], [3]], [1, 2, 3]),
        ("has", [{"a.b": None}, "a.b"], True),
        ("get", [{"a": [{"b": 1}]}, "a.0.b"], 1),
        ("get", [None, "a", 7], 7),
        ("get", [{"a": None}, "a", 7], None),
        ("pick", [{"a": 1}, ["a", "z"]], {"a": 1}),
        ("json", ["ä"], '"ä"'),
        ("parse_json", ['{"a": [1, 1.5, null]}'], {"a": [1, 1.5, None]}),
        ("type", [[]], "list"),
        ("now", [], "2026-01-01T12:00:00Z"),
        ("today", [], "2026-01-01"),
        ("parse_date", [0], "1970-01-01T00:00:00Z"),
        ("format_date", ["2026-03-01T15:04:05Z", "%A %I:%M %p, 100%%"], "Sunday 03:04 PM, 100%"),
        ("add_time", ["2026-03-01", -1], "2026-02-28T23:59:59Z"),
        ("date_diff", ["2026-03-01T00:00:00+01:00", "2026-03-01"], 3600),
    ],
)
def test_functions(name: str, arguments: list[Any], result: object) -> None:
    """Each function gives what its documentation says, of the same type."""
    found = call(name, *arguments)
    assert (found, type(found)) == (result, type(result))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("len", [5], "value must be string or list or object, not the integer 5"),
        ("upper", [], "takes 1 argument, not 0"),
        ("sort", [[1, "a"]], "numbers only, or strings only"),
        ("sort", [[1], "n"], "no n in item 0"),
        ("sum", [["a"]], 'not the string "a"'),
        ("min", [[]], "the list is empty"),
        ("range", [1, 5, 0], "not 0"),
        ("int", ["1.5"], "not an integer"),
        ("float", ["nan"], "not a number"),
        ("split", ["a", ""], "not empty"),
        ("replace", ["a", "", "b"], "not empty"),
        ("chunk", [[1], 0], "1 or more"),
        ("parse_json", ["{"], "not JSON"),
        ("parse_json", ["NaN"], "NaN is not JSON"),
        ("parse_json", ["1e999"], "too large for a float"),
        ("parse_json", ['"\\ud800"'], "surrogate"),
        ("jmespath", [{}, "a["], "jmespath: "),
        ("jmespath", [{}, "to_number('nan')"], "too large for a float"),
        ("parse_date", ["yesterday"], "not a date or time"),
        ("format_date", ["2026-01-01", "%Q"], "does not know %Q"),
        ("add_time", ["9999-12-31", 1e9], "within 1 and 9999"),
        ("from_entries", [[["a"]]], "a string and a value"),
        ("omit", [{}, [1]], "list of strings"),
    ],
)
def test_functions_say_what_is_wrong(name: str, arguments: list[Any], message: str) -> None:
    """A function refuses what it cannot take, and says why."""
    with pytest.raises(OperationError, match=message):
        call(name, *arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("range", [10**30]),
        ("replace", ["a" * 100_000, "a", "b" * 1000]),
        ("join", [["a" * 10_000] * 1000]),
        ("pad", ["", 1 << 40]),
        ("split", ["," * 1_000_001, ","]),
        ("flatten", [[[0] * 1000] * 1001]),
        ("concat", [[0] * 600_000, [0] * 600_000]),
        ("parse_json", ["[" * 101 + "]" * 101]),
        ("parse_json", ["[" * 100_000]),
        ("int", ["9" * 1300]),
    ],
)
def test_what_functions_make_is_bounded(name: str, arguments: list[Any]) -> None:
    """No function makes a value above the bounds."""
    with pytest.raises(TooLargeError):
        call(name, *arguments, context=Context(budget=Budget(steps=1_000_000)))


def test_large_values_give_the_same_as_small_ones() -> None:
    """Work that is done in pieces, for large values, gives the same."""
    numbers = [(7919 * n) % 50_021 for n in range(30_000)]
    context = Context(budget=Budget())
    assert call("sort", numbers, context=context) == sorted(numbers)
    text = call("json", {"a": numbers, "b": "ä" * 100_000}, context=context)
    assert call("parse_json", text, context=context) == {"a": numbers, "b": "ä" * 100_000}


def test_long_calls_are_known() -> None:
    """A call that takes long is known before it is made."""
    assert not FUNCTIONS["sort"].is_long([[3, 1, 2]])
    assert FUNCTIONS["sort"].is_long([[0] * 50_000])
    assert FUNCTIONS["json"].is_long([{"a": [{"b": [0] * 1000}] * 3}])
    assert not FUNCTIONS["len"].is_long([{"a": [[0] * 10_000] * 3}])


def test_every_function_is_documented() -> None:
    """A function says what it returns, and has an example."""
    for function in FUNCTIONS.values():
        assert function.doc.startswith("Return "), function.name
        assert function.example.count(f"{function.name}("), function.name
