"""Secrets on the way out, and none on the way back."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias
from urllib.parse import quote, quote_plus

from toolexec.backend.secrets.resolver import SecretResolver
from toolexec.backend.secrets.scrub import SHORTEST, spellings
from toolexec.runtime.egress.policy import Egress, Origin

__all__ = ["Known", "Mask", "Masked", "ResolveSecret", "SecretNotThereError", "Swap", "resolve_with"]

ResolveSecret: TypeAlias = Callable[[str], Awaitable[str]]
"""Gives the secret that a reference (`env:API_TOKEN`) names. May raise anything; of that only the type is shown."""

_MOST: Final = 200
_BASIC: Final = re.compile(r"(?i)basic +([A-Za-z0-9+/=_-]+)")
_BREAKS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_MARK: Final = b"*"


class SecretNotThereError(Exception):
    """A secret cannot be had, or not be put where it should go; the text may be shown to code."""


def resolve_with(resolver: SecretResolver) -> ResolveSecret:
    """Have *resolver* look for secrets, in a thread."""

    async def resolve(ref: str) -> str:
        return await asyncio.to_thread(resolver.resolve, f"secretref:{ref}", "egress")

    return resolve


class Known:
    """All values that secrets have had, and how they are spelled; nothing of that goes back to code."""

    def __init__(self) -> None:
        self._spelled: OrderedDict[str, set[bytes]] = OrderedDict()
        self._made: Mask | None = None

    def add(self, value: str) -> None:
        """From now on *value* is one. Only the last 200 are kept."""
        if value in self._spelled:
            self._spelled.move_to_end(value)
            return
        self._spelled[value] = _spelled(value)
        while len(self._spelled) > _MOST:
            self._spelled.popitem(last=False)
        self._made = None

    def mask(self) -> Mask:
        """What hides them all."""
        if self._made is None:
            self._made = Mask(text for texts in self._spelled.values() for text in texts)
        return self._made


class Mask:
    """Hides texts in bytes under as many `*`, so that lengths stay what they are. False when there are none."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        found = sorted({*texts}, key=len, reverse=True)  # the longer first: it may contain the shorter
        self._pattern = re.compile(b"|".join(map(re.escape, found))) if found else None
        self._starts = {text[:length] for text in found for length in range(1, len(text))}
        self._longest = len(found[0]) if found else 0

    def __bool__(self) -> bool:
        return self._pattern is not None

    def hide(self, data: bytes) -> bytes:
        """*data* without the texts."""
        return self._pattern.sub(lambda match: _MARK * len(match[0]), data) if self._pattern else data

    def open_end(self, data: bytes) -> int:
        """How many bytes at the end of *data* may be the start of a text."""
        for length in range(min(self._longest - 1, len(data)), 0, -1):
            if data[-length:] in self._starts:
                return length
        return 0


class Masked:
    """A body that comes in parts, without the texts of *mask*, also where one lies across several parts.

    Nothing is kept back but what may be the start of a text.
    """

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._kept = b""

    def feed(self, data: bytes) -> bytes:
        """What can be said after one more part."""
        if not self._mask:
            return data
        data = self._mask.hide(self._kept + data)
        end = len(data) - self._mask.open_end(data)
        self._kept = data[end:]
        return data[:end]

    def finish(self) -> bytes:
        """What is left when there are no more parts."""
        data, self._kept = self._kept, b""
        return data


class Swap:
    """Puts the secrets for one origin into a request to it."""

    def __init__(self, policy: Egress, origin: Origin, resolve: ResolveSecret, known: Known) -> None:
        self._resolve = resolve
        self._known = known
        self._in = {
            "headers": policy.secrets_for(origin, "headers"),
            "url": policy.secrets_for(origin, "url"),
            "body": policy.secrets_for(origin, "body"),
        }
        self._values: dict[str, str] = {}
        self.swapped = False
        """Whether a secret was put in."""

    @property
    def wants_body(self) -> bool:
        """Whether a secret may have to go into the body."""
        return bool(self._in["body"])

    async def header(self, name: str, value: str) -> str:
        """The value of a header. A placeholder in the user name or password of Basic authorization counts as well."""
        basic = _BASIC.fullmatch(value) if name in ("authorization", "proxy-authorization") else None
        if basic is not None:
            inside = _decoded(basic[1])
            found = await self._put("headers", inside, str)
            if found != inside:
                encoded = base64.b64encode(found.encode()).decode()
                self._known.add(encoded)
                return f"Basic {encoded}"
        return await self._put("headers", value, _one_line)

    async def url(self, target: str) -> str:
        """Path and query."""
        return await self._put("url", target, lambda value: quote(value, safe=""))

    async def body(self, body: bytes, content_type: str) -> bytes:
        """A whole body, where it is text."""
        if not any(placeholder.encode() in body for placeholder in self._in["body"]):
            return body
        kind = content_type.partition(";")[0].strip().lower()
        write: Callable[[str], str] = str
        if kind == "application/json" or kind.endswith("+json"):
            write = _in_json
        elif kind == "application/x-www-form-urlencoded":
            write = quote_plus
        text = await self._put("body", body.decode("utf-8", "surrogateescape"), write)
        return text.encode("utf-8", "surrogateescape")

    async def _put(self, place: str, text: str, write: Callable[[str], str]) -> str:
        for placeholder, secret in self._in[place].items():
            if placeholder in text:
                text = text.replace(placeholder, write(await self._value(placeholder, secret.ref)))
                self.swapped = True
        return text

    async def _value(self, placeholder: str, ref: str) -> str:
        if placeholder not in self._values:
            try:
                value = await self._resolve(ref)
            except Exception as error:  # whatever it says may hold the secret
                raise SecretNotThereError(
                    f"the secret for {placeholder} cannot be had ({type(error).__name__})"
                ) from None
            if not value:
                raise SecretNotThereError(f"the secret for {placeholder} is empty")
            self._known.add(value)
            self._values[placeholder] = value
        return self._values[placeholder]


def _one_line(value: str) -> str:
    if _BREAKS.search(value) or not value.isascii():
        raise SecretNotThereError("the secret cannot be put into a header: it has line breaks or is not ASCII")
    return value


def _in_json(value: str) -> str:
    return json.dumps(value)[1:-1]


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _spelled(value: str) -> set[bytes]:
    """*value* in all spellings, also as it looks within something longer that is in base64."""
    data = value.encode(errors="surrogatepass")
    found = {text.encode(errors="surrogatepass") for text in spellings(value)}
    for before in range(3):
        coded = base64.b64encode(bytes(before) + data)
        inner = coded[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]  # only what the value alone decides
        found |= {inner, inner.translate(bytes.maketrans(b"+/", b"-_"))}
    return {text for text in found if len(text) >= SHORTEST}
