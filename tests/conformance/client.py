"""toolexec's MCP client as the conformance suite drives it: `python client.py URL`, the scenario in the environment."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
import time
from typing import Any

SLOTS = 4


def take_turn() -> None:
    """Wait until fewer than four clients are at work: the suite starts all forty at once, and its time limits mean
    nothing when two cores are shared by forty. The lock, a byte of this file for each slot, ends with the process."""
    handle = os.open(__file__, os.O_RDWR)
    while True:
        for slot in range(SLOTS):
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
            except OSError:
                continue
            return
        time.sleep(0.1)


if __name__ == "__main__":
    take_turn()

from toolexec import Exec, ToolExecError  # noqa: E402 - not before its turn

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
NUMBERS = {"a": 5, "b": 3}


async def main(url: str) -> None:
    # The suite sends null where its own schema asks for a boolean, to see what becomes of it on the wire.
    async with Exec(default_timeout=45, start_timeout=60, validate_input=False) as ex:
        await ex.add_mcp("suite", url=url, connect_timeout=45)
        tools = [entry.tool for entry in ex.index.tools()]
        print(f"{SCENARIO}: {[tool.name for tool in tools]}", file=sys.stderr)
        for status in ex.backend_statuses():
            print(f"{status.name}: {status.reason} {status.skipped}", file=sys.stderr)
        calls = [(call["name"], call.get("arguments", {})) for call in CONTEXT.get("toolCalls", [])]
        if not calls:
            calls = [(tool.name, _arguments(tool.to_mcp()["inputSchema"])) for tool in tools]
        for name, args in calls:
            found = [tool.id for tool in tools if tool.name == name]
            if name == "json_schema_echo":  # the suite wants back the schema of the other tool, as this client has it
                args = {"schema": next(tool.to_mcp()["inputSchema"] for tool in tools if tool.name != name)}
            if found:
                await _call(ex, found[0], args)


async def _call(ex: Exec, tool_id: str, args: dict[str, Any]) -> None:
    try:
        result = await ex.run_tool(tool_id, args)
    except ToolExecError as error:
        print(f"{tool_id}: {error.to_dict()}", file=sys.stderr)
    else:
        print(f"{tool_id}: {result.to_dict()}", file=sys.stderr)


def _arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments for any tool of the suite: numbers for numbers, a text for the rest."""
    properties: dict[str, Any] = schema.get("properties", {})
    required = schema.get("required", [])
    values = {"number": 5, "integer": 5, "boolean": True, "string": "text", "array": [], "object": {}}
    return {
        name: NUMBERS.get(name, values.get(part.get("type", "string"), "text"))
        for name, part in properties.items()
        if name in required or not required
    }


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
