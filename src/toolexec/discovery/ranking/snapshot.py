"""The BM25 index as bytes, so that a large catalogue can be searched at once after a restart.

A snapshot is a head (what it is, the version, a checksum), then sections, each with its length before it. Numbers are
little-endian. It is read without `pickle` or the like, and nothing in it is trusted: what does not fit together is
refused as a whole, and the caller builds the index again.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final, Literal

from toolexec.discovery.ranking.documents import Fields, count_words
from toolexec.discovery.ranking.postings import Postings
from toolexec.discovery.ranking.stems import STOP_WORDS
from toolexec.discovery.ranking.vocabulary import FIRST_SIGN, MAX_WORDS, Vocabulary
from toolexec.errors import CatalogueError
from toolexec.model.tool import Tool

ANALYSIS: Final = 2
"""To be raised when strings are cut into words, stemmed or weighed in another way; old snapshots are refused then."""

_MAGIC: Final = b"toolexec bm25\n"
_VERSION: Final = 2
_SECTIONS: Final = 9
_SURROGATES: Final = 0xD800
_PROBE: Final = (
    "createIssues HTTPServer git_status v1.2 files deployments archived queries classes addresses moving mapped "
    "creations statement settings naïve Straße 課題を作る k8s to-do analyses policies stopped running"
)


def pack(postings: Postings, ids: Sequence[str], fields: Fields, exact: array[int]) -> bytes:
    """Return the snapshot of *postings*; *ids* are those of the tools by slot, empty for a slot that is free, and
    *exact* the keys of an `Exact`."""
    words = postings.words.entries()
    signs = [chr(place + FIRST_SIGN) for place in range(len(words))]
    lists = [postings.of(sign) for sign in signs]
    halves = [len(text) >> 1 for text in postings.held]
    held = "".join([text[:half] for text, half in zip(postings.held, halves, strict=True)])
    counts = "".join([text[half:] for text, half in zip(postings.held, halves, strict=True)])
    sections = (
        _print_of(fields),
        "\n".join(ids).encode("ascii"),
        json.dumps(words, separators=(",", ":")).encode("ascii"),
        _numbers(postings.lengths),
        _numbers(array("I", map(len, lists))),
        b"".join(map(_numbers, lists)),
        _numbers(array("I", halves)),
        held.encode(_encoding(len(words)), "surrogatepass") + counts.encode("latin-1"),
        _numbers(exact),
    )
    body = b"".join([part for section in sections for part in (len(section).to_bytes(8, "little"), section)])
    return b"".join((_MAGIC, bytes([_VERSION]), hashlib.sha256(body).digest(), body))


def unpack(data: bytes, postings: Postings, fields: Fields) -> tuple[list[str], array[int]]:
    """Fill *postings*, which are empty, from a snapshot; returns the IDs by slot, and the keys of an `Exact`.

    Raises CatalogueError for what is not a snapshot, is of another version or another way to weigh words, is damaged,
    or does not fit together.
    """
    try:
        return _fill(_sections(data), postings, fields)
    except CatalogueError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, RecursionError) as error:
        raise _refused("is damaged") from error


def _sections(data: bytes) -> list[memoryview]:
    start = len(_MAGIC) + 33
    if data[: len(_MAGIC)] != _MAGIC or len(data) < start:
        raise _refused("is none")
    if data[len(_MAGIC)] != _VERSION:
        raise _refused(f"has version {data[len(_MAGIC)]}, and this toolexec reads {_VERSION}")
    rest = memoryview(data)[start:]
    if hashlib.sha256(rest).digest() != data[len(_MAGIC) + 1 : start]:
        raise _refused("is damaged: its checksum is another one")
    found: list[memoryview] = []
    while rest and len(found) < _SECTIONS:
        length = int.from_bytes(rest[:8], "little")
        _require(length <= len(rest) - 8)
        found.append(rest[8 : 8 + length])
        rest = rest[8 + length :]
    _require(len(found) == _SECTIONS and not rest)
    return found


def _fill(sections: Sequence[memoryview], postings: Postings, fields: Fields) -> tuple[list[str], array[int]]:
    if bytes(sections[0]) != _print_of(fields):
        raise _refused("is of an index that weighs words in another way")
    ids = str(sections[1], "ascii").split("\n") if sections[3] else []
    words = _words(sections[2])
    lengths, sizes, places, halves = map(_array, sections[3:7])
    total, unit = sum(halves), 2 if _encoding(len(words)) == "utf-16-le" else 4
    _require(len(ids) == len(lengths) == len(halves) and len(sizes) == len(words))
    _require(sum(sizes) == len(places) == total and len(sections[7]) == total * (unit + 1))
    # Slots must be those of tools, each sign that of a word, and no count 0.
    _require(not total or max(places) >> 8 < len(ids))
    _require(0 not in bytes(sections[5])[::4])
    held = str(sections[7][: total * unit], _encoding(len(words)), "surrogatepass")
    counts = str(sections[7][total * unit :], "latin-1")
    last = chr(FIRST_SIGN + max(len(words) - 1, 0))
    _require(len(held) == total and "\0" not in counts)
    _require(re.search(f"[^{chr(FIRST_SIGN)}-{last}]", held) is None)
    names = list(filter(None, ids))
    _require(len(set(names)) == len(names) and list(map(bool, ids)) == list(map(bool, halves)))
    postings.words.restore(words)
    edges = pairwise(accumulate(sizes, initial=0))
    lists = {chr(place + FIRST_SIGN): places[a:b] for place, (a, b) in enumerate(edges) if b > a}
    _require(lists.keys() <= set(postings.words.signs.values()))
    texts = [held[a:b] + counts[a:b] for a, b in pairwise(accumulate(halves, initial=0))]
    exact = _array(sections[8], "Q")
    _require(list(exact) == sorted(exact))
    postings.restore(lists, texts, lengths)
    return ids, exact


def _words(section: memoryview) -> list[list[str] | None]:
    words: Any = json.loads(bytes(section))
    _require(isinstance(words, list) and len(words) <= MAX_WORDS)
    for entry in words:
        is_word = isinstance(entry, list) and len(entry) > 1 and all(isinstance(part, str) for part in entry)
        _require(entry is None or is_word)
    stems = [entry[0] for entry in words if entry]
    _require(len(set(stems)) == len(stems) and "" not in stems)
    return words


def _numbers(values: array[int]) -> bytes:
    if sys.byteorder == "little":
        return values.tobytes()
    swapped = values[:]
    swapped.byteswap()
    return swapped.tobytes()


def _array(section: memoryview, kind: Literal["I", "Q"] = "I") -> array[int]:
    values: array[int] = array(kind)
    values.frombytes(section)
    if sys.byteorder != "little":
        values.byteswap()
    return values


def _encoding(words: int) -> str:
    """Return the encoding: two bytes a sign while none is a surrogate: two of those would be read as one character."""
    return "utf-16-le" if words + FIRST_SIGN <= _SURROGATES else "utf-32-le"


@lru_cache(maxsize=16)
def _print_of(fields: Fields) -> bytes:
    """Return what becomes of a tool with telling words; another text when their analysis is another one, even if
    `ANALYSIS` was not raised."""
    schema = {"type": "object", "properties": {"issueId": {"description": _PROBE}}}
    tool = Tool(name="listIssues", namespace="git_hub", description=_PROBE, tags=("to-do",), input_schema=schema)
    words = Vocabulary()
    counts = count_words(tool, fields, words)
    seen = sorted((words.stem_of(sign), count) for sign, count in counts.items())
    text = f"{ANALYSIS} {FIRST_SIGN} {tuple(fields)} {seen} {sorted(STOP_WORDS)}"
    return hashlib.sha256(text.encode()).digest()


def _require(holds: bool) -> None:
    if not holds:
        raise _refused("is damaged")


def _refused(why: str) -> CatalogueError:
    return CatalogueError(f"the snapshot of the search index {why}; build the index anew", op="load")
