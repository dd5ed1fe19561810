"""What a reply's text says of errors."""

from __future__ import annotations

import json

from toolexec.errors import InputValidationError, OutputValidationError, ToolTimeoutError
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
