"""Right programs of the corpora, made wrong in each way: how many messages name the fix.

These are every twelfth of each set, from the fourth on: programs that were not looked at when the messages were mended.
"""

from __future__ import annotations

from typing import Final

from benchmarks.meter import Meter, run_program
from benchmarks.mutants.judge import fates, tallies

_EVERY: Final = 12
_FIRST: Final = 3


async def main(meter: Meter) -> None:
    """Run every wrong program once; nothing in it depends on time."""
    found = await fates(every=_EVERY, first=_FIRST)
    meter.record("mutants.misled", sum(fate.misled for fate in found))
    for language in ("python", "javascript"):
        rows = [tally for of, _, tally in tallies(found) if of == language]
        failed, named = sum(each.failed for each in rows), sum(each.named for each in rows)
        meter.record(f"mutants.{language}.failed", failed)
        meter.record(f"mutants.{language}.named", named / failed)


if __name__ == "__main__":
    run_program(main)
