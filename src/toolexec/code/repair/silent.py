"""What a program that ran should have written, where it went on with nothing in the place of a value."""

from __future__ import annotations

from toolexec.code.repair.javascript_reads import javascript_advice
from toolexec.code.repair.promises import about_promises
from toolexec.code.repair.python_reads import silent_python_reads
from toolexec.code.tools import Tools

__all__ = ["about_value"]

_MOST = 5


def about_value(code: str, language: str, tools: Tools) -> list[str]:
    """Return notes on a program that did not fail: reads that certainly mean another, and gave nothing."""
    if language == "python":
        return silent_python_reads(code, tools)[:_MOST] if ".get(" in code else []
    if language != "javascript":
        return []
    return list(dict.fromkeys([*about_promises(code), *javascript_advice(code, tools)]))[:_MOST]
