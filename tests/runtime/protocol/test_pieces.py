"""Large JSON in pieces: the same as in one go, whatever it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolexec.runtime.protocol import pieces
from toolexec.runtime.protocol.hostcalls import result_payload
from toolexec.runtime.protocol.messages import MAX_CONTAINERS, TooManyPartsError, decode_json
from toolexec.runtime.protocol.pieces import decode_in_pieces, messages_in_pieces

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=60,
)
PARTS = ['"', "\\", "\\\\", '\\"', "\\u", "\\ud83d", "\\ude42", "\\u0041", "\\n", "d83d", "{", "}", "[", "]", ",", ":"]
PARTS += [
    " ",
    "\n",
    "\x0b",
    "1",
    "-",
    "1.5e3",
    "true",
    "null",
    "NaN",
    '"a"',
    '"a":',
    "[]",
    "{}",
    "é",
    "\udcff",
    "x" * 40,
]


@pytest.fixture(autouse=True)
def small(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pieces so small that everything is large; hypothesis runs many examples in one test."""
    before = pieces.PIECE, pieces._SIZES
    pieces.PIECE, pieces._SIZES = 32, (4, 9, 32)
    yield
    pieces.PIECE, pieces._SIZES = before


def in_pieces(frame: bytes) -> Any:
    """Decode without a loop, whose start takes longer: all that it would do is to go on at once."""
    steps = decode_in_pieces(frame)
    while True:
        try:
            steps.send(None)
        except StopIteration as end:
            return end.value


def both(frame: bytes) -> tuple[Any, Any]:
    """Return what the two make of a frame; the type of error is the same for all errors."""
    found: list[Any] = []
    for decode in (decode_json, in_pieces):
        try:
            value = decode(frame.decode("utf-8", "replace") if decode is decode_json else frame)
            found.append((repr(value), list(value) if isinstance(value, dict) else None))
        except ValueError:
            found.append(ValueError)
    return found[0], found[1]


@pytest.mark.full
@settings(max_examples=150, deadline=None)
@given(VALUES, st.sampled_from([None, 0, 3]), st.booleans())
def test_json_is_read_as_ever(value: Any, indent: int | None, ascii_only: bool) -> None:
    """With any space in it, and any order of keys."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    one, other = both(text.encode("utf-8", "surrogatepass"))
    assert one == other
    assert one is not ValueError


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=40).map("".join))
def test_what_is_nearly_json_is_read_as_ever(text: str) -> None:
    """Or refused as ever."""
    for frame in (text, f'["{text}"]', f'{{"{text}": [{text}]}}', f"[{text}]"):
        one, other = both(frame.encode("utf-8", "surrogatepass"))
        assert one == other, frame


@pytest.mark.full
@settings(max_examples=150, deadline=None)
@given(VALUES, st.data())
def test_what_is_broken_is_refused_as_ever(value: Any, data: st.DataObject) -> None:
    """A byte that is missing, too much, or another one."""
    frame = bytearray(json.dumps(value, indent=1).encode())
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at : at + data.draw(st.integers(0, 1))] = data.draw(st.binary(max_size=2))
    one, other = both(bytes(frame))
    assert one == other


@pytest.mark.parametrize("space", [0, 1, 31, 32, 33, 100])
@pytest.mark.parametrize("text", ["{%s}", "[%s]", "%s1%s", '[1,%s"a"%s]', '{"a"%s:%s1%s}', "[[%s],%s{%s}]"])
def test_space_of_any_length(text: str, space: int) -> None:
    """Longer than a piece, too."""
    one, other = both(text.replace("%s", " " * space).encode())
    assert one == other
    assert one is not ValueError


def test_the_last_of_equal_keys_counts() -> None:
    """At the place of the first one."""
    text = "{" + ",".join(f'"k{n % 7}": {n}' for n in range(200)) + "}"
    one, other = both(text.encode())
    assert one == other


@pytest.mark.full
def test_bounds() -> None:
    """On the number of containers, and on how deep large ones are."""
    for text, reason in (
        (f"[{'[],' * MAX_CONTAINERS}1]", "more than"),
        ("[" * 300 + f'"{"x" * 100}"' + "]" * 300, "deep"),
    ):
        with pytest.raises(ValueError, match=reason):
            asyncio.run(decode_in_pieces(text.encode()))


@pytest.mark.full
def test_brackets_in_strings_are_not_containers() -> None:
    """A text of a million brackets is one text."""
    text = f'["{"[" * (MAX_CONTAINERS + 10)}", "\\"[" ]'
    assert decode_json(text) == asyncio.run(decode_in_pieces(text.encode())) == ["[" * (MAX_CONTAINERS + 10), '"[']


@pytest.mark.full
def test_a_result_with_too_many_parts_is_the_programs_failure() -> None:
    """An honest program is told what is wrong with its value; it has broken no rule."""
    frame = f'{{"type": "result", "id": "1", "payload": {{"value": [{"[]," * MAX_CONTAINERS}1]}}}}'
    error = result_payload(frame)["error"]
    assert error["kind"] == "ValueError"
    assert "more than 1,000,000 lists and objects" in error["message"]
    with pytest.raises(TooManyPartsError):
        asyncio.run(decode_in_pieces(frame.encode()))
    (message,) = asyncio.run(messages_in_pieces(frame.encode()))
    assert (message[:3], message.refused is not None) == (("result", "1", {}), True)


async def test_others_get_their_turn() -> None:
    """Many times, whatever a large text is made of."""
    unit = {"list": "[[[1]]],", "numbers": "1.5,", "rows": '{"a":[1,{"b":2}]},'}
    strings = {name: f"[{one * (20_000 // len(one))}0]" for name, one in unit.items()}
    strings |= {"string": f'"{"x" * 20_000}"', "escapes": '"' + "\\u00e4" * 3000 + '"'}
    strings["members"] = json.dumps({f"key{n}": n for n in range(1500)})
    for name, text in strings.items():
        turns = 0

        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(take_turns())
        value = await decode_in_pieces(text.encode())
        other.cancel()
        assert value == json.loads(text)
        assert turns > 800, name
