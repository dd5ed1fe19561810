"""Results that say that there is more of them than a program has read: pages that follow, rows beyond those it got."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from toolexec.code.tools import Tools
from toolexec.model.json_value import JSONValue

_NEXT: Final = re.compile(r"(?i)^(?:next|continue|more|after)(?:_|$)|(?:^|_)(?:cursor|continuation)(?:_|$)|_token$")
_PAGES: Final = frozenset({"pages", "total_pages", "page_count", "totalPages", "last_page"})
_TOTAL: Final = frozenset({"total", "total_count", "count", "totalCount", "total_items", "total_results"})
_PAGE: Final = frozenset({"page", "current_page", "page_number", "currentPage"})
_MOST_CALLS: Final = 20
_MOST_KEYS: Final = 30


def about_further(code: str, tools: Tools) -> str:
    """Return which result is only the first part of what there is, where the program asks for no part and looks at
    nothing that says so; "" where none is."""
    calls = tools.tool_calls()
    if not calls or len(calls) > _MOST_CALLS:
        return ""
    for number, call in enumerate(calls):
        value = call.value if call.error is None and not call.is_open else None
        asked = any(type(each) is int for each in (call.args or {}).values())
        if not isinstance(value, dict) or asked or any(each.tool_id == call.tool_id for each in calls[number + 1 :]):
            continue
        for key, said in _further(value):
            if not re.search(rf"\b{re.escape(key)}\b", code):
                return f"there is more of {call.tool_id} than was read: {said}"
    return ""


def _further(value: Mapping[str, JSONValue]) -> Iterator[tuple[str, str]]:
    lists = [part for part in value.values() if isinstance(part, list)]
    if len(lists) != 1 or len(value) > _MOST_KEYS:
        return
    inner = [part for part in value.values() if isinstance(part, dict) and len(part) < _MOST_KEYS]
    for part in (value, *inner):
        page = next((part[key] for key in _PAGE if type(part.get(key)) is int), 1)
        for key, each in part.items():
            if _NEXT.search(key) and ((isinstance(each, str) and each) or each is True):
                yield key, f"its `{key}` is not empty"
            elif key in _PAGES and isinstance(each, int) and isinstance(page, int) and each > page:
                yield key, f"`{key}` is {each}"
            elif key in _TOTAL and isinstance(each, int) and each > len(lists[0]) > 0:
                yield key, f"`{key}` is {each}, and these are {len(lists[0])}"
