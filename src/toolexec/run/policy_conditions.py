"""Conditions on the arguments of a call, as rules of a policy have them: true, false, or unknown."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONObject, JSONValue
from toolexec.run.policy_globs import glob_test
from toolexec.run.policy_paths import as_text, plain_test, under_test
from toolexec.run.policy_selectors import UNFIT, leaves, selector
from toolexec.run.policy_truth import Truth

_Test: TypeAlias = Callable[[JSONValue], Truth]
"""Whether a value passes; UNKNOWN where they cannot be compared, as for a value of another type."""

_OPERATORS: Final = ("equals", "not", "in", "matches", "glob", "path_under", "path_glob", "above", "below", "exists")
_PLAIN_KINDS: Final = frozenset({str, int, float, bool, type(None)})
_NOTHING: Final = object()
_TRUE: Final = Truth.TRUE
_FALSE: Final = Truth.FALSE
_UNKNOWN: Final = Truth.UNKNOWN


class Condition:
    """What one argument must be like. *path* is a JMESPath expression on the arguments, *tests* maps operators to what
    they compare with; all of them must hold.

    Raises ConfigurationError for a path or an operator that makes no sense.
    """

    __slots__ = ("_absent", "_find", "_must_exist", "_tests", "path")

    def __init__(self, path: str, tests: JSONObject) -> None:
        self.path: str = path
        self._find = selector(path)
        self._must_exist: bool | None = None
        self._tests: list[tuple[_Test, bool, Truth]] = []
        if not tests:
            raise ConfigurationError(f"the condition on {path} is empty; use one of {', '.join(_OPERATORS)}")
        for name, operand in tests.items():
            if name == "exists":
                _require(isinstance(operand, bool), path, name, "true or false")
                self._must_exist = operand
            else:
                absent = _UNKNOWN if name == "not" else _FALSE
                self._tests.append((_test(path, name, operand), _takes_lists(name, operand), absent))
        exists = _FALSE if self._must_exist is True else _TRUE
        self._absent: Truth = Truth.every([exists, *(absent for _, _, absent in self._tests)])

    def holds(self, args: JSONValue) -> Truth:
        """Return whether the condition holds for *args*, which `as_json` gave; None stands for unreadable ones.

        A value that is missing, or null, passes `exists: false` only; `not` is unknown. Of a list, all
        elements must give the same answer, else it is unknown, too.
        """
        value = UNFIT if args is None else self._find(args)
        if value is None:
            return self._absent
        if value is UNFIT:
            return _UNKNOWN
        if self._must_exist is False:
            return _FALSE
        answer = _TRUE
        for test, whole, absent in self._tests:
            outcome = _each(test, value, absent) if isinstance(value, list) and not whole else test(value)
            if outcome is _FALSE:
                return outcome
            if outcome is _UNKNOWN:
                answer = outcome
        return answer


def read_conditions(when: JSONValue) -> tuple[Condition, ...]:
    """Return the conditions that a mapping of paths to tests means; a plain value is short for `{"equals": value}`.

    Raises ConfigurationError.
    """
    if not isinstance(when, Mapping):
        raise ConfigurationError(f"when must be a mapping of arguments to conditions, not {type(when).__name__}")
    return tuple(
        Condition(_path(path), tests if isinstance(tests, Mapping) else {"equals": tests})
        for path, tests in when.items()
    )


def as_json(args: JSONValue) -> JSONValue:
    """Return arguments as conditions look at them, with lists in place of tuples; None where they are not a mapping, or
    are nested too deeply to be read."""
    if type(args) is dict and _PLAIN_KINDS.issuperset(map(type, args.values())):
        return args  # there is nothing in it to be turned into a list
    try:
        return _with_lists(args) if isinstance(args, Mapping) else None
    except RecursionError:
        return None


def _with_lists(value: JSONValue) -> JSONValue:
    if isinstance(value, Mapping):
        return {key: _with_lists(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_lists(item) for item in value]
    return value


def _each(test: _Test, values: list[Any], absent: Truth) -> Truth:
    """Return what *test* says of all values alike; *absent* where there are none."""
    outcomes = [test(value) for value in leaves(values)]
    return Truth.agreed(outcomes) if outcomes else absent


# -- reading ----------------------------------------------------------------------------------------------------


def _path(path: JSONValue) -> str:
    if not isinstance(path, str) or not path.strip():
        raise ConfigurationError(f"a condition needs the name of an argument, or a JMESPath expression, not {path!r}")
    return path


def _takes_lists(name: str, operand: JSONValue) -> bool:
    if name in ("path_under", "path_glob"):
        return False
    return isinstance(operand, list) if name != "in" else any(isinstance(item, list) for item in operand)


def _test(path: str, name: str, operand: JSONValue) -> _Test:
    match name:
        case "equals" | "not":
            _require(_kind(operand) not in ("null", ""), path, name, "a JSON value other than null; see exists")
            test = _equals(operand) if name == "equals" else _differs(operand)
            return plain_test(test) if _is_path(operand) else test
        case "in":
            _require(isinstance(operand, list | tuple) and len(operand) > 0, path, name, "a list of values")
            return plain_test(_among([*operand])) if any(map(_is_path, operand)) else _among([*operand])
        case "glob":
            _require(isinstance(operand, str), path, name, "a text")
            return plain_test(_globs(operand)) if _has_slash(operand) else as_text(_globs(operand))
        case "path_under" | "path_glob":
            return _paths(path, name, operand)
        case "matches":
            _require(isinstance(operand, str), path, name, "a regular expression")
            return plain_test(_matches(path, operand)) if _has_slash(operand) else _matches(path, operand)
        case "above" | "below":
            _require(_kind(operand) == "number" and math.isfinite(operand), path, name, "a number")
            return _above(operand) if name == "above" else _below(operand)
        case _:
            raise ConfigurationError(
                f"the condition on {path} has the unknown operator {name!r}; {did_you_mean(name, _OPERATORS)}"
            )


def _require(fits: bool, path: str, name: str, wanted: str) -> None:
    if not fits:
        raise ConfigurationError(f"{name} in the condition on {path} must be {wanted}")


# -- tests ------------------------------------------------------------------------------------------------------


def _equals(operand: JSONValue) -> _Test:
    if isinstance(operand, str):
        return lambda value: Truth.of(value == operand) if isinstance(value, str) else _UNKNOWN
    return lambda value: Truth.of(_same(value, operand)) if _comparable(value, operand) else _UNKNOWN


def _differs(operand: JSONValue) -> _Test:
    if isinstance(operand, str):
        return lambda value: Truth.of(value != operand) if isinstance(value, str) else _UNKNOWN
    return lambda value: Truth.of(not _same(value, operand)) if _comparable(value, operand) else _UNKNOWN


def _among(operands: list[JSONValue]) -> _Test:
    def test(value: JSONValue) -> Truth:
        fitting = [operand for operand in operands if _comparable(value, operand)]
        return Truth.of(any(_same(value, operand) for operand in fitting)) if fitting else _UNKNOWN

    return test


def _globs(pattern: str) -> _Test:
    match = re.compile(fnmatch.translate(pattern)).match

    def test(value: JSONValue) -> Truth:
        return Truth.of(match(value) is not None) if isinstance(value, str) else _UNKNOWN

    return test


def _paths(path: str, name: str, operand: JSONValue) -> _Test:
    operands = [operand] if isinstance(operand, str) else operand
    _require(isinstance(operands, list | tuple) and bool(operands), path, name, "a path, or a list of paths")
    _require(all(isinstance(each, str) for each in operands), path, name, "a path, or a list of paths")
    try:
        return under_test(operands) if name == "path_under" else glob_test(operands)
    except ValueError as error:
        raise ConfigurationError(f"{name} in the condition on {path} must be {error}") from error


def _is_path(operand: JSONValue) -> bool:
    """Return whether a value to compare with is a path for certain."""
    return isinstance(operand, str) and operand.startswith(("/", "~", "\\", "./"))


def _has_slash(pattern: str) -> bool:
    return "/" in pattern and "://" not in pattern


def _matches(path: str, pattern: str) -> _Test:
    import jsonschema_rs

    # The engine of jsonschema-rs takes time in proportion to the text, whatever the pattern: Python's own may take
    # ages on an argument made for that.
    options = jsonschema_rs.RegexOptions()
    try:
        jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=options)  # by itself: `a)|(b` is none
        check = jsonschema_rs.validator_for({"pattern": f"^(?:{pattern})$"}, pattern_options=options).is_valid
    except (jsonschema_rs.ValidationError, ValueError) as error:
        raise ConfigurationError(
            f"matches in the condition on {path} is not a regular expression that can be used here: {pattern!r}; "
            "look-around and back-references are not supported"
        ) from error

    def test(value: JSONValue) -> Truth:
        if not isinstance(value, str):
            return _UNKNOWN
        try:
            return Truth.of(check(value))
        except ValueError:
            return _UNKNOWN  # a lone surrogate

    return test


def _above(limit: float) -> _Test:
    return lambda value: Truth.of(value > limit) if _is_finite(value) else _UNKNOWN


def _below(limit: float) -> _Test:
    return lambda value: Truth.of(value < limit) if _is_finite(value) else _UNKNOWN


def _is_finite(value: JSONValue) -> bool:
    return _kind(value) == "number" and (isinstance(value, int) or math.isfinite(value))


def _kind(value: JSONValue) -> str:
    """Return the JSON type; empty for what is not JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list | tuple):
        return "array"
    return "object" if isinstance(value, Mapping) else ""


def _comparable(value: JSONValue, operand: JSONValue) -> bool:
    """Return whether two values have one JSON type, and *value* is JSON all through."""
    return _kind(value) == _kind(operand) and _is_json(value)


def _is_json(value: JSONValue) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_json, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return bool(_kind(value))


def _same(one: JSONValue, other: JSONValue) -> bool:
    """Return whether two values are equal as JSON: 1 is 1.0, but not true."""
    kind = _kind(one)
    if kind != _kind(other):
        return False
    if kind == "array":
        return len(one) == len(other) and all(map(_same, one, other))
    if kind == "object":
        return one.keys() == other.keys() and all(_same(one[key], other.get(key, _NOTHING)) for key in one)
    return one == other
