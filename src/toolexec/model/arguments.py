"""The arguments of a call as it is made: nothing walks them before these have looked at their size."""

from __future__ import annotations

from collections.abc import Mapping

from toolexec.errors import InputValidationError
from toolexec.model.json_value import JSONObject, NotJSONError, excess_violation, to_json
from toolexec.model.tree_size import FLAT, excess_of

__all__ = ["bounded_args", "own_parts"]


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
