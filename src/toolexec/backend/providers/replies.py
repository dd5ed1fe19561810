"""Responses of HTTP services as the answers of tools."""

from __future__ import annotations

import base64
import json
import re
from contextlib import suppress
from http.client import responses
from typing import Any, Final

from toolexec.backend.providers.items import items_of_body
from toolexec.backend.secrets import Scrubber
from toolexec.errors import Outcome, RemoteToolError
from toolexec.model.content import ToolReply, audio, image
from toolexec.model.json_value import JSONDict, refuse_constant, to_json
from toolexec.net.http import HTTPResponse
from toolexec.net.outcomes import MAY_PASS, outcome_of_status, retry_after

_EXCERPT: Final = 2000
_CHARSET: Final = re.compile(r"charset=\"?([\w.:-]+)", re.IGNORECASE)
_JSON: Final = frozenset(("application/json", "text/json", "application/x-json", "text/x-json"))
_VAGUE: Final = frozenset(("", "application/octet-stream", "binary/octet-stream", "application/x-javascript"))
"""Media types beside those of text that say nothing of what a body is; servers write them by default."""
_HINTS: Final = {
    400: "the service refuses the arguments; what it answered says why",
    401: "the credentials are missing or wrong; operators set them in the provider's settings",
    403: "these credentials do not allow it",
    404: "nothing is there; check the arguments that name it",
    405: "the endpoint does not take this method",
    409: "it conflicts with what is there; read it again first",
    413: "the arguments are too large",
    415: "the endpoint does not take this content type",
    422: "the service refuses the arguments; what it answered says why",
    429: "too many calls; wait before the next one",
}


def value_of(response: HTTPResponse, *, expects_json: bool = False) -> Any:
    """Return the value of a response: JSON, text, or a `ToolReply` with an image, audio or bytes; None without a body.

    JSON lines, JSON sequences and server-sent events are a list of their items. With *expects_json*, what is called
    text or bytes and is JSON counts as JSON. Raises RemoteToolError for JSON that is not valid: the service did its
    work, but its answer cannot be read.
    """
    media = _media(response)
    items = items_of_body(response.headers, response.body)
    if items is not None:
        return items
    if not response.body:
        return None
    if is_json(response):
        return _json(response)
    if expects_json and (media.startswith("text/") or media in _VAGUE):
        with suppress(RemoteToolError):
            return _json(response)
    if media.startswith("image/") and media != "image/svg+xml":
        return ToolReply(content=[image(response.body, media)])
    if media.startswith("audio/"):
        return ToolReply(content=[audio(response.body, media)])
    text = _text(response)
    if text is not None:
        return text
    blob = base64.b64encode(response.body).decode()
    kind = media or "application/octet-stream"
    resource = {"uri": response.url.partition("?")[0], "mimeType": kind, "blob": blob}
    return ToolReply(content=[{"type": "resource", "resource": resource}])


def is_json(response: HTTPResponse) -> bool:
    """Return whether the response says that it is JSON."""
    media = _media(response)
    return media in _JSON or media.endswith("+json")


def failure_of(name: str, response: HTTPResponse, hide: Scrubber) -> RemoteToolError:
    """Return the error for a status that is not a success.

    Its details have `status`, `body` (parsed JSON, or at most 2,000 characters), `hint`, and `retry_after` in seconds
    where the service says so.
    """
    status = response.status
    phrase = responses.get(status, "")
    excerpt = hide.text((_text(response) or "")[: 2 * _EXCERPT])[:_EXCERPT].strip()
    hint = _HINTS.get(status, "the service failed; try again later" if status >= 500 else "")
    details: JSONDict = {"status": status, "body": excerpt}
    if is_json(response) and len(response.body) <= _EXCERPT:
        with suppress(RemoteToolError):
            details["body"] = hide.value(_json(response))
    wait = retry_after(response.headers)
    if wait is not None:
        details["retry_after"] = wait
        hint = f"{hint}; it asks to wait {wait:g} s" if hint else f"it asks to wait {wait:g} s"
    if hint:
        details["hint"] = hint
    said = f": {' '.join(excerpt[:500].split())}" if excerpt else ""
    return RemoteToolError(
        f"{name} failed with status {status}{f' {phrase}' if phrase else ''}{said}{f' ({hint})' if hint else ''}",
        op="execute",
        retryable=status in MAY_PASS,
        details=details,
        outcome=outcome_of_status(status, response.headers),
    )


def _media(response: HTTPResponse) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def _json(response: HTTPResponse) -> Any:
    try:
        return to_json(json.loads(response.body, parse_constant=refuse_constant))
    except (ValueError, RecursionError) as error:
        raise RemoteToolError(
            f"the response (status {response.status}) says that it is JSON, and it is not: {str(error)[:200]}",
            details={"status": response.status, "body": (_text(response) or "")[:200]},
            outcome=Outcome.DONE,
        ) from error


def _text(response: HTTPResponse) -> str | None:
    """Return the body as text; None where it is not."""
    named = _CHARSET.search(response.headers.get("content-type", ""))
    media = _media(response)
    try:
        text = response.body.decode(named[1] if named is not None else "utf-8")
    except (LookupError, UnicodeDecodeError):
        if not media.startswith("text/") and not is_json(response):
            return None
        text = response.body.decode("utf-8", errors="replace")
    return None if "\0" in text and not media.startswith("text/") else text
