"""What a run writes last, over a journal whose writes are made in threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from toolexec import Exec
from toolexec.durable.journal import CallRecord, RunState
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.model.json_value import JSONObject

CODE = """
import asyncio, contextlib

async def main():
    both = await asyncio.gather(tools.t.double(n=1), tools.t.double(n=2))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.01):
            await tools.run("run:signal", {"name": "never"})
    return both

return await main()
"""


class LateJournal(SQLiteJournal):
    """A journal that is written to in threads, and writes that a call was called off only once the run is to end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, sync="each")
        self.ends = threading.Event()
        self.begun: set[str] = set()

    def begin(self, run_id: str, owner: str, call: CallRecord, delivered: Sequence[Sequence[str]] = ()) -> None:
        """Begin a call; one that was begun before waits for the end of the run, for some time."""
        if call.step in self.begun:
            self.ends.wait(0.5)
        self.begun.add(call.step)
        super().begin(run_id, owner, call, delivered)

    def finish(
        self,
        run_id: str,
        owner: str,
        state: RunState,
        result: JSONObject,
        delivered: Sequence[Sequence[str]] = (),
    ) -> None:
        """End the run, and let the call begin."""
        super().finish(run_id, owner, state, result, delivered)
        self.ends.set()


async def test_nothing_that_the_program_got_is_lost_at_its_end(tmp_path: Path) -> None:
    """A call that the program has called off is being written as the program ends, with the answer before it: it is
    written whole, and the run is made again to the same end."""

    async def double(n: int) -> int:
        return 2 * n

    with LateJournal(tmp_path / "runs.db") as journal:
        async with Exec(journal=journal) as ex:
            ex.add(double, "t:double")
            result = await ex.execute_code(CODE, durable="run")
            assert (result.error, result.value) == (None, [2, 4])
            assert [call.state for call in await ex.runs.calls("run")] == ["done", "done", "failed", "done"]
            assert (await ex.runs.replay("run")).error is None
