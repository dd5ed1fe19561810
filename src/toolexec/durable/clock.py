"""The host's clock, as durable runs use it: one place to ask for the time and to let time pass.

Journals and leases have clocks of their own. Tests put others in place of `now` and `pause`.
"""

from __future__ import annotations

import asyncio
import time


def now() -> float:
    """Return the time in seconds since 1970."""
    return time.time()


async def pause(seconds: float) -> None:
    """Return after so many seconds, whatever the time of day does meanwhile."""
    await asyncio.sleep(seconds)
