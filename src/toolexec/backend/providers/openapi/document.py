"""An OpenAPI document as data: read from JSON or YAML, with its references followed inside of it."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from toolexec.backend.providers.openapi.json_steps import load_json
from toolexec.errors import ConfigurationError
from toolexec.errors.extras import extra_needed
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue

_MAX_LINKS: Final = 50
_MAX_NODES: Final = 20_000_000
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class InvalidPartError(Exception):
    """A part of a document cannot be used; the message is the reason, for the operations that need it."""


def mapping_of(value: object) -> JSONDict:
    """Return *value* if it is an object, else an empty one: a wrong type counts as absent."""
    return value if isinstance(value, dict) else {}


def items_of(value: object) -> list[JSONValue]:
    """Return *value* if it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def string_of(value: object, limit: int = 1000) -> str:
    """Return *value* if it is a string, stripped and cut to *limit* characters, else an empty one."""
    if not isinstance(value, str):
        return ""
    value = value.strip()
    return value if len(value) <= limit else f"{value[: limit - 3].rstrip()}..."


class Document:
    """An OpenAPI 3 document, the documents that it refers to by their addresses, and where it was read from.

    `$ref` in `others`, and to them, have absolute addresses; see `references`.
    """

    def __init__(self, root: JSONDict, *, location: str = "", others: JSONObject | None = None) -> None:
        self.root = root
        self.location = location
        self.version: str = str(root.get("openapi", ""))
        self._others = others or {}

    def at(self, ref: str) -> JSONValue:
        """Return what *ref* points at. Raises InvalidPartError for nothing, and for another document that was not
        allowed."""
        address, _, fragment = ref.partition("#")
        if address and address not in self._others:
            raise InvalidPartError(f"it refers to {ref[:200]!r}, outside of the document; allow_refs permits that")
        node: JSONValue = self._others[address] if address else self.root
        if fragment and not fragment.startswith("/"):
            raise InvalidPartError(f"it refers to {ref[:200]!r}, which is not a JSON pointer")
        for escaped in fragment.split("/")[1:]:
            step = escaped.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and step not in node:
                step = unquote(escaped).replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(step)] if isinstance(node, list) else node[step]
            except (KeyError, IndexError, ValueError, TypeError):
                raise InvalidPartError(f"it refers to {ref[:200]!r}, which is not in the document") from None
        return node

    def follow(self, node: JSONValue) -> JSONDict:
        """Return the object that *node* is or refers to, at the end of its references.

        Raises InvalidPartError as `at` does, for a loop of references, and for what is not an object.
        """
        for _ in range(_MAX_LINKS):
            if not isinstance(node, dict):
                raise InvalidPartError(f"there is {type(node).__name__} where an object is needed")
            ref = node.get("$ref")
            if not isinstance(ref, str):
                return node
            node = self.at(ref)
        raise InvalidPartError("its references form a loop")


def read_document(data: bytes, where: str) -> JSONDict:
    """Return the object that *data* is, in JSON or YAML.

    Keys are strings, dates stay strings, and `yes` and `no` too. Raises ConfigurationError, which names *where*, for
    anything else, and MissingExtraError for YAML without PyYAML.
    """
    text = _decoded(data, where)
    begin = text[:100].lstrip()[:1]
    try:
        found = load_json(text, _nothing) if begin in ("{", "[") else _read_yaml(text, where)
    except RecursionError:
        raise ConfigurationError(f"{where} is nested too deeply") from None
    except ValueError as error:
        if begin != "{":
            raise ConfigurationError(f"{where} is neither JSON nor YAML: {str(error)[:300]}") from error
        found = _flow_or_refuse(text, where, error)
    if not isinstance(found, dict):
        raise ConfigurationError(f"{where} is not an OpenAPI document: it holds {type(found).__name__}")
    return _without_surrogates(found) if "\\ud" in text or "\\uD" in text else found


def _decoded(data: bytes, where: str) -> str:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{where} is not text in UTF-8: {error}") from error


def _flow_or_refuse(text: str, where: str, error: ValueError) -> JSONValue:
    """Read what begins like JSON as YAML, where it is that. Otherwise the error of JSON is the better one."""
    try:
        return _read_yaml(text, where)
    except ConfigurationError:
        raise ConfigurationError(f"{where} is not JSON: {str(error)[:300]}") from error


def _read_yaml(text: str, where: str) -> JSONValue:
    with extra_needed("openapi", f"reading {where}, which is YAML,"):
        import yaml

        from toolexec.backend.providers.openapi.yaml_loader import load_yaml
    try:
        found = load_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{where} is neither JSON nor YAML: {str(error)[:300]}") from error
    if _size(found, {}) > _MAX_NODES:
        raise ConfigurationError(f"{where} has aliases that multiply to more than {_MAX_NODES} values")
    return found


def _size(node: JSONValue, known: dict[int, int]) -> int:
    """Count the values below *node*, those behind an alias each time; one inside of itself counts as too many."""
    if not isinstance(node, dict | list):
        return 1
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = _MAX_NODES + 1  # until it is known: a node that meets it now is inside of it
    total = 1
    for child in node.values() if isinstance(node, dict) else node:
        total += _size(child, known) if isinstance(child, dict | list) else 1
    known[id(node)] = total
    return total


def _nothing(_: str) -> None:
    """Read NaN and Infinity, which JSON does not have, as null."""


def _without_surrogates(node: JSONValue) -> JSONValue:
    """Replace halves of characters, which no text on the wire can have."""
    if isinstance(node, str):
        return _SURROGATE.sub("\ufffd", node)
    if isinstance(node, dict):
        return {_without_surrogates(key): _without_surrogates(value) for key, value in node.items()}
    return [_without_surrogates(item) for item in node] if isinstance(node, list) else node
