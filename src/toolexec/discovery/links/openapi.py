"""Links that an API's author wrote down: the `links` of OpenAPI 3.

A provider of OpenAPI operations puts them into the producing tool's metadata under `openapi_links`, as the document has
them, those of all responses together: `{"CloseIssue": {"operationId": "close_issue", "parameters": {"issue_id":
"$response.body#/id"}}}`. `operationId` is the name of a tool in the same namespace (case and punctuation do not matter)
or a whole tool ID. Only values out of the response's body count; all else in a link is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from toolexec.discovery.links.leaves import PATH, property_name
from toolexec.discovery.words import words_of
from toolexec.model.tool import Tool

OPENAPI_LINKS: Final = "openapi_links"
"""The key in a tool's metadata."""

_MAX_LINKS: Final = 64
_MAX_PARAMETERS: Final = 32
_MAX_EXPRESSION: Final = 500
_BODY: Final = "$response.body"
_PLACES: Final = ("path.", "query.", "header.", "cookie.")


@dataclass(frozen=True, slots=True)
class ApiLink:
    """A value at *path* in this tool's result is what *operation* (see `operation_key`) takes as *argument*."""

    operation: str
    argument: str
    path: str


def operation_key(namespace: str, name: str) -> str:
    """Return what stands for a tool whatever the spelling: `createIssue` and `create-issue` of one namespace are the
    same."""
    return f"{namespace}:{''.join(words_of(name[:200]))}"


def api_links_of(tool: Tool) -> list[ApiLink]:
    """Return the links in the tool's metadata; what is malformed is left out."""
    links = tool.meta.get(OPENAPI_LINKS)
    found: list[ApiLink] = []
    for link in islice(links.values(), _MAX_LINKS) if isinstance(links, Mapping) else ():
        operation = link.get("operationId") if isinstance(link, Mapping) else None
        parameters = link.get("parameters") if isinstance(link, Mapping) else None
        if not isinstance(operation, str) or not isinstance(parameters, Mapping):
            continue
        namespace, colon, name = operation[:400].partition(":")
        key = operation_key(namespace, name.partition(":")[0]) if colon else operation_key(tool.namespace, operation)
        for argument, expression in islice(parameters.items(), _MAX_PARAMETERS):
            path = _path(expression)
            if path and len(argument) <= _MAX_EXPRESSION:
                found.append(ApiLink(key, _bare(argument), path))
    return found


def _bare(argument: str) -> str:
    place = next((place for place in _PLACES if argument.startswith(place)), "")
    return argument.removeprefix(place)


def _path(expression: object) -> str:
    """Return a runtime expression as a path; empty unless it points into the response's body."""
    if not isinstance(expression, str) or len(expression) > _MAX_EXPRESSION or not expression.startswith(_BODY):
        return ""
    pointer = expression.removeprefix(_BODY)
    if pointer in ("", "#", "#/"):
        return "@"
    if not pointer.startswith("#/"):
        return ""
    path = ""
    for escaped in pointer[2:].split("/"):
        step = escaped.replace("~1", "/").replace("~0", "~")
        if step.isdecimal():
            path += "[]"
            continue
        name = property_name(step)
        if not name:
            return ""
        path += f".{name}" if path else name
    return path if PATH.fullmatch(path) else ""
