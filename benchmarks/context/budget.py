"""The budget of tokens that CI keeps: what a sample of the tasks took when it was last recorded.

`python -m benchmarks.context --record` writes it again, for a change that is worth what it costs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from benchmarks.context.catalogue import FEW, tasks
from benchmarks.context.replay import replay, totals
from benchmarks.context.world import world
from toolexec.server.settings import Expose

RECORDED: Final = Path(__file__).with_name("budget.json")
GROWTH: Final = 1.02
"""How much more a figure may be than what was recorded."""
EXPOSED: Final[tuple[Expose, ...]] = ("meta", "code")
_EACH: Final = 10


async def sampled(expose: Expose) -> dict[str, float]:
    """Return what a few tasks take, in tokens: the fixed cost, and the means of context and of billed tokens."""
    chosen = tasks()[::_EACH]
    async with world(expose, FEW) as served:
        took = totals(served.fixed, [await replay(served, task) for task in chosen])
    return {name: round(value, 1) for name, value in took.per(len(chosen)).items()}


def recorded() -> dict[str, dict[str, float]]:
    """Return what was recorded, by what is exposed."""
    return json.loads(RECORDED.read_text())
