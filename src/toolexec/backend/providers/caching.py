"""Answers of HTTP services with what their headers say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from toolexec.errors import ConfigurationError
from toolexec.model.cache_hint import CACHE_HINT, hint_of_headers, read_hint
from toolexec.model.content import ToolReply
from toolexec.model.json_value import JSONDict
from toolexec.model.secret_keys import is_telling
from toolexec.net.http import HTTPResponse

RESPONSE_HEADERS: Final = "response_headers"
"""The key of a reply's `meta` with the headers that were asked for, by lower-case name."""
_NEVER: Final = frozenset(("set-cookie", "set-cookie2", "authentication-info", "proxy-authentication-info"))


def check_response_headers(where: str, names: Iterable[str]) -> None:
    """Raise ConfigurationError for a name in `response_headers` that cannot be one of a header, and for headers that
    carry credentials: no answer has those."""
    for name in names:
        if not name or not name.isascii() or not all(each.isalnum() or each in "!#$%&'*+.^_`|~-" for each in name):
            raise ConfigurationError(f"{where}: response_headers: no header can be called {name[:100]!r}")
        if name.lower() in _NEVER or name.lower().endswith("-authenticate") or is_telling(name):
            raise ConfigurationError(
                f"{where}: response_headers: {name[:100]} carries credentials, which are kept out of answers; remove it"
            )


def with_headers(value: Any, response: HTTPResponse, shown: Iterable[str] = ()) -> Any:
    """Return the value of a response with what its headers say, as a `ToolReply` where that is anything: in its `meta`
    are the headers *shown* as `RESPONSE_HEADERS`, and a `CACHE_HINT` where they restrict for how long, or for whom, the
    answer may be kept."""
    meta: JSONDict = {}
    found = {name.lower(): response.headers[name.lower()] for name in shown if name.lower() in response.headers}
    if found:
        meta[RESPONSE_HEADERS] = found
    if hint := hint_of_headers(response.headers).to_json():
        meta[CACHE_HINT] = hint
    if not meta:
        return value
    reply = _reply(value)
    return replace(reply, meta={**reply.meta, **meta})


def for_caller_only(value: Any) -> Any:
    """Return an answer with the hint that it is for its caller alone, beside what it has already."""
    reply = _reply(value)
    hint = read_hint(reply.meta)._replace(private=True)
    return replace(reply, meta={**reply.meta, CACHE_HINT: hint.to_json()})


def _reply(value: Any) -> ToolReply:
    return value if isinstance(value, ToolReply) else ToolReply(structured=value, has_structured=True)
