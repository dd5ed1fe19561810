"""The kinds of sandbox that this package has."""

from __future__ import annotations

from toolexec.runtime.kinds import provide

__all__ = ["provide_sandboxes"]


def provide_sandboxes() -> None:
    """Have the kinds of sandbox found that build on durable runs, which the package of sandboxes knows by name only."""
    provide("temporal", "toolexec.durable.temporal.plugin:PLUGIN")
