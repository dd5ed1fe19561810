"""Collect findings, put them in order, and show each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from toolexec.workflow.findings import Finding
from toolexec.workflow.nodes import Position

_MAX_NAME: Final = 80
_MAX_TEXT: Final = 500
_MAX_LINE: Final = 160
_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+")


class Report:
    """Collects the findings of one check; names in them come from servers, so they are cut and cleaned."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def error(self, kind: str, at: Position, message: str, suggestion: str = "") -> None:
        """Add what keeps the workflow from being run."""
        self.findings.append(Finding(kind, "error", shown(message, _MAX_TEXT), at, shown(suggestion, _MAX_TEXT)))

    def warning(self, kind: str, at: Position, message: str, suggestion: str = "") -> None:
        """Add what was probably not meant."""
        self.findings.append(Finding(kind, "warning", shown(message, _MAX_TEXT), at, shown(suggestion, _MAX_TEXT)))


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings in source order, each once."""
    return sorted(
        dict.fromkeys(findings), key=lambda found: (found.at.line, found.at.column, found.severity, found.kind)
    )


def finding_text(finding: Finding, source: str, name: str = "") -> str:
    """Return a finding as a person reads it: where it is, the line with a mark below it, and the suggestion.

    *source* is the whole workflow, *name* that of its file.
    """
    at = finding.at
    head = f"{name}:{at.line}:{at.column}: " if name else f"{at.line}:{at.column}: "
    parts = [f"{head}{finding.severity}: {finding.message} [{finding.kind}]", *pointed_at(source, at)]
    if finding.suggestion:
        parts.append(f"  = {finding.suggestion}")
    return "\n".join(parts)


def pointed_at(source: str, at: Position) -> list[str]:
    """Return the line at a position and, below it, what marks the place; nothing for a position outside *source*."""
    lines = source.splitlines()
    if not 0 < at.line <= len(lines):
        return []
    line = lines[at.line - 1].replace("\t", " ")
    start = max(at.column - 1, 0)
    end = at.end_column - 1 if at.end_line == at.line else len(line)
    first = max(0, start - _MAX_LINE // 2)
    width = max(1, min(end, first + _MAX_LINE) - start)
    margin = f"{at.line:>4} | "
    return [
        f"{margin}{_UNSAFE.sub('�', line[first : first + _MAX_LINE])}",
        f"{' ' * (len(margin) - 2)}| {' ' * (start - first)}{'^' * width}",
    ]


def shown(text: object, limit: int = _MAX_NAME) -> str:
    """Return a name or text of someone else's, fit for a message: on one line, without control characters, cut."""
    line = _UNSAFE.sub(" ", str(text)[: limit * 4])
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
