"""Programs in a Markdown code block."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["without_fence"]

_OPENING: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*[\w+#.-]*[ \t]*\r?")


def without_fence(code: str) -> str:
    """*code* without a Markdown fence around the whole of it, as models write it.

    The line of the opening fence becomes an empty one, so that lines keep their numbers. A fence in the middle stays.
    """
    lines = code.split("\n")
    filled = [number for number, line in enumerate(lines) if line.strip()]
    opening = _OPENING.fullmatch(lines[filled[0]]) if filled else None
    if opening is None:
        return code
    lines[filled[0]] = ""
    if len(filled) > 1 and lines[filled[-1]].strip() == opening[1]:
        del lines[filled[-1] :]
    return "\n".join(lines)
