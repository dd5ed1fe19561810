"""Make the runs of a journal again, in a process of its own that has no tools: `replaying.py JOURNAL`, as JSON.

Of each run it prints what a session finds at its end, and at each call.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from toolexec import Exec


async def made_again(ex: Exec, run_id: str) -> dict[str, Any]:
    """Return all that can be seen of one run."""
    async with ex.runs.debug(run_id) as session:
        await session.to_end()
        calls = [call.to_dict() | {"seconds": 0} for call in session.calls]
        end = {"reason": session.reason, "value": session.value, "error": session.error and str(session.error)}
        stops: list[Any] = []
        for call in session.calls:
            stop = await session.to_call(call.number)
            seen = [each.to_dict() | {"seconds": 0} for each in stop.calls]
            stops.append({"line": stop.line, "variables": dict(stop.variables), "calls": seen})
    return {"calls": calls, "end": end, "stops": stops}


async def main(journal: str) -> None:
    """Print what is seen of every run of the journal."""
    async with Exec(journal=journal, default_timeout=120) as ex:
        runs = [run.id for run in await ex.runs.list()]
        print(json.dumps({run_id: await made_again(ex, run_id) for run_id in runs}, sort_keys=True))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
