"""How arguments become a part of a URL's path: the one builder of all providers that send requests over HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, unquote

from toolexec.errors import InputValidationError, Violation

PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
_SEPARATORS: Final = re.compile(r"[/\\]")
_MAX_DECODINGS: Final = 4


def filled_path(template: str, written: Callable[[str], str]) -> str:
    """Return *template* with `{name}` replaced by `written(name)`, which is percent-encoded already.

    An argument stays within its segment, also for a server that decodes a path once more, or opens files by it: a slash
    in it is sent as `%2F`. Raises InputValidationError for an argument that is empty, has a NUL, begins with a slash,
    or leads to `.` or `..`. Those of the query after `?` only must not be empty.
    """
    path, mark, query = template.partition("?")
    segments = [_segment(segment, written) for segment in path.split("/")]
    return "/".join(segments) + mark + PLACEHOLDER.sub(lambda match: _part(match[1], written), query)


def _segment(template: str, written: Callable[[str], str]) -> str:
    names: list[str] = PLACEHOLDER.findall(template)
    if not names:
        return template if template.isascii() and " " not in template else quote(template, safe="%!$&'*+,;=:@()")
    filled = PLACEHOLDER.sub(lambda match: _part(match[1], written), template)
    text = filled
    for _ in range(_MAX_DECODINGS):
        before, text = text, unquote(text, errors="replace")
        problem = _problem(text)
        if problem:
            raise _refused(names[0], problem)
        if text == before:
            break
    return filled


def _problem(text: str) -> str:
    """Return why a segment, as a server may read it, must not be sent; empty for a good one."""
    if "\0" in text:
        return "it is a part of the path, and must not have the character NUL"
    parts = _SEPARATORS.split(text)
    if len(parts) > 1 and not parts[0]:
        return "it is a part of the path, and must not begin with a slash"
    if any(part.partition(";")[0].strip() in (".", "..") for part in parts):
        return "it must not have the segments . or .. in it: that would lead to another path"
    return ""


def _part(name: str, written: Callable[[str], str]) -> str:
    text = written(name)
    if not text:
        raise _refused(name, "it is a part of the path, and must not be empty")
    return text


def _refused(name: str, message: str) -> InputValidationError:
    return InputValidationError([Violation(path=f"/{name}", keyword="pattern", message=message)], op="send")
