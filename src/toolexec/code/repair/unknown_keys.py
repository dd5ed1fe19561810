"""Keys that a JavaScript program reads, and that no result has, where it is not known from what they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from toolexec.code.repair.near_keys import alike
from toolexec.code.repair.source import instead
from toolexec.code.repair.tables import parts_of
from toolexec.code.tools import Tools

_READ: Final = re.compile(r"(?<![\w$.])([A-Za-z_$][\w$]*)\??\.([A-Za-z_$][\w$]*)(?![\w$]|\s*\(|\s*=[^=])")
_OF_ALL: Final = frozenset({"length", "size", "prototype", "constructor", "message", "name", "stack", "cause"})
_ROOTS: Final = frozenset({"tools", "Math", "JSON", "Object", "Number", "Promise", "console", "this", "files", "env"})
_MOST: Final = 500


def about_unknown_keys(code: str, tools: Tools) -> Iterator[str]:
    """Yield what to write for each such read for which results have one key of that meaning."""
    results = [call.value for call in tools.tool_calls() if call.error is None and not call.is_open]
    keys = list(dict.fromkeys(key for part in parts_of(results) if isinstance(part, dict) for key in part))
    for found in islice(_READ.finditer(code), _MOST):
        root, key = found.groups()
        if root in _ROOTS or key in _OF_ALL or key in keys:
            continue
        own = re.search(rf"(?<![\w$.]){re.escape(key)}\s*[:,}}](?!:)|\.{re.escape(key)}\s*=[^=]", code)
        if own is None and (near := alike(key, keys)):
            new = f"{root}.{near}"
            yield f"no result has `{key}`, there is `{near}`: {instead(found[0], new)}"
