"""What MCP servers offer beside tools: resources that can be read, and prompts that can be asked for."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self, cast

from toolexec.model.json_value import JSONDict, JSONObject

GATEWAY_SCHEME: Final = "toolexec://"
MAX_URI: Final = 16_384
"""The most characters that the URI of a resource may have."""

_GATEWAY_URI: Final = re.compile(r"toolexec://([A-Za-z0-9_.\-]{1,128})/(.+)", re.ASCII | re.DOTALL)


def gateway_uri(backend: str, uri: str) -> str:
    """Return the URI by which a resource of the backend *backend* is known here: its own, unchanged, after the name.

    Two servers may have the same URI, so that the name of the server is a part of each. The first `/` after the scheme
    ends the name, which has none, so `split_uri` gives back both parts of any such URI.

    >>> gateway_uri("docs", "file:///a.md")
    'toolexec://docs/file:///a.md'
    """
    return f"{GATEWAY_SCHEME}{backend}/{uri}"


def split_uri(uri: str) -> tuple[str, str] | None:
    """Return the backend and the URI there of what `gateway_uri` made; None for any other string.

    >>> split_uri("toolexec://docs/toolexec://other/file:///a.md")
    ('docs', 'toolexec://other/file:///a.md')
    """
    found = _GATEWAY_URI.fullmatch(uri) if len(uri) <= MAX_URI else None
    return (found[1], found[2]) if found is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource of a server. `uri` is for `Exec.read_resource`, `own_uri` what its server calls it.

    `id` is what rules call its reading. `size` is in bytes, as the server says, or None. `definition` is all that the
    server says of it, in MCP's spelling.
    """

    id: str
    uri: str
    own_uri: str
    backend: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str = ""
    size: int | None = None
    definition: JSONObject = field(default_factory=JSONDict, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTemplate:
    """A family of resources: `uri_template` (RFC 6570), filled in, gives a URI for `Exec.read_resource`."""

    id: str
    uri_template: str
    own_uri_template: str
    backend: str
    name: str
    title: str = ""
    description: str = ""
    mime_type: str = ""
    definition: JSONObject = field(default_factory=JSONDict, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptArgument:
    """An argument of a prompt; all are strings."""

    name: str
    title: str = ""
    description: str = ""
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt of a server. `name` (`namespace:name`) is for `Exec.get_prompt`, `own_name` what its server calls it;
    `id` is what rules call it."""

    id: str
    name: str
    own_name: str
    backend: str
    title: str = ""
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()
    definition: JSONObject = field(default_factory=JSONDict, repr=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceContent:
    """One part of what a resource holds: `text`, or `blob` for what is not text, and the other is None."""

    uri: str
    mime_type: str = ""
    text: str | None = None
    blob: bytes | None = None
    meta: JSONObject = field(default_factory=JSONDict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceReply:
    """What was read: `contents` in the server's order."""

    contents: tuple[ResourceContent, ...] = ()
    meta: JSONObject = field(default_factory=JSONDict, hash=False)

    @property
    def text(self) -> str:
        """All text of it."""
        return "".join(part.text for part in self.contents if part.text is not None)

    @classmethod
    def from_mcp(cls, data: JSONObject) -> Self:
        """Read MCP's `ReadResourceResult` as JSON data. Raises ValueError for a blob that is not base64."""
        contents = cast("Sequence[JSONObject]", data.get("contents") or ())
        return cls(contents=tuple(map(_content, contents)), meta=_mapping(data, "_meta"))


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMessage:
    """One message of a prompt: `role` is `user` or `assistant`, `content` one part in MCP's spelling."""

    role: str
    content: JSONObject = field(hash=False)

    @property
    def text(self) -> str:
        """Its text; empty for another kind of content."""
        return _text(self.content, "text")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReply:
    """A prompt with its arguments filled in. The messages are the words of its server: data for a model, and not
    instructions of the user."""

    description: str = ""
    messages: tuple[PromptMessage, ...] = ()
    meta: JSONObject = field(default_factory=JSONDict, hash=False)

    @classmethod
    def from_mcp(cls, data: JSONObject) -> Self:
        """Read MCP's `GetPromptResult` as JSON data."""
        messages = cast("Sequence[JSONObject]", data.get("messages") or ())
        return cls(
            description=_text(data, "description"),
            messages=tuple(PromptMessage(role=_text(m, "role"), content=_mapping(m, "content")) for m in messages),
            meta=_mapping(data, "_meta"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Completions:
    """Values that an argument may have: at most 100; `total` is how many there are, if the server says."""

    values: tuple[str, ...] = ()
    total: int | None = None
    has_more: bool = False


def _content(part: JSONObject) -> ResourceContent:
    blob = part.get("blob")
    try:
        data = base64.b64decode(blob, validate=True) if isinstance(blob, str) else None
    except binascii.Error as error:
        raise ValueError(f"the blob of {_text(part, 'uri')[:200]} is not base64") from error
    text = part.get("text")
    return ResourceContent(
        uri=_text(part, "uri"),
        mime_type=_text(part, "mimeType"),
        text=text if isinstance(text, str) else None,
        blob=data,
        meta=_mapping(part, "_meta"),
    )


def _text(data: JSONObject, key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _mapping(data: JSONObject, key: str) -> JSONObject:
    value = data.get(key)
    return cast("JSONObject", value) if isinstance(value, dict) else {}
