"""How a host function says no to the guest."""

from __future__ import annotations

from typing import Any


class RefusedError(Exception):
    """The answer to the guest is an error; CPython turns it into an OSError.

    `reason` is the error value as WASI has it: a code such as `no-entry`, or `("closed", None)` for a stream.
    """

    def __init__(self, reason: Any) -> None:
        super().__init__(str(reason))
        self.reason = reason


class GuestFaultError(Exception):
    """The guest used a host function in a way that no well-behaved program does; it is ended."""
