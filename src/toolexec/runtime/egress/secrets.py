"""Secrets on the way out, and none on the way back."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias
from urllib.parse import quote, quote_plus

from toolexec.backend.secrets.resolver import SecretResolver
from toolexec.runtime.egress.hiding import Mask
from toolexec.runtime.egress.policy import Egress, Origin

SHORTEST_SECRET: Final = 8
"""How many characters a secret has at least: a shorter one could not be distinguished from other text."""

ResolveSecret: TypeAlias = Callable[[str], Awaitable[str]]
"""Gives the secret that a reference (`env:API_TOKEN`) names. May raise anything; of that only the type is shown."""

_MOST: Final = 200
_BASIC: Final = re.compile(r"(?i)basic +([A-Za-z0-9+/=_-]+)")
_BREAKS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class SecretNotThereError(Exception):
    """A secret cannot be had, or not be put where it should go; the text may be shown to code."""


def too_short(length: int) -> str:
    """Return why a secret of *length* characters cannot be used."""
    return f"it has {length} characters, and needs at least {SHORTEST_SECRET} to be found in what comes back"


def resolve_with(resolver: SecretResolver) -> ResolveSecret:
    """Have *resolver* look for secrets, in a thread."""

    async def resolve(ref: str) -> str:
        return await asyncio.to_thread(resolver.resolve, f"secretref:{ref}", "egress")

    return resolve


class KnownSecrets:
    """All values that secrets have had; none of them goes back to code."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, None] = OrderedDict()
        self._made: Mask | None = None

    def add(self, value: str) -> None:
        """Add *value* to them. Only the last 200 are kept. Raises SecretNotThereError for a value that is too
        short to be distinguished from other text."""
        if len(value.strip()) < SHORTEST_SECRET:
            raise SecretNotThereError(too_short(len(value.strip())))
        if value in self._values:
            self._values.move_to_end(value)
            return
        self._values[value] = None
        while len(self._values) > _MOST:
            self._values.popitem(last=False)
        self._made = None

    def mask(self) -> Mask:
        """Return what hides them all."""
        if self._made is None:
            self._made = Mask(self._values)
        return self._made


class Masked:
    """A body that comes in parts, without the values of *known*, also where one lies across several parts.

    Nothing is kept back but what may be the start of a value.
    """

    def __init__(self, known: KnownSecrets) -> None:
        self._known = known
        self._kept = b""

    def feed(self, data: bytes) -> bytes:
        """Return what can be passed on after one more part."""
        data, self._kept = self._known.mask().cut(self._kept + data, final=False)
        return data

    def finish(self) -> bytes:
        """Return what is left when there are no more parts."""
        data, self._kept = self._kept, b""
        return self._known.mask().hide(data)


class Swap:
    """Puts the secrets for one origin into a request to it."""

    def __init__(self, policy: Egress, origin: Origin, resolve: ResolveSecret, known: KnownSecrets) -> None:
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
        """Return the value of a header. A placeholder in the user name or password of Basic authorization counts as
        well.
        """
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
        """Return path and query."""
        return await self._put("url", target, lambda value: quote(value, safe=""))

    async def body(self, body: bytes, content_type: str) -> bytes:
        """Return a whole body, where it is text."""
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
                self.swapped: bool = True
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
            try:
                self._known.add(value)
            except SecretNotThereError as error:
                raise SecretNotThereError(f"the secret for {placeholder} cannot be used: {error}") from None
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
