"""What in a tool's definition looks like it is meant for the model and not for the reader.

A foreign definition is read by a model, which may do what it says. These are hints for a person who has to
decide whether to trust it: none of them proves anything, and a description without any may be hostile all the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final, cast

from toolexec.model.json_value import JSONDict
from toolexec.model.tool import Tool
from toolexec.model.visible import has_hidden, without_hidden

_LONG: Final = 4000
_MOST_TEXTS: Final = 2000
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/_-]*=*")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SIGNS: Final = (
    (
        "tells the model to ignore instructions",
        (
            r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}?\b(?:previous|prior|above|earlier|other|all|system|safety"
            r"|your)\b.{0,40}?\b(?:instructions?|prompts?|rules?|guidelines|directions|messages?)\b"
        ),
    ),
    (
        "asks to keep something from the user",
        (
            r"\b(?:do\s?n[o']?t|never|without)\b.{0,30}?\b(?:tell|telling|inform|informing|mention|mentioning|notify|notifying"
            r"|alert|alerting|reveal|revealing|show|showing|ask|asking)\b.{0,30}?\b(?:the\s+)?(?:user|human|person|operator)\b"
        ),
    ),
    ("asks to keep something secret", r"\b(?:keep|is)\b.{0,20}?\b(?:secret|hidden|confidential)\b.{0,20}?\bfrom\b"),
    (
        "has marks of a system prompt",
        (
            r"</?\s*(?:system|important|instructions?|assistant|secret|admin|context|hidden)\s*>|\[/?INST\]|<<SYS>>|<\|[a-z_]+\|>"
            r"|^\s*(?:system|assistant)\s*:"
        ),
    ),
    (
        "takes the place of a role",
        r"\byou\s+are\s+(?:now|no\s+longer)\b|\b(?:act|behave)\s+as\s+(?:if|an?)\b|\bnew\s+role\b",
    ),
    (
        "tells the model to call it first, or always",
        (
            r"\b(?:must|always|required\s+to)\b.{0,30}?\b(?:call|use|invoke|run)\b.{0,40}?\b(?:first|before|this\s+tool)\b"
            r"|\b(?:before|instead\s+of)\b.{0,20}?\b(?:using|calling|any)\b.{0,20}?\bother\s+tools?\b"
        ),
    ),
    (
        "speaks of secrets or of sending data away",
        (
            r"\b(?:read|send|include|pass|attach|upload|forward|post|exfiltrate|copy)\b.{0,60}?(?:\bid_rsa\b|\.ssh\b|\.env\b|\.aws\b"
            r"|\bmcp\.json\b|\b(?:api|private|ssh)\s+keys?\b|\bpasswords?\b|\bcredentials\b|\b(?:system\s+prompt"
            r"|conversation\s+history|chat\s+history|previous\s+messages)\b)"
        ),
    ),
    ("has a comment that is not shown", r"<!--"),
)
_PATTERNS: Final = tuple(
    (says, re.compile(pattern, re.IGNORECASE | re.DOTALL | re.MULTILINE)) for says, pattern in _SIGNS
)


_IN_ANSWERS: Final = _PATTERNS[:4]
"""What answers of tools do not have either, unless they speak to the model: pages and documents may have the rest."""


def has_control(text: str) -> bool:
    """Return whether *text* has control characters, such as those that a terminal obeys."""
    return _CONTROL.search(text) is not None


def words_for_models(text: str) -> Iterator[str]:
    """Yield what is suspicious about the text of an answer, as `has marks of a system prompt`."""
    if _ENCODED.fullmatch(text):  # an image of 5 MB would take a second, and has no words
        return
    plain = text if text.isascii() else unicodedata.normalize("NFKC", without_hidden(text))
    for says, pattern in _IN_ANSWERS:
        if pattern.search(plain):
            yield says


def warnings(tool: Tool) -> tuple[str, ...]:
    """Return what is suspicious about the strings of *tool*: its title, its description, and those in its schemas."""
    found: dict[str, None] = {}
    for place, text in _strings_of(tool):
        if has_hidden(text):
            found[f"{place} has hidden characters"] = None
        if has_control(text):
            found[f"{place} has control characters, such as those of a terminal"] = None
        if len(text) > _LONG:
            found[f"{place} is very long"] = None
        plain = unicodedata.normalize("NFKC", without_hidden(text[: 4 * _LONG]))
        for says, pattern in _PATTERNS:
            if pattern.search(plain):
                found[f"{place} {says}"] = None
    return tuple(found)


def _strings_of(tool: Tool) -> Iterator[tuple[str, str]]:
    for place, text in (
        ("its title", tool.title),
        ("its title", tool.annotations.title),
        ("its description", tool.description),
    ):
        if text:
            yield place, text
    yield from (("its input schema", text) for text in _strings(tool.input_schema.to_json()))
    if tool.output_schema is not None:
        yield from (("its output schema", text) for text in _strings(tool.output_schema.to_json()))


def _strings(schema: Any) -> Iterator[str]:
    """Yield every text of a schema, names of properties too, at most 2,000 of them."""
    todo: list[Any] = [schema]
    count = 0
    for node in todo:
        if isinstance(node, str):
            count += 1
            yield node
        elif isinstance(node, dict):
            mapping = cast("JSONDict", node)
            todo += mapping
            todo += mapping.values()
        elif isinstance(node, list):
            todo += cast("list[Any]", node)
        if count >= _MOST_TEXTS:
            return
