"""Right programs made wrong as models write them, to see whether the message of each names what it had."""

from __future__ import annotations
