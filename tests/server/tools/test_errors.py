"""What a reply's text says of errors."""

from __future__ import annotations

import gc
import json
import weakref

from toolexec.errors import InputValidationError, OutputValidationError, ToolExecError, ToolTimeoutError
from toolexec.model.schema import Schema
from toolexec.server.replies import failure
from toolexec.server.tools.errors import error_object, short_errors

NAMES = [f"name_{number}" for number in range(12)]
SCHEMA = Schema.of(
    {
        "type": "object",
        "properties": {**{name: {"type": "string"} for name in NAMES}, "count": {"type": "integer"}},
        "required": ["name_0"],
        "additionalProperties": False,
    }
)


def refused(args: dict[str, object]) -> InputValidationError:
    """Return the error for *args*."""
    return InputValidationError(SCHEMA.violations(args), tool_id="a:b", op="validate_input")


def test_violations_once_and_names_once() -> None:
    """The text has each violation and the known names once; the structured content has all that there was."""
    reply = failure(refused({"nam_0": "x", "count": "ten"}), None)
    text = reply["content"][0]["text"]
    assert json.loads(text)["error"].keys() == {"code", "message"}
    assert (text.count("nam_0"), text.count("ten"), text.count("required")) == (1, 1, 1)
    assert all(text.count(f"{name},") == 1 for name in NAMES)
    details = reply["structuredContent"]["error"]["details"]
    assert {one["keyword"] for one in details["violations"]} == {"additionalProperties", "required", "type"}


def test_names_are_left_out_where_none_was_wrong() -> None:
    """A missing argument and a wrong type name nothing else."""
    text = failure(refused({"count": "ten"}), None)["content"][0]["text"]
    assert "known" not in text
    assert len(text) < 200


def test_steps_of_a_chain_are_short_as_well() -> None:
    """Errors in results are shortened; other errors keep what they have, and a broken result that it ran."""
    late = error_object(ToolTimeoutError("too late", tool_id="a:b"))
    value = {"results": [{"error": error_object(refused({}))}, 5], "error": late}
    short = short_errors(value)
    assert (short["error"], short["results"][1]) == (late, 5)
    assert short["results"][0]["error"].keys() == {"code", "message"}
    broken = error_object(OutputValidationError(SCHEMA.violations({}), tool_id="a:b", value={}))
    assert short_errors({"error": broken})["error"].keys() == broken.keys() - {"details"}


class _Large:
    """What a call has been given."""


def test_nothing_of_a_call_is_kept_once_its_error_is_shown() -> None:
    """The frames that an error and its cause have passed are gone at once, without the garbage collector, also where
    they have the error."""
    known: list[weakref.ref[_Large]] = []
    message = None

    def cause() -> None:
        large, error = _Large(), ValueError("it is too large")
        known.append(weakref.ref(large))
        raise error

    def call() -> None:
        large = _Large()
        known.append(weakref.ref(large))
        try:
            cause()
        except ValueError as before:
            error = ToolExecError("it failed")
            raise error from before

    gc.disable()
    try:
        try:
            call()
        except ToolExecError as error:
            message = error_object(error)["message"]
        assert (message, [each() for each in known]) == ("it failed", [None, None])
    finally:
        gc.enable()
