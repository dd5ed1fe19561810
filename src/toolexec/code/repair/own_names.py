"""Names of a program's own that it reads in another form than it has given them: a function that is not called, a
member without its object, a method without `self`, a tool with a hyphen."""

from __future__ import annotations

import re
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.source import instead

_FUNCTION: Final = re.compile(r"the value at its root is (?:of type )?(?:a )?(?:function|method)\b")
_UNDEFINED: Final = re.compile(r"(?:NameError: name '(\w+)' is not defined|ReferenceError: '?(\w+)'? is not defined)")
_NO_SELF: Final = re.compile(r"TypeError: (?:\w+\.)?(\w+)\(\) takes (\d+) positional arguments? but (\d+) were given")
_HYPHEN: Final = re.compile(r"(?<=\.)(\w+(?:-\w+)+)(?=\()")


def about_own_names(failure: Failure) -> str:
    """Return what to write instead; "" where nothing is known."""
    if _FUNCTION.search(failure.message):
        return _called(failure.code)
    if (found := _NO_SELF.match(failure.message)) and int(found[3]) == int(found[2]) + 1:
        head = re.search(rf"\bdef {found[1]}\((?!self\b)", failure.code)
        return f"a method takes `self` first: {instead(head[0], f'{head[0]}self, ')}" if head is not None else ""
    found = _UNDEFINED.match(failure.message)
    if found is None:
        return ""
    name, of = (found[1], "self") if found[1] else (found[2], "this")
    if (hyphen := _HYPHEN.search(failure.source)) and name in hyphen[0].split("-"):
        return f"a name has no hyphen: {instead(hyphen[0], hyphen[0].replace('-', '_'))}"
    line = failure.source.strip()
    if line and re.search(rf"\b{of}\.{name}\b", failure.code):
        new = re.sub(rf"(?<![\w.]){name}\b", f"{of}.{name}", line)
        return f"`{name}` is a member: {instead(line, new)}"
    return ""


def _called(code: str) -> str:
    """Advise on a function that is the value of a program."""
    lines = [line for line in code.splitlines() if line.strip()]
    last = re.match(r"(\s*(?:return\s+|[\w$]+\s*=\s*)?)([A-Za-z_$][\w$]*)(;?)\s*$", lines[-1]) if lines else None
    own = last is not None and re.search(
        rf"\b(async\s+)?(?:def|function)\s+{re.escape(last[2])}\b|\b{re.escape(last[2])}\s*=\s*(async\b)?", code
    )
    if last is None or not own:
        return ""
    call = f"{'await ' if own[1] or own[2] else ''}{last[2]}()"
    return f"it is a function: {instead(lines[-1].strip(), f'{last[1].strip()} {call}{last[3]}'.strip())}"
