"""From a response to the answer of an operation."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from toolexec.backend.providers.caching import with_headers
from toolexec.backend.providers.openapi.operations import Operation
from toolexec.backend.providers.openapi.outputs import is_among
from toolexec.backend.providers.replies import failure_of, value_of
from toolexec.backend.secrets import Scrubber
from toolexec.errors import RemoteToolError
from toolexec.model.content import ToolReply
from toolexec.model.json_value import JSONObject
from toolexec.net.http import HTTPResponse

SUCCESS: Final = range(200, 300)


def reply_of(
    operation: Operation, response: HTTPResponse, hide: Scrubber, *, shown: Iterable[str] = (), items: Any = None
) -> Any:
    """Return what a response means: the value or parts of its body, None for no content. Where its `Link` header names
    the next page, the arguments that turn to it are in the reply's metadata, under `next_page`; and so are the headers
    *shown* and for how long it may be kept, see `with_headers`. *items* are those of a stream that was read already.

    Raises RemoteToolError for a status that is not a success, and for a body that is not what it says to be.
    """
    if response.status not in (*SUCCESS, 304):
        raise _failure(operation, response, hide)
    value = items if items is not None else _value(operation, response)
    following = next_page(operation, response.headers.get("link", ""))
    if following and not isinstance(value, ToolReply) and response.status not in (204, 304):
        value = ToolReply(structured=value, has_structured=True, meta={"next_page": following})
    return with_headers(value, response, shown)


def _value(operation: Operation, response: HTTPResponse) -> Any:
    """Return the value of a body. One whose media type the document does not know is JSON, where it can be that and the
    document knows JSON; a string that would not fit the schema as JSON stays a string."""
    if response.status in (204, 304):
        return None
    media = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not operation.answers_json or is_among(media, operation.answers):
        return value_of(response)
    value = value_of(response, expects_json=True)
    schema = operation.tool.output_schema
    if schema is None or isinstance(value, str | ToolReply) or schema.check().accepts(value):
        return value
    text = value_of(response)
    return text if isinstance(text, str) and schema.check().accepts(text) else value


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
