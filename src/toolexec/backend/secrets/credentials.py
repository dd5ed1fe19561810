"""Which parts of a provider's settings are credentials, as literal values: in headers, pairs and URLs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote_plus, unquote, urlsplit

from toolexec.model.secret_keys import is_telling, is_telling_parameter


def secrets_of_pair(user: str, password: str) -> set[str]:
    """Return what must not be shown of a user or client and its password, also as `user:password`: base64 has it so."""
    return {password, f"{user}:{password}", f"{quote_plus(user)}:{quote_plus(password)}"}


def secrets_of_header(value: str) -> set[str]:
    """Return what must not be shown of a header with a credential: all of it, of `Bearer abc` also the token, and of
    basic credentials what they decode to."""
    scheme, _, rest = value.partition(" ")
    found = {value, *value.split()} - {scheme if rest else ""}
    if scheme.lower() == "basic":
        found.discard(scheme)
        text = rest.strip().rstrip("=")
        try:
            pair = base64.b64decode(text + "=" * (-len(text) % 4), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            pair = ""
        user, colon, password = pair.partition(":")
        found |= secrets_of_pair(user, password) if colon else set()
    return found


def secrets_of_fields(fields: Mapping[str, object], *, in_url: bool = False) -> set[str]:
    """Return the literal credentials among headers, or with *in_url* among parameters of a query, by their names."""
    is_secret = is_telling_parameter if in_url else is_telling
    literal = {name: value for name, value in fields.items() if isinstance(value, str) and "{{" not in value}
    return {part for name, value in literal.items() if is_secret(name) for part in secrets_of_header(value)}


def secrets_of_url(url: str) -> set[str]:
    """Return the credentials in a URL: of its user and password, and of parameters whose names say that they are
    secret, each also as it is written there."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return set()
    found: set[str] = set()
    user, colon, password = parts.netloc.rpartition("@")[0].partition(":")
    if colon:
        found |= {password, *secrets_of_pair(unquote(user), unquote(password))}
    elif user:
        found |= {user, unquote(user)}
    for text in (parts.query, parts.fragment):
        found |= _of_query(text)
    return found


def _of_query(text: str) -> set[str]:
    decoded = {value for name, value in parse_qsl(text) if is_telling_parameter(name)}
    pairs = (part.partition("=") for part in text.split("&"))
    return decoded | {value for name, _, value in pairs if is_telling_parameter(unquote(name))}
