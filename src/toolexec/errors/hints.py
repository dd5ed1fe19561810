"""Suggest what was probably meant by an unknown word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_MAX_WORD: Final = 100
_MAX_LISTED: Final = 60


def did_you_mean(word: object, known: Iterable[str], *, otherwise: str | None = None) -> str:
    """Return the nearest of the *known* words as a question, else *otherwise*, else the list of all of them.

    Upper and lower case, `-` and `_` count as the same, and so do the same words in another order.

    >>> did_you_mean("max-tool-call", ["max_tool_calls", "timeout"])
    'did you mean max_tool_calls?'
    >>> did_you_mean("json_parse", ["json", "parse_json"])
    'did you mean parse_json?'
    """
    import difflib  # it is needed only when something is wrong

    names = list(known)
    by_folded = {_folded(name): name for name in names}
    folded = _folded(str(word))[:_MAX_WORD]
    ordered = {_in_order(name): name for name in by_folded}
    if "_" in folded and _in_order(folded) in ordered:
        return f"did you mean {by_folded[ordered[_in_order(folded)]]}?"
    close = difflib.get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    if not close and len(folded) > 3:  # a part of one name only, such as timeout for default_timeout
        parts = [name for name in by_folded if folded in name]
        close = parts if len(parts) == 1 else []
    if close:
        return f"did you mean {by_folded[close[0]]}?"
    if otherwise is not None:
        return otherwise
    more = f", ... ({len(names)} in all)" if len(names) > _MAX_LISTED else ""
    return f"there are {', '.join(names[:_MAX_LISTED])}{more}" if names else ""


def _folded(word: str) -> str:
    return word.lower().replace("-", "_")


def _in_order(folded: str) -> str:
    return "_".join(sorted(folded.split("_")))
