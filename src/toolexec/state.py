"""What a store of a server's state is written with: the records that servers on many machines share.

A distribution offers a function from an address to a `StateStore` under the entry point group `toolexec.states`, by the
scheme of the address, which `server.state_url` names. `check_state` of `toolexec.testing` tests one. toolexec-valkey is
written with these names, and with no others of toolexec's inside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.process.poll import pauses
    from toolexec.server.state import StateKind, StateStore
else:
    _HOMES = {
        "toolexec.process.poll": ("pauses",),
        "toolexec.server.state": ("StateKind", "StateStore"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = ["StateKind", "StateStore", "pauses"]
