"""Secrets in what comes back, however they are spelled: found in streams, and hidden."""

from __future__ import annotations

import base64
import bz2
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from html.entities import html5
from itertools import compress
from typing import Any, Final, NamedTuple

_MARK: Final = b"*"
_LONG_LINE: Final = 16
_NESTED: Final = 8
"""How often a spelling may be spelled again: `%2525`, `&amp;amp;`."""
_MOST_SKIPPED: Final = 4
_TAIL: Final = 96
"""More bytes than the longest spelling of a few characters."""
_OPENERS: Final = rb"%=\&+"
"""What may begin the spelling of a character that is not spelled as it is."""
_SEPARATORS: Final = b"\r\n :-"
_SLICE: Final = 1 << 16
_MAGIC: Final = (b"\x1f\x8b\x08", b"\x78\x01", b"BZh", b"\xfd7zXZ\0")
_PAIRS: Final = {
    f"{high}{low}".encode(): int(high + low, 16)
    for high in "0123456789abcdefABCDEF"
    for low in "0123456789abcdefABCDEF"
}
_HALF: Final = frozenset(b"0123456789abcdefABCDEF")
_NAMES: Final = {name[:-1].encode(): text for name, text in html5.items() if name.endswith(";")}
_SHORT: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v", b"0": b"\0"}

_SLASHED: Final = re.compile(
    rb"\\{1,32}+(?:(?P<wide>u(?P<u>[0-9A-Fa-f]{4})|u\{0{0,6}(?P<braced>[0-9A-Fa-f]{1,6})\}|U(?P<long>[0-9A-Fa-f]{8}))"
    rb"|x(?P<x>[0-9A-Fa-f]{2})|(?P<octal>[0-3][0-7]{2})|(?P<short>[bfnrtv0])|(?P<plain>[^0-9A-Za-z\\]))",
    re.DOTALL,
)
_SLASHED_OPEN: Final = re.compile(
    rb"\\{1,32}(?:u[0-9A-Fa-f]{0,3}|u\{[0-9A-Fa-f]{0,12}|U[0-9A-Fa-f]{0,7}|x[0-9A-Fa-f]?|[0-3][0-7]?)?\Z"
)
_SLASHES: Final = re.compile(rb"\\{2,32}")
_LOW_HALF: Final = re.compile(rb"\\{1,32}u([Dd][C-Fc-f][0-9A-Fa-f]{2})")
_LOW_HALF_OPEN: Final = re.compile(rb"\\{0,32}(?:u[0-9A-Fa-f]{0,3})?\Z")
_ENTITY: Final = re.compile(
    rb"(?:#0{0,8}(?P<decimal>[0-9]{1,7})|#[xX]0{0,8}(?P<hex>[0-9A-Fa-f]{1,6})|(?P<name>[A-Za-z][A-Za-z0-9]{1,31}));"
)
_ENTITY_OPEN: Final = re.compile(rb"[#A-Za-z0-9]{0,33}\Z")
_SOFT_BREAK: Final = re.compile(rb"=\r?\n")


class _Spelled(NamedTuple):
    """What a few bytes may stand for; `end` is where they end, -1 if more bytes are needed to decide."""

    meant: bytes
    end: int


@dataclass(frozen=True, slots=True)
class _Target:
    """A text to be found. Between its characters there may be one of `skips`, or a few."""

    text: bytes
    skips: bytes = b""


class Mask:
    """Hides *values* in bytes under as many `*`, so that lengths stay what they are. False when there are none.

    A value is found as text (UTF-8, UTF-16, UTF-32, Latin-1), in base64 and hexadecimal digits, also broken into lines
    and as a part of something longer; and each character of all these may be spelled as in JSON, JavaScript, Python,
    URLs, forms, quoted-printable, HTML or XML, in any mixture and several times over. Of a value of several lines the
    longer ones are found as well.
    """

    def __init__(self, values: Iterable[str]) -> None:
        targets = [*dict.fromkeys(target for value in values for target in _targets(value))]
        self._starting: dict[int, list[_Target]] = {}
        self._pairs: dict[bytes, list[_Target]] = {}
        self._skipping: dict[int, list[_Target]] = {}
        for target in targets:
            self._starting.setdefault(target.text[0], []).append(target)
            self._pairs.setdefault(target.text[:2], []).append(target)
            if target.skips:
                self._skipping.setdefault(target.text[0], []).append(target)
        self._starts = _starts(targets) if targets else None
        self._openers = {*self._starting, *_OPENERS}

    def __bool__(self) -> bool:
        return self._starts is not None

    def hide(self, data: bytes) -> bytes:
        """Return *data* without the values."""
        return self.cut(data, final=True)[0]

    def finds(self, data: bytes) -> bool:
        """Return whether a value is in *data*."""
        return bool(self._find(data.replace(b"\0", b""), final=True)[0])

    def cut(self, data: bytes, *, final: bool) -> tuple[bytes, bytes]:
        """Return *data* without the values, and the bytes at its end that may be the start of one; with *final*
        there are none of these."""
        if self._starts is None:
            return data, b""
        plain = data.replace(b"\0", b"") if b"\0" in data else data  # of UTF-16 and UTF-32 the characters remain
        found, open_at = self._find(plain, final=final)
        for start, end in reversed(found):  # what is kept back must be there as a whole to be found next time
            if start < open_at < end:
                open_at = start
        if not found and open_at == len(plain):
            return data, b""
        where = range(len(data)) if plain is data else [*compress(range(len(data)), data)]
        hidden = bytearray(data)
        for start, end in found:
            for position in where[start:end]:
                hidden[position] = _MARK[0]
        keep_from = where[open_at] if open_at < len(plain) else len(data)
        return bytes(hidden[:keep_from]), data[keep_from:]

    def _find(self, data: bytes, *, final: bool) -> tuple[list[tuple[int, int]], int]:
        """Return where values are in *data*, in order of their starts, and where the first one starts that may be
        unfinished (the length of *data* for none)."""
        assert self._starts is not None
        found: list[tuple[int, int]] = []
        open_at = size = len(data)
        tail = size if final else max(0, size - _TAIL)
        starts = [match.start() for match in self._starts.finditer(data, 0, size)]
        openers = self._openers
        starts += [at for at in range(tail, size) if data[at] in openers]
        for start in sorted({*starts}):
            end, unfinished = self._at(data, start)
            if end > start:
                found.append((start, end))
            if unfinished and not final and start < open_at:
                open_at = start
        return found, open_at

    def _at(self, data: bytes, start: int) -> tuple[int, bool]:
        """Return where the longest value that starts here ends (-1 for none), and whether a longer one may be
        unfinished."""
        pair = data[start : start + 2]
        if len(pair) == 2 and pair[0] not in _OPENERS and pair[1] not in _OPENERS:
            plain = self._pairs.get(pair, ())
            skipping = self._skipping.get(pair[0], ()) if pair[1] in _SEPARATORS else ()
            return _longest(data, start, (*plain, *skipping))
        firsts = {data[start]}
        for spelled in _spellings(data, start):
            if spelled.end < 0:
                return _longest(data, start, self._all())[0], True
            firsts.update(spelled.meant[:1])
        return _longest(data, start, [target for first in firsts for target in self._starting.get(first, ())])

    def _all(self) -> Iterator[_Target]:
        for targets in self._starting.values():
            yield from targets


class Compressed:
    """Looks into a body that is itself a compressed file (gzip, zlib, bzip2, xz), whatever its headers say.

    It stops looking at what turns out to be something else. False when there is nothing to look at.
    """

    def __init__(self) -> None:
        self._decoder: Any = None
        self._undecided = True
        self._input = b""
        self._kept = b""
        self.size: int = 0
        """How many bytes have come out of it."""

    def __bool__(self) -> bool:
        return self._undecided or self._decoder is not None

    @property
    def open(self) -> bool:
        """Whether it is still undecided if a value begins at the end of what has come until now."""
        return bool(self._kept) or (self._undecided and bool(self._input))

    def feed(self, data: bytes) -> None:
        """Take one more part of the body, to be looked at by `look`."""
        self._input += data

    def look(self, mask: Mask) -> tuple[bool, bool]:
        """Look at the next 64 KiB: whether a value of *mask* is there, and whether there is more to look at now."""
        data = self._next()
        self.size += len(data)
        self._kept += data
        if mask and mask.finds(self._kept):
            return True, False
        self._kept = mask.cut(self._kept, final=False)[1]
        return False, bool(data) and bool(self)

    def _next(self) -> bytes:
        if self._undecided:
            self._decide()
        if self._decoder is None:
            return b""
        try:
            data = self._decoder.decompress(self._input, _SLICE)
            self._input = getattr(self._decoder, "unconsumed_tail", b"")
            if self._decoder.eof:  # another one may follow, as in files that were put together
                self._input, self._decoder = self._decoder.unused_data, None
                self._undecided = True
        except (zlib.error, OSError, lzma.LZMAError, ValueError, EOFError):
            self._decoder, self._input = None, b""
            return b""
        return data

    def _decide(self) -> None:
        self._decoder = _decoder_for(self._input)
        if self._decoder is not None or not any(magic.startswith(self._input) for magic in _MAGIC):
            self._undecided = False
        if self._decoder is None and not self._undecided:
            self._input = b""


def _decoder_for(head: bytes) -> Any:
    """Return what undoes the compression of a body that begins with *head*; None if that is not compressed."""
    if head.startswith(b"\x1f\x8b\x08"):
        return zlib.decompressobj(wbits=31)
    if head[:1] == b"\x78" and len(head) > 1 and int.from_bytes(head[:2], "big") % 31 == 0:
        return zlib.decompressobj()
    if head.startswith(b"BZh"):
        return bz2.BZ2Decompressor()
    return lzma.LZMADecompressor() if head.startswith(b"\xfd7zXZ\0") else None


def _targets(value: str) -> Iterator[_Target]:
    """Yield the strings that *value* may be there as."""
    data = value.encode(errors="surrogatepass")
    lines = [line.encode(errors="surrogatepass") for line in value.splitlines() if len(line) >= _LONG_LINE]
    strings = {data, value.strip().encode(errors="surrogatepass"), *lines}
    if not value.isascii():
        for name in ("latin-1", "utf-16-le", "utf-16-be"):
            try:
                strings.add(value.encode(name))
            except UnicodeEncodeError:
                continue
    for text in strings:
        yield _Target(text.replace(b"\0", b""))
    for text in (data, value.encode("utf-16-le", "surrogatepass"), value.encode("utf-16-be", "surrogatepass")):
        for digits in (text.hex(), text.hex().upper()):
            yield _Target(digits.encode(), _SEPARATORS)
        for before in range(3):
            coded = base64.b64encode(bytes(before) + text)
            inner = coded[-(-before * 8 // 6) : (before + len(text)) * 8 // 6]  # only what the value alone decides
            yield _Target(inner, b"\r\n")
            yield _Target(inner.translate(bytes.maketrans(b"+/", b"-_")), b"\r\n")


def _starts(targets: Iterable[_Target]) -> re.Pattern[bytes]:
    """Finds every place where a target may start, and few others. All of its branches begin with a plain byte, which
    is what makes a search quick."""
    branches: dict[int, set[bytes]] = {}
    for target in targets:
        second, third = re.escape(target.text[1:2]), re.escape(target.text[2:3])
        between = re.escape(target.skips) + (rb"%=\\\\&+" if b" " in target.text[:3] else rb"%=\\\\&")
        then = b"(?:" + third + b"|[" + between + b"])"
        skipped = b"|[" + re.escape(target.skips) + b"]" if target.skips else b""
        spelled = b"|".join(head + b"(?:" + rest + b")" for head, rest in _spelled(target.text[1]))
        branches.setdefault(target.text[0], set()).update((second + then, spelled + skipped))
    spelled_firsts: dict[bytes, set[bytes]] = {}
    for first in branches:
        for head, rest in _spelled(first):
            spelled_firsts.setdefault(head, set()).add(rest)
    starts = [(re.escape(bytes([first])), rests) for first, rests in branches.items()]
    return re.compile(
        b"|".join(b"%b(?=%b)" % (head, b"|".join(sorted(rests))) for head, rests in (*starts, *spelled_firsts.items())),
        re.DOTALL,
    )


@lru_cache(256)
def _spelled(byte: int) -> tuple[tuple[bytes, bytes], ...]:
    """Patterns for the spellings of a character that begins with *byte*: how each begins, and how it goes on."""
    digits, char = _either_case(b"%02x" % byte), bytes([byte])
    pairs = b"(?:25){0,8}" + (b"(?:20|2[Bb])" if char == b" " else digits)
    found = [(b"%", pairs), (b"=", pairs + rb"|\r?\n|\r?\Z")]
    if byte < 0x80:
        rests = [b"u00%b" % digits, b"x%b" % digits, rb"u\{0{0,6}%b\}" % digits, b"U000000%b" % digits, b"%03o" % byte]
        rests += [letter for letter, meant in _SHORT.items() if meant == char]
        rests += [re.escape(char)] if not char.isalnum() and char != b"\\" else []
        names = [name for name, text in _NAMES.items() if text.startswith(chr(byte))]
        numbers = b"#0{0,8}%d;|#[xX]0{0,8}%b;" % (byte, digits)
        entity = b"|".join((numbers, *(name + b";" for name in names)))
        found.append((rb"\\", rb"\\{0,31}+(?:%b)" % b"|".join(rests)))
        found.append((b"&", b"(?:(?:amp|#0{0,8}38|#[xX]0{0,8}26);){0,8}(?:%b)" % entity))
    else:
        found.append((rb"\\", rb"\\{0,31}+[uUx0-3]"))
        found.append((b"&", b"[#A-Za-z]"))
    if char == b"\\":
        found.append((rb"\\", rb"\\"))
    if char == b" ":
        found.append((rb"\+", b""))
    return (*found,)


def _either_case(digits: bytes) -> bytes:
    return b"".join(
        b"[%b%b]" % (one.lower(), one.upper()) if one.isalpha() else one for one in (digits[:1], digits[1:])
    )


def _longest(data: bytes, start: int, targets: Iterable[_Target]) -> tuple[int, bool]:
    """`_follow` for several targets: the end of the longest one, and whether any is unfinished."""
    best, unfinished = -1, False
    for target in targets:
        end, more = _follow(data, start, target)
        best, unfinished = max(best, end), unfinished or more
    return best, unfinished


def _follow(data: bytes, start: int, target: _Target) -> tuple[int, bool]:
    """Return where *target* ends if it starts here (-1 if it does not), and whether the end of *data* comes before its
    end."""
    text, skips, size = target.text, target.skips, len(data)
    best, unfinished = -1, False
    todo, seen = [(start, 0, 0)], set[tuple[int, int, int]]()
    while todo:
        state = at, done, skipped = todo.pop()
        if done == len(text):
            best = max(best, at)
            continue
        if state in seen:
            continue
        seen.add(state)
        if at == size:
            unfinished = True
            continue
        byte, may_skip = data[at], done > 0 and skipped < _MOST_SKIPPED
        if byte == text[done]:
            todo.append((at + 1, done + 1, 0))
        if may_skip and byte in skips:
            todo.append((at + 1, done, skipped + 1))
        if byte in _OPENERS:
            for meant, end in _spellings(data, at):
                if end < 0:
                    unfinished = True
                elif meant and text.startswith(meant, done):
                    todo.append((end, done + len(meant), 0))
                elif may_skip and (not meant or meant in skips):
                    todo.append((end, done, skipped + 1))
    return best, unfinished


def _spellings(data: bytes, at: int) -> Iterator[_Spelled]:
    """Yield what the bytes at *at* may stand for, but for themselves."""
    match data[at]:
        case 0x25:  # %
            yield from _in_pairs(data, at)
        case 0x3D:  # =
            yield from _in_pairs(data, at)
            if (soft := _SOFT_BREAK.match(data, at)) is not None:
                yield _Spelled(b"", soft.end())
            elif data[at + 1 :] == b"\r":
                yield _Spelled(b"", -1)
        case 0x5C:  # \
            yield from _after_slash(data, at)
        case 0x26:  # &
            yield from _entities(data, at)
        case 0x2B:  # +
            yield _Spelled(b" ", at + 1)
        case _:
            return


def _in_pairs(data: bytes, at: int) -> Iterator[_Spelled]:
    """`%2F` and `=2F`, also with the percent sign itself spelled so."""
    end = at + 1
    for _ in range(_NESTED + 1):
        pair = data[end : end + 2]
        value = _PAIRS.get(pair)
        if value is None:
            if len(pair) < 2 and all(byte in _HALF for byte in pair):
                yield _Spelled(b"", -1)
            return
        end += 2
        yield _Spelled(bytes([value]), end)
        if value == 0x2B:  # a plus sign that stands for a blank, spelled once more
            yield _Spelled(b" ", end)
        if pair != b"25":
            return


def _after_slash(data: bytes, at: int) -> Iterator[_Spelled]:
    r"""`\/`, `\n`, `\u002F`, `\x2F`, `\057`, with any number of backslashes, as in JSON within JSON."""
    if _SLASHED_OPEN.match(data, at) is not None:
        yield _Spelled(b"", -1)
    if (run := _SLASHES.match(data, at)) is not None:
        for end in range(at + 2, run.end() + 1):
            yield _Spelled(b"\\", end)
    found = _SLASHED.match(data, at)
    if found is None:
        return
    end = found.end()
    if found["wide"]:
        code = int(found["u"] or found["braced"] or found["long"], 16)
        if 0xD800 <= code < 0xDC00:
            if _LOW_HALF_OPEN.match(data, end) is not None:
                yield _Spelled(b"", -1)
            if (low := _LOW_HALF.match(data, end)) is not None:
                code, end = 0x10000 + ((code - 0xD800) << 10) + (int(low[1], 16) - 0xDC00), low.end()
        yield from _character(code, end)
    elif found["x"]:
        yield _Spelled(bytes([_PAIRS[found["x"]]]), end)
        yield from _character(_PAIRS[found["x"]], end)
    elif found["octal"]:
        yield _Spelled(bytes([int(found["octal"], 8)]), end)
    else:
        yield _Spelled(_SHORT[found["short"]] if found["short"] else found["plain"], end)


def _entities(data: bytes, at: int) -> Iterator[_Spelled]:
    """`&#47;`, `&#x2F;` and `&sol;`, also with the ampersand itself spelled so."""
    end = at + 1
    for _ in range(_NESTED + 1):
        found = _ENTITY.match(data, end)
        if found is None:
            if _ENTITY_OPEN.match(data, end) is not None:
                yield _Spelled(b"", -1)
            return
        end = found.end()
        if found["name"]:
            meant = _NAMES.get(found["name"], "")
            yield from [_Spelled(meant.encode(), end)] if meant else []
        else:
            code = int(found["decimal"] or found["hex"], 10 if found["decimal"] else 16)
            meant = chr(code) if code < 0x110000 else ""
            yield from _character(code, end)
        if meant != "&":
            return


def _character(code: int, end: int) -> Iterator[_Spelled]:
    if 0 < code < 0x110000:
        yield _Spelled(chr(code).encode(errors="surrogatepass"), end)
