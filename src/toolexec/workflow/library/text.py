"""Functions of strings."""

from __future__ import annotations

from typing import Final

from toolexec.workflow.library.function import Context, Library
from toolexec.workflow.values import OperationError, Value, bounded, described, is_in, text_of

TEXT: Final = Library("strings")
_MAX_PATTERN: Final = 1000


@TEXT.function("string(value: any) -> string", "string(1.5)", "1.5", deep=True)
def _string(context: Context, value: Value) -> str:
    """Return the value as text: a string as it is, all else as JSON."""
    return text_of(value, context.budget)


@TEXT.function("upper(text: string) -> string", 'upper("abc")', "ABC")
def _upper(text: str) -> str:
    """Return the text in upper case."""
    return _made(text.upper())


@TEXT.function("lower(text: string) -> string", 'lower("ABC")', "abc")
def _lower(text: str) -> str:
    """Return the text in lower case."""
    return _made(text.lower())


@TEXT.function("trim(text: string) -> string", 'trim("  a b ")', "a b")
def _trim(text: str) -> str:
    """Return the text without blanks and line breaks at its ends."""
    return text.strip()


@TEXT.function("split(text: string, separator?: string) -> list", 'split("a, b", ", ")', ["a", "b"])
def _split(text: str, separator: str | None = None) -> list[str]:
    """Return the parts of the text between the separators; without one, its words."""
    if separator == "":
        raise OperationError("split takes a separator that is not empty", "value")
    if separator is not None:
        bounded(text.count(separator) + 1)
        return text.split(separator)
    words = text.split(None, 1_000_000)
    bounded(len(words))
    return words


@TEXT.function("join(values: list, separator?: string) -> string", 'join([1, "b"], ", ")', "1, b", deep=True)
def _join(context: Context, values: list[Value], separator: str | None = None) -> str:
    """Return the values as one text, with the separator between them."""
    between = separator or ""
    size = len(between) * max(len(values) - 1, 0)
    parts: list[str] = []
    for value in values:
        context.spend()
        parts.append(text_of(value, context.budget))
        size += len(parts[-1])
        bounded(size, "string")
    return between.join(parts)


@TEXT.function("replace(text: string, old: string, new: string) -> string", 'replace("a-b", "-", "+")', "a+b")
def _replace(text: str, old: str, new: str) -> str:
    """Return the text with another one in all places of *old*."""
    if not old:
        raise OperationError("replace takes a text to replace that is not empty", "value")
    bounded(len(text) + text.count(old) * (len(new) - len(old)), "string")
    return text.replace(old, new)


@TEXT.function("starts_with(text: string, start: string) -> boolean", 'starts_with("abc", "ab")', True)
def _starts_with(text: str, start: str) -> bool:
    """Return whether the text begins with *start*."""
    return text.startswith(start)


@TEXT.function("ends_with(text: string, end: string) -> boolean", 'ends_with("abc", "bc")', True)
def _ends_with(text: str, end: str) -> bool:
    """Return whether the text ends with *end*."""
    return text.endswith(end)


@TEXT.function("lines(text: string) -> list", 'lines("a\\nb\\n")', ["a", "b"])
def _lines(text: str) -> list[str]:
    """Return the lines of the text, without their line breaks."""
    bounded(text.count("\n") + 1)
    found = text.replace("\r\n", "\n").split("\n")
    return found[:-1] if found[-1] == "" else found


@TEXT.function("pad(text: string, width: integer, fill?: string) -> string", 'pad("7", -3, "0")', "007")
def _pad(text: str, width: int, fill: str | None = None) -> str:
    """Return the text, made that wide by blanks (or *fill*) after it; before it where the width is negative."""
    if fill is not None and len(fill) != 1:
        raise OperationError("pad takes one character to fill with", "value")
    bounded(abs(width), "string")
    return text.ljust(width, fill or " ") if width >= 0 else text.rjust(-width, fill or " ")


@TEXT.function("format_number(value: number, decimals?: integer) -> string", "format_number(1234.5, 2)", "1,234.50")
def _format_number(value: float, decimals: int | None = None) -> str:
    """Return the number with commas between thousands, and so many decimals (0 to 20)."""
    if decimals is None:
        return f"{value:,}"
    if not 0 <= decimals <= 20:
        raise OperationError(f"format_number takes 0 to 20 decimals, not {decimals}", "value")
    return f"{value:,.{decimals}f}" if isinstance(value, float) or decimals else f"{value:,}"


@TEXT.function("match(text: string, pattern: string) -> boolean", 'match("report.csv", "*.csv")', True)
def _match(context: Context, text: str, pattern: str) -> bool:
    """Return whether the whole text fits the pattern, where `*` stands for any text and `?` for one character."""
    if len(pattern) > _MAX_PATTERN:
        raise OperationError(f"a pattern may have {_MAX_PATTERN} characters, not {len(pattern)}", "value")
    at = place = resume = 0
    star = -1
    while at < len(text):
        context.spend()
        if place < len(pattern) and pattern[place] == "*":
            star, resume = place, at
            place += 1
        elif place < len(pattern) and pattern[place] in ("?", text[at]):
            at += 1
            place += 1
        elif star >= 0:  # let the last star stand for one character more
            resume += 1
            at, place = resume, star + 1
        else:
            return False
    return all(character == "*" for character in pattern[place:])


def _made(text: str) -> str:
    bounded(len(text), "string")
    return text


@TEXT.function(
    "contains(values: string | list | object, item: any) -> boolean", 'contains("abc", "b")', True, deep=True
)
def _contains(context: Context, values: Value, item: Value) -> bool:
    """Return whether a string contains another one, a list the item, or an object the key, as `item in values` does."""
    if type(values) is str and type(item) is not str:
        raise OperationError(f"a string contains strings only, not {described(item)}")
    return is_in(item, values, context.budget)
