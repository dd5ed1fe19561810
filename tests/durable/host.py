"""Makes one durable run in a process of its own, which the tests kill: `host.py DIRECTORY KIND [PAUSE [JOURNAL]]`.

Each call takes PAUSE seconds. The journal is in the directory, unless JOURNAL names a database.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from toolexec import Exec, Step, Tool, ToolAnnotations

CHAIN = [Step("fx:add", {"n": number}, name=f"s{number}") for number in range(100)]
WORKFLOW = """
parts := parallel for n in range(0, 40) limit 6 {
    first := run("fx:add", {n: n})
    run("fx:add", {n: first + 100})
}
return parts
"""
CODE = """
import asyncio
total = [tools.fx.add(n=n) for n in range(10)]
order = []
async def two(n):
    value = await tools.fx.add(n=n)
    order.append(n)
    return await tools.fx.add(n=value + 100)
total += await asyncio.gather(*(two(n) for n in range(10, 30)))
return [total, len(order)]
"""


class Effects:
    """Effects that outlive the process: a line each, in a file that is only ever appended to."""

    def __init__(self, path: Path, pause: float) -> None:
        self.path = path
        self.pause = pause

    async def add(self, args: dict[str, Any]) -> int:
        """Do what must not be done twice, in the middle of a pause."""
        await asyncio.sleep(self.pause / 2)
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, b"%d\n" % args["n"])
        finally:
            os.close(file)
        await asyncio.sleep(self.pause / 2)
        return args["n"]

    def has(self, args: dict[str, Any]) -> Any:
        """Return whether it was done."""
        return {"done": str(args["n"]) in self.path.read_text().split(), "value": args["n"]}


def opened(directory: Path, pause: float = 0.004, journal: str = "") -> Exec:
    """Return an Exec with the journal and the effects of the directory."""
    effects = Effects(directory / "effects", pause)
    effects.path.touch()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    ex = Exec(journal=journal or directory / "runs.db", max_tool_calls=500, default_timeout=120)
    meta = {"toolexec/check": "fx:has"}
    ex.add(Tool(name="add", namespace="fx", input_schema=schema, meta=meta), handler=effects.add)
    hints = ToolAnnotations(read_only=True)
    ex.add(Tool(name="has", namespace="fx", input_schema=schema, annotations=hints), handler=effects.has)
    return ex


async def run(ex: Exec, kind: str) -> Any:
    """Begin the run, or go on with it, and return its result."""
    if kind == "chain":
        return await ex.run_chain(CHAIN, durable="run")
    if kind == "workflow":
        return await ex.run_workflow(WORKFLOW, durable="run", max_tool_calls=200)
    return await ex.execute_code(CODE, durable="run", max_tool_calls=200)


async def main(directory: Path, kind: str, pause: str = "0.004", journal: str = "") -> None:
    """Make the run, and print its value."""
    async with opened(directory, float(pause), journal) as ex:
        if kind == "code":  # a sandbox that is loaded, so that the run itself is what is killed
            await ex.execute_code("1")
        print("begun", flush=True)
        result = await run(ex, kind)
        print(json.dumps({"value": result.value, "error": result.error and result.error.to_dict()}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
