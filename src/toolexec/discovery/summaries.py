"""The summaries of what searches find."""

from __future__ import annotations

from typing import Final

from toolexec.discovery.explanation import Explanation
from toolexec.discovery.index import Registered
from toolexec.discovery.summary import Facts, Summary, facts_of, summary_of

_MOST: Final = 2048


class Summaries:
    """Makes the summaries of hits. What they say of a tool whatever was searched for is kept for at most 2,048 tools,
    as most searches find what others have found. For any number of threads."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[Registered, Facts]] = {}

    def of(self, entry: Registered, score: float, explanation: Explanation | None) -> Summary:
        """Return the summary of *entry*, as `summarize` does."""
        tool_id = entry.tool.id
        known = self._known.get(tool_id)
        if known is None or known[0] is not entry:  # an index makes another entry for each change of a tool
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[tool_id] = (entry, facts_of(entry.tool, entry.bindings))
        return summary_of(known[1], score, explanation)

    def __len__(self) -> int:
        return len(self._known)
