"""Python that is one mark away from a program: the mark is looked for by reading the program with each in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.python_tree import tree_of
from toolexec.code.repair.source import instead

_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_LONGEST: Final = 10_000
"""Characters of a program beyond which none of this is tried: it is read once for each way."""
_MOST_WAYS: Final = 30
_UNCLOSED: Final = re.compile(r"'([(\[{])' was never closed")
_MISMATCH: Final = re.compile(r"closing parenthesis '([)\]}])' does not match opening parenthesis '([(\[{])'")
_UNMATCHED: Final = re.compile(r"unmatched '([)\]}])'")


def about_syntax(failure: Failure) -> str:
    """Return what to write instead of the line; "" where no way, or more than its error, is known."""
    lines = failure.code.splitlines()
    is_read = failure.language == "python" and failure.kind in ("SyntaxError", "IndentationError", "TabError")
    if not is_read or not 0 < failure.line <= len(lines) or len(failure.code) > _LONGEST:
        return ""
    line = lines[failure.line - 1]
    for new in islice(_ways(line, failure.message, lines[: failure.line - 1]), _MOST_WAYS):
        if tree_of("\n".join([*lines[: failure.line - 1], new, *lines[failure.line :]])) is not None:
            indented = new.strip() == line.strip()
            return instead(line, new) if indented else instead(line.strip(), new.strip())
    return ""


def _ways(line: str, message: str, before: list[str]) -> Iterator[str]:
    """Yield the line with what its error names put right, the most probable way first."""
    if "unterminated" in message:
        yield from _with_quote(line)
    elif found := _UNCLOSED.search(message):
        closing = _CLOSING[found[1]]
        yield line + closing
        for at in (each.start() for each in re.finditer(r"[:,)\]}]|$", line)):
            yield line[:at] + closing + line[at:]
    elif found := _MISMATCH.search(message):
        for each in reversed([*re.finditer(re.escape(found[1]), line)]):
            yield line[: each.start()] + _CLOSING[found[2]] + line[each.end() :]
            yield line[: each.start()] + _CLOSING[found[2]] + line[each.start() :]
    elif found := _UNMATCHED.search(message):
        for each in reversed([*re.finditer(re.escape(found[1]), line)]):
            yield line[: each.start()] + line[each.end() :]
    elif "instead of '='" in message or "Maybe you meant '=='" in message:
        for each in re.finditer(r"(?<![=!<>:+*/%&|^-])=(?!=)", line):
            yield f"{line[: each.start()]}=={line[each.end() :]}"
    elif "unexpected indent" in message or "unindent does not match" in message:
        widths = dict.fromkeys(len(each) - len(each.lstrip()) for each in reversed(before) if each.strip())
        written = len(line) - len(line.lstrip())
        for width in sorted(widths, key=lambda each: abs(each - written)):
            yield " " * width + line.strip()
    if not any(each in message for each in ("unterminated", "indent", "was never closed", "unmatched")):
        for each in re.finditer(r"(?<=[\w\"')\]}]) +(?=[\w\"'(\[{*])", line):
            head = line[: each.start()]
            if (
                "forgot" in message
                or re.match(r"\s*(?:from|import|return|for|(?!const|let|var)\w+$)\b", head)
                or _is_open(head)
            ):
                yield f"{head}, {line[each.end() :]}"


def _is_open(text: str) -> bool:
    return sum(text.count(each) for each in "([{") > sum(text.count(each) for each in ")]}")


def _with_quote(line: str) -> Iterator[str]:
    """Yield the line with a quote that closes its last text: as far behind as that can be."""
    quotes = [each for each in "\"'" if line.count(each) % 2]
    for quote in quotes:
        opened = line.rfind(quote)
        word = re.compile(r"[\w-]+(?=[\]:,)}])").match(line, opened + 1)
        if word is not None:
            yield line[: word.end()] + quote + line[word.end() :]
        following = re.search(r"[)\]},\s]*,\s*(?:\w+\s*=(?!=)|[\"'][\w ]+[\"']\s*:)", line[opened + 1 :])
        if following is not None and len(following[0]):  # another argument, or a key
            at = opened + 1 + following.start()
            yield line[:at] + quote + line[at:]
        tail = re.search(r"[)\]},:;\s]*$", line)
        start = tail.start() if tail is not None else len(line)
        for at in (*range(start, len(line) + 1), *range(start - 1, line.rfind(quote), -1)):
            yield line[:at] + quote + line[at:]
