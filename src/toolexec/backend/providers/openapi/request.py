"""From arguments to the request of an operation. Pure; nothing is sent here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from toolexec.backend.providers.openapi.bodies import written_body
from toolexec.backend.providers.openapi.operations import Operation
from toolexec.backend.providers.openapi.styles import Parameter, encoded, query_pairs, refused, written
from toolexec.backend.providers.source import key_header
from toolexec.model.json_value import JSONObject, JSONValue
from toolexec.net.http import HTTPRequest

__all__ = ["Draft", "draft_of"]

_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


@dataclass(slots=True)
class Draft:
    """A request whose credentials may still be added; names and values of the query and of cookies are encoded."""

    method: str
    url: str
    query: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    headers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    cookies: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    body: bytes | None = None

    def request(self) -> HTTPRequest:
        """Return the request."""
        headers = self.headers
        if self.cookies:
            headers = [*headers, ("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies))]
        url = self.url
        if self.query:
            url += ("&" if "?" in url else "?") + "&".join(f"{name}={value}" for name, value in self.query)
        return HTTPRequest(self.method, url, headers, self.body)


def draft_of(operation: Operation, args: JSONObject, key: str = "") -> Draft:
    """Return the request that *args* make, with the idempotency *key* where it takes one; what is null is left out.

    Raises InputValidationError for an argument that cannot stand where it belongs: an empty one, `.` or `..` in a path,
    and one that is not printable ASCII in a header.
    """
    draft = Draft(operation.method, operation.server, headers=[("Accept", operation.accept)])
    in_path: dict[str, str] = {}
    for parameter in operation.parameters:
        value = args.get(parameter.argument)
        if parameter.place == "path":
            in_path[parameter.name] = _in_path(parameter, value)
        elif value is None:
            continue
        elif parameter.place == "header":
            draft.headers.append((parameter.name, _in_header(parameter, value)))
        elif parameter.place == "query":
            draft.query.extend(query_pairs(parameter, value))
        else:
            draft.cookies.extend(query_pairs(parameter, value))
    draft.headers += key_header(operation.method, operation.key_header, key, (name for name, _ in draft.headers))
    draft.url += _path(operation, in_path)
    if operation.body is not None:
        taken = frozenset(parameter.argument for parameter in operation.parameters)
        made = written_body(operation.body, args, taken)
        if made is not None:
            draft.headers.append(("Content-Type", made[0]))
            draft.body = made[1]
    return draft


def _in_path(parameter: Parameter, value: JSONValue) -> str:
    """Return an argument as a part of the path: all of it within one segment."""
    if value in (None, "", [], {}):
        raise refused(parameter.argument, "minLength", "it is a part of the path, and must not be empty")
    return written(parameter, value)


def _in_header(parameter: Parameter, value: JSONValue) -> str:
    text = written(parameter, value)
    if not text.isascii() or not text.isprintable():
        raise refused(parameter.argument, "pattern", "it is sent in a header, which is one line of printable ASCII")
    return text


def _path(operation: Operation, values: dict[str, str]) -> str:
    """Return the path with *values* in it. Some documents distinguish operations by a fragment, or by a query that
    all requests have."""
    template, mark, query = operation.path.partition("#")[0].partition("?")
    segments: list[str] = []
    for segment in template.split("/"):
        filled = _PLACEHOLDER.sub(lambda match: values.get(match[1], ""), segment)
        if filled != segment and filled in (".", ".."):
            name = _PLACEHOLDER.findall(segment)[0]
            raise refused(name, "pattern", f"{filled!r} in a path would lead to another one")
        segments.append(filled if filled != segment else _literal(segment))
    return "/".join(segments) + mark + (_PLACEHOLDER.sub(lambda match: values.get(match[1], ""), query) if mark else "")


def _literal(segment: str) -> str:
    """Return a segment as the document has it, with what a URL cannot have encoded."""
    return segment if segment.isascii() and " " not in segment else encoded(segment)
