"""The IDs of events: what a client that comes back says of the stream that it has lost."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from pydantic_core import from_json

RequestID: TypeAlias = int | str | None
"""The ID of the request that a stream answers; None for the stream of no request."""
_LONGEST: Final = 200
_ID: Final = re.compile(r"([0-9a-f]{16})\.(\d{1,9})\.([A-Za-z0-9_=-]{1,400})")


@dataclass(frozen=True, slots=True)
class EventID:
    """An event: the server that has sent it, its number in its stream, and the request that the stream is of.

    It proves nothing: a client that makes one up gets what its session has anyway.
    """

    server: str
    number: int
    request: RequestID

    def text(self) -> str:
        """Return it for a client; empty where the ID of its request is too long."""
        request = json.dumps(self.request).encode()
        if len(request) > _LONGEST:
            return ""
        return f"{self.server}.{self.number}.{base64.urlsafe_b64encode(request).decode()}"

    @classmethod
    def read(cls, text: str) -> EventID | None:
        """Return the event with this ID; None for what no server has made."""
        found = _ID.fullmatch(text)
        if found is None:
            return None
        try:
            request = json.loads(base64.urlsafe_b64decode(found[3]))
        except ValueError:
            return None
        if isinstance(request, bool) or not isinstance(request, int | str | None):
            return None
        return cls(found[1], int(found[2]), request)


def request_id(body: bytes, name: str) -> RequestID:
    """Return the ID of the request *body*, of which *name* is the text: clients know a number and its digits apart."""
    if not re.fullmatch(r"0|-?[1-9]\d*", name):
        return name
    if f'"{name}"'.encode() not in body:
        return int(name)
    found = from_json(body).get("id")
    return name if isinstance(found, str) else int(name)
