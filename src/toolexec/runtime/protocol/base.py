"""Where `Gateway` was: import it from `toolexec.code`; this module stays for one release."""

from toolexec.code.gateway import Gateway

__all__ = ["Gateway"]
