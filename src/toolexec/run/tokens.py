"""How many tokens a text has: estimated by its characters, or counted with a vocabulary."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final, Protocol

from toolexec.errors import ConfigurationError
from toolexec.run.context_settings import TokenCount

PROSE: Final = 4.0
"""How many characters of ASCII a token has in English sentences, signatures and descriptions."""
VALUES: Final = 3.2
"""The same for JSON with numbers, dates and IDs."""

_TWO_BYTES: Final = 0.27
"""Tokens of a character that takes two bytes in UTF-8: Cyrillic, Greek, Arabic, `ü`."""
_MORE_BYTES: Final = 0.7
"""Tokens of one that takes three or four: Chinese, Japanese, emoji."""
_BEGINS_NO_LONG_ONE: Final = bytes(range(0xE0))


class TokenCounter(Protocol):
    """Returns how many tokens a text has; *characters* is how many of ASCII a token has where that is estimated."""

    def __call__(self, text: str, characters: float = PROSE) -> int:
        """Count the tokens of *text*."""
        ...


def estimated(text: str, characters: float = PROSE) -> int:
    """Return about how many tokens a text has, by its characters and their bytes alone; 0 only for an empty one.

    What a server shows of tools is within 5 to 15 % of what o200k counts, each kind of text as a whole (docs/context.md
    has the measured errors); a single short text may be off by a quarter.
    """
    size = len(text)
    if text.isascii():
        return int(size / characters + 0.999)
    data = text.encode("utf-8", "surrogatepass")
    more = len(data.translate(None, _BEGINS_NO_LONG_ONE))
    two = max(len(data) - size - 2 * more, 0)
    return int((size - two - more) / characters + two * _TWO_BYTES + more * _MORE_BYTES + 0.999)


def exact(text: str, characters: float = PROSE) -> int:
    """Return how many tokens of o200k a text has; raises ConfigurationError without the package rs-bpe."""
    return int(vocabulary().count(text))


@cache
def vocabulary() -> Any:
    """Return the vocabulary of o200k, read at its first use; raises ConfigurationError without the package rs-bpe."""
    try:
        return import_module("rs_bpe.bpe").openai.o200k_base()
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "exact counting of tokens needs a vocabulary: pip install rs-bpe; or set context.count = estimate",
            details={"setting": "context.count"},
        ) from error


def counted_with(count: TokenCount) -> TokenCounter:
    """Return what counts in this way; for `off` the estimate, by which a limit for one result still holds. Raises
    ConfigurationError for `exact` without the package rs-bpe."""
    if count == "exact":
        vocabulary()
        return exact
    return estimated
