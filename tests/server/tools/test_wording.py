"""Text of strangers, errors and progress as replies show them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from toolexec import Progress
from toolexec.errors import ConfigurationError, RemoteToolError, ToolExecError
from toolexec.model.content import image, text
from toolexec.model.redaction import redactor
from toolexec.model.schema import Schema
from toolexec.server.tools.errors import error_object
from toolexec.server.tools.running import Notices
from toolexec.server.tools.schemas import ERROR
from toolexec.server.tools.values import other_parts
from toolexec.server.tools.wording import public_reason


class TestWording:
    """Text."""

    @pytest.mark.parametrize(
        ("reason", "expected"),
        [
            (None, "unavailable"),
            ("connecting", "connecting"),
            ("the command '/a/b' was not found", "the command … was not found"),
            ("it ended; the end of its stderr: key=1\nline", "it ended"),
            ("nothing answers at http://u:p@h.example:8/x?k=v (refused)", "nothing answers at its address (refused)"),
            ("bad http://[x", "bad its address"),
        ],
    )
    def test_reasons(self, reason: str | None, expected: str) -> None:
        """Reasons have no quoted parts, nothing of stderr and no addresses."""
        assert public_reason(reason) == expected


class TestErrors:
    """The error object."""

    def test_it_fits_its_schema(self) -> None:
        """Whatever the error is, also with details that are no JSON."""
        loop: dict[str, Any] = {}
        loop["self"] = loop
        for details in (
            {},
            {"a": object()},
            loop,
            {"deep": _deep(200)},
            {1: 2, (3, 4): 5},
            {"a": math.nan, "b": "\ud800"},
        ):
            error = ConfigurationError("no", tool_id="a:b", op="x", backend="y", details=details)
            data = error_object(error, step_index=3)
            assert Schema.of(ERROR).accepts(data)
            json.dumps(data, allow_nan=False)

    def test_it_is_bounded(self) -> None:
        """Long messages and details are cut, and still say what they are about."""
        rows = [{"row": "x" * 1000, "deep": _deep(20)} for _ in range(1000)]
        data = error_object(ToolExecError("m" * 100_000, details={"rows": rows, "code": 7}))
        assert len(data["message"]) == 4000
        assert data["details"] == {"cut": True} or data["details"]["code"] == 7
        assert len(json.dumps(data)) < 14_000
        some = error_object(ToolExecError("m", details={"text": "x" * 5000, "code": 7}))
        assert some["details"]["code"] == 7
        assert len(some["details"]["text"]) == 300

    def test_secrets_are_not_told(self) -> None:
        """Known ones are redacted in messages and details; control characters are shown."""
        redactor.add("sekrit-value-123")
        data = error_object(ToolExecError("\x1b[31mwith sekrit-value-123", details={"a": ["sekrit-value-123"]}))
        assert "sekrit" not in json.dumps(data)
        assert data["message"].startswith("\\x1b[31mwith ")

    def test_content_is_not_told_twice(self) -> None:
        """The parts of a remote failure are not among the details."""
        data = error_object(RemoteToolError("no", details={"content": [text("no")], "code": 5}))
        assert data["details"] == {"code": 5}


class TestProgress:
    """Notices."""

    def test_they_only_grow(self) -> None:
        """Drops progress that is not greater, not finite, early or late."""
        received: list[Progress] = []
        notices = Notices(received.append)
        notices.hear(Progress(done=5))
        notices.start()
        for done in (0, 2, 1, 2, math.nan, math.inf, 3.5):
            notices.hear(Progress(done=done))
        notices.end("over")
        notices.hear(Progress(done=99))
        assert [p.done for p in received] == [0, 2, 3.5, 4.5]
        assert received[-1].message == "over"

    def test_nobody_listens(self) -> None:
        """Nothing happens, and there is nothing to pass on."""
        notices = Notices(None)
        notices.start()
        notices.step("x")
        notices.end()
        assert notices.callback is None

    def test_an_unfinished_total(self) -> None:
        """The end is the total."""
        received: list[Progress] = []
        notices = Notices(received.append)
        notices.start(4)
        notices.hear(Progress(done=1, total=4))
        notices.end()
        assert [(p.done, p.total) for p in received] == [(0, 4), (1, 4), (4, 4)]


def test_parts_have_room_for_16_mib() -> None:
    """Surplus parts are named and left out; text blocks are not among them."""
    parts = other_parts([text("t"), image(b"x" * (9 << 20)), image(b"y" * (9 << 20)), {"type": "odd", "n": [1, None]}])
    assert [part["type"] for part in parts] == ["image", "text", "odd"]
    assert "left out" in parts[1]["text"]


def _deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value
