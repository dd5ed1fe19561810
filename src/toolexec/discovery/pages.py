"""Cursors: where a page ended, sealed so that they fit only the question that they came from."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from toolexec.discovery.results import SearchResults
from toolexec.errors import ConfigurationError, InvalidCursorError
from toolexec.model.json_value import JSONValue, to_json_lossy

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a longer list; `next_cursor` is None on the last page. Pages of a search also say what was probably
    meant (`did_you_mean`) and why there may be nothing (`note`)."""

    items: tuple[T, ...]
    next_cursor: str | None = None
    did_you_mean: str | None = None
    note: str = ""


class CursorSeal:
    """Makes and reads the cursors of one index. A cursor is bound to that index, to its version and to the question."""

    def __init__(self) -> None:
        self._key = os.urandom(16)

    def page(
        self, fetch: Callable[[int], Sequence[T]], limit: int, cursor: str | None, version: int, question: JSONValue
    ) -> Page[T]:
        """Return one page of what *fetch* gives from the start on, when it is asked for so many items.

        Raises ConfigurationError for a limit below 1, and as `read` does.
        """
        if limit < 1:
            raise ConfigurationError(f"a page needs a limit of 1 or more, not {limit}")
        start = self.read(cursor, version, question) if cursor else 0
        found = fetch(start + limit + 1)
        following = self.make(start + limit, version, question) if len(found) > start + limit else None
        items = tuple(found[start : start + limit])
        if isinstance(found, SearchResults):
            return Page(items, following, found.did_you_mean, found.note)
        return Page(items, following)

    def make(self, offset: int, version: int, question: JSONValue) -> str:
        """Return the cursor of the page that starts at *offset*."""
        body = json.dumps([offset, version]).encode()
        return base64.urlsafe_b64encode(self._sign(body, question) + body).decode()

    def read(self, cursor: str, version: int, question: JSONValue) -> int:
        """Return the offset in *cursor*; raises InvalidCursorError when it is damaged or not for this question and
        version."""
        from hmac import compare_digest

        try:
            raw = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
            signature, body = raw[:16], raw[16:]
            if not compare_digest(signature, self._sign(body, question)):
                raise ValueError("foreign signature")
            offset, made_at = json.loads(body)
        except (ValueError, TypeError) as error:
            raise InvalidCursorError(
                "this cursor is damaged or belongs to another query; start again without a cursor"
            ) from error
        if made_at != version:
            raise InvalidCursorError("the catalogue has changed since this page; start again without a cursor")
        return int(offset)

    def _sign(self, body: bytes, question: JSONValue) -> bytes:
        from hashlib import blake2b  # the first search of a process needs no cursor, and this loads OpenSSL

        text = json.dumps(question, sort_keys=True, default=to_json_lossy).encode()
        return blake2b(body + b"\0" + text, key=self._key, digest_size=16).digest()
