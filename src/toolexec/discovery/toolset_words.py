"""What is in a toolset, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from toolexec.discovery.toolset import Toolset

__all__ = ["in_words"]

_SHOWN: Final = 8
_LONGEST: Final = 2_000
_CLAUSES: Final[Mapping[str, tuple[str, str]]] = {
    "namespaces": ("of the namespace", "or"),
    "any_tags": ("tagged", "or"),
    "all_tags": ("tagged", "and"),
    "no_tags": ("not tagged", "or"),
    "categories": ("of the category", "or"),
    "backends": ("on the backend", "or"),
    "read_only": ("that only read", "that may write"),
    "destructive": ("that may destroy", "that destroy nothing"),
    "idempotent": ("that can be repeated", "that may not be repeated"),
    "open_world": ("that may reach the outside", "that do not reach the outside"),
    "allow": ("with an ID like", "or"),
}
"""What a condition begins with, and what stands between its values; or what it says when true, and when false."""


def in_words(toolset: Toolset) -> str:
    """What is in *toolset*, on one line of at most 2,000 characters."""
    text = _words(toolset)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _words(toolset: Toolset) -> str:
    if toolset.is_empty:
        return "no tools"
    parts = [_clause(name, getattr(toolset, name)) for name in _CLAUSES if _matters(name, getattr(toolset, name))]
    if toolset.where is not None:
        parts.append(f"that {getattr(toolset.where, '__name__', 'a function')} accepts")
    if toolset.all_of:
        parts.append(f"in each of {_named(toolset.all_of)}")
    if toolset.any_of is not None:
        parts.append(f"in any of {_named(toolset.any_of)}")
    if toolset.query:
        parts.append(f"among the best {toolset.limit} for {_quoted(toolset.query)}")
    without = [f"those with an ID like {_listed(toolset.deny, ' or ')}"] if toolset.deny else []
    if toolset.none_of:
        without.append(f"those in {_named(toolset.none_of)}")
    what = f"tools {', '.join(parts)}" if parts else "all tools"
    return f"{what}, except {' and '.join(without)}" if without else what


def _matters(name: str, value: Any) -> bool:
    return value is not None and (bool(value) or name not in ("all_tags", "no_tags"))


def _clause(name: str, value: Any) -> str:
    first, second = _CLAUSES[name]
    if isinstance(value, bool):
        return first if value else second
    return f"{first} {_listed([text or _quoted(text) for text in value], f' {second} ')}"


def _named(toolsets: Sequence[Toolset]) -> str:
    return _listed([toolset.name or f"({_words(toolset)})" for toolset in toolsets], ", ")


def _listed(words: Sequence[str], between: str) -> str:
    more = [f"{len(words) - _SHOWN} more"] if len(words) > _SHOWN else []
    return between.join([*words[:_SHOWN], *more]) or "(none)"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
