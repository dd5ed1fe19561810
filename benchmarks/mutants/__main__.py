"""Print how many wrong programs failed, of each way to make them wrong, and how many messages named the fix.

`python -m benchmarks.mutants [WAY...]`: with names of ways, the messages that do not name it, too.
"""

from __future__ import annotations

import asyncio
import sys

from benchmarks.mutants.judge import fates, tallies


def main(ways: list[str]) -> None:
    """Print a row for each way, and the total of each language."""
    found = asyncio.run(fates())
    total: dict[str, list[int]] = {}
    for language, name, tally in tallies(found):
        counted = f"failed {tally.failed:4}  named {tally.named:4} {tally.share:6.1%}  misled {tally.misled}"
        print(f"{language:10} {name:30} {counted}")
        counts = total.setdefault(language, [0, 0, 0])
        total[language] = [a + b for a, b in zip(counts, (tally.failed, tally.named, tally.misled), strict=True)]
    for language, (failed, named, misled) in total.items():
        print(f"{language:10} {'all':30} failed {failed:4}  named {named:4} {named / failed:6.1%}  misled {misled}")
    for fate in found:
        if fate.mutant.operator in ways and not fate.named:
            print(f"\n{fate.mutant.program.name} {fate.mutant.names}\n{fate.mutant.program.code}\n-> {fate.message}")


if __name__ == "__main__":
    main(sys.argv[1:])
