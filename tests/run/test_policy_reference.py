"""A policy never allows what its documentation does not allow, and never misses what it denies.

The reference below is written from docs/policy.md, one sentence after the other, with no regard to speed.
"""

from __future__ import annotations

import fnmatch
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.depth import examples

from toolexec.discovery.index import Registered
from toolexec.model import LocalBinding, Tool, ToolCall
from toolexec.run.policy import Policy, Rule

TRUE, FALSE, UNKNOWN = "true", "false", "unknown"
MISSING: Any = object()
"""Stands for an argument that is absent or null."""
HERE = LocalBinding("files:read")
READ = Registered(Tool(name="read", namespace="files", input_schema={"type": "object"}), (HERE,), HERE)


class DoubtError(Exception):
    """Raised where what a condition looks at is unknown."""


# -- what a condition looks at ---------------------------------------------------------------------------------------


def values_at(value: Any, steps: list[str]) -> tuple[list[Any], bool]:
    """Return the values that the steps of an expression lead to, and whether they are those of a projection."""
    if not steps:
        return [value], False
    step, rest = steps[0], steps[1:]
    if value is None:
        return [MISSING], False
    if step in ("[*]", "[]", "*"):
        if not json_type(value) == ("object" if step == "*" else "array"):
            raise DoubtError
        items = list(value.values()) if isinstance(value, dict) else list(value)
        if step == "[]":
            items = [each for item in items for each in (item if json_type(item) == "array" else [item])]
        found = [values_at(item, rest)[0] for item in items]
        if any(each is None or each is MISSING for some in found for each in some):
            raise DoubtError
        return [each for some in found for each in some], True
    if step.startswith("["):
        if not isinstance(value, list | tuple):
            raise DoubtError
        number = int(step[1:-1])
        return values_at(value[number], rest) if number < len(value) else ([MISSING], False)
    if not isinstance(value, dict):
        raise DoubtError
    return values_at(value.get(step), rest)


# -- operators -------------------------------------------------------------------------------------------------------


def json_type(value: Any) -> str:
    for name, types in (("boolean", bool), ("number", int | float), ("string", str), ("array", list | tuple)):
        if isinstance(value, types):
            return name
    return "null" if value is None else "object"


def equal(one: Any, other: Any) -> bool:
    if json_type(one) != json_type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        return set(one) == set(other) and all(equal(one[key], other[key]) for key in one)
    return one == other


def compare(operator: str, operand: Any, value: Any) -> str:
    """Return what one operator says of one value."""
    if operator in ("equals", "not"):
        if json_type(value) != json_type(operand):
            return UNKNOWN
        return TRUE if equal(value, operand) == (operator == "equals") else FALSE
    if operator == "in":
        if json_type(value) not in [json_type(each) for each in operand]:
            return UNKNOWN
        return TRUE if any(equal(value, each) for each in operand) else FALSE
    if operator in ("above", "below"):
        if json_type(value) != "number":
            return UNKNOWN
        return TRUE if (value > operand if operator == "above" else value < operand) else FALSE
    if not isinstance(value, str):
        return UNKNOWN
    if operator in ("glob", "matches"):
        if ".." in value.split("/") and (operator == "glob" or "/" in operand):
            return UNKNOWN
        if value.startswith("~") and "/" in operand:
            return UNKNOWN
        pattern = fnmatch.translate(operand) if operator == "glob" else operand
        return TRUE if re.fullmatch(pattern, value) else FALSE
    return some([compare_path(operator, each, value) for each in operand])


def compare_path(operator: str, operand: str, value: str) -> str:
    """Return what an operator for paths says of one path and one operand."""
    names = [name for name in value.split("/") if name not in ("", ".")]
    if not value or ".." in names or value.startswith("~"):
        return UNKNOWN
    is_absolute = value.startswith("/")
    wanted = [name for name in operand.split("/") if name not in ("", ".")]
    if operator == "path_under":
        if is_absolute != operand.startswith("/"):
            return UNKNOWN
        own = names[: len(wanted)]
        if any("*" in name for name in own):
            return UNKNOWN
        if own != wanted and [name.lower() for name in own] == [name.lower() for name in wanted]:
            return UNKNOWN
        return TRUE if own == wanted else FALSE
    if "*" in value:
        return UNKNOWN
    if len(wanted) == 1 and not operand.startswith("/"):
        wanted = ["**", *wanted]
    exact, loose = glob_at(operand, wanted, names, is_absolute), None
    loose = glob_at(operand.lower(), [name.lower() for name in wanted], [name.lower() for name in names], is_absolute)
    return exact if exact == loose else UNKNOWN


def glob_at(operand: str, wanted: list[str], names: list[str], is_absolute: bool) -> str:
    """Return what a pattern says of a path, by the directories that the path may be relative to."""
    from_root, depth = operand.startswith("/"), wanted[0] == "**"
    plain = list(wanted)
    while plain[0] == "*" and len(plain) > 1:
        plain = plain[1:]
    if is_absolute != from_root and not depth:
        if from_root:
            return UNKNOWN
        return UNKNOWN if covers(["**", *plain], names) else FALSE
    if covers(wanted, names):
        return TRUE
    if from_root and not is_absolute:
        return UNKNOWN
    return UNKNOWN if plain != wanted and not depth and covers(["**", *plain], names) else FALSE


def covers(wanted: list[str], names: list[str]) -> bool:
    """Return whether a pattern matches a path, or a directory above it."""
    return any(same_names(wanted, names[:length]) for length in range(1, len(names) + 1))


def same_names(wanted: list[str], names: list[str]) -> bool:
    if not wanted:
        return not names
    if wanted[0] == "**":
        least = 1 if len(wanted) == 1 else 0
        return any(same_names(wanted[1:], names[skipped:]) for skipped in range(least, len(names) + 1))
    return bool(names) and fnmatch.fnmatchcase(names[0], wanted[0]) and same_names(wanted[1:], names[1:])


def some(answers: list[str]) -> str:
    return TRUE if TRUE in answers else UNKNOWN if UNKNOWN in answers else FALSE


def every(answers: list[str]) -> str:
    return FALSE if FALSE in answers else UNKNOWN if UNKNOWN in answers else TRUE


def condition(steps: list[str], tests: dict[str, Any], args: dict[str, Any]) -> str:
    """Return whether one condition holds."""
    try:
        values, is_projection = values_at(args, steps)
    except DoubtError:
        return UNKNOWN
    absent = not is_projection and (values[0] is MISSING or values[0] is None)
    if not is_projection and not absent and isinstance(values[0], list | tuple):
        whole, values = values[0], list(values[0])
    else:
        whole = values if is_projection else None
    answers: list[str] = []
    for operator, operand in tests.items():
        if operator == "exists":
            answers.append(TRUE if absent is not operand else FALSE)
        elif absent or not values:
            takes_lists = whole is not None and any(
                json_type(each) == "array" for each in (operand if operator == "in" else [operand])
            )
            if takes_lists and operator in ("equals", "not", "in"):
                answers.append(compare(operator, operand, whole))
            else:
                answers.append(UNKNOWN if operator == "not" else FALSE)
        elif whole is not None and operator in ("equals", "not") and json_type(operand) == "array":
            answers.append(compare(operator, operand, whole))
        elif whole is not None and operator == "in" and any(json_type(each) == "array" for each in operand):
            answers.append(compare(operator, operand, whole))
        else:
            outcomes = {compare(operator, operand, each) for each in values}
            answers.append(outcomes.pop() if len(outcomes) == 1 else UNKNOWN)
    return every(answers)


def verdict(rules: list[tuple[str, list[tuple[list[str], dict[str, Any]]]]], default: str, args: Any) -> str:
    """Return what becomes of a call."""
    matching: set[str] = set()
    for effect, conditions in rules:
        holds = every([condition(steps, tests, args) for steps, tests in conditions])
        if holds == TRUE or (holds == UNKNOWN and effect != "allow"):
            matching.add(effect)
    return next((effect for effect in ("deny", "ask", "allow") if effect in matching), default)


# -- random rules and arguments --------------------------------------------------------------------------------------

TEXTS = ["ok/x", "ok", "/ok/y", "/etc/passwd", "etc/passwd", ".env", "a/.env", "a/b/.env", "/a/.git/x", ".git/x", "OK/x",
         "../ok/x", "ok/../x", "~/ok", "ok/*", "", "x", "x.py", "ok//x.py", "./ok/x"]  # fmt: skip
NAMES = st.sampled_from(["files", "path", "to", "n"])
ATOMS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0]), st.sampled_from(TEXTS))
JSON = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=2).map(tuple), st.dictionaries(NAMES, inner, max_size=3)
    ),
    max_leaves=8,
)
LIKELY = st.fixed_dictionaries(
    {},
    optional={
        "files": st.lists(st.one_of(st.fixed_dictionaries({"path": st.sampled_from(TEXTS)}), JSON), max_size=4),
        "path": st.one_of(st.sampled_from(TEXTS), st.lists(st.sampled_from(TEXTS), max_size=3), JSON),
        "to": st.one_of(st.fixed_dictionaries({"path": st.sampled_from(TEXTS)}), JSON),
        "n": st.one_of(st.integers(-3, 3), JSON),
    },
)
ARGS = st.one_of(LIKELY, st.dictionaries(NAMES, JSON, max_size=3))
STEPS = st.sampled_from(["files", "path", "to", "n", "path", "[*]", "[*]", "[*]", "[]", "[0]", "[1]", "*"])
PATHS = st.tuples(NAMES, st.lists(STEPS, max_size=3)).map(lambda each: without_late_flattening([each[0], *each[1]]))
VALUES = st.one_of(st.integers(-3, 3), st.booleans(), st.just("x"), st.lists(st.integers(0, 1), max_size=2))
PATTERNS = ["*/.git/*", "**/.env", ".env", "ok/*", "/etc/*", "*.py", "ok/**", "/**/.env", "**", "a/**/.env"]
TESTS = st.fixed_dictionaries(
    {},
    optional={
        "equals": VALUES,
        "not": VALUES,
        "in": st.lists(VALUES, min_size=1, max_size=3),
        "path_under": st.lists(st.sampled_from(["ok", "/etc", "a/b", "/"]), min_size=1, max_size=2),
        "path_glob": st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2),
        "glob": st.sampled_from(["ok/*", "*", "*.py"]),
        "matches": st.sampled_from(["ok/.*", "[a-z]*", "x"]),
        "above": st.integers(-2, 2),
        "below": st.integers(-2, 2),
        "exists": st.booleans(),
    },
).map(lambda tests: dict(list(tests.items())[:2]) or {"exists": True})
CONDITIONS = st.lists(st.tuples(PATHS, TESTS), min_size=1, max_size=2, unique_by=lambda each: written(each[0]))
RULES = st.lists(st.tuples(st.sampled_from(["allow", "ask", "deny"]), CONDITIONS), min_size=1, max_size=3)


def without_late_flattening(steps: list[str]) -> list[str]:
    """Return steps in which `[]`, which ends a projection in JMESPath, comes before those only."""
    seen = False
    kept: list[str] = []
    for step in steps:
        kept.append("[*]" if step == "[]" and seen else step)
        seen = seen or step in ("[*]", "[]", "*")
    return kept


def written(steps: list[str]) -> str:
    """Return the JMESPath expression that consists of these steps."""
    return "".join(step if step.startswith("[") else f".{step}" for step in steps).removeprefix(".")


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(rules=RULES, default=st.sampled_from(["allow", "deny"]), calls=st.lists(ARGS, min_size=6, max_size=6))
def test_a_policy_decides_as_its_documentation_says(rules: Any, default: Any, calls: list[dict[str, Any]]) -> None:
    """Random rules over random arguments get the verdict of the reference: no allow too many, no deny missed."""
    made = [Rule(effect, when={written(steps): tests for steps, tests in conditions}) for effect, conditions in rules]
    policy = Policy(made, default=default)
    for args in calls:
        assert policy.decide(READ, ToolCall("files:read", args)).effect == verdict(rules, default, args)


@pytest.mark.parametrize(
    "files", [[{"path": "ok/x"}, "/etc/passwd"], ["/etc/passwd"], [["/etc/passwd"]], "/etc/passwd", {"path": "/etc/x"}]
)
def test_what_an_expression_leaves_out_is_denied(files: Any) -> None:
    """A value beside those that an expression finds is neither allowed nor missed by a rule that denies."""
    inside = Policy([Rule("allow", when={"files[*].path": {"path_under": "ok"}})], default="deny")
    secrets = Policy([Rule("deny", when={"files[*].path": {"path_under": "/etc"}})])
    for policy in (inside, secrets):
        assert policy.decide(READ, ToolCall("files:read", {"files": files})).effect == "deny"
