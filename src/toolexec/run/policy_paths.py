"""Compare paths in arguments as the tool may read them, or say that they cannot be compared.

One file has many spellings: `/etc/passwd`, `//etc/./passwd`, `file:///etc/passwd`, `%2Fetc%2Fpasswd`. Which of them a
tool accepts is not known here. So a text is read in every way that a tool may read it; where the readings disagree, or
where one of them leads to a place that only the tool's own machine knows (`..`, `~`, `$HOME`, `/proc/self/root`), the
answer is UNKNOWN. Symbolic links of that machine cannot be seen from here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from toolexec.run.policy_truth import Truth

_Test: TypeAlias = Callable[[Any], Truth]

_MAX_TEXT: Final = 10_000
_MAX_DECODED: Final = 4
_ODD: Final = re.compile(r"[%\\/~$:\x00-\x1f\x7f]|[^\x00-\x7f]|^\s|\s$|^\.|^[\"']")
_CLIMBS: Final = re.compile(r"(?:^|[/\\])\.{2,}(?:[;:\s][^/\\]*)?(?:[/\\]|$)")
_CLIMBS_FOR_SURE: Final = re.compile(r"(?:^|[/\\])\.\.(?:[/\\]|$)")
_ESCAPE: Final = re.compile(r"%[0-9A-Fa-f]{2}")
_FILE_URL: Final = re.compile(r"(?i)file:(?://(?:localhost|127\.0\.0\.1|\[::1\])?(?=/))?(/[^?#]*)")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:")
_ELSEWHERE: Final = re.compile(
    r"""
    ^~ | ^["'`] | \$[A-Za-z_{(] | %[A-Za-z_][A-Za-z0-9_()]*% | [\x00-\x1f\x7f]      # expanded, quoted, cut
    | ^/proc/[^/]+/(?:root|cwd|fd|exe|task|map_files|ns)(?:/|$) | ^/proc/(?:self|thread-self)$   # magic links
    | ^/dev/(?:fd|stdin|stdout|stderr)(?:/|$) | ^/\.vol(?:/|$)
    | (?:^|/)[^/]{1,8}~[0-9]                                                         # short names of Windows
    """,
    re.VERBOSE,
)
_DRIVE: Final = re.compile(r"^/?[A-Za-z]:(?:/|$)|^[A-Za-z]:")
_SHARE: Final = re.compile(r"^(?:\\\\|//[.?]/)")
WILD: Final = re.compile(r"[*?\[{]")
"""What a tool may expand to other paths."""


def as_text(test: _Test) -> _Test:
    """Return *test* for text that may be encoded: UNKNOWN where the readings of it disagree."""

    def tested(value: Any) -> Truth:
        if not isinstance(value, str) or not _ODD.search(value):
            return test(value)
        found = _spellings(value)
        if found is None or any(_CLIMBS_FOR_SURE.search(text) for text in found):
            return Truth.UNKNOWN
        return Truth.agreed(test(text) for text in found)

    return tested


def plain_test(test: _Test) -> _Test:
    """Return *test*, which compares with something that has `/` in it, for text that may be a path."""

    def tested(value: Any) -> Truth:
        if not isinstance(value, str) or not _ODD.search(value):
            return test(value)
        found = _spellings(value)
        if found is None or any(_CLIMBS.search(text) for text in found):
            return Truth.UNKNOWN
        readings = {value, *found}
        for text in found:
            path = _path(text)
            if _SCHEME.match(path):
                if "file:" in path.lower():
                    return Truth.UNKNOWN
            elif _ELSEWHERE.search(path) or _SHARE.match(text):
                return Truth.UNKNOWN
            readings.add(path)
        return Truth.agreed(test(text) for text in readings)

    return tested


def under_test(directories: Sequence[str]) -> _Test:
    """Return a test for paths that are one of *directories*, or inside of one. Raises ValueError for what is not a path
    that can be compared."""
    return any_path([_under(one_spelling(directory)) for directory in directories])


def any_path(compare: Sequence[Callable[[str], Truth]]) -> _Test:
    """Return a test for paths that one of *compare* holds for, in each way that they may be read."""

    def test(value: Any) -> Truth:
        paths = _readings(value) if isinstance(value, str) else None
        if paths is None:
            return Truth.UNKNOWN
        return Truth.agreed(Truth.some(each(path) for each in compare) for path in paths)

    return test


def one_spelling(operand: str, *, wild: bool = False) -> str:
    """Return a path that a condition compares with, in its one form. Raises ValueError for what has no such form, and
    for wildcards unless they are *wild*."""
    text = operand.strip()
    path = _path(text)
    plain = WILD.sub("x", path) if wild else path
    if not text or _readings(plain) != {plain}:
        raise ValueError(f"a plain path, without .., ~, variables or a scheme, not {operand}")
    return path


def parts_of(path: str) -> list[str]:
    """Return the names that a path consists of."""
    return [part for part in path.split("/") if part not in ("", ".")]


def _under(directory: str) -> Callable[[str], Truth]:
    parts = parts_of(directory)

    def compare(path: str) -> Truth:
        if path.startswith("/") != directory.startswith("/"):
            return Truth.UNKNOWN
        own = parts_of(path)[: len(parts)]
        if any(WILD.search(part) for part in own):
            return Truth.UNKNOWN  # a tool that expands it may find something else
        if own == parts:
            return Truth.TRUE
        is_alike = [part.casefold() for part in own] == [part.casefold() for part in parts]
        return Truth.UNKNOWN if is_alike else Truth.FALSE

    return compare


def _readings(text: str) -> set[str] | None:
    """Return the paths that a text may mean; None where one of them cannot be known."""
    found = _spellings(text) if len(text) <= _MAX_TEXT and text.strip() else None
    if found is None:
        return None
    paths = {_path(spelling) for spelling in found}
    for spelling in found:
        if _SHARE.match(spelling) or _CLIMBS.search(spelling):
            return None
    for path in paths:
        if _SCHEME.match(path) or _DRIVE.match(path) or _ELSEWHERE.search(path) or _CLIMBS.search(path):
            return None
        if any(unicodedata.category(character) in ("Cf", "Cc", "Cs", "Co") for character in path if character > "~"):
            return None
    return paths


def _spellings(text: str) -> set[str] | None:
    """A text, and what it is without what some tools take off: escapes, blanks at the ends, invisible characters,
    full-width forms, backslashes, blanks and dots at the ends of names. None where it cannot be decoded."""
    found = {text}
    for _ in range(_MAX_DECODED):
        try:
            decoded = {unquote(each, errors="strict") for each in found if _ESCAPE.search(each)}
        except UnicodeDecodeError:
            return None
        if decoded <= found:
            break
        found |= decoded
    else:
        return None
    for change in (str.strip, _plain_characters, _slashes, _without_ends):
        found |= {change(each) for each in found}
    return found


def _plain_characters(text: str) -> str:
    if text.isascii():
        return text
    seen = "".join(character for character in text if unicodedata.category(character) != "Cf")
    return re.sub("[\u2044\u2215\u29f8]", "/", unicodedata.normalize("NFKC", seen))


def _slashes(text: str) -> str:
    return text.replace("\\", "/")


def _without_ends(text: str) -> str:
    return re.sub(r"(?<=[^/.\s])[.\s]+(?=/|$)", "", text)


def _path(text: str) -> str:
    """Return a text as a path without what does not count: `//`, `/./`, a `/` or `/.` at its end, `file://` in
    front."""
    url = _FILE_URL.match(text)
    if url is not None:
        text = unquote(url[1])
    root = "/" if text.startswith("/") else ""
    return root + "/".join(parts_of(text)) or "."
