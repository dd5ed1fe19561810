"""The sessions and waiting calls of toolexec servers on many machines, in Valkey or Redis.

`server.state_url` in a settings file names the server once this package is installed. Nothing is connected to before
the first record:

>>> from toolexec_valkey import ValkeyState
>>> ValkeyState("valkey://localhost/0").prefix
'toolexec:'
"""

from __future__ import annotations

from toolexec_valkey.address import ValkeyAddress
from toolexec_valkey.store import ValkeyState

__all__ = ["ValkeyAddress", "ValkeyState"]
