"""Examples of docstrings as blocks of code: Markdown takes the `>>>` of a line for a quotation."""

from __future__ import annotations

from typing import Any

import griffe


def fenced(text: str) -> str:
    """Return a docstring with a fence around each of its examples."""
    lines: list[str] = []
    inside = fence = False
    indent = ""
    for line in text.splitlines():
        fence ^= line.lstrip().startswith("```")
        if not inside and not fence and line.lstrip().startswith(">>> "):
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append(f"{indent}```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, f"{indent}```"] if inside else lines)


class Doctests(griffe.Extension):
    """Puts fences around the examples of all that is read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Change the docstring of an object."""
        if not obj.is_alias and obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
