"""What a program that ran should have written, where it went on with nothing in the place of a value.

What reads programs is imported for the first program that may be silent: most are not.
"""

from __future__ import annotations

from toolexec.code.tools import Tools

__all__ = ["about_value", "may_be_silent"]

_MOST = 5


def may_be_silent(code: str, language: str) -> bool:
    """Return whether `about_value` may have something to say: without it, nothing of the program is read."""
    return language == "javascript" or (language == "python" and ".get(" in code)


def about_value(code: str, language: str, tools: Tools) -> list[str]:
    """Return notes on a program that did not fail: reads that certainly mean another, and gave nothing."""
    if language == "python":
        from toolexec.code.repair.python_reads import silent_python_reads

        return silent_python_reads(code, tools)[:_MOST]
    if language != "javascript":
        return []
    from toolexec.code.repair.javascript_reads import javascript_advice
    from toolexec.code.repair.promises import about_promises

    return list(dict.fromkeys([*about_promises(code), *javascript_advice(code, tools)]))[:_MOST]
