"""What a program that ran should have written, where it went on with nothing in the place of a value.

What reads programs is imported for the first program that may be silent: most are not.
"""

from __future__ import annotations

import re
from typing import Final

from toolexec.code.repair.swallowed import about_swallowed
from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_MOST = 5
_MOST_CALLS: Final = 200
_ASKING: Final = re.compile(r"\.get\(|\bexcept\b|==\s*['\"]|['\"]\s*==|\.(?:starts|ends)with\(")
_MADE_OF_NOTHING: Final = re.compile(r"\b(?:undefined|NaN|null)\b")


def may_be_silent(code: str, language: str, tools: Tools, value: JSONValue) -> bool:
    """Return whether `about_value` may have something to say: without it, nothing of the program is read."""
    if language != "python":
        return language == "javascript"
    is_refused = any(call.error is not None for call in tools.tool_calls()[:_MOST_CALLS])
    is_asking = _ASKING.search(code) is not None or (not value and " in " in code)
    return is_refused or is_asking or (value is None and "def " in code)


def about_value(
    code: str, language: str, tools: Tools, value: JSONValue = None, *, is_watched: bool = False
) -> list[str]:
    """Return notes on a program that did not fail: reads that certainly mean another, and gave nothing. Where its
    *value* has nothing in some place, there are also those on reads of what has no keys. What *is_watched* reports of
    such reads by itself, and better."""
    is_empty = has_nothing(value)
    swallowed = about_swallowed(tools) if is_empty else ""
    if language == "python":
        from toolexec.code.repair.no_return import about_no_return
        from toolexec.code.repair.python_reads import silent_python_reads
        from toolexec.code.repair.unmet import unmet_in_python

        notes = [*([swallowed] if swallowed else []), *silent_python_reads(code, tools, is_empty=not value or is_empty)]
        if value is None and not notes:
            notes += about_no_return(code)
        return (notes if notes or value else [*unmet_in_python(code, tools)])[:_MOST]
    if language != "javascript":
        return [swallowed] if swallowed else []
    from toolexec.code.repair.braced_functions import about_braced_functions
    from toolexec.code.repair.javascript_reads import javascript_advice
    from toolexec.code.repair.no_return import about_printed
    from toolexec.code.repair.promises import about_promises
    from toolexec.code.repair.unknown_keys import about_unknown_keys
    from toolexec.code.repair.unmet import unmet_in_javascript

    braced = about_braced_functions(code) if is_empty else ()
    notes = [swallowed] if swallowed else list[str]()
    notes += [*about_promises(code), *braced, *javascript_advice(code, tools, is_empty=is_empty)]
    if is_empty and not notes and not is_watched:
        notes += about_unknown_keys(code, tools)
    if value is None and not notes:
        notes += about_printed(code)
    if not value and not notes:
        notes += unmet_in_javascript(code, tools)
    return list(dict.fromkeys(notes))[:_MOST]


def has_nothing(value: JSONValue) -> bool:
    """Return whether a value is null or empty, or has what is, or text that was made of nothing."""
    if isinstance(value, dict | list):
        return not value or any(map(has_nothing, value.values() if isinstance(value, dict) else value))
    return value is None or (isinstance(value, str) and (not value or _MADE_OF_NOTHING.search(value) is not None))
