"""How long runs take while their servers are replaced: `python -m benchmarks.rolled`, two minutes.

Three servers take 200 runs a second with one call each, and are ended in peace and started again one by one over a
minute. Prints the times before and meanwhile, their ratio, the runs that were lost and the calls that were made twice;
the exit code is 1 where there is one of these.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from packages.remote.tests.rolled import Times, roll


def main() -> int:
    """Measure it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rolled", description=__doc__)
    parser.add_argument("--rate", type=int, default=200, help="runs per second")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long the servers are rolled")
    parser.add_argument("--kind", choices=("scripted", "wasm"), default="scripted", help="scripted: no sandbox")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(
            roll(Path(directory), given.kind, rate=given.rate, quiet=given.seconds / 2, seconds=given.seconds)
        )
    for name, times in (("quiet", found.quiet), ("rolled", found.rolled)):
        print(
            f"{name:7} {len(times.took)} runs, p50 {times.at(0.5):.1f} ms, p99 {times.at(0.99):.1f} ms, "
            f"longest {times.at(1):.1f} ms"
        )
    print(f"p99 is {found.rolled.at(0.99) / found.quiet.at(0.99):.1f} times the quiet one")
    print(f"{len(found.lost)} runs were lost, {len(found.doubled)} calls made more than once")
    print("servers were away " + ", ".join(f"from {began:.1f} to {ended:.1f} s" for began, ended in found.drains))
    print("slowest: " + _slowest(found.rolled))
    for number, why in [*found.lost.items()][:5]:
        print(f"lost: {number}: {why}")
    return 1 if found.lost or found.doubled else 0


def _slowest(times: Times) -> str:
    return ", ".join(f"{took * 1000:.0f} ms at {at:.1f} s" for at, took in times.slowest[:10])


if __name__ == "__main__":
    sys.exit(main())
