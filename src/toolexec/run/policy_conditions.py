"""Conditions on the arguments of a call, as rules of a policy have them."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONObject, JSONValue
from toolexec.run.policy_paths import as_text, glob_test, plain_test, under_test

__all__ = ["Condition", "as_json", "read_conditions"]

_Test: TypeAlias = Callable[[JSONValue], bool | None]
"""Whether a value passes; None where that cannot be said, as for a value of another type."""

_OPERATORS: Final = ("equals", "not", "in", "matches", "glob", "path_under", "path_glob", "above", "below", "exists")
_PLAIN_PATH: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_PLAIN_KINDS: Final = frozenset({str, int, float, bool, type(None)})
_NOTHING: Final = object()


class Condition:
    """What one argument must be like. *path* is a JMESPath expression on the arguments, *tests* maps operators to what
    they compare with; all of them must hold.

    Raises ConfigurationError for a path or an operator that makes no sense.
    """

    __slots__ = ("_find", "_must_exist", "_tests", "path")

    def __init__(self, path: str, tests: JSONObject) -> None:
        self.path: str = path
        self._find = _compiled(path)
        self._must_exist: bool | None = None
        self._tests: list[tuple[str, _Test, bool]] = []
        if not tests:
            raise ConfigurationError(f"the condition on {path} is empty; use one of {', '.join(_OPERATORS)}")
        for name, operand in tests.items():
            if name == "exists":
                _require(isinstance(operand, bool), path, name, "true or false")
                self._must_exist = operand
            else:
                self._tests.append((name, _test(path, name, operand), _takes_lists(name, operand)))

    def holds(self, args: JSONValue, *, in_doubt: bool) -> bool:
        """Return whether the condition holds for *args*; *in_doubt* is the answer where a value cannot be compared.

        A value that is missing, or null, passes no test but `exists: false`, and `not` if *in_doubt* is true.
        """
        try:
            value = self._find(args)
        except Exception:
            return in_doubt  # the expression does not fit the arguments
        if value is None:
            return self._must_exist is not True and all(name == "not" and in_doubt for name, _, _ in self._tests)
        if self._must_exist is False:
            return False
        for _, test, whole in self._tests:  # noqa: SIM110 - no generator: every call passes here
            if not _passes(test, value, whole, in_doubt):
                return False
        return True


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


def _passes(test: _Test, value: JSONValue, whole: bool, in_doubt: bool) -> bool:
    """Whether *value* passes. Of a list that is not compared as a *whole*, one item is enough to be refused, and all
    are needed to be allowed."""
    if isinstance(value, list) and not whole:
        outcomes = [in_doubt if (outcome := test(item)) is None else outcome for item in value]
        return any(outcomes) if in_doubt else bool(outcomes) and all(outcomes)
    outcome = test(value)
    return in_doubt if outcome is None else outcome


# -- reading ----------------------------------------------------------------------------------------------------


def _path(path: JSONValue) -> str:
    if not isinstance(path, str) or not path.strip():
        raise ConfigurationError(f"a condition needs the name of an argument, or a JMESPath expression, not {path!r}")
    return path


def _compiled(path: str) -> Callable[[JSONValue], JSONValue]:
    if _PLAIN_PATH.fullmatch(path):
        return _walker(path.split("."))  # as JMESPath does it, in a fraction of the time
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        return jmespath.compile(path).search
    except JMESPathError as error:
        raise ConfigurationError(
            f"{path!r} is not a JMESPath expression: {' '.join(str(error).split())}; "
            'a name with other signs than letters, digits and _ goes in double quotes: "dry-run"'
        ) from error


def _walker(names: list[str]) -> Callable[[JSONValue], JSONValue]:
    def walk(value: JSONValue) -> JSONValue:
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value

    return walk


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
        return lambda value: value == operand if isinstance(value, str) else None
    return lambda value: _same(value, operand) if _kind(value) == _kind(operand) else None


def _differs(operand: JSONValue) -> _Test:
    if isinstance(operand, str):
        return lambda value: value != operand if isinstance(value, str) else None
    return lambda value: not _same(value, operand) if _kind(value) == _kind(operand) else None


def _among(operands: list[JSONValue]) -> _Test:
    kinds = {_kind(operand) for operand in operands}

    def test(value: JSONValue) -> bool | None:
        return any(_same(value, operand) for operand in operands) if _kind(value) in kinds else None

    return test


def _globs(pattern: str) -> _Test:
    match = re.compile(fnmatch.translate(pattern)).match

    def test(value: JSONValue) -> bool | None:
        return match(value) is not None if isinstance(value, str) else None

    return test


def _paths(path: str, name: str, operand: JSONValue) -> _Test:
    operands = [operand] if isinstance(operand, str) else operand
    _require(isinstance(operands, list | tuple) and bool(operands), path, name, "a path, or a list of paths")
    _require(all(isinstance(each, str) for each in operands), path, name, "a path, or a list of paths")
    try:
        return under_test(operands) if name == "path_under" else glob_test(operands)
    except ValueError as error:
        raise ConfigurationError(
            f"{name} in the condition on {path} must be a plain path, without .., ~, variables or a scheme, not {error}"
        ) from error


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

    def test(value: JSONValue) -> bool | None:
        if not isinstance(value, str):
            return None
        try:
            return check(value)
        except ValueError:
            return None  # a lone surrogate

    return test


def _above(limit: float) -> _Test:
    return lambda value: value > limit if _is_finite(value) else None


def _below(limit: float) -> _Test:
    return lambda value: value < limit if _is_finite(value) else None


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
