"""`tools` imported from a library: it is there without that."""

from __future__ import annotations

import re
from typing import Final

_PYTHON: Final = re.compile(
    r"^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(?:tools|ToolError|[ \t]*,[ \t]*)+[ \t]*$", re.MULTILINE
)
_JAVASCRIPT: Final = re.compile(
    r"^[ \t]*(?:import\s+(?:\{\s*tools\s*\}|\*\s+as\s+tools|tools)\s+from\s+['\"]([^'\"]+)['\"]"
    r"|(?:const|let|var)\s+(?:\{\s*tools\s*\}|tools)\s*=\s*require\(\s*['\"]?([^)'\"]*)['\"]?\s*\));?",
    re.MULTILINE,
)
_LIBRARY: Final = re.compile(r"(?:@?toolexec)(?:[/.-].*)?")


def own_import(code: str, language: str) -> str:
    """Return the statement that imports nothing but `tools`; "" without one."""
    found = (_PYTHON if language == "python" else _JAVASCRIPT).search(code)
    return found[0].strip() if found is not None else ""


def without_own_import(code: str, language: str) -> str:
    """Return *code* without the import of `tools` from toolexec, which has no such name; lines and columns stay."""

    def blank(found: re.Match[str]) -> str:
        module = next(filter(None, found.groups()), "")
        if _LIBRARY.fullmatch(module) is None:
            return found[0]
        text = found[0].strip()
        return found[0].replace(text, ("pass" if language == "python" else "").ljust(len(text)))

    return (_PYTHON if language == "python" else _JAVASCRIPT).sub(blank, code)
