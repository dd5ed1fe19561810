"""Stores of a server's state that are encrypted, for the tests of stores in other packages."""

from __future__ import annotations

from collections.abc import Sequence

from toolexec.server.sealed_state import SealedState
from toolexec.state import StateStore


def sealed(store: StateStore, keys: Sequence[str]) -> StateStore:
    """Return *store* with its records encrypted by the first of *keys*."""
    return SealedState(store, keys)
