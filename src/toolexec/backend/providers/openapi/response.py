"""From a response to the answer of an operation."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from toolexec.backend.providers.caching import with_cache_hint
from toolexec.backend.providers.openapi.operations import Operation
from toolexec.backend.providers.replies import failure_of, value_of
from toolexec.backend.secrets import Scrubber
from toolexec.errors import RemoteToolError
from toolexec.model.content import ToolReply
from toolexec.model.json_value import JSONObject
from toolexec.net.http import HTTPResponse

__all__ = ["next_page", "reply_of", "reset_after"]


def reply_of(operation: Operation, response: HTTPResponse, hide: Scrubber) -> Any:
    """Return what a response means: the value or parts of its body, None for no content. Where its `Link` header names
    the next page, the arguments that turn to it are in the reply's metadata, under `next_page`; and where its headers
    say for how long it may be kept, that is there as `CACHE_HINT`.

    Raises RemoteToolError for a status that is not a success, and for a body that is not what it says to be.
    """
    if response.status in (204, 304):
        return None
    if not 200 <= response.status < 300:
        raise _failure(operation, response, hide)
    return with_cache_hint(_value(operation, response), response)


def _value(operation: Operation, response: HTTPResponse) -> Any:
    value = value_of(response)
    following = next_page(operation, response.headers.get("link", ""))
    if not following or isinstance(value, ToolReply):
        return value
    return ToolReply(structured=value, has_structured=True, meta={"next_page": following})


def _failure(operation: Operation, response: HTTPResponse, hide: Scrubber) -> RemoteToolError:
    """Return the error for a status. One that comes with a time to wait may be tried again, whatever it is."""
    error = failure_of(operation.route, response, hide)
    wait = reset_after(response.headers)
    if wait is not None:
        error.details.setdefault("retry_after", wait)
    error.retryable = error.retryable or (response.status >= 400 and "retry_after" in error.details)
    return error


def reset_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Return the seconds until a used-up limit of requests is reset; None where the headers do not say that."""
    reset = headers.get("x-ratelimit-reset", "").strip()
    if headers.get("x-ratelimit-remaining", "").strip() != "0" or not reset.isdecimal() or len(reset) > 12:
        return None
    moment = float(reset)
    if moment < 1e9:  # seconds from now, not since 1970
        return moment
    return max(0.0, round(moment - (time.time() if now is None else now), 3))


def next_page(operation: Operation, link: str) -> JSONObject:
    """Return the arguments that turn to the page which a `Link` header calls the next one."""
    pages = operation.pages
    if pages is None or not link:
        return {}
    names = {each.name: each.argument for each in operation.parameters if each.argument in pages.arguments}
    for part in link[:10_000].split("<")[1:]:
        url, _, rest = part.partition(">")
        relations = [text.strip().partition("=") for text in rest.split(";")]
        if any(key.strip().lower() == "rel" and "next" in value.strip(' ",').split() for key, _, value in relations):
            pairs = parse_qsl(urlsplit(url).query)
            return {names[name]: _typed(value) for name, value in pairs if name in names}
    return {}


def _typed(value: str) -> int | str:
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 16 else value
