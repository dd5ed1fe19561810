"""The arguments of a call as it is made: nothing walks them before these have looked at their size.

A call with arguments that are too much to be walked is not refused where that is found: it goes on with `RefusedArgs`,
so that the rules around calls record it, and then refuse it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

from toolexec.errors import InputValidationError, Violation
from toolexec.model.json_value import JSONObject, NotJSONError, excess_violation, pointer, to_json
from toolexec.model.tree_size import FLAT, Excess, excess_of, has_many, is_flat

if TYPE_CHECKING:
    from toolexec.model.schema import Schema


class RefusedArgs(Mapping[str, Any]):
    """Takes the place of arguments that are too much to be walked, or do not fit, in the call that is refused for it.

    A look into it raises `error`, an InputValidationError, so that no call can be made with it.
    """

    __slots__ = ("error", "excess")

    def __init__(self, excess: Excess, tool_id: str) -> None:
        self.excess: Excess | None = excess
        violation = excess_violation({}, excess)
        self.error = InputValidationError([violation], tool_id=tool_id, op="validate_input")

    @classmethod
    def because(cls, error: InputValidationError) -> RefusedArgs:
        """Return what takes the place of arguments that are refused with *error*."""
        refused = cls.__new__(cls)
        refused.excess, refused.error = None, error  # pyright: ignore[reportAttributeAccessIssue]
        return refused

    def __bool__(self) -> bool:
        return True  # `args or {}` must not make it arguments of nothing

    def __repr__(self) -> str:
        return f"<arguments with {self.excess.value}>" if self.excess is not None else "<arguments that do not fit>"

    def __getitem__(self, name: str) -> NoReturn:
        raise self.error

    def __iter__(self) -> Iterator[str]:
        raise self.error

    def __len__(self) -> NoReturn:
        raise self.error


def bounded_args(args: Mapping[str, object], tool_id: str) -> None:
    """Raise InputValidationError for arguments that are too much to be walked: too many values, copies or levels."""
    looked_at = bounded(args, tool_id)
    if type(looked_at) is RefusedArgs:
        raise looked_at.error


def bounded(args: Mapping[str, object], tool_id: str) -> JSONObject:
    """Return *args*, or RefusedArgs in their place where they are too much to be walked: too many values, copies or
    levels."""
    if type(args) is dict:
        for value in args.values():  # in the way of every call: a set of their types takes longer to make
            if type(value) not in FLAT:
                break
        else:
            return args
    elif type(args) is RefusedArgs:
        return args
    excess = excess_of(args)
    return args if excess is None else RefusedArgs(excess, tool_id)


def own_parts(args: Mapping[str, object], tool_id: str) -> JSONObject:
    """Return arguments that share no dict or list with *args*, for code that looks at a call before it is made: between
    that and the call, or the next attempt at it, the caller may change *args*.

    What is not JSON is returned as it is: the runner looks at it again, and refuses it. What is too much to be walked
    is RefusedArgs.
    """
    if type(args) is dict:
        for value in args.values():
            if type(value) not in FLAT:
                break
        else:
            return args.copy()
    elif type(args) is RefusedArgs:
        return args
    try:
        return to_json(args)
    except NotJSONError:
        return bounded(args, tool_id)


def own_parts_at_once(args: Mapping[str, object], tool_id: str) -> JSONObject | None:
    """Return what `own_parts` does, or None for so many values that an event loop should not walk them."""
    if type(args) is dict and is_flat(args):
        return args.copy()  # most calls: one look in place of two
    return None if has_many(args) else own_parts(args, tool_id)


def are_same(args: JSONObject | None, others: JSONObject | None) -> bool:
    """Return whether two arguments are the same JSON: `1`, `1.0` and `True` are not the same. Of what is not JSON,
    only the same object is."""
    return args is others or _same_parts(args, others)


def _same_parts(one: object, other: object) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        a, b = cast("dict[str, object]", one), cast("dict[str, object]", other)
        return a.keys() == b.keys() and all(_same_parts(value, b[name]) for name, value in a.items())
    if isinstance(one, list):
        c, d = cast("list[object]", one), cast("list[object]", other)
        return len(c) == len(d) and all(map(_same_parts, c, d))
    return one is other or (type(one) in FLAT and one == other)


def without_nulls(args: JSONObject, schema: Schema, violations: Sequence[Violation]) -> JSONObject:
    """Return *args* without the optional ones that are null where *schema* takes no null, as models write what they
    leave out; *args* itself where there are none.
    """
    wrong = {violation.path for violation in violations}
    nulls = [name for name, value in args.items() if value is None and f"/{pointer(name)}" in wrong]
    document = schema.to_json() if nulls else None
    if not isinstance(document, Mapping):
        return args
    optional = {*document.get("properties", ())} - {*document.get("required", ())}
    dropped = optional.intersection(nulls)
    return {name: value for name, value in args.items() if name not in dropped} if dropped else args
