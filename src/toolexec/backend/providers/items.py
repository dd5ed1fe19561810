"""Responses that are streams of items: JSON lines, JSON sequences and server-sent events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolexec.errors import Outcome, RemoteToolError
from toolexec.model.json_value import JSONDict, refuse_constant, to_json

_LINES: Final = frozenset(("ndjson", "x-ndjson", "jsonl", "x-jsonl", "jsonlines", "x-jsonlines", "json-lines"))
_LF: Final = re.compile(rb"\n")
_LF_OR_RS: Final = re.compile(rb"[\n\x1e]")
_SSE_END: Final = re.compile(rb"\r\n|\n|\r")
_BOM: Final = b"\xef\xbb\xbf"


class ItemParser:
    """Makes items of the pieces of a body as they arrive. *ends* is what ends a part of it."""

    def __init__(self, ends: re.Pattern[bytes]) -> None:
        self._ends = ends
        self._pending: list[bytes] = []
        self._parts = 0

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the items that *data* completes. Raises RemoteToolError at one that is not JSON."""
        for part in self._complete(data):
            yield from self._items(part)

    def finish(self) -> list[Any]:
        """Return what the end of the body completes; raises as `feed`."""
        rest = b"".join(self._pending)
        self._pending = []
        return self._items(rest)

    def _complete(self, data: bytes) -> list[bytes]:
        found = self._ends.split(data)
        if len(found) == 1:  # a long part that arrives in many pieces is joined once
            self._pending.append(data)
            return []
        first = b"".join([*self._pending, found[0]])
        self._pending = [found[-1]]
        return [first, *found[1:-1]]

    def _items(self, part: bytes) -> list[Any]:
        self._parts += 1
        text = part.strip()
        if not text:
            return []
        try:
            return [to_json(json.loads(text, parse_constant=refuse_constant))]
        except (ValueError, RecursionError) as error:
            shown = text[:200].decode(errors="replace")
            raise RemoteToolError(
                f"part {self._parts} of the response is not JSON: {str(error)[:200]}",
                details={"part": self._parts, "body": shown},
                outcome=Outcome.DONE,
            ) from error


class _Events(ItemParser):
    """Makes items of server-sent events: objects with the `data` of each, as a value where that is JSON, and with its
    own `event` and `id`."""

    def __init__(self) -> None:
        super().__init__(_SSE_END)
        self._event: JSONDict = {}
        self._data: list[str] = []
        self._begun = self._after_cr = False
        self._head = b""

    def feed(self, data: bytes) -> Iterator[Any]:
        if not self._begun:
            data = self._head + data
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._head = data
                return
            self._begun, self._head, data = True, b"", data.removeprefix(_BOM)
        if not data:
            return
        rest = data.removeprefix(b"\n") if self._after_cr else data  # it belongs to the end that was seen before
        self._after_cr = data.endswith(b"\r")
        yield from super().feed(rest)

    def finish(self) -> list[Any]:
        return [*super().finish(), *self._dispatched()]  # many servers leave out the last empty line

    def _items(self, part: bytes) -> list[Any]:
        if not part:
            return self._dispatched()
        name, _, value = part.decode(errors="replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name in ("event", "id") and value:
            self._event[name] = value
        return []

    def _dispatched(self) -> list[Any]:
        event, self._event = self._event, {}
        data, self._data = "\n".join(self._data), []
        if not data:
            return []
        return [{**event, "data": _json_or_text(data)}]


def is_item_type(media_type: str) -> bool:
    """Return whether what has *media_type* is a stream of items."""
    kind = media_type.partition(";")[0].strip().lower()
    base, _, sub = kind.partition("/")
    if base == "application":
        return sub in _LINES or sub == "json-seq" or sub.endswith("+json-seq")
    return kind == "text/event-stream"


def item_parser(headers: Mapping[str, str]) -> ItemParser | None:
    """Return what makes items of a response with these *headers*, by lower-case name; None where it has none."""
    media_type = headers.get("content-type", "")
    if not is_item_type(media_type):
        return None
    kind = media_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return _Events()
    return ItemParser(_LF_OR_RS if kind.endswith("json-seq") else _LF)


def items_of_body(headers: Mapping[str, str], body: bytes) -> list[Any] | None:
    """Return the items of a whole response; None where it is not a stream of items. Raises RemoteToolError."""
    parser = item_parser(headers)
    return None if parser is None else [*parser.feed(body), *parser.finish()]


def _json_or_text(text: str) -> Any:
    try:
        return to_json(json.loads(text, parse_constant=refuse_constant))
    except (ValueError, RecursionError):
        return text
