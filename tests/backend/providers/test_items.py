"""Bodies that are streams of items, in whatever pieces they arrive."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.backend.providers.items import is_item_type, item_parser, items_of_body
from toolexec.errors import RemoteToolError

LINES = b'{"a": "\xc3\xbc"}\n\n  \r\n[1, 2]\r\nnull\n"x"'
EVENTS = (
    b'\xef\xbb\xbf: a comment\r\ndata: {"n": 1}\r\n\r\nevent: end\rid: 7\rretry: 5\rdata: a\rdata:b\r\r'
    b"event: lost\n\ndata\n\ndata: [DONE]\n\ndata: last"
)


@pytest.mark.parametrize(
    ("media", "body", "expected"),
    [
        ("application/x-ndjson", LINES, [{"a": "ü"}, [1, 2], None, "x"]),
        ("application/jsonl; charset=utf-8", LINES, [{"a": "ü"}, [1, 2], None, "x"]),
        ("application/json-seq", b'\x1e{"a": 1}\n\x1e2\n', [{"a": 1}, 2]),
        ("application/geo+json-seq", b'\x1e{"a": 1}\n\x1e2\n', [{"a": 1}, 2]),
        (
            "text/event-stream",
            EVENTS,
            [{"data": {"n": 1}}, {"event": "end", "id": "7", "data": "a\nb"}, {"data": "[DONE]"}, {"data": "last"}],
        ),
        ("application/x-ndjson", b"", []),
        ("text/event-stream", b"", []),
    ],
    ids=range(7),
)
def test_items_do_not_depend_on_pieces(media: str, body: bytes, expected: list[Any]) -> None:
    """Pieces may end anywhere: in a character, in a line break, in the mark at the beginning."""
    headers = {"content-type": media}
    assert items_of_body(headers, body) == expected
    for size in (1, 2, 3, 5, 8):
        parser = item_parser(headers)
        assert parser is not None
        found = [item for begin in range(0, len(body), size) for item in parser.feed(body[begin : begin + size])]
        assert [*found, *parser.finish()] == expected


def test_a_part_that_is_not_json_is_named() -> None:
    """The error has the number of the part and its beginning, and says that the work was done."""
    with pytest.raises(RemoteToolError, match="part 3 of the response is not JSON") as caught:
        items_of_body({"content-type": "application/x-ndjson"}, b'1\n2\n{"a": NaN}\n')
    assert caught.value.details == {"part": 3, "body": '{"a": NaN}'}
    assert caught.value.outcome == "done"


@pytest.mark.parametrize("media", ["application/json", "text/plain", "", "image/png", "application/ndjson-not"])
def test_other_bodies_have_no_items(media: str) -> None:
    """A response of another media type is one value."""
    assert not is_item_type(media)
    assert items_of_body({"content-type": media}, b"1\n2") is None
