"""Functions of JavaScript in braces that return nothing, where the value of what is in them is meant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from toolexec.code.repair.source import ends_of, instead

_BRACED: Final = re.compile(
    r"\.(?:map|flatMap|filter|find|some|every|sort|reduce|then)\(\s*((?:async\s*)?(?:\([^()]*\)|[\w$]+)\s*=>\s*)(?=\{)"
)
_NAMED: Final = re.compile(
    r"^[ \t]*(?:(?:async[ \t]+)?function[ \t]+(\w+)[ \t]*\([^()]*\)"
    r"|(?:const|let)[ \t]+(\w+)[ \t]*=[ \t]*(?:async[ \t]*)?\([^()]*\)[ \t]*=>)[ \t]*(?=\{)",
    re.MULTILINE,
)
_STATEMENT: Final = re.compile(r"\b(?:return|throw|if|for|while|switch|try|const|let|var)\b")
_MOST: Final = 100


def about_braced_functions(code: str) -> Iterator[str]:
    """Yield what to write for each function in braces that has no `return`, and is given for its value."""
    ends = ends_of(code)
    for found in [*_BRACED.finditer(code)][:_MOST]:
        end = ends.get(found.end(), 0)
        body = code[found.end() + 1 : end - 1].strip().removesuffix(";").strip() if end else ""
        if not body:
            continue
        old, about = code[found.start(1) : end], "a function in braces gives what it has behind `return`"
        if not _STATEMENT.search(body) and ";" not in body and "=" not in re.sub(r"[=!<>]==?|=>|[<>]=", "", body):
            yield f"{about}: {instead(old, found[1] + (f'({body})' if body.startswith('{') else body))}"
        elif not re.search(r"\breturn\b", body) and ".push(" not in body:
            last = body.rsplit("\n", 1)[-1].strip()
            yield f"{about}, and this one returns nothing: {instead(last, f'return {last}')}"
    for found in [*_NAMED.finditer(code)][:_MOST]:
        name, end = found[1] or found[2], ends.get(found.end(), 0)
        body = code[found.end() + 1 : end - 1] if end else ""
        taken = re.search(rf"(?:[=(,:{{]|\breturn)[ \t]*(?:await[ \t]+)?{name}\(", code[: found.start()] + code[end:])
        if not body.strip() or taken is None or re.search(r"\breturn\b", body):
            continue
        last = body.strip().rsplit("\n", 1)[-1].strip()
        made = re.match(r"(?:const|let|var)[ \t]+(\w+)[ \t]*=[^=]", last)
        new = f"{last} return {made[1]};" if made else "" if last[:1] in "})" else f"return {last}"
        about = f"`{name}` has no `return`, so its result is undefined"
        yield (
            f"{about}: {instead(last, new)}" if new and code.count(last) == 1 else f"{about}: end it with `return ...`"
        )
