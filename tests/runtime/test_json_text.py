"""Large values as the JSON that they came as."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolexec.runtime.json_text import split_answer
from toolexec.runtime.protocol.hostcalls import result_payload

LARGE = "x" * 100_000


def answer(payload: dict[str, Any]) -> str:
    return json.dumps({"type": "result", "id": "1", "payload": payload})


@pytest.mark.parametrize("value", [LARGE, ["é\n", LARGE, 1.5, None, True], {"a": {"b": [LARGE], "ü": 2**70}}])
def test_a_large_value_is_apart_from_the_rest(value: Any) -> None:
    """The value is what the program returned, as JSON without blanks, and the answer has all else."""
    rest, text = split_answer(answer({"value": value, "files": False}))
    assert text == json.dumps(value, separators=(",", ":")).encode()
    assert result_payload(rest) == {"files": False}


@pytest.mark.parametrize(
    "whole",
    [
        answer({"value": 1}),
        answer({"error": {"kind": "ValueError", "message": LARGE}}),
        answer({"value": [LARGE, float("nan")]}),
        answer({"value": [LARGE, "\ud800"]}),
        f'{{"type":"print","payload":{{"value":"{LARGE}"}}}}',
        f"no JSON{LARGE}",
        "[" * 100_000,
    ],
    ids=["small", "error", "nan", "half", "message", "text", "nested"],
)
def test_what_is_no_large_value_stays(whole: str) -> None:
    """A host that reads the answer says what is wrong with it."""
    assert split_answer(whole) == (whole, b"")
