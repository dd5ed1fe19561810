"""References from one step's arguments to the values of earlier steps.

An argument `{"$ref": "steps.0.items[0].id"}` stands for a part of the value of step 0, in JMESPath
(https://jmespath.org); a step with a name can be called by it (`{"$ref": "fetch.items[0].id"}`). A path that
leads nowhere is an error; with "|| `null`" at its end it gives null. `{"$literal": ...}` is taken as it is. A `$ref`
that begins with `#` or has `://` in it is ordinary data, as in a JSON Schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from toolexec.errors import InvalidChainError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONObject, JSONValue, shorten
from toolexec.run.large import Budget, search, spend_on
from toolexec.run.paths import follow

_NUMBERED = re.compile(r"steps(?:\.([0-9]{1,9})|\[([0-9]{1,9})\])(|[.\[].*)", re.DOTALL)
_NAMED = re.compile(r"(?:steps\.)?([A-Za-z_][A-Za-z0-9_-]*)(|[.\[].*)", re.DOTALL)
_MAX_DEPTH = 100


def check_references(args: JSONValue, index: int, names: Mapping[str, int]) -> bool:
    """Return whether there is anything to resolve in *args*. Raises InvalidChainError for a reference of step *index*
    that is malformed or names no earlier step, and for arguments nested more than 100 levels deep.
    """
    return _check(args, index, names, 0)


def _check(args: JSONValue, index: int, names: Mapping[str, int], depth: int) -> bool:
    if depth > _MAX_DEPTH:
        raise InvalidChainError(f"step {index}: its arguments are nested more than {_MAX_DEPTH} levels deep")
    if isinstance(args, dict):
        if len(args) == 1:
            if "$literal" in args:
                return True
            if _is_reference(args):
                _parse(args["$ref"], index, names)
                return True
        args = args.values()
    found = False
    for value in args:
        if isinstance(value, dict | list | tuple) and _check(value, index, names, depth + 1):
            found = True
    return found


def resolve_references(
    args: JSONValue, index: int, names: Mapping[str, int], values: Sequence[JSONValue], budget: Budget
) -> JSONValue:
    """*args* with every reference replaced.

    Raises InvalidChainError for a path that leads nowhere, or fails on the value it meets, such as `length(@)` of a
    number, or takes or makes more than *budget* allows. With large *values* this is not for the event loop.
    """
    if isinstance(args, dict):
        if len(args) == 1:
            if "$literal" in args:
                return args["$literal"]
            if _is_reference(args):
                step, expression = _parse(args["$ref"], index, names)
                if expression is None:
                    return values[step]
                return _search(args["$ref"], index, expression, values[step], budget)
        return {key: resolve_references(value, index, names, values, budget) for key, value in args.items()}
    if isinstance(args, list | tuple):
        return [resolve_references(value, index, names, values, budget) for value in args]
    return args


def _is_reference(value: JSONObject) -> bool:
    target = value.get("$ref")
    return isinstance(target, str) and not target.startswith("#") and "://" not in target


def _parse(reference: str, index: int, names: Mapping[str, int]) -> tuple[int, Any]:
    numbered, shown = _NUMBERED.fullmatch(reference), shorten(repr(reference))
    if numbered:
        step, path = int(numbered[1] or numbered[2]), numbered[3]
    else:
        named = _NAMED.fullmatch(reference)
        if not named or named[1] not in names:
            known = [*names, *(f"steps.{i}" for i in range(index))]
            other = f"it can refer to {', '.join(known) or 'none: it is the first step'}"
            hint = did_you_mean(named[1], names, otherwise=other) if named else other
            raise InvalidChainError(f"step {index}: {shown} refers to no step; {hint}")
        step, path = names[named[1]], named[2]
    if step >= index:
        raise InvalidChainError(f"step {index}: {shown} refers to step {step}, which has not run by then")
    if not path:
        return step, None
    import jmespath

    try:
        return step, jmespath.compile(path.removeprefix("."))
    except Exception as error:  # JMESPathError, and RecursionError for thousands of brackets
        raise InvalidChainError(f"step {index}: {shown} is not a valid path: {shorten(str(error), 500)}") from error


def _search(reference: str, index: int, expression: Any, value: JSONValue, budget: Budget) -> JSONValue:
    try:
        found = search(expression.parsed, value, budget)
        spend_on(found, budget)
        if found is None:
            follow(expression.parsed, value)
        return found
    except Exception as error:  # unknown functions and wrong types show only now, some as plain ValueErrors
        raise InvalidChainError(f"step {index}: {shorten(repr(reference))} cannot be looked up: {error}") from error
