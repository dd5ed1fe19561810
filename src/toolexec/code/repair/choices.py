"""A value that is none of those that an argument takes, as the one to write in its place."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.source import instead

_OPPOSITES: Final = ("un", "in", "im", "non", "not", "dis", "de")
_UNITS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("s", "sec"), "second"),
    **dict.fromkeys(("m", "min"), "minute"),
    **dict.fromkeys(("h", "hr", "60m", "60min"), "hour"),
    **dict.fromkeys(("d", "24h"), "day"),
    **dict.fromkeys(("w", "wk", "7d"), "week"),
    **dict.fromkeys(("mo", "mon", "30d"), "month"),
    **dict.fromkeys(("y", "yr", "12mo"), "year"),
}
"""Short form of a step of time → its name."""

_VALUES: Final = tuple(
    frozenset(group.split())
    for group in (
        "fast quick rapid swift",
        "slow leisurely",
        "big huge large",
        "little small tiny",
        "fatal critical",
        "canceled cancelled",
        "done complete completed finished",
        "ascending asc",
        "descending desc",
        "celsius metric c",
        "fahrenheit imperial f",
    )
)
"""Words that APIs have for one value."""


def about_choice(name: str, value: str, choices: list[str], failure: Failure) -> str:
    """Return what to write for a value that an argument does not take: the one that is nearly the same, and not its
    opposite; "" without one."""
    folded = {each.lower().replace("_", "").replace("-", ""): each for each in choices}
    plain = value.lower().replace("_", "").replace("-", "").replace(" ", "")
    close = [plain] if plain in folded else _of_same_word(value, plain, folded)
    close = close or difflib.get_close_matches(plain, list(folded), 1, cutoff=0.8)
    if not close or any(plain == opposite + close[0] or close[0] == opposite + plain for opposite in _OPPOSITES):
        return ""
    found = re.search(rf"(?<![\w.])(['\"]?{name}['\"]?\s*[=:]\s*)(['\"]){re.escape(value)}\2", failure.code)
    if found is not None:
        return instead(found[0], f"{found[1]}{found[2]}{folded[close[0]]}{found[2]}")
    written = re.findall(rf"(['\"]){re.escape(value)}\1", failure.code)  # a constant of the program, or of its enum
    old, new = (f"{written[0]}{each}{written[0]}" for each in (value, folded[close[0]])) if written else ("", "")
    return instead(old, new) if len(written) == 1 else ""


def _of_same_word(written: str, plain: str, choices: Mapping[str, str]) -> list[str]:
    """Return the only choice that is the same word: whole, where the value is cut or has an end ("warn", "daily"); the
    unit that the value is short for; or another word for it."""
    forms = {plain, _UNITS.get(plain.removeprefix("1"), plain), plain.removesuffix("ly"), re.sub("ily$", "y", plain)}
    same = [each for each in choices if each in forms or any({each, plain} <= group for group in _VALUES)]
    begun = [
        each for each, choice in choices.items() if written.isalpha() and choice.isalpha() and _begins(each, plain)
    ]
    words = {each for each in re.split(r"[\W_]+", written.lower()) if len(each) > 3}
    shared = [each for each, choice in choices.items() if words & {*re.split(r"[\W_]+", choice.lower())}]
    return next((found for found in (same, begun, shared) if len(found) == 1), [])


def _begins(a: str, b: str) -> bool:
    return len(a) > 2 < len(b) and (a.startswith(b) or b.startswith(a))
