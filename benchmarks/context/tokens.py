"""Counts tokens, with a vocabulary that is part of a package: nothing is downloaded."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def _encoding() -> Any:
    from rs_bpe.bpe import openai

    return openai.o200k_base()


@lru_cache(maxsize=20_000)
def tokens(text: str) -> int:
    """Return how many tokens of o200k a text has."""
    return int(_encoding().count(text))


def compact(value: Any) -> str:
    """Return *value* as JSON without blanks, as clients send it on."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
