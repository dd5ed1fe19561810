"""What models read about the tools that find and run other tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from toolexec.model.json_value import JSONDict
from toolexec.run.reading import READ_ARGUMENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A tool's name, description and input schema."""

    name: str
    text: str
    schema: JSONDict


def _object(required: list[str], **properties: JSONDict) -> JSONDict:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_TOOL_ID: Final[JSONDict] = {"type": "string", "description": "The tool's ID, as search_tools gives it."}

SEARCH: Final = Wording(
    name="search_tools",
    text="Finds tools by what they do, best first. Call it before you say that something cannot be done.",
    schema=_object(
        ["query"],
        query={"type": "string", "description": "Words for what you want to do."},
        limit={"type": "integer", "minimum": 1, "maximum": 50, "description": "At most so many tools; 10 by default."},
    ),
)
DESCRIBE: Final = Wording(
    name="describe_tool",
    text="Tells what a tool takes and gives, with an example call.",
    schema=_object(["tool_id"], tool_id=_TOOL_ID),
)
RUN: Final = Wording(
    name="run_tool",
    text="Runs a tool. Its arguments must fit the input schema that describe_tool shows.",
    schema=_object(
        ["tool_id"], tool_id=_TOOL_ID, args={"type": "object", "description": "The tool's arguments by name."}
    ),
)
CODE: Final = Wording(
    name="execute_code",
    text=(
        "Runs Python code in a sandbox and gives its value: that of `return`, else of the last expression. The code "
        "calls tools as tools.namespace.name(argument=...); describe_tool shows how. Do loops and filtering in code."
    ),
    schema=_object(["code"], code={"type": "string", "description": "Python code."}),
)
CODE_IN_JAVASCRIPT: Final = Wording(
    name=CODE.name,
    text=(
        "Runs JavaScript or TypeScript code in a sandbox and gives its value: that of `return`, else of the last "
        "expression. The code calls tools as await tools.namespace.name({argument: ...}); describe_tool shows how. Do "
        "loops and filtering in code."
    ),
    schema=_object(["code"], code={"type": "string", "description": "JavaScript or TypeScript code."}),
)
READ: Final = Wording(
    name="read_result",
    text="Reads a result that was too large to be shown, by its handle: page by page, a part of it, or by a search.",
    schema=dict(READ_ARGUMENTS),
)
