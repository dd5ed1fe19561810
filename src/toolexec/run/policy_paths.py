"""Compare paths in arguments as the tool may read them, or say that they cannot be compared.

One file has many spellings: `/etc/passwd`, `//etc/./passwd`, `file:///etc/passwd`, `%2Fetc%2Fpasswd`. Which of them a
tool accepts is not known here. So a text is read in every way that a tool may read it; where the readings disagree, or
where one of them leads to a place that only the tool's own machine knows (`..`, `~`, `$HOME`, `/proc/self/root`), the
answer is None: it cannot be said. Symbolic links of that machine cannot be seen from here.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

__all__ = ["as_text", "glob_test", "plain_test", "under_test"]

_Test: TypeAlias = Callable[[Any], bool | None]

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
_WILD: Final = re.compile(r"[*?\[{]")


def as_text(test: _Test) -> _Test:
    """Return *test* for text that may be encoded: None where the readings of it disagree."""

    def tested(value: Any) -> bool | None:
        if not isinstance(value, str) or not _ODD.search(value):
            return test(value)
        found = _spellings(value)
        if found is None or any(_CLIMBS_FOR_SURE.search(text) for text in found):
            return None
        return _agreed(test(text) for text in found)

    return tested


def plain_test(test: _Test) -> _Test:
    """Return *test*, which compares with something that has `/` in it, for text that may be a path."""

    def tested(value: Any) -> bool | None:
        if not isinstance(value, str) or not _ODD.search(value):
            return test(value)
        found = _spellings(value)
        if found is None or any(_CLIMBS.search(text) for text in found):
            return None
        readings = {value, *found}
        for text in found:
            path = _path(text)
            if _SCHEME.match(path):
                if "file:" in path.lower():
                    return None
            elif _ELSEWHERE.search(path) or _SHARE.match(text):
                return None
            readings.add(path)
        return _agreed(test(text) for text in readings)

    return tested


def under_test(directories: Sequence[str]) -> _Test:
    """Return a test for paths that are one of *directories*, or inside of one. Raises ValueError for what is not a path
    that can be compared."""
    return _any_of([_under(_certain(directory)) for directory in directories])


def glob_test(patterns: Sequence[str]) -> _Test:
    """Return a test for paths that match one of *patterns*, as a shell has them, but that `*` includes `/`. Raises
    ValueError as `under_test` does."""
    return _any_of([_glob(_certain(pattern, wild=True)) for pattern in patterns])


def _under(directory: str) -> Callable[[str], bool | None]:
    parts = _parts(directory)

    def compare(path: str) -> bool | None:
        if path.startswith("/") != directory.startswith("/"):
            return None
        own = _parts(path)[: len(parts)]
        if any(_WILD.search(part) for part in own):
            return None  # a tool that expands it may find something else
        if own == parts:
            return True
        return None if [part.casefold() for part in own] == [part.casefold() for part in parts] else False

    return compare


def _glob(pattern: str) -> Callable[[str], bool | None]:
    exact = re.compile(fnmatch.translate(pattern)).match
    loose = re.compile(fnmatch.translate(pattern.casefold())).match
    anywhere = pattern.startswith("*")

    def compare(path: str) -> bool | None:
        if _WILD.search(path) or (not anywhere and path.startswith("/") != pattern.startswith("/")):
            return None
        found = exact(path) is not None
        return found if found == (loose(path.casefold()) is not None) else None

    return compare


def _any_of(compare: Sequence[Callable[[str], bool | None]]) -> _Test:
    def test(value: Any) -> bool | None:
        paths = _readings(value) if isinstance(value, str) else None
        if paths is None:
            return None
        answers: list[bool | None] = []
        for path in paths:
            found = [each(path) for each in compare]
            answers.append(True if True in found else None if None in found else False)
        return _agreed(answers)

    return test


def _agreed(answers: Sequence[bool | None] | Iterator[bool | None]) -> bool | None:
    different = set(answers)
    return different.pop() if len(different) == 1 else None


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
    return root + "/".join(_parts(text)) or "."


def _parts(text: str) -> list[str]:
    return [part for part in text.split("/") if part not in ("", ".")]


def _certain(operand: str, *, wild: bool = False) -> str:
    """Return what a condition compares with, in its one form."""
    text = operand.strip()
    path = _path(text)
    plain = _WILD.sub("x", path) if wild else path
    if not text or _readings(plain) != {plain}:
        raise ValueError(operand)
    return path
