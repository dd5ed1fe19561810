"""Calls and their progress."""

from __future__ import annotations

import logging

import pytest

from toolexec.model import Progress, ToolCall
from toolexec.model.call import tell


def test_progress_leaves_out_what_is_unknown() -> None:
    """Total and message appear only when they are known."""
    assert Progress(done=1).to_dict() == {"progress": 1}
    assert Progress(done=1, total=0.0, message="m").to_dict() == {"progress": 1, "total": 0.0, "message": "m"}


def test_tell_passes_progress_on() -> None:
    """The callback gets the very object."""
    seen: list[Progress] = []
    progress = Progress(done=1)
    tell(seen.append, progress)
    assert seen == [progress]


def test_a_failing_callback_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An exception of a callback does not disturb the call."""

    def fail(_: Progress) -> None:
        raise RuntimeError("listener broke")

    with caplog.at_level(logging.ERROR):
        tell(fail, Progress(done=1))
    assert "listener broke" in caplog.text


def test_a_call_needs_only_an_id() -> None:
    """Everything else has a default."""
    call = ToolCall("a:b")
    assert (call.args, call.timeout, call.on_progress, call.fallback) == (None, None, None, False)
