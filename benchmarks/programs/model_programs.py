"""Programs as models write them: the shares that run at the first try, and that their messages fix."""

from __future__ import annotations

from benchmarks.meter import Meter, run_program
from benchmarks.repair import add_tools, judge, programs, shares
from benchmarks.repair_sets import BLIND
from toolexec import Exec


async def main(meter: Meter) -> None:
    """Run the whole corpus once; nothing in it depends on time."""
    async with Exec() as ex:
        add_tools(ex)
        found = [each for name in ("kept", "ways", "later") for each in programs(name)]
        outcomes = [await judge(ex, each) for each in found]
    for name, add in BLIND.items():
        async with Exec() as ex:
            add(ex)
            outcomes += [await judge(ex, each) for each in programs(name)]
    meter.record("model_programs.misled", sum(each.misled for each in outcomes))
    meter.record("model_programs.programs", len(outcomes))
    for name in ("later", *BLIND):
        prefix = "model_programs" if name == "later" else f"model_programs.{name}"
        for language, share in shares(each for each in outcomes if each.program.name.startswith(f"{name}-")):
            meter.record(f"{prefix}.{language}.ran", share.ran)
            meter.record(f"{prefix}.{language}.fixed", share.fixed)
    known = [each for each in outcomes if not each.program.name.startswith("blind")]
    right = [each.ran for each in known if not each.program.says]
    wrong = [each.fixed for each in known if each.program.says]
    meter.record("model_programs.right", sum(right) / len(right))
    meter.record("model_programs.wrong", sum(wrong) / len(wrong))


if __name__ == "__main__":
    run_program(main)
