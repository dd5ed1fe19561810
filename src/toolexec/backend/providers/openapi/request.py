"""From arguments to the request of an operation. Pure; nothing is sent here."""

from __future__ import annotations

from dataclasses import dataclass, field

from toolexec.backend.providers.openapi.bodies import written_body
from toolexec.backend.providers.openapi.operations import Operation
from toolexec.backend.providers.openapi.styles import Parameter, query_pairs, querystring, refused, written
from toolexec.backend.providers.paths import filled_path
from toolexec.backend.providers.source import key_header
from toolexec.model.json_value import JSONObject, JSONValue
from toolexec.net.http import HTTPRequest


@dataclass(slots=True)
class Draft:
    """A request whose credentials may still be added; names and values of the query and of cookies are encoded."""

    method: str
    url: str
    query: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    headers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    cookies: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    body: bytes | None = None
    querystring: str = ""
    """What a parameter that is the whole query says; credentials may follow it."""

    def request(self) -> HTTPRequest:
        """Return the request."""
        headers = self.headers
        if self.cookies:
            headers = [*headers, ("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies))]
        url = self.url
        pairs = [f"{name}={value}" for name, value in self.query]
        if query := "&".join([self.querystring, *pairs] if self.querystring else pairs):
            url += f"{'&' if '?' in url else '?'}{query}"
        return HTTPRequest(self.method, url, headers, self.body)


def draft_of(operation: Operation, args: JSONObject, key: str = "") -> Draft:
    """Return the request that *args* make, with the idempotency *key* where it takes one; what is null is left out.

    Raises InputValidationError for an argument that cannot stand where it belongs: in a path, see `filled_path`, and in
    a header one that is not printable ASCII.
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
        elif parameter.place == "querystring":
            draft.querystring = querystring(parameter, value)
        else:
            draft.cookies.extend(query_pairs(parameter, value))
    draft.headers += key_header(operation.method, operation.key_header, key, (name for name, _ in draft.headers))
    # Some documents distinguish operations by a fragment, or by a query that all requests have.
    draft.url += filled_path(operation.path.partition("#")[0], lambda name: in_path.get(name, ""))
    if operation.body is not None:
        taken = frozenset(parameter.argument for parameter in operation.parameters)
        made = written_body(operation.body, args, taken)
        if made is not None:
            draft.headers.append(("Content-Type", made[0]))
            draft.body = made[1]
    return draft


def _in_path(parameter: Parameter, value: JSONValue) -> str:
    """Return an argument as a part of the path, empty for one with nothing in it."""
    return "" if value in (None, "", [], {}) else written(parameter, value)


def _in_header(parameter: Parameter, value: JSONValue) -> str:
    text = written(parameter, value)
    if not text.isascii() or not text.isprintable():
        raise refused(parameter.argument, "pattern", "it is sent in a header, which is one line of printable ASCII")
    return text
