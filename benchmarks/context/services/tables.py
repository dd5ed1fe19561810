"""The rows that a service keeps in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Table:
    """Rows by ID. IDs are numbered, so that each replay gives the same ones."""

    def __init__(self, prefix: str, *rows: dict[str, Any]) -> None:
        self._prefix = prefix
        self._rows: dict[str, dict[str, Any]] = {}
        for row in rows:
            self.add(**row)

    def add(self, **fields: Any) -> Any:
        """Keep a row under the next ID; return it."""
        row_id = f"{self._prefix}_{len(self._rows) + 1:04}"
        self._rows[row_id] = {"id": row_id, **fields}
        return self._rows[row_id]

    def get(self, row_id: str) -> Any:
        """Return a row; raises ValueError for an unknown ID."""
        if row_id not in self._rows:
            raise ValueError(f"there is nothing with the id {row_id}")
        return self._rows[row_id]

    def change(self, row_id: str, **fields: Any) -> Any:
        """Set those fields of a row that are not None; return it."""
        row = self.get(row_id)
        row |= {name: value for name, value in fields.items() if value is not None}
        return row

    def remove(self, row_id: str) -> None:
        """Forget a row; raises ValueError for an unknown ID."""
        self.get(row_id)
        del self._rows[row_id]

    def select(self, fits: Callable[[dict[str, Any]], object] | None = None) -> list[Any]:
        """Return the rows that fit, in the order in which they came."""
        return [row for row in self._rows.values() if fits is None or fits(row)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows.values())


def matches(query: str, *texts: str) -> bool:
    """Return whether every word of *query* is in one of *texts*."""
    body = " ".join(texts).lower()
    return all(word in body for word in query.lower().split())


class Service:
    """Collects the functions of a service, with their annotations of MCP."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.functions: dict[str, Callable[..., Any]] = {}
        self.hints: dict[str, dict[str, Any]] = {}

    def tool(self, **hints: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Take in a function that is to be a tool."""

        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            tool_id = f"{self.namespace}:{function.__name__}"
            self.functions[tool_id], self.hints[tool_id] = function, hints
            return function

        return add
