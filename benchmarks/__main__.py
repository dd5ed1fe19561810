"""`python -m benchmarks`: measure, show the tables, and replace those that were measured in docs/benchmarks.md."""

from __future__ import annotations

import argparse
import sys

from benchmarks.harness import PROGRAMS, Figure, run_all, select
from benchmarks.machine import core_dependencies, describe_commit, describe_load
from benchmarks.peers import prepare_peers
from benchmarks.report import check_page, print_table, write_page
from benchmarks.tables import with_their_tables


def main() -> int:
    """Run what the command line asks for; 1 when a program of our own failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="run this program, and those whose figures stand in the same tables (may be repeated)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one short round of three minutes, without containers and the largest catalogues, or of the programs of "
        "--only alone: a rough look, which is not written",
    )
    parser.add_argument("--list", action="store_true", help="list the programs")
    chosen = parser.parse_args()
    if chosen.list:
        print("\n".join(program.name for program in PROGRAMS))
        return 0
    try:
        programs = select(chosen.only) if chosen.only else [p for p in PROGRAMS if p.quick or not chosen.quick]
        if not chosen.quick:
            programs = with_their_tables(programs)
            check_page()
        commit = "" if chosen.quick else describe_commit()
    except ValueError as error:
        parser.error(str(error))
    load = describe_load()
    peers = prepare_peers() if any(program.peer or program.name == "sandbox-peers" for program in programs) else None
    outcome = run_all(programs, peers, quick=chosen.quick)
    if "imports" in (program.name for program in programs):
        outcome.figures["dependencies"] = Figure(((len(core_dependencies()),),))
    print_table(outcome)
    if not chosen.quick:
        written = write_page(outcome, commit=commit, load=load)
        print(
            "\n".join(["Written to docs/benchmarks.md:", *written]) if written else "No table was measured completely."
        )
    ours = {program.name for program in programs if not program.peer}
    return 1 if ours & outcome.problems.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
