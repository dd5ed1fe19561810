"""How well a value in one tool's result fits an argument of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from toolexec.discovery.links.producer import Producer
from toolexec.discovery.links.profile import Input, Output
from toolexec.discovery.links.vocabulary import PORTABLE, SHOWN
from toolexec.model.tool import Tool

_NUMBERS: Final = frozenset({"integer", "number"})
_ABROAD: Final = 0.35
_PORTABLE_ABROAD: Final = 0.8
_NO_NAMESPACE: Final = 0.9
_UNSAID: Final = 0.9
_ANYWHERE: Final = frozenset({"latitude", "longitude", "city", "country", "currency"})
_SURELY: Final = 0.6


def type_factor(output: Output, taken: Input) -> float:
    """Return how well the types fit, 0 for not at all; an integer may become text, never the other way round."""
    wanted, given = taken.argument.kind, output.kind
    if output.format and taken.format and output.format != taken.format:
        return 0.0
    patterns = 0.8 if output.pattern and taken.pattern and output.pattern != taken.pattern else 1.0
    if output.path is None:
        return 1.0
    if not wanted or not given:
        return _UNSAID
    if wanted == given:
        return patterns
    if wanted in _NUMBERS and given in _NUMBERS:
        return patterns * (1.0 if wanted == "number" else 0.7)
    if wanted == "string" and given == "integer" and not taken.argument.many:
        return patterns * 0.65
    return 0.0


def portable(key: str) -> bool:
    """Return whether a value with this key means the same to other systems: an email does, an ID does not."""
    entity, _, field = key.partition("/")
    return field in PORTABLE if field else entity in _ANYWHERE


def score_of(base: float, output: Output, fit: float, key: str, source: Tool, tool: Tool | None) -> float:
    """Return the score of a link from *source* to *tool* (None: to an argument of no tool in particular)."""
    score = base * output.factor * fit
    if tool is None or source.namespace == tool.namespace:
        return score
    if not source.namespace or not tool.namespace:
        return score * _NO_NAMESPACE
    return score * (_PORTABLE_ABROAD if portable(key) else _ABROAD)


def echoes(inputs: Sequence[Input], key: str) -> bool:
    """Return whether a tool with these arguments requires the very value that it would give."""
    entity, _, field = key.partition("/")
    for taken in inputs:
        for wanted, score in taken.wanted if taken.argument.required else ():
            if score >= _SURELY and (wanted == key or (field == "*" and wanted.partition("/")[0] == entity)):
                return True
    return False


def merge(found: dict[str, Producer], producer: Producer) -> None:
    """Keep the better of two links from one tool; two kinds of evidence for the same place are better than one."""
    known = found.get(producer.tool_id)
    if known is None:
        found[producer.tool_id] = producer
        return
    better, other = (producer, known) if _rank(producer) > _rank(known) else (known, producer)
    if better.path == other.path and better.source != other.source:
        both = 1 - (1 - better.score) * (1 - other.score)
        better = replace(better, score=both, reason=f"{better.reason}; {other.reason}", kind=better.kind or other.kind)
    found[producer.tool_id] = better


def _rank(producer: Producer) -> tuple[bool, float]:
    return producer.path is not None, producer.score


def described(output: Output, key: str, score: float, source: Tool) -> Producer:
    """Return a link that is known from what the tools say about themselves."""
    entity, _, field = key.partition("/")
    if output.path is None:
        reason = f"by its name it gives {SHOWN.get(entity, entity)}; its result is not described"
    else:
        what = f"{SHOWN.get(entity, entity)} {SHOWN.get(field, field)}".strip()
        reason = f"{'its result' if output.path == '@' else output.path} is the {what}"
    return Producer(
        tool_id=source.id,
        path=output.path,
        score=score,
        reason=reason,
        source="name" if output.path is None else "schema",
        read_only=source.annotations.read_only,
        kind=output.kind,
    )
