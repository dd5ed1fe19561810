"""Which of a server's tools, prompts and resources there are here, by the patterns in its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from toolexec.backend.mcp.config import MCPServer
from toolexec.backend.offers import OfferKind
from toolexec.model.id_patterns import IDPatterns

_PATTERNS: Final = (
    "include", "exclude", "include_prompts", "exclude_prompts", "include_resources", "exclude_resources",
)  # fmt: skip


class Choice:
    """What fits one of the patterns *include* (anything, where there is none), and none of *exclude*; *what* names them
    in errors. Raises ConfigurationError for more than 1,000 patterns that are not just names."""

    __slots__ = ("_exclude", "_include", "narrows")

    def __init__(self, what: str, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = IDPatterns(f"include of {what}", include) if include else None
        self._exclude = IDPatterns(f"exclude of {what}", exclude) if exclude else None
        self.narrows: bool = self._include is not None or self._exclude is not None
        """Whether it may leave anything out."""

    def includes(self, name: str) -> bool:
        """Return whether it would be there, were it not excluded."""
        return self._include is None or self._include.fits(name)

    def excludes(self, name: str) -> bool:
        """Return whether it is left out, whatever is included."""
        return self._exclude is not None and self._exclude.fits(name)

    def takes(self, name: str) -> bool:
        """Return whether it is there."""
        return self.includes(name) and not self.excludes(name)


class Chosen:
    """What is chosen of a server: `tools` and `prompts` by the names that the server gives them, `resources` and their
    templates by their URIs. Raises as `Choice` does."""

    def __init__(self, server: MCPServer) -> None:
        self.tools: Choice = Choice(f"{server.name}: tools", server.include, server.exclude)
        self.prompts: Choice = Choice(f"{server.name}: prompts", server.include_prompts, server.exclude_prompts)
        self.resources: Choice = Choice(f"{server.name}: resources", server.include_resources, server.exclude_resources)

    def of(self, kind: OfferKind) -> Choice:
        """Return what is chosen of prompts, or of resources and templates."""
        return self.prompts if kind == "prompt" else self.resources


def differs_by_choice(before: MCPServer, after: MCPServer) -> bool:
    """Return whether two settings of a server differ by nothing but their patterns."""
    return before != after and replace(before, **{name: getattr(after, name) for name in _PATTERNS}) == after
