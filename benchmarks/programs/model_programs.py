"""Programs as models write them: the shares that run at the first try, and that their messages fix."""

from __future__ import annotations

from benchmarks.meter import Meter, run_program
from benchmarks.repair import add_tools, judge, programs, shares
from toolexec import Exec


async def main(meter: Meter) -> None:
    """Run the whole corpus once; nothing in it depends on time."""
    async with Exec() as ex:
        add_tools(ex)
        found = [each for name in ("kept", "ways", "later") for each in programs(name)]
        outcomes = [await judge(ex, each) for each in found]
    meter.record("model_programs.programs", len(outcomes))
    for language, share in shares(each for each in outcomes if each.program.name.startswith("later")):
        meter.record(f"model_programs.{language}.ran", share.ran)
        meter.record(f"model_programs.{language}.fixed", share.fixed)
    right = [each.ran for each in outcomes if not each.program.says]
    wrong = [each.fixed for each in outcomes if each.program.says]
    meter.record("model_programs.right", sum(right) / len(right))
    meter.record("model_programs.wrong", sum(wrong) / len(wrong))


if __name__ == "__main__":
    run_program(main)
