"""Why a tool was found, for people to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from toolexec.discovery.explanation import Explanation, MatchKind, WordMatch
from toolexec.discovery.ranking.documents import strings_of
from toolexec.discovery.ranking.stems import stems_of
from toolexec.model.tool import Tool

_MAX_SNIPPET: Final = 160
_MAX_PIECES: Final = 2000


def explain_words(
    tool: Tool,
    asked: Sequence[str],
    kinds: Sequence[MatchKind],
    forms: Sequence[str],
    stems: Sequence[str],
    gains: Sequence[float],
) -> Explanation | None:
    """Return the explanation from what was computed for each word of the query: the tool's word that stands for it
    and what this added; None when no word matched."""
    strings = strings_of(tool)
    found = {name: frozenset(stems_of(text)) for name, text in strings.items()}
    matches = [
        WordMatch(
            query_word=word,
            word=form,
            kind=kind,
            fields=tuple(name for name, words in found.items() if key in words),
            weight=gain,
        )
        for word, kind, form, key, gain in zip(asked, kinds, forms, stems, gains, strict=True)
        if gain
    ]
    if not matches:
        return None
    matches.sort(key=lambda match: -match.weight)
    wanted = frozenset(key for key, gain in zip(stems, gains, strict=True) if gain)
    return Explanation(
        matches=tuple(matches), snippet=snippet(strings["description"], wanted) or snippet(tool.name, wanted)
    )


def snippet(text: str, wanted: frozenset[str]) -> str:
    """At most 160 characters (and the marks) of a text around the words with these stems, each of those between `**`;
    empty when the text has none of them."""
    pieces = text.split()[:_MAX_PIECES]
    hits = [i for i, piece in enumerate(pieces) if not wanted.isdisjoint(stems_of(piece))]
    if not hits:
        return ""
    start = _start(pieces, hits)
    shown: list[str] = []
    room = _MAX_SNIPPET
    for i in range(start, len(pieces)):
        room -= len(pieces[i]) + 1
        if room < 0 and shown:
            shown.append("…")
            break
        piece = pieces[i][:_MAX_SNIPPET].replace("**", "")
        shown.append(f"**{piece}**" if i in hits else piece)
    return ("… " if start else "") + " ".join(shown)


def _start(pieces: Sequence[str], hits: Sequence[int]) -> int:
    """Return where to begin so that many of the words are shown: a little before the hit that has the most others near
    it."""
    best = max(hits, key=lambda i: (sum(i <= other < i + 15 for other in hits), -i))
    return 0 if best < 12 else best - 3
