"""What is wrong with a workflow, each mistake with its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from toolexec.errors import WorkflowCheckError
from toolexec.model.json_value import JSONDict
from toolexec.workflow.nodes import Position

Severity: TypeAlias = Literal["error", "warning"]
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake in a workflow. `kind` is a stable word such as `undefined-name`; an `error` cannot run."""

    kind: str
    severity: Severity
    message: str
    at: Position
    suggestion: str = ""

    def __str__(self) -> str:
        more = f"; {self.suggestion}" if self.suggestion else ""
        return f"{self.at.line}:{self.at.column}: {self.message}{more}"

    def to_dict(self) -> JSONDict:
        """Return the finding as JSON-able data."""
        data: JSONDict = {"kind": self.kind, "severity": self.severity, "message": self.message}
        data |= {"line": self.at.line, "column": self.at.column}
        data |= {"end_line": self.at.end_line, "end_column": self.at.end_column}
        if self.suggestion:
            data["suggestion"] = self.suggestion
        return data


def check_error(findings: Sequence[Finding]) -> WorkflowCheckError:
    """Return the error of a workflow with these findings, which does not run; the message has the first ones."""
    first = findings[0].at
    lines = "\n".join(map(str, findings[:_SHOWN]))
    more = f"\n... and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
    many = "a mistake" if len(findings) == 1 else f"{len(findings)} mistakes"
    message = f"the workflow has {many}, nothing was run:\n{lines}{more}"
    return WorkflowCheckError(message, findings=findings, line=first.line, column=first.column)
