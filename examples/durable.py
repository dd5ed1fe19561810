"""Kill a program's process in the middle of its work, and have another process finish it, with nothing done twice.

    python examples/durable.py

Prints:

    the first process printed 3 labels and was killed
    the second process made the rest: 8 labels, total weight 36
    printed: 1 2 3 4 5 6 7 8
    the same again, with nothing called: True
"""

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

from toolexec import Exec, Tool, ToolAnnotations

CODE = """
import asyncio
weights = [await tools.post.label(parcel=n) for n in range(1, 5)]  # one after the other
weights += await asyncio.gather(*(tools.post.label(parcel=n) for n in range(5, 9)))
return sum(weights)
"""


def post(directory: Path, dies_after: int = 0) -> Exec:
    """Return an Exec whose tool prints labels, which must not be printed twice."""
    labels = directory / "labels.txt"
    schema = {"type": "object", "properties": {"parcel": {"type": "integer"}}}
    ex = Exec(journal=directory / "runs.db", default_timeout=120)

    def is_printed(args: dict[str, int]) -> dict[str, object]:
        return {"done": f"{args['parcel']}\n" in labels.read_text(), "value": args["parcel"]}

    def label(args: dict[str, int]) -> int:
        with labels.open("a") as file:
            file.write(f"{args['parcel']}\n")
        if args["parcel"] == dies_after:  # before anything could say that it was printed
            os.kill(os.getpid(), signal.SIGKILL)
        return args["parcel"]

    hints, meta = ToolAnnotations(read_only=True), {"toolexec/check": "post:is_printed"}
    ex.add(Tool(name="is_printed", namespace="post", input_schema=schema, annotations=hints), handler=is_printed)
    ex.add(Tool(name="label", namespace="post", input_schema=schema, meta=meta), handler=label)
    return ex


async def main(directory: Path) -> None:
    """Have one process die, and finish its run in this one."""
    first = await asyncio.create_subprocess_exec(sys.executable, __file__, str(directory))
    await first.wait()
    printed = (directory / "labels.txt").read_text().split()
    assert first.returncode == -signal.SIGKILL
    print(f"the first process printed {len(printed)} labels and was killed")

    async with post(directory) as ex:
        result = await ex.execute_code(CODE, durable="parcels")
        printed = (directory / "labels.txt").read_text().split()
        print(f"the second process made the rest: {len(printed)} labels, total weight {result.value}")
        print("printed:", *sorted(printed))
        print("the same again, with nothing called:", (await ex.runs.replay("parcels")).same)


async def first_process(directory: Path) -> None:
    """Begin the run, and die in the middle of its third call."""
    await post(directory, dies_after=3).execute_code(CODE, durable="parcels")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(first_process(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as name:
            asyncio.run(main(Path(name)))
