"""The work of a toolset for frameworks that call tools in a blocking way."""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from typing import Any, TypeVar

from toolexec.code.types import CodeResult
from toolexec.discovery.docs import DetailLevel, ToolDoc
from toolexec.discovery.summary import Filters, Summary
from toolexec.exec.facade import Exec
from toolexec.model.call import ProgressCallback
from toolexec.model.json_value import JSONObject
from toolexec.run.types import Result

T = TypeVar("T")


class Blocking:
    """The blocking twin of an Exec behind async names: nothing that is awaited here ever waits. What tools report goes
    to *on_progress*."""

    def __init__(self, ex: Exec, on_progress: ProgressCallback | None = None) -> None:
        self._sync = ex.sync
        self._on_progress = on_progress

    async def search_tools(self, query: str, limit: int = 10, *, filters: Filters | None = None) -> list[Summary]:
        """Implement `Exec.search_tools`."""
        return self._sync.search_tools(query, limit, filters=filters)

    async def get_tool_doc(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Implement `Exec.get_tool_doc`."""
        return self._sync.get_tool_doc(tool_id, level)

    async def run_tool(self, tool_id: str, args: JSONObject | None = None) -> Result:
        """Implement `Exec.run_tool`."""
        return self._sync.run_tool(tool_id, args, on_progress=self._on_progress)

    async def execute_code(self, code: str, *, allowed_tools: Collection[str] | None = None) -> CodeResult:
        """Implement `Exec.execute_code`."""
        return self._sync.execute_code(code, allowed_tools=allowed_tools)


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Return what *work* gives, which is done by a `Blocking`."""
    try:
        work.send(None)
    except StopIteration as finished:
        return finished.value
    raise AssertionError("work that blocks does not wait")
