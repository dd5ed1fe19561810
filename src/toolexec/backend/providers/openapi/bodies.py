"""The body of a request: which arguments it takes, and how it is written."""

from __future__ import annotations

import base64
import binascii
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from toolexec.backend.providers.openapi.document import mapping_of
from toolexec.backend.providers.openapi.styles import Parameter, encoded, is_json_type, plain_text, query_pairs, refused
from toolexec.errors import InputValidationError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue

BodyKind: TypeAlias = Literal["json", "multipart", "form", "text", "binary"]

FILE: Final[JSONDict] = {
    "description": "A file: its content in base64, or an object with its `text` or its `data` in base64.",
    "anyOf": [
        {"type": "string", "contentEncoding": "base64"},
        {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "The content of a text file."},
                "data": {"type": "string", "contentEncoding": "base64", "description": "The content in base64."},
                "filename": {"type": "string"},
                "media_type": {"type": "string", "description": "Such as image/png."},
            },
            "additionalProperties": False,
        },
    ],
}
"""The schema of an argument that is sent as a file."""
_FILE_KEYS: Final = frozenset(("text", "data", "filename", "media_type"))
_BINARY: Final = "application/octet-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """How a body is made: of the argument `argument` as a whole or, where that is empty, of those in `names` (and with
    `extras` of all that are not parameters).

    `encodings` are those of a form's fields; `files` its fields that are files.
    """

    kind: BodyKind
    media_type: str
    argument: str = ""
    names: Mapping[str, None] = field(default_factory=dict[str, None])
    extras: bool = False
    required: bool = False
    encodings: Mapping[str, JSONDict] = field(default_factory=dict[str, JSONDict])
    files: frozenset[str] = frozenset()


def kind_of(media_type: str) -> BodyKind:
    """Return how a body of *media_type* is written."""
    if is_json_type(media_type):
        return "json"
    kind = media_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return "multipart"
    if kind == "application/x-www-form-urlencoded":
        return "form"
    is_text = kind.startswith("text/") or kind.endswith(("xml", "yaml", "javascript", "json-seq", "ndjson", "graphql"))
    return "text" if is_text else "binary"


def written_body(body: Body, args: JSONObject, taken: frozenset[str]) -> tuple[str, bytes] | None:
    """Return the media type and the bytes that *args* make, None for a body that is left out; *taken* are arguments
    with another place. Raises InputValidationError for a file that is not one."""
    if body.argument:
        if body.argument not in args:
            return None
        value = args[body.argument]
    else:
        value = {key: item for key, item in args.items() if key in body.names or (body.extras and key not in taken)}
        if not value and not body.required:
            return None
    media_type = "application/json" if body.kind == "json" and "json" not in body.media_type else body.media_type
    if body.kind == "json":
        return media_type, json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
    if body.kind == "form":
        return media_type, _form(body, value).encode("ascii")
    if body.kind == "multipart":
        return _multipart(body, value)
    if body.kind == "text":
        return media_type, plain_text(value).encode(errors="replace")
    data, said, _ = _file(body.argument, value)
    return said or (_BINARY if "*" in media_type else media_type), data


def _form(body: Body, value: JSONValue) -> str:
    """Write the fields of a form as in a query; what is nested has the JSON that most servers expect."""
    pairs: list[tuple[str, str]] = []
    for name, item in mapping_of(value).items():
        if item is None:
            continue
        encoding = body.encodings.get(name, {})
        style = encoding.get("style")
        explode = encoding.get("explode")
        if style is None and explode is None and isinstance(item, dict):
            pairs.append((encoded(name), encoded(item)))
            continue
        field_ = Parameter(
            name=name,
            place="query",
            argument=name,
            style=style if isinstance(style, str) else "form",
            explode=explode if isinstance(explode, bool) else style in (None, "form"),
        )
        pairs.extend(query_pairs(field_, item))
    return "&".join(f"{name}={item}" for name, item in pairs)


def _multipart(body: Body, value: JSONValue) -> tuple[str, bytes]:
    """Write each field as a part, and each item of an array as one of its own."""
    boundary = f"toolexec-{secrets.token_hex(16)}"
    parts = [
        _part(body, name, each)
        for name, item in mapping_of(value).items()
        for each in (item if isinstance(item, list) else [item])
        if each is not None
    ]
    lines = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
    return f"multipart/form-data; boundary={boundary}", lines + f"--{boundary}--\r\n".encode()


def _part(body: Body, name: str, value: JSONValue) -> bytes:
    said = body.encodings.get(name, {}).get("contentType")
    media_type = said.partition(",")[0].strip() if isinstance(said, str) and "*" not in said else ""
    filename = ""
    if name in body.files:
        data, own, filename = _file(name, value)
        media_type, filename = own or media_type or _BINARY, filename or name
    else:
        data = plain_text(value).encode(errors="replace")
        media_type = media_type or ("application/json" if isinstance(value, dict | list) else "")
    head = f'Content-Disposition: form-data; name="{_quoted(name)}"'
    if filename:
        head += f'; filename="{_quoted(filename)}"'
    if media_type:
        head += f"\r\nContent-Type: {_one_line(name, media_type)}"
    return head.encode(errors="replace") + b"\r\n\r\n" + data


def _file(name: str, value: JSONValue) -> tuple[bytes, str, str]:
    """Return the content of a file, with its media type and its name where they are given."""
    if isinstance(value, dict) and value.keys() <= _FILE_KEYS and ("text" in value) != ("data" in value):
        filename, media_type = plain_text(value.get("filename") or ""), plain_text(value.get("media_type") or "")
        if "text" in value:
            return plain_text(value["text"]).encode(errors="replace"), _one_line(name, media_type), filename
        return _from_base64(name, value["data"]), _one_line(name, media_type), filename
    if isinstance(value, str):
        return _from_base64(name, value), "", ""
    raise refused(name, "contentEncoding", 'a file is base64, or an object with either "text" or "data" in it')


def _from_base64(name: str, value: JSONValue) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError, TypeError):
        message = 'it is not base64; a text can be given as {"text": "..."}'
        raise refused(name, "contentEncoding", message) from None


def _one_line(name: str, text: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise _not_a_media_type(name)
    return text


def _not_a_media_type(name: str) -> InputValidationError:
    return refused(name, "contentMediaType", "a media type is printable ASCII, such as image/png")


def _quoted(text: str) -> str:
    """Return a name as it is in the quotes of a part's header, in the way of browsers."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A").replace("\0", "%00")
