"""Which tools code may see and call."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from toolexec.discovery.index import Index
from toolexec.errors import ConfigurationError, ToolNotAllowedError, ToolNotFoundError

__all__ = ["AllowList"]


class AllowList:
    """Tool IDs and patterns such as `github:*`. None lets all tools through, and is false; an empty list lets none.

    Raises ConfigurationError for what is not a list of strings.
    """

    def __init__(self, index: Index, allowed: Collection[str] | None) -> None:
        if isinstance(allowed, str) or not all(isinstance(item, str) for item in allowed or ()):
            raise ConfigurationError(
                'allowed_tools must be a list of IDs or patterns, such as ["math:*"]; None means all tools'
            )
        self._index = index
        self._limited = allowed is not None
        self._exact = frozenset(allowed or ())
        self._patterns = tuple(pattern for pattern in self._exact if "*" in pattern)

    def __bool__(self) -> bool:
        return self._limited

    def accepts(self, tool_id: str) -> bool:
        """Whether the tool is on the list: under its own ID, or under the one without a version if that means it."""
        if not self._limited or tool_id in self._exact:
            return True
        found = self._index.find(tool_id)
        canonical = found.tool.id if found is not None else tool_id
        plain = found.tool.replace(version="").id if found is not None and found.tool.version else canonical
        if canonical in self._exact or (plain in self._exact and self._index.find(plain) is found):
            return True
        return any(fnmatchcase(plain, pattern) for pattern in self._patterns)

    def check(self, tool_id: str, op: str) -> None:
        """Raises ToolNotAllowedError for a tool that is not on the list."""
        if not self.accepts(tool_id):
            raise ToolNotAllowedError(
                f"this code may not call {tool_id}; it may call {', '.join(sorted(self._exact)[:10]) or 'no tools'}",
                tool_id=tool_id,
                op=op,
            )

    def without_hints(self, error: ToolNotFoundError) -> ToolNotFoundError:
        """The error, its suggestions without the tools that the code may not know of."""
        if not self._limited:
            return error
        close = [tool_id for tool_id in error.details.get("close", ()) if self.accepts(tool_id)]
        return ToolNotFoundError(error.tool_id or "", close=close, op=error.op or "resolve")
