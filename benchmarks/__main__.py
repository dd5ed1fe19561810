"""`python -m benchmarks`: measure, show the table, and after a complete run write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import sys

from benchmarks.harness import PROGRAMS, Figure, run_all, select
from benchmarks.machine import core_dependencies, describe_load
from benchmarks.peers import prepare_peers
from benchmarks.report import print_table, write_page


def main() -> int:
    """Run what the command line asks for; 1 when a program of our own failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="run this program only (may be repeated)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one short round of three minutes, without containers and the largest catalogues: a rough look",
    )
    parser.add_argument("--list", action="store_true", help="list the programs")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(program.name for program in PROGRAMS))
        return 0
    try:
        programs = select(chosen.only) if chosen.only else [p for p in PROGRAMS if p.quick or not chosen.quick]
    except ValueError as error:
        parser.error(str(error))
    load = describe_load()
    peers = prepare_peers() if any(program.peer or program.name == "sandbox-peers" for program in programs) else None
    outcome = run_all(programs, peers, quick=chosen.quick)
    if "imports" in (program.name for program in programs):
        outcome.figures["dependencies"] = Figure(((len(core_dependencies()),),))
    print_table(outcome)
    if not chosen.only and not chosen.quick:
        print(f"Written: {write_page(outcome, rounds=max(p.rounds for p in programs), load=load).name}")
    ours = {program.name for program in programs if not program.peer}
    return 1 if ours & outcome.problems.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
