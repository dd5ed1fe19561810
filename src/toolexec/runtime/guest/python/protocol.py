"""What both sides of the guest protocol agree on; the host imports this module, too."""

PROTOCOL = "toolexec-guest"
VERSION = 1
MAX_FRAME_BYTES = 16 << 20
NETWORK = frozenset({"net_open", "net_data", "net_ack", "net_eof", "net_close"})
"""All messages about network connections."""
MAX_CONNECTIONS = 64
"""How many a guest may have open at once."""
WINDOW = 1 << 20
"""How many bytes may be under way in each direction of one."""
MAX_LEFT_OUT = 1000
"""How many files that were not sent back may be named."""
