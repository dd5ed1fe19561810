"""Programs of a caller whom a server has beside others: where they run, and when they leave the cores to others."""

from __future__ import annotations

import asyncio

from toolexec import Exec, Gate
from toolexec.model.origin import Caller, Origin, acting
from toolexec.run.code_shares import CodeShares
from toolexec.runtime.priority import APART, COMPANY, CORES, GIVES_WAY

GUEST = Origin(caller=Caller(id="guest-7"))
CALLS = "return tools.test.look()"


async def ranks(callers: int | None, runs: int = 3) -> list[tuple[bool, bool]]:
    """Have one caller run so many programs at once, where a server has so many callers; return of each, in the order in
    which they begin, whether it is apart and whether it gives way."""
    seen: list[tuple[bool, bool]] = []
    all_begun = asyncio.Event()

    async def look() -> None:
        seen.append((APART.get(), GIVES_WAY.get()))
        if len(seen) == runs:
            all_begun.set()
        await all_begun.wait()

    async with Exec(gate=Gate(code_shares=CodeShares(8))) as ex:
        ex.add(look, "test:look")
        COMPANY.set(None if callers is None else lambda: callers)
        with acting(GUEST):
            results = await asyncio.gather(*(ex.execute_code(CALLS) for _ in range(runs)))
            await ex.execute_code("1")
        assert (APART.get(), GIVES_WAY.get()) == (False, False)  # for what follows in this task
    for result in results:
        result.raise_for_error()
    return sorted(seen, key=lambda each: each[1])


async def test_a_program_in_a_library_runs_as_ever() -> None:
    """In this process, and with the priority of all else."""
    assert await ranks(None) == [(False, False)] * 3


async def test_programs_of_the_only_caller_do_not_give_way() -> None:
    """Run them apart from the server."""
    assert await ranks(1) == [(True, False)] * 3


async def test_what_one_caller_has_beyond_its_part_gives_way() -> None:
    """All but one, where there are more callers than cores."""
    assert await ranks(CORES + 1) == [(True, False), (True, True), (True, True)]
