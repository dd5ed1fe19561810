"""The control channel of a machine: only what the host can mean is taken."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from toolexec.runtime.guest.machine.messages import MAX_LINE, Lines, ProtocolError, line, parse


def begin(**more: Any) -> dict[str, Any]:
    """A `begin` with everything in it."""
    fields: dict[str, Any] = {
        "command": ["true"],
        "env": {"PATH": "/usr/bin"},
        "work": "/work",
        "user": "65534:65533",
        "tmpfs": {"/work": 1 << 20},
        "memory": 1 << 28,
        "pids": 64,
        "cpus": 1.5,
        "open_files": 1024,
        "time_ns": 1_700_000_000_000_000_000,
        "entropy": base64.b64encode(bytes(64)).decode(),
    }
    return {**fields, **more}


def test_lines_and_bytes_are_cut_from_what_comes() -> None:
    """However it is split: a program follows its `load` without a line's end."""
    lines = Lines()
    data = line("ping", id=1) + line("load", bytes=3, warm=[]) + b"\n\0\n" + line("ping", id=2)
    found: list[Any] = []
    for place in range(len(data)):
        lines.add(data[place : place + 1])
        if len(found) == 2:
            program = lines.take_bytes(3)
            if program is not None:
                found.append(program)
        else:
            text = lines.take()
            if text is not None:
                found.append(parse(text)[0])
    assert found == ["ping", "load", b"\n\0\n", "ping"]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_that_is_too_long(end: bytes) -> None:
    """The line need not be complete for that."""
    lines = Lines()
    lines.add(b"x" * MAX_LINE)
    assert lines.take() is None
    lines.add(b"x" + end)
    with pytest.raises(ProtocolError, match="more than"):
        lines.take()


def test_a_begin_is_read() -> None:
    """The user is two numbers, the entropy is bytes."""
    name, fields = parse(json.dumps({"begin": begin()}).encode())
    assert (name, fields["user"], fields["entropy"]) == ("begin", [65534, 65533], bytes(64))
    assert parse(json.dumps({"begin": begin(user="7")}).encode())[1]["user"] == [7, 7]


@pytest.mark.parametrize(
    "more",
    [
        {"command": []},
        {"command": ["a\0b"]},
        {"command": "true"},
        {"env": {"A": 1}},
        {"user": "root"},
        {"user": 0},
        {"tmpfs": {"work": 1}},
        {"tmpfs": {"/work": "1"}},
        {"memory": "1"},
        {"memory": True},
        {"time_ns": 1.5},
        {"entropy": base64.b64encode(bytes(63)).decode()},
        {"entropy": "%"},
    ],
)
def test_a_begin_that_is_wrong(more: dict[str, Any]) -> None:
    """Each field has its type and what it must hold."""
    with pytest.raises(ProtocolError, match="begin has"):
        parse(json.dumps({"begin": begin(**more)}).encode())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[1]",
        b"{}",
        b'{"ping": {"id": 1}, "cpu": {"id": 1}}',
        b'{"ping": 1}',
        b'{"ping": {}}',
        b'{"halt": {}}',
        b'{"load": {"bytes": 0, "warm": []}}',
        b'{"load": {"bytes": 99999999, "warm": []}}',
        b"[" * 50_000,
    ],
)
def test_what_is_not_a_message(text: bytes) -> None:
    """Anything else is refused."""
    with pytest.raises(ProtocolError):
        parse(text)


def guest(**more: Any) -> dict[str, Any]:
    """What a `load` may say of the guest ahead."""
    return {key: value for key, value in begin(**more).items() if key not in ("time_ns", "entropy")}


def test_a_begin_that_repeats_what_is_known() -> None:
    """Only what differs at each restore is left of it, and that is checked still."""
    name, fields = parse(json.dumps({"load": {"bytes": 1, "warm": [], "guest": guest()}}).encode())
    assert (name, fields["guest"]["user"], fields["known"]) == ("load", [65534, 65533], guest())
    known = fields["known"]
    _, found = parse(json.dumps({"begin": begin(time_ns=7)}).encode(), known)
    assert found == {"time_ns": 7, "entropy": bytes(64)}
    _, other = parse(json.dumps({"begin": begin(pids=9)}).encode(), known)
    assert (other["pids"], other["user"]) == (9, [65534, 65533])
    for wrong in ({"time_ns": "7"}, {"entropy": ""}, {"entropy": None}):
        with pytest.raises(ProtocolError, match="begin has"):
            parse(json.dumps({"begin": begin(**wrong)}).encode(), known)


@pytest.mark.parametrize(
    "load",
    [
        {"guest": []},
        {"guest": {}},
        {"guest": guest(user="root")},
        {"guest": guest(command=[])},
        {"warm": [1]},
        {"warm": "python"},
        {"bytes": True},
    ],
)
def test_a_load_that_is_wrong(load: dict[str, Any]) -> None:
    """Its guest is checked as in a `begin`."""
    with pytest.raises(ProtocolError, match="load has"):
        parse(json.dumps({"load": {"bytes": 1, "warm": [], **load}}).encode())
