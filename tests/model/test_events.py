"""Stream events."""

from __future__ import annotations

from toolexec.errors import HandlerError
from toolexec.model.events import StreamEvent


def test_event_as_data() -> None:
    """Only what is set appears; the exception itself does not."""
    assert StreamEvent(kind="done").to_dict() == {"kind": "done"}
    assert StreamEvent(kind="chunk", data=0, tool_id="a").to_dict() == {"kind": "chunk", "toolId": "a", "data": 0}
    error = HandlerError("broke")
    event = StreamEvent(kind="error", data=error.to_dict(), error=error)
    assert event.to_dict() == {"kind": "error", "data": error.to_dict()}
