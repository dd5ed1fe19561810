"""Conditions on arguments: what each operator accepts, and what counts where that cannot be said."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.errors import ConfigurationError
from toolexec.run.policy_conditions import Condition, as_json
from toolexec.run.policy_rules import Rule
from toolexec.run.policy_truth import Truth

SURE, NOT, DOUBT = Truth.TRUE, Truth.FALSE, Truth.UNKNOWN
COUNTS = {SURE: ["allow", "ask", "deny"], NOT: [], DOUBT: ["ask", "deny"]}
"""The effects whose rules match."""


def found(test: Any, args: Any, path: str = "a") -> Truth:
    """Return whether the condition holds, after a look at which rules it makes match."""
    holds = Condition(path, test).holds(as_json(args))
    effects: list[Any] = ["allow", "ask", "deny"]
    assert [each for each in effects if Rule(each, when={path: test}).applies(as_json(args))] == COUNTS[holds]
    return holds


@pytest.mark.parametrize(
    ("test", "value", "expected"),
    [
        ({"equals": "x"}, "x", SURE),
        ({"equals": "x"}, "X", NOT),
        ({"equals": "1"}, 1, DOUBT),
        ({"equals": 1}, 1.0, SURE),
        ({"equals": 1}, True, DOUBT),
        ({"equals": True}, True, SURE),
        ({"equals": [1, {"b": [2]}]}, [1, {"b": (2,)}], SURE),
        ({"equals": [1]}, [True], NOT),
        ({"equals": {"b": 1}}, {"b": 1}, SURE),
        ({"equals": {"b": 1}}, {"c": 1}, NOT),
        ({"not": "x"}, "y", SURE),
        ({"not": "x"}, "x", NOT),
        ({"not": "x"}, 7, DOUBT),
        ({"not": "x"}, None, DOUBT),
        ({"in": ["x", 1]}, 1, SURE),
        ({"in": ["x", 1]}, "y", NOT),
        ({"in": ["x", "y"]}, 1, DOUBT),
        ({"in": [["x"]]}, ["x"], SURE),
        ({"matches": "[a-z]+"}, "abc", SURE),
        ({"matches": "[a-z]+"}, "abc\n", NOT),
        ({"matches": "a|bc"}, "abc", NOT),
        ({"matches": "[a-z]+"}, 7, DOUBT),
        ({"matches": "[a-z]+"}, "\ud800", DOUBT),
        ({"glob": "/srv/*"}, "/srv/a/b", SURE),
        ({"glob": "/srv/*"}, "/etc", NOT),
        ({"glob": "/srv/*"}, "/srv/../etc", DOUBT),
        ({"glob": "/srv/*"}, "/srv/..", DOUBT),
        ({"glob": "*"}, "..\\x", DOUBT),
        ({"glob": "v1..2"}, "v1..2", SURE),
        ({"glob": "*"}, 7, DOUBT),
        ({"above": 5}, 6, SURE),
        ({"above": 5}, 5, NOT),
        ({"above": 5}, "6", DOUBT),
        ({"above": 5}, True, DOUBT),
        ({"above": 5}, float("nan"), DOUBT),
        ({"above": 5}, 10**400, SURE),
        ({"below": 0.5}, 0, SURE),
        ({"below": 0.5}, float("-inf"), DOUBT),
        ({"above": 0, "below": 10}, 5, SURE),
        ({"above": 0, "below": 10}, 11, NOT),
        ({"exists": True}, 0, SURE),
        ({"exists": True}, None, NOT),
        ({"exists": False}, None, SURE),
        ({"exists": False}, "", NOT),
        ({"exists": True, "equals": 1}, 1, SURE),
        ({"equals": 1}, None, NOT),
        ({"equals": "x"}, ["x", "y"], DOUBT),
        ({"equals": "x"}, ["x", "x"], SURE),
        ({"equals": "x"}, ["y"], NOT),
        ({"equals": "x"}, [], NOT),
        ({"not": "x"}, ["x", "y"], DOUBT),
        ({"glob": "/srv/*"}, ["/srv/a", ["/srv/b"]], DOUBT),
    ],
)
def test_operators(test: Any, value: Any, expected: Truth) -> None:
    """A certain match counts for every rule; an uncertain one never allows a call."""
    assert found(test, {"a": value}) == expected


@pytest.mark.parametrize(
    ("path", "args", "expected"),
    [
        ("a", {}, NOT),
        ("a.b", {"a": {"b": 1}}, SURE),
        ("a.b", {"a": 7}, DOUBT),
        ("a.b", {"a": [{"b": 1}]}, DOUBT),
        ("a.b", {"a": None}, NOT),
        ("items[*].n", {"items": [{"n": 1}, {"n": 1}]}, SURE),
        ("items[*].n", {"items": ({"n": 2}, {"n": 1})}, DOUBT),
        ("items[*].n", {"items": [{"n": 1}, {}]}, DOUBT),
        ("items[*].n", {"items": [{"n": 1}, 1]}, DOUBT),
        ("items[*].n", {"items": [1]}, DOUBT),
        ("items[*].n", {"items": [[{"n": 1}]]}, DOUBT),
        ("items[*].n", {"items": [{"n": None}]}, DOUBT),
        ("items[*].n", {"items": {"n": 1}}, DOUBT),
        ("items[*].n", {"items": "n"}, DOUBT),
        ("items[*].n", {"items": []}, NOT),
        ("items[*].n", {}, NOT),
        ("items[*]", {"items": [1, None]}, DOUBT),
        ("items[].n", {"items": [[{"n": 1}], {"n": 1}]}, SURE),
        ("items[].n", {"items": [[[{"n": 1}]]]}, DOUBT),
        ("items[*].all[*].n", {"items": [{"all": [{"n": 1}]}, {"all": [{"n": 1}, {"n": 1}]}]}, SURE),
        ("items[*].all[*].n", {"items": [{"all": [{"n": 1}]}, {"all": [{"n": 1}, {"n": 2}]}]}, DOUBT),
        ("items[*].all[*].n", {"items": [{"all": [{"n": 1}]}, {"all": {"n": 1}}]}, DOUBT),
        ("items.*.n", {"items": {"a": {"n": 1}, "b": {"n": 1}}}, SURE),
        ("items.*.n", {"items": {"a": {"n": 1}, "b": 1}}, DOUBT),
        ("items.*.n", {"items": [{"n": 1}]}, DOUBT),
        ("items[0].n", {"items": [{"n": 1}, 7]}, SURE),
        ("items[-1]", {"items": [7, 1]}, SURE),
        ("items[3]", {"items": [1]}, NOT),
        ("items[0]", {"items": {"0": 1}}, DOUBT),
        ("[a, b]", {"a": 1, "b": 1}, SURE),
        ("[a, b]", {"a": 1}, DOUBT),
        ("length(items)", {"items": [7]}, SURE),
        ("max(items[*].n)", {"items": [{"n": 1}, {"m": 2}]}, DOUBT),
        ("length(items)", {"items": 7}, DOUBT),
        ('"dry-run"', {"dry-run": 1}, SURE),
    ],
)
def test_paths(path: str, args: Any, expected: Truth) -> None:
    """A path is a JMESPath expression; one that fails on the arguments leaves them in doubt."""
    assert found({"equals": 1}, args, path) == expected


def test_a_regular_expression_takes_no_ages() -> None:
    """An argument made for that does not keep a pattern busy."""
    assert found({"matches": "(a+)+b"}, {"a": "a" * 200_000}) == NOT


@pytest.mark.parametrize("args", [["not", "a", "mapping"], "text", 7], ids=["list", "text", "number"])
def test_arguments_that_are_no_mapping(args: Any) -> None:
    """Such arguments are uncertain as a whole."""
    assert as_json(args) is None
    assert Rule("deny", when={"a": 1}).applies(None)
    assert not Rule("allow", when={"a": 1}).applies(None)
    assert Rule("allow").applies(None)


def test_arguments_that_contain_themselves() -> None:
    """Such arguments are uncertain, too."""
    args: dict[str, Any] = {}
    args["a"] = args
    assert as_json(args) is None


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ({"a b": 1}, "is not a JMESPath expression"),
        ({"dry-run": 1}, '"dry-run"'),
        ({"files[?size > `5`].path": "a"}, "a filter"),
        ({"files[:3].path": "a"}, "a slice"),
        ({"path || file": "a"}, "||"),
        ({"length(a[?b]) ": 1}, "a filter"),
        ({"": 1}, "needs the name of an argument"),
        ({7: 1}, "needs the name of an argument"),
        ({"a": {}}, "the condition on a is empty"),
        ({"a": {"equal": 1}}, "did you mean equals?"),
        ({"a": {"zzz": 1}}, "there are equals, not, in"),
        ({"a": None}, "see exists"),
        ({"a": {"equals": object()}}, "a JSON value"),
        ({"a": {"in": []}}, "a list of values"),
        ({"a": {"in": "text"}}, "a list of values"),
        ({"a": {"matches": "("}}, "not a regular expression"),
        ({"a": {"matches": "a)|(b"}}, "not a regular expression"),
        ({"a": {"matches": "(?=x)"}}, "look-around"),
        ({"a": {"matches": 7}}, "a regular expression"),
        ({"a": {"glob": 7}}, "a text"),
        ({"a": {"above": "7"}}, "a number"),
        ({"a": {"above": True}}, "a number"),
        ({"a": {"below": float("inf")}}, "a number"),
        ({"a": {"exists": 1}}, "true or false"),
    ],
)
def test_conditions_that_make_no_sense(when: Any, message: str) -> None:
    """Refuses invalid conditions when the rule is made."""
    with pytest.raises(ConfigurationError) as caught:
        Rule("deny", when=when)
    assert message in str(caught.value)
