"""Let a model's program call the tools: one round trip, however many calls it takes.

    python examples/code.py

Prints:

    Code execution result: 3
    Tool calls made: 1
    bugs found: {'created': [101, 102], 'skipped': ['Dark mode']}
    tool calls: 1 x tracker:inbox, 3 x tracker:create_issue, 2 x tracker:add_labels
    it printed: the tracker is busy, trying again
    failed: KeyError: 'title'; `message` has no `title`, it has text, kind; `message` here is {"text": "Crash on
    empty input", "kind": "bug"}, without "title": `message.get("title")` is None then (line 2, col 11)
    the line: print(message["title"])
    calls until then: ['tracker:inbox']
"""

import asyncio
import textwrap
from collections import Counter
from itertools import count

from toolexec import Exec, ExecutionError, tool

NUMBERS = count(101)
BUSY = ["just once"]

# A program as a model writes it. The object `tools` is available without an import.
PROGRAM = """
import asyncio

async def create(text):
    for attempt in range(3):
        try:
            return await tools.tracker.create_issue(title=text)
        except ToolError as error:
            if not error.retryable:
                raise
            print("the tracker is busy, trying again")

messages = await tools.tracker.inbox()
bugs = [message["text"] for message in messages if message["kind"] == "bug"]

issues = [await create(text) for text in bugs]
await asyncio.gather(*(tools.tracker.add_labels(issue=issue["number"], labels=["bug"]) for issue in issues))

return {
    "created": [issue["number"] for issue in issues],
    "skipped": [message["text"] for message in messages if message["kind"] != "bug"],
}
"""

MISTAKEN = """for message in tools.tracker.inbox():
    print(message["title"])"""


@tool(namespace="math")
async def add(a: float, b: float) -> float:
    """Adds two numbers."""
    return a + b


@tool(namespace="tracker", read_only=True)
async def inbox() -> list[dict[str, str]]:
    """Lists the unread messages."""
    strings = {"Crash on empty input": "bug", "Dark mode": "wish", "Wrong total in March": "bug"}
    return [{"text": text, "kind": kind} for text, kind in strings.items()]


@tool(namespace="tracker")
async def create_issue(title: str) -> dict[str, int | str]:
    """Opens an issue."""
    if BUSY:
        BUSY.pop()
        raise ExecutionError("the tracker is busy", retryable=True)
    return {"number": next(NUMBERS), "title": title}


@tool(namespace="tracker")
async def add_labels(issue: int, labels: list[str]) -> int:
    """Adds labels to an issue and returns their number."""
    return len(labels)


async def main() -> None:
    async with Exec() as ex:
        for function in (add, inbox, create_issue, add_labels):
            ex.add(function)

        # A program is a string. Its value is what it returns.
        result = await ex.execute_code('return tools.run_tool("math:add", {"a": 1, "b": 2})')
        print("Code execution result:", result.value)
        print("Tool calls made:", len(result.tool_calls))

        # Conditions, loops, retries, concurrent calls: the program handles them, the model sees one value.
        result = await ex.execute_code(PROGRAM, timeout=10)
        calls = Counter(call.tool_id for call in result.tool_calls)
        print("bugs found:", result.value)
        print("tool calls:", ", ".join(f"{number} x {tool_id}" for tool_id, number in calls.items()))
        print("it printed:", result.stdout.strip())

        # An error has the author's own line, and the record of everything done before it.
        result = await ex.execute_code(MISTAKEN)
        print(textwrap.fill(f"failed: {result.error}", 110))
        print("the line:", result.error.source.strip())
        print("calls until then:", [call.tool_id for call in result.tool_calls])


if __name__ == "__main__":
    asyncio.run(main())
