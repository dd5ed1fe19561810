"""Answers of HTTP services with what they say about keeping them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from toolexec.model.cache_hint import CACHE_HINT, hint_of_headers, read_hint
from toolexec.model.content import ToolReply
from toolexec.net.http import HTTPResponse

__all__ = ["for_caller_only", "with_cache_hint"]


def with_cache_hint(value: Any, response: HTTPResponse) -> Any:
    """Return the value of a response, as a `ToolReply` with a hint in its `meta` where the headers restrict for how
    long, or for whom, it may be kept."""
    hint = hint_of_headers(response.headers).to_json()
    if not hint:
        return value
    reply = _reply(value)
    return replace(reply, meta={**reply.meta, CACHE_HINT: hint})


def for_caller_only(value: Any) -> Any:
    """Return an answer with the hint that it is for its caller alone, beside what it has already."""
    reply = _reply(value)
    hint = read_hint(reply.meta)._replace(private=True)
    return replace(reply, meta={**reply.meta, CACHE_HINT: hint.to_json()})


def _reply(value: Any) -> ToolReply:
    return value if isinstance(value, ToolReply) else ToolReply(structured=value, has_structured=True)
