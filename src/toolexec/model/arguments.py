"""The arguments of a call as it is made: nothing walks them before these have looked at their size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from toolexec.errors import InputValidationError, Violation
from toolexec.model.json_value import JSONObject, NotJSONError, excess_violation, pointer, to_json
from toolexec.model.tree_size import FLAT, excess_of

if TYPE_CHECKING:
    from toolexec.model.schema import Schema

__all__ = ["bounded_args", "own_parts", "without_nulls"]


def bounded_args(args: Mapping[str, object], tool_id: str) -> None:
    """Raise InputValidationError for arguments that are too much to be walked: too many values, copies or levels."""
    if type(args) is dict:
        for value in args.values():  # in the way of every call: a set of their types takes longer to make
            if type(value) not in FLAT:
                break
        else:
            return
    excess = excess_of(args)
    if excess is not None:
        raise InputValidationError([excess_violation(args, excess)], tool_id=tool_id, op="validate_input")


def own_parts(args: Mapping[str, object], tool_id: str) -> JSONObject:
    """Return arguments that share no nested dict or list with *args*, for code that looks at a call before it is made.

    What is flat, and what is not JSON, is returned as it is: the runner looks at it again, and refuses it. Raises
    InputValidationError as `bounded_args` does.
    """
    if type(args) is dict:
        for value in args.values():
            if type(value) not in FLAT:
                break
        else:
            return args
    try:
        return to_json(args)
    except NotJSONError:
        bounded_args(args, tool_id)
        return args


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
