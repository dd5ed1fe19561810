"""What each part of a gate that keeps calls going adds to a call that works, and what a known answer takes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.meter import Meter, run_program
from benchmarks.programs.echo import ARGS
from benchmarks.programs.gate_cost import ORIGIN, batch, compare, make_exec
from toolexec.model.origin import acting
from toolexec.run.effects import EffectLedger
from toolexec.run.gate import Gate
from toolexec.run.layers import Breaker, Bulkhead, Cache, Fallback, Ledger, Retry


def parts(directory: Path) -> dict[str, dict[str, Any]]:
    """Return by name what a gate is made of."""
    going = {"fallback": Fallback(), "bulkhead": Bulkhead(), "breaker": Breaker(), "retry": Retry()}
    return {
        **{name: {name: part} for name, part in going.items()},
        "all_but_files": dict(going),
        "cache_unused": {"cache": Cache()},
        "ledger": {"ledger": Ledger(EffectLedger(directory / "effects.db"))},
    }


async def hits(meter: Meter, name: str, cache: Cache) -> None:
    """Measure calls that the cache answers."""
    async with make_exec(Gate(cache=cache), remote=True, reading=True) as ex:
        with acting(ORIGIN):
            await ex.run_tool("bench:echo", ARGS)
            assert (await ex.run_tool("bench:echo", ARGS)).cached
            taken = sorted([await batch(ex) for _ in range(10 if meter.quick else 60)])
    meter.record(f"gate.{name}", taken[len(taken) // 2])


async def main(meter: Meter) -> None:
    """Measure a tool of a provider, which the bulkhead and the breaker are for; unmarked, so that nothing is cached."""
    with tempfile.TemporaryDirectory() as directory:
        bare = make_exec(None, remote=True)
        chosen = parts(Path(directory))
        gated = {name: make_exec(Gate(**found), remote=True) for name, found in chosen.items()}
        for ex in (bare, *gated.values()):
            await ex.start()
        await compare(meter, bare, gated, "_added")
        for ex in (bare, *gated.values()):
            await ex.aclose()
        chosen["ledger"]["ledger"].close()
        await hits(meter, "cache_hit", Cache())
        kept = Cache(path=Path(directory) / "answers.db")
        await hits(meter, "cache_hit_of_a_file", kept)
        kept.close()


if __name__ == "__main__":
    run_program(main)
