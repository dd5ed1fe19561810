"""What happens to a program before any sandbox gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from toolexec.code.repair.bare_names import bare_names
from toolexec.code.repair.entry import called
from toolexec.code.repair.fences import MARKS, without_fence, without_indent
from toolexec.code.repair.last_line import last_result
from toolexec.code.repair.loops import without_nested_loops
from toolexec.code.repair.meant import rules_of, without_idle_awaits
from toolexec.code.repair.own_imports import without_own_import
from toolexec.code.repair.typescript import without_types
from toolexec.code.tools import Tools
from toolexec.model.languages import TYPED

MAX_REPAIRED: Final = 32_768
"""Characters of a program beyond which it runs as it is written: reading it would stop the event loop. Programs of
models have some thousand characters; a hostile one of a million took up to ten seconds."""
_INDENT = (" ", "\t")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A program as a sandbox gets it: its `code` and `language`, the bare `names` of tools in it with the rules that
    hold for it (see `meant`), and a `note` on its value for the reply, "" for none."""

    code: str
    language: str
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    note: str = ""


def prepared(code: str, language: str, tools: Tools, *, is_session: bool = False) -> Prepared:
    """Return the program that *code* means; one of more than `MAX_REPAIRED` characters as it is.

    Lines keep their numbers, and what is there their columns. A program of a session may define a function for a later
    one: with *is_session* nothing calls that.
    """
    if not isinstance(code, str):  # pyright: ignore[reportUnnecessaryIsInstance] - the request is validated later
        return Prepared(code, language)
    is_typed = language in TYPED
    language = "javascript" if is_typed else language
    if len(code) > MAX_REPAIRED:
        return Prepared(
            code, language, bare_names(code, tools, language) if language in ("python", "javascript") else {}
        )
    if any(mark in code for mark in MARKS):
        code = without_fence(code, language)
    if language == "python":
        if code.lstrip("\n")[:1] in _INDENT:
            code = without_indent(code)
        if "asyncio" in code or ".run_until_complete(" in code:
            code = without_nested_loops(code)
    elif language == "javascript":
        code = without_types(code, is_typed=is_typed)
    else:
        return Prepared(code, language)
    if "toolexec" in code:
        code = without_own_import(code, language)
    note = ""
    if name := last_result(code, language):
        code = f"{code.rstrip()}\n{name}"
        note = f"the value is that of `{name}`, which the program ends with; say it with `return {name}`"
    elif entry := called(code, language):
        if is_session and entry.has_name:
            tools.note(f"nothing calls the function of the program; `{entry.call}` does, here or in a later one")
        else:
            code, note = entry.code, f"nothing calls the function of the program: the value is that of `{entry.call}`"
    names = bare_names(code, tools, language)
    if language == "python":
        code = without_idle_awaits(code, names)
    return Prepared(code, language, names | rules_of(code, language, tools, names), note)
