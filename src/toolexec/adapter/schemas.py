"""Schemas of arguments, strict where that is asked for and can be."""

from __future__ import annotations

from toolexec.adapter.base import FormOptions
from toolexec.adapter.dialects import DIALECTS, Dialect
from toolexec.adapter.fit import Fitted, fit_schema
from toolexec.adapter.losses import Losses
from toolexec.adapter.strict import fit_strict
from toolexec.model.tool import Tool


def arguments(tool: Tool, dialect: str, losses: Losses, options: FormOptions) -> tuple[Fitted, bool]:
    """Return the tool's input schema in a dialect, and whether it is strict. A schema that cannot be strict is written
    as if that were not asked for. Raises InvalidSchemaError when its root fits no object."""
    strict = DIALECTS.get(f"{dialect}-strict")
    if options.strict and strict is None:
        not_strict(losses)
    with losses.root("input"):
        if options.strict and strict is not None:
            fitted = fit_strict(tool.input_schema, strict, losses, describe=options.describe)
            if fitted is not None:
                return fitted, True
        return fit_schema(tool.input_schema, DIALECTS[dialect], losses, describe=options.describe), False


def not_strict(losses: Losses) -> None:
    """Warn that a strict tool was asked for in a form that has none."""
    losses.add("strict", "/strict", note="this form knows no strict tools")


def result(tool: Tool, dialect: Dialect, losses: Losses, options: FormOptions) -> Fitted | None:
    """Return the tool's output schema in a dialect; None if it has none."""
    if tool.output_schema is None:
        return None
    with losses.root("output"):
        return fit_schema(tool.output_schema, dialect, losses, describe=options.describe, root=False)
