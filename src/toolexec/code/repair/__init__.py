"""Programs as models write them: made runnable where what is meant is certain, explained where it is not."""

from __future__ import annotations

from toolexec.code.repair.prepare import Prepared, prepared

__all__ = ["Prepared", "prepared"]
