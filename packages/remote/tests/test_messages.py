"""The messages of a connection, and the two ends of a run: nothing lost, nothing twice, in order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.errors import ProtocolError
from toolexec_remote.messages import Link, RemoteMessage, decode_remote, encode_remote


def test_a_message_comes_back_as_it_was() -> None:
    """Its body is any bytes, line breaks included."""
    message = RemoteMessage("frame", "r1", {"go": True}, b"\n\x00{}", 3, 2)
    assert decode_remote(encode_remote(message)) == message
    assert decode_remote(encode_remote(RemoteMessage("ack"))) == RemoteMessage("ack")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"{}\n",
        b"[]\n",
        b'{"type":1}\n',
        b'{"type":"x","run":5}\n',
        b'{"type":"x","fields":[]}\n',
        b'{"type":"x","seq":-1}\n',
        b'{"type":"x","ack":true}\n',
        b'{"type":"x","run":"' + b"r" * 200 + b'"}\n',
        b'{"type":"' + b"x" * 70_000 + b'"}\n',
        b"[" * 60_000 + b"\n",
    ],
)
def test_malformed_messages_are_refused(data: bytes) -> None:
    """Each ends in a ProtocolError, and in nothing else."""
    with pytest.raises(ProtocolError):
        decode_remote(data)


@given(st.binary(max_size=300))
def test_no_bytes_harm_the_reader(data: bytes) -> None:
    """Any bytes are a message or a ProtocolError."""
    try:
        decode_remote(data)
    except ProtocolError:
        return


def test_messages_are_numbered_and_kept_until_acknowledged() -> None:
    """An acknowledgement travels with what goes the other way."""
    here, there = Link("r"), Link("r")
    sent = [here.send("frame", body=b"abc"), here.send("frame", body=b"de")]
    assert [message.seq for message in sent] == [1, 2]
    assert here.kept_bytes == 5
    assert all(there.receive(message) for message in sent)
    assert here.receive(there.send("frame", body=b"x"))
    assert (here.kept_bytes, here.kept_count) == (0, 0)


def test_what_comes_again_is_not_new() -> None:
    """After a reconnect both send what the other may have."""
    here, there = Link("r"), Link("r")
    first = here.send("execute", body=b"1")
    assert there.receive(first)
    again = here.again()
    assert [message.body for message in again] == [b"1"]
    assert not there.receive(again[0])


def test_a_gap_is_an_error() -> None:
    """A message that is missing is never passed over."""
    here, there = Link("r"), Link("r")
    here.send("frame")
    with pytest.raises(ProtocolError, match="missing"):
        there.receive(here.send("frame"))


def test_what_was_never_sent_cannot_be_acknowledged() -> None:
    """A side that does has lost count."""
    with pytest.raises(ProtocolError, match="never sent"):
        Link("r").receive(RemoteMessage("ack", "r", ack=1))


def test_too_much_that_is_unacknowledged_is_an_error() -> None:
    """The end of a run always has room."""
    link = Link("r", most=10)
    link.send("frame", body=b"x" * 10)
    with pytest.raises(ProtocolError, match="wait to be acknowledged"):
        link.send("frame", body=b"x")
    assert link.send("result", body=b"y" * 50).seq == 2


def test_an_acknowledgement_is_due_after_many_messages() -> None:
    """A program that only prints is acknowledged, too."""
    here, there = Link("r"), Link("r")
    for _ in range(64):
        there.receive(here.send("frame"))
    assert there.ack_is_due
    assert not here.receive(there.ack())
    assert here.kept_count == 0
    assert not there.ack_is_due


def test_only_messages_of_a_run_are_numbered() -> None:
    """Others have no order."""
    with pytest.raises(ProtocolError):
        Link("r").send("welcome")


@given(st.data())
def test_nothing_is_lost_or_doubled_over_any_losses(data: st.DataObject) -> None:
    """Whenever the connection is lost, and whatever of the way is lost with it, all arrives once and in order."""
    here, there = Link("r"), Link("r")
    arrived: list[bytes] = []
    on_the_way: list[RemoteMessage] = []
    count = data.draw(st.integers(1, 12))
    sent = 0
    while len(arrived) < count:
        action = data.draw(st.sampled_from(["send", "arrive", "lose", "ack"])) if sent < count else "lose"
        if action == "send":
            on_the_way.append(here.send("frame", body=str(sent).encode()))
            sent += 1
        elif action == "arrive" and on_the_way:
            message = on_the_way.pop(0)
            if there.receive(message):
                arrived.append(message.body)
        elif action == "ack":
            here.receive(there.ack())
        elif action == "lose":
            here.receive(there.ack())
            on_the_way = here.again()
            if sent == count:
                arrived += [message.body for message in on_the_way if there.receive(message)]
                on_the_way = []
    assert arrived == [str(number).encode() for number in range(count)]
