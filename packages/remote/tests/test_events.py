"""Server-sent events are read as the standard has them."""

from __future__ import annotations

import pytest

from toolexec_remote.events import EventReader, ServerEvent

STREAM = b": a comment\nevent: stdout\nid: r:1\ndata:  indented\ndata: two\n\nevent: result\nid: r:2\ndata: {}\n\n"
EVENTS = [ServerEvent("stdout", " indented\ntwo", "r:1"), ServerEvent("result", "{}", "r:2")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(STREAM)])
@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_pieces_and_line_ends_make_no_difference(size: int, ending: bytes) -> None:
    """Wherever the stream is cut, and however its lines end, the events are the same."""
    stream = STREAM.replace(b"\n", ending) + b":\n"
    reader = EventReader()
    found = [event for at in range(0, len(stream), size) for event in reader.feed(stream[at : at + size])]
    assert found == EVENTS


def test_an_event_without_its_end_is_none() -> None:
    """An event that breaks off is not delivered."""
    assert EventReader().feed(b"event: result\ndata: {}\n") == []


def test_an_event_without_data_is_none() -> None:
    """A type alone is not an event, and does not stay for the next one."""
    assert EventReader().feed(b"event: stdout\n\ndata: x\n\n") == [ServerEvent("message", "x", "")]


def test_the_id_stays() -> None:
    """The last ID holds until there is another one; one with a zero is none."""
    found = EventReader().feed(b"id: 1\ndata: a\n\ndata: b\n\nid: 2\0\ndata: c\n\n")
    assert [event.id for event in found] == ["1", "1", "1"]
