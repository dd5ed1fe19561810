"""What is wrong with a workflow, each mistake with its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from toolexec.workflow.nodes import Position

__all__ = ["Finding", "Severity"]

Severity: TypeAlias = Literal["error", "warning"]


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

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON-able data."""
        data: dict[str, Any] = {"kind": self.kind, "severity": self.severity, "message": self.message}
        data |= {"line": self.at.line, "column": self.at.column}
        data |= {"end_line": self.at.end_line, "end_column": self.at.end_column}
        if self.suggestion:
            data["suggestion"] = self.suggestion
        return data
