"""Answers the calls of a program that is run once more, by the calls that it made."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from toolexec.code.types import ToolCallRecord
from toolexec.errors import ToolExecError
from toolexec.model.call import ToolCall
from toolexec.run.types import Result


class RecordedRunner:
    """Gives each call what the same call gave, and calls nothing. Safe for many calls at once."""

    def __init__(self, records: Sequence[ToolCallRecord]) -> None:
        self._left = [each for each in records if not each.is_open and not each.cut]
        self._lock = threading.Lock()

    def runs_in_thread(self, _call: ToolCall, _within: float) -> bool:
        """Return true: nothing is waited for."""
        return True

    def run_in_thread(self, call: ToolCall, _wait: Any, _within: float) -> Result:
        """Return what the call gave. Raises ToolExecError for a call that was not made."""
        with self._lock:
            same = [each for each in self._left if each.tool_id == call.tool_id]
            found = next((each for each in same if (each.args or {}) == (call.args or {})), None)
            if found is None:
                raise ToolExecError(f"{call.tool_id} was not called so", tool_id=call.tool_id)
            self._left.remove(found)
        return Result(tool_id=found.tool_id, value=found.value, error=found.error)

    async def run(self, call: ToolCall) -> Result:
        """Do as `run_in_thread` does."""
        return self.run_in_thread(call, None, 0)

    def stream(self, call: ToolCall) -> Any:
        """Raise ToolExecError: no code has a stream."""
        raise ToolExecError(f"{call.tool_id} has no stream here", tool_id=call.tool_id)
