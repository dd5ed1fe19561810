"""How much of a catalogue is looked at on an event loop, and what is too much for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from toolexec.model.tool import Tool

FEW: Final = 500
"""How many tools are looked at on the event loop: in some 50 ms."""
LONG: Final = 1 << 19
"""How many characters of schemas are read on the event loop: in some 10 ms."""


def are_long(tools: Iterable[Tool]) -> bool:
    """Return whether the schemas of *tools* together are too long to be read on an event loop."""
    schemas = (schema for tool in tools for schema in (tool.input_schema, tool.output_schema) if schema is not None)
    return sum(len(schema.text) for schema in schemas) > LONG
