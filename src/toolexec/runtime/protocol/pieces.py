"""Large JSON, decoded in pieces, with a turn for everybody else in between.

The decoder of the standard library reads a whole text in one go, in which nothing else of the process runs, in other
threads neither: up to a second for what fits into one frame.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Generator
from typing import Final

from toolexec.errors import ProtocolError
from toolexec.model.json_value import JSONValue
from toolexec.runtime.protocol.messages import (
    Message,
    TooManyPartsError,
    check_parts,
    decode_first,
    decode_frame,
    decode_json,
    read_message,
    whole_text,
)

PIECE: Final = 1 << 14
"""How many bytes are decoded in one go, which takes a millisecond or two."""

_STEPS: Final = 100
_MESSAGES: Final = 1000
"""How many messages are read in one go, which takes a millisecond or two; 7 MB of small ones are 100,000."""
_MAX_DEPTH: Final = 200
_SIZES: Final = (PIECE >> 6, PIECE >> 3, PIECE)
# Groups are repeated greedily, not possessively: before 3.11.5 Python matches too much then (python/cpython#106052). As
# the alternatives begin with different characters, there is one way to match, and going back takes linear time.
_STRING: Final = r'"(?:[^"\\]++|\\.)*"'
_FLAT: Final = rf'[\[{{](?:{_STRING}|[^"\[\]{{}}]++)*[\]}}]'
_VALUE: Final = rf'(?:{_STRING}|[\[{{](?:{_STRING}|{_FLAT}|[^"\[\]{{}}]++)*[\]}}]|[^\s"\[\]{{}},]++)'
_ITEMS: Final = re.compile(rf"(?:\s*+{_VALUE}\s*+,)+", re.DOTALL)
_MEMBERS: Final = re.compile(rf"(?:\s*+{_STRING}\s*+:\s*+{_VALUE}\s*+,)+", re.DOTALL)
_CHARACTERS: Final = re.compile(r'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])+', re.DOTALL)
_FIRST_HALF: Final = re.compile(r"\\u[dD][89abAB]..")
_NUMBER: Final = re.compile(r"[-+0-9.eE]++")
_AFTER: Final = frozenset(" \t\n\r,:]}")
_SPACE: Final = re.compile(r"[ \t\n\r]*+")


async def messages_in_pieces(frame: bytes) -> list[Message]:
    """Return the messages of a frame of a guest, as `decode_frame` gives them; raises ProtocolError when it is
    malformed.
    """
    try:
        data = await decode_in_pieces(frame)
    except TooManyPartsError:
        return await asyncio.to_thread(lambda: decode_frame(frame.decode("utf-8", "replace")))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame is not JSON: {error}") from error
    data = whole_text(data, frame)
    messages: list[Message] = []
    for item in data if isinstance(data, list) else [data]:
        messages.append(read_message(item))
        if len(messages) % _MESSAGES == 0:
            await asyncio.sleep(0)
    return messages


async def decode_in_pieces(frame: bytes) -> JSONValue:
    """Return what `decode_json` makes of *frame*, which is UTF-8: invalid bytes are replaced.

    Raises ValueError, also for a large container inside of two hundred others, and RecursionError.
    """
    parts: list[str] = []
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    containers = 0
    for start in range(0, len(frame), PIECE):
        piece = frame[start : start + PIECE]
        containers += piece.count(b"[") + piece.count(b"{")
        parts.append(decode(piece, final=start + PIECE >= len(frame)))
        await asyncio.sleep(0)
    text = "".join(parts)
    check_parts(text, containers)
    steps = _decode(text)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        await asyncio.sleep(0)


def _decode(text: str) -> Generator[None, None, JSONValue]:
    """Decode *text*; yields now and then. Whatever fits into a piece is left to the standard library, which is the one
    that knows what is right."""
    value: JSONValue = None
    key = ""
    around: list[JSONValue] = []
    at, begun, steps = _skip(text, 0), 0, 0
    while True:
        steps += 1
        if at - begun > PIECE or steps == _STEPS:
            begun, steps = at, 0
            yield
        inner, end = yield from _begin(text, at)
        if not around:
            value = inner
        elif isinstance(around[-1], list):
            around[-1].append(inner)
        else:
            around[-1][key] = inner
        entered = end == at + 1 and inner in ([], {})
        at = _skip(text, end)
        if entered:
            around.append(inner)
            if len(around) > _MAX_DEPTH:
                raise ValueError(f"large lists and objects are more than {_MAX_DEPTH} deep")
        while around and text.startswith("]" if isinstance(around[-1], list) else "}", at):
            entered = False
            around.pop()
            at = _skip(text, at + 1)
        if around:
            if not entered and not text.startswith(",", at):
                raise ValueError(f"there is no comma at character {at}")
            at, key = yield from _next(text, at if entered else at + 1, around[-1])
        elif at < len(text):
            raise ValueError(f"there is more after the end, at character {at}")
        else:
            return value


def _begin(text: str, at: int) -> Generator[None, None, tuple[JSONValue, int]]:
    """Yield the value that begins at a place, and where it ends. Of a large container only the beginning is read: an
    empty one that ends after one character."""
    for size in _SIZES:
        piece = text[at : at + size]
        try:
            value, length = decode_first(piece)
        except ValueError:
            continue  # wrong, or cut off
        if at + length == len(text) or piece[length : length + 1] in _AFTER:  # else it may be half a number
            return value, at + length
    match text[at : at + 1]:
        case "[":
            return [], at + 1
        case "{":
            return {}, at + 1
        case '"':
            return (yield from _long_string(text, at + 1))
        case _:
            number = _NUMBER.match(text, at)
            if number is None:
                raise ValueError(f"there is no value at character {at}")
            return decode_json(number[0]), number.end()


def _long_string(text: str, at: int) -> Generator[None, None, tuple[str, int]]:
    """Yield a string whose first character is at a place, and where it ends."""
    parts: list[str] = []
    while not text.startswith('"', at):
        found = _CHARACTERS.match(text, at, at + PIECE)
        if found is None:
            raise ValueError(f"a text is wrong, or has no end, at character {at}")
        piece = _without_half(found[0])
        parts.append(decode_json(f'"{piece}"'))
        at += len(piece)
        yield
    return "".join(parts), at + 1


def _without_half(piece: str) -> str:
    """Return a part of a text without the escape of half a character at its end, whose other half may follow; but never
    nothing."""
    rest = piece[:-6]
    escaped = (len(rest) - len(rest.rstrip("\\"))) % 2 == 1  # the backslash is the second one of an escape
    return rest if rest and not escaped and _FIRST_HALF.fullmatch(piece, len(rest)) else piece


def _next(text: str, at: int, container: JSONValue) -> Generator[None, None, tuple[int, str]]:
    """Read what there is of a container in one piece. Gives the place of the value after that, and its key."""
    is_list = isinstance(container, list)
    found = (_ITEMS if is_list else _MEMBERS).match(text, at, at + PIECE)
    if found is not None:
        at = found.end()
        if is_list:
            container.extend(decode_json(f"[{found[0][:-1]}]"))
        else:
            container.update(decode_json(f"{{{found[0][:-1]}}}"))
    at = _skip(text, at)
    if is_list:
        return at, ""
    key, at = yield from _begin(text, at)
    at = _skip(text, at)
    if not isinstance(key, str) or not text.startswith(":", at):
        raise ValueError(f"there is no key and colon before character {at}")
    return _skip(text, at + 1), key


def _skip(text: str, at: int) -> int:
    """Return the first place from *at* on that is not a space."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()
