"""Evaluate one expression of the workflow language with given names, and nothing else: no tool, no statement."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from toolexec.errors import ToolExecError
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.run.large import Budget as WorkBudget
from toolexec.workflow.compiler import compile_workflow
from toolexec.workflow.machine import Budget, Finished, Machine, Paused
from toolexec.workflow.parser import parse

__all__ = ["evaluate"]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STEPS: Final = 100_000
_SECONDS: Final = 1.0


def evaluate(expression: str, names: Mapping[str, JSONValue]) -> JSONDict:
    """Return the value of an expression as `{"value": …}`, or how it failed as `{"error": …}`; in a second at most."""
    try:
        used = [name for name in names if name in {*_NAME.findall(expression)}]
        declared = "".join(f"input {name}: any?\n" for name in used)
        program = compile_workflow(parse(f"{declared}return ({expression.strip()})"))
        machine = Machine(program, {name: names[name] for name in used}, now=0.0, budget=Budget(_STEPS))
        outcome = machine.advance(_STEPS)
        while isinstance(outcome, Paused):
            outcome = machine.advance(_STEPS, budget=WorkBudget(_SECONDS))
    except ToolExecError as error:
        return {"error": str(error)}
    if not isinstance(outcome, Finished):
        return {"error": "an expression calls no tools"}
    return {"error": str(outcome.error)} if outcome.error is not None else {"value": outcome.value}
