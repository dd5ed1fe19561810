"""Tools to call, with a memory of what was called."""

from __future__ import annotations

from tests.testbed import testbed

__all__ = ["testbed"]
