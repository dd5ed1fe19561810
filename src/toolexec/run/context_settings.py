"""The settings of the count of tokens: apart from those of the parts of a gate, which few programs load; these every
`Exec` has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from toolexec.model.declared import Seconds, setting
from toolexec.model.settings import checked

TokenCount: TypeAlias = Literal["estimate", "exact", "off"]
"""By their characters, with the vocabulary of o200k, or not at all."""


@checked("ContextSettings")
@dataclass(frozen=True, kw_only=True)
class ContextSettings:
    """How the tokens of conversations are counted, and how many there may be. Raises ConfigurationError for a value
    that makes no sense."""

    count: TokenCount = setting(
        "estimate", "How tokens are counted: by characters, with a vocabulary (exact needs rs-bpe), or not at all."
    )
    max_session_tokens: int = setting(
        0, "Token budget of a conversation; further calls are refused. 0: no limit.", least=0
    )
    max_caller_tokens: int = setting(
        0, "Token budget of a caller, over all conversations; further calls are refused. 0: no limit.", least=0
    )
    idle: Seconds = setting(
        3600.0, "Idle time after which the count of a conversation or caller starts again at 0.", above=0, file_least=1
    )
