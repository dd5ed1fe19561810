"""Promises of a JavaScript program's own functions that nothing awaits, where what was meant is their values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from toolexec.code.repair.source import ends_of, instead

_NAME: Final = r"[A-Za-z_$][\w$]*"
_ASYNC: Final = re.compile(rf"\basync\s+function\s+({_NAME})|\b(?:const|let|var)\s+({_NAME})\s*=\s*async\b")
_GIVEN: Final = re.compile(rf"\.(filter|some|every|find|findIndex|forEach|map)\(\s*(?:(async\b)|({_NAME})\s*\))")
_MADE: Final = re.compile(rf"\b(?:const|let|var)\s+({_NAME})\s*=\s*$")
_CALLED: Final = re.compile(rf"\b(?:const|let|var)\s+({_NAME})\s*=\s*({_NAME}|Promise\.(?:all|allSettled|any|race))\(")
_OF_PROMISES: Final = r"then|catch|finally"
_MAPPED: Final = re.compile(rf"\bawait\s+({_NAME}(?:\.{_NAME})*\.map\()")
_MOST: Final = 100


def about_promises(code: str) -> Iterator[str]:
    """Yield what to write for each place where a promise is taken for its value, whatever the values are."""
    ends = ends_of(code)
    own = {name for found in _ASYNC.finditer(code) for name in found.groups() if name}
    for found in list(_GIVEN.finditer(code))[:_MOST]:
        if found[2] is None and found[3] not in own:
            continue
        start, end = _start_of(code, found.start()), ends.get(code.index("(", found.start()), 0)
        if not end or start == found.start():
            continue
        of, function, call = (
            code[start : found.start()],
            code[code.index("(", found.start()) + 1 : end - 1],
            code[start:end],
        )
        if found[1] == "map":
            made = _MADE.search(code[:start])
            if made is not None and _is_taken_for_values(made[1], code[end:]):
                yield f"these are promises still: {instead(call, f'await Promise.all({call})')}"
        elif found[1] == "forEach":
            if not _is_at_end(code, end):
                new = f"await Promise.all({of}.map({function}))"
                yield f"`forEach` does not wait for what its function awaits: {instead(call, new)}"
        elif found[1] == "filter":
            new = f"(await Promise.all({of}.map({function})).then((kept) => {of}.filter((_, at) => kept[at])))"
            yield f"`filter` takes a promise for true: {instead(call, new)}"
        else:
            yield f"`{found[1]}` takes a promise for true: await what its function gives first, with `Promise.all`"
    for found in list(_MAPPED.finditer(code))[:_MOST]:
        end = ends.get(found.end() - 1, 0)
        call = code[found.start(1) : end]
        if end and re.search(r"\btools\.|\basync\b", call):
            yield f"`await` waits for no array of promises: {instead(f'await {call}', f'await Promise.all({call})')}"
    for found in list(_CALLED.finditer(code))[:_MOST]:
        end = ends.get(found.end() - 1, 0)
        if (found[2] in own or "." in found[2]) and end and _is_read(found[1], code[end:]):
            call = code[found.start(2) : end]
            yield f"`{found[1]}` is a promise still: {instead(f'= {call}', f'= await {call}')}"


def _is_taken_for_values(name: str, code: str) -> bool:
    """Return whether a list of promises is used as one of their values, and never awaited."""
    used = re.findall(rf"(?<![\w$.]){re.escape(name)}(?![\w$])", code)
    awaited = re.search(
        rf"\bPromise\.\w+\(\s*(?:\.\.\.|\[\s*\.\.\.)?{re.escape(name)}\b|\bawait\s+{re.escape(name)}\b", code
    )
    looped = re.search(rf"\bof\s+{re.escape(name)}\b", code) is not None and "await" in code
    return bool(used) and awaited is None and not looped and _is_read(name, code, awaits_items=True)


def _is_read(name: str, code: str, *, awaits_items: bool = False) -> bool:
    read = re.search(rf"(?<![\w$.]){re.escape(name)}(?:\??\.(?!{_OF_PROMISES})\w|\[)|\.\.\.{re.escape(name)}\b", code)
    if read is None or re.search(rf"\bawait\s+{re.escape(name)}\b", code):
        return False
    return not (awaits_items and re.search(r"\bawait\b|\.then\(", code[read.start() :]))


def _is_at_end(code: str, end: int) -> bool:
    """Return whether the program has nothing to do behind this place: then what is not awaited is waited for."""
    return not code[end:].strip(" \t\n;})")


def _start_of(code: str, at: int) -> int:
    """Return where the expression begins that ends before *at*: names, dots, and what is in brackets."""
    while at > 0:
        char = code[at - 1]
        if char in ")]":
            depth, at = 1, at - 1
            while at > 0 and depth:
                at -= 1
                depth += (code[at] in ")]") - (code[at] in "([")
        elif char.isalnum() or char in "_$.?":
            at -= 1
        else:
            break
    return at
