"""Swagger 2.0 as OpenAPI 3: what is said in other words there. Schemas stay where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from toolexec.backend.providers.openapi.document import Document, InvalidPartError, items_of, mapping_of
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue

PROBLEM: Final = "x-toolexec-problem"
"""In an operation that could not be converted: the reason."""

_METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch")
_BODY: Final = ("body", "formData")
_STYLES: Final[Mapping[str, tuple[str, bool]]] = {
    "csv": ("form", False),
    "ssv": ("spaceDelimited", False),
    "tsv": ("tabDelimited", False),
    "pipes": ("pipeDelimited", False),
    "multi": ("form", True),
}
_FLOWS: Final[Mapping[str, str]] = {
    "implicit": "implicit",
    "password": "password",
    "application": "clientCredentials",
    "accessCode": "authorizationCode",
}
_NOT_SCHEMA: Final = frozenset(("name", "in", "required", "description", "collectionFormat", "allowEmptyValue"))
_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"


def from_swagger(root: JSONDict, location: str = "", others: JSONObject | None = None) -> JSONDict:
    """Return a Swagger 2.0 document as one of OpenAPI 3.

    *location* is its URL, where it was read from one, and *others* are the documents that it refers to.
    `definitions` stay at their place, so that references to them lead there. What cannot be converted carries PROBLEM.
    """
    document = Document(root, others=others)
    paths: JSONDict = {}
    for path, given in mapping_of(root.get("paths")).items():
        try:
            item = document.follow(given)
        except InvalidPartError:
            paths[path] = given
            continue
        paths[path] = {key: value for key, value in item.items() if key not in (*_METHODS, "parameters")}
        for method in _METHODS:
            if method in item:
                paths[path][method] = _operation(document, item, item[method])
    schemes = {name: _scheme(mapping_of(node)) for name, node in mapping_of(root.get("securityDefinitions")).items()}
    kept = {key: value for key, value in root.items() if key not in ("swagger", "paths", "host", "basePath", "schemes")}
    return {
        **kept,
        "openapi": "3.0.3",
        "servers": _servers(root, location),
        "paths": paths,
        "components": {**mapping_of(root.get("components")), "securitySchemes": schemes},
    }


def _servers(root: JSONDict, location: str) -> list[JSONDict]:
    host, base = root.get("host"), root.get("basePath")
    path = base if isinstance(base, str) else ""
    path = path if not path or path.startswith("/") else f"/{path}"
    if not isinstance(host, str) or not host:
        return [{"url": path or "/"}]
    usual = urlsplit(location).scheme or "https"
    schemes = [each for each in items_of(root.get("schemes")) if each in ("https", "http")] or [usual]
    return [{"url": f"{scheme}://{host}{path}"} for scheme in sorted(schemes, reverse=True)]


def _operation(document: Document, item: JSONDict, node: JSONValue) -> JSONValue:
    if not isinstance(node, dict):
        return node
    try:
        return _converted(document, item, node)
    except InvalidPartError as error:
        return {**node, PROBLEM: str(error)}


def _converted(document: Document, item: JSONDict, node: JSONDict) -> JSONDict:
    declared: dict[tuple[str, str], JSONDict] = {}
    for given in (*items_of(item.get("parameters")), *items_of(node.get("parameters"))):
        parameter = document.follow(given)
        name, place = parameter.get("name"), parameter.get("in")
        if place == "body":
            name = ""  # there is one at most, whatever it is called
        declared[str(place), str(name)] = parameter
    made = {key: value for key, value in node.items() if key not in ("parameters", "consumes", "produces", "responses")}
    made["parameters"] = [_parameter(each) for (place, _), each in declared.items() if place not in _BODY]
    consumes = _media(node, document.root, "consumes")
    body = next((each for (place, _), each in declared.items() if place == "body"), None)
    fields = [each for (place, _), each in declared.items() if place == "formData"]
    if body is not None:
        content = {name: {"schema": body.get("schema", {})} for name in consumes or ["application/json"]}
        made["requestBody"] = {**_said(body), "required": body.get("required") is True, "content": content}
    elif fields:
        made["requestBody"] = _form(fields, consumes)
    made["responses"] = {
        status: _response(document, response, _media(node, document.root, "produces") or ["application/json"])
        for status, response in mapping_of(node.get("responses")).items()
    }
    return made


def _media(node: JSONDict, root: JSONDict, key: str) -> list[str]:
    return [each for each in items_of(node.get(key, root.get(key))) if isinstance(each, str)]


def _said(node: JSONDict) -> JSONDict:
    return {"description": node["description"]} if isinstance(node.get("description"), str) else {}


def _parameter(node: JSONDict) -> JSONDict:
    schema = node["schema"] if isinstance(node.get("schema"), dict) else _schema(node)
    made = {key: node[key] for key in ("name", "in", "required", "description") if key in node}
    made["schema"] = schema
    if node.get("type") == "array":
        style, explode = _STYLES.get(str(node.get("collectionFormat", "csv")), _STYLES["csv"])
        if node.get("in") == "query":
            made |= {"style": style, "explode": explode}
    return made


def _schema(node: JSONDict) -> JSONDict:
    return {key: value for key, value in node.items() if key not in _NOT_SCHEMA}


def _form(fields: list[JSONDict], consumes: list[str]) -> JSONDict:
    """Return the body for the fields of a form: in parts where one of them is a file."""
    files = any(field.get("type") == "file" for field in fields)
    media_type = _MULTIPART if files or (_MULTIPART in consumes and _FORM not in consumes) else _FORM
    named = {str(field.get("name")): field for field in fields}
    required = [name for name, field in named.items() if field.get("required") is True]
    schema: JSONDict = {"type": "object", "properties": {n: _schema(f) | _said(f) for n, f in named.items()}}
    if required:
        schema["required"] = required
    encodings: JSONDict = {}
    for name, field in named.items():
        if field.get("type") == "array":
            style, explode = _STYLES.get(str(field.get("collectionFormat", "csv")), _STYLES["csv"])
            encodings[name] = {"style": style, "explode": explode}
    media = {"schema": schema, **({"encoding": encodings} if encodings else {})}
    return {"required": bool(required), "content": {media_type: media}}


def _response(document: Document, given: JSONValue, produces: list[str]) -> JSONValue:
    try:
        node = document.follow(given)
    except InvalidPartError:
        return given
    schema = node.get("schema")
    if not isinstance(schema, dict):
        return node
    if schema.get("type") == "file":
        return {**node, "content": {"application/octet-stream": {}}}
    return {**node, "content": {name: {"schema": schema} for name in produces}}


def _scheme(node: JSONDict) -> JSONDict:
    kind = node.get("type")
    if kind == "basic":
        return {"type": "http", "scheme": "basic"}
    if kind == "oauth2":
        flow = {key: node[key] for key in ("authorizationUrl", "tokenUrl", "scopes") if key in node}
        return {"type": "oauth2", "flows": {_FLOWS.get(str(node.get("flow")), "implicit"): flow}}
    return node
