"""What a streamed call says while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from toolexec.errors import ToolExecError
from toolexec.model.json_value import JSONDict, JSONValue

EventKind: TypeAlias = Literal["progress", "chunk", "done", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One event of a stream: any number of `progress` and `chunk`, then exactly one `done` or `error`.

    `data` is the progress (as a dict), the chunk, the whole value, or the error as a dict; `error` is the exception.
    `cached` is true of a `done` whose value was known from an earlier call, so that the tool was not called.

    >>> from toolexec import Exec
    >>> def count(to: int):
    ...     yield from range(to)
    >>> with Exec().sync as ex:
    ...     _ = ex.add(count, "math:count")
    ...     [(event.kind, event.data) for event in ex.stream_tool("math:count", {"to": 2})]
    [('chunk', 0), ('chunk', 1), ('done', [0, 1])]
    """

    kind: EventKind
    data: JSONValue = None
    tool_id: str = ""
    error: ToolExecError | None = None
    cached: bool = False

    def to_dict(self) -> JSONDict:
        """Return the event as JSON-able data; the exception itself is left out, its text is in `data`."""
        data: JSONDict = {"kind": self.kind}
        if self.tool_id:
            data["toolId"] = self.tool_id
        if self.data is not None:
            data["data"] = self.data
        if self.cached:
            data["cached"] = True
        return data
