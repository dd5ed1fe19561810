"""Serve all tools as one MCP server with one gate: what a client sees, reads and runs, and what is refused.

    python examples/gateway.py

Prints:

    The client sees: search_tools, describe_tool, run_tool, execute_code, read_result
    Found: notes:read, notes:search, notes:history
    Takes: words
    Result: ['buy tea']
    Refused: policy_denied because reading secrets is not for agents
    Outline: 93781 bytes, array of 2,000 items, each object; fields: number (integer), what (text), who (text)
    Read on: [{'path': '[1999].what', 'value': 'entry 1999'}]
    Audit: notes:search ok, notes:read policy_denied, notes:history ok
"""

import asyncio
import json
import tempfile
from pathlib import Path

from mcp import Client

from toolexec import Exec, tool
from toolexec.run.audit.log import AuditLog
from toolexec.run.gate import Gate
from toolexec.run.layers.audit import Audit
from toolexec.run.layers.budget import Budget
from toolexec.run.policy import Policy, Rule
from toolexec.run.results import ResultStore
from toolexec.server.app import ToolServer

NOTES = {"todo": "buy tea", "secret": "12345"}


@tool(namespace="notes", read_only=True)
async def search(words: str) -> list[str]:
    """Searches the notes for words."""
    return [note for name, note in NOTES.items() if words in note and name != "secret"]


@tool(namespace="notes", read_only=True)
async def read(name: str) -> str:
    """Reads one note."""
    return NOTES[name]


@tool(namespace="notes", destructive=True)
async def wipe() -> None:
    """Deletes all notes."""
    NOTES.clear()


@tool(namespace="notes", read_only=True)
async def history() -> list[dict[str, str | int]]:
    """Lists every change of every note."""
    return [{"number": number, "what": f"entry {number}", "who": "ann"} for number in range(2000)]


def make_exec(audit: AuditLog, results: ResultStore) -> Exec:
    """Put the tools behind a gate: which calls are allowed, what is logged, how large a result may be."""
    rules = [
        Rule("deny", tools=("*:wipe",)),
        Rule("deny", tools=("notes:read",), when={"name": "secret"}, reason="reading secrets is not for agents"),
    ]
    ex = Exec(gate=Gate(policy=Policy(rules), audit=Audit(audit), budget=Budget(results, 1_000)))
    for function in (search, read, wipe, history):
        ex.add(function)
    return ex


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "audit.jsonl"
        audit, results = AuditLog.open(log), ResultStore()
        server = ToolServer(make_exec(audit, results), results=results)
        async with server, Client(server.lowlevel) as client:
            await use(client)
        audit.close()
        ended = [record for record in map(json.loads, log.read_text().splitlines()) if record["kind"] == "call"]
        print("Audit:", ", ".join(f"{record['tool']} {record['outcome']}" for record in ended))


async def use(client: Client) -> None:
    async def call(name: str, **args: object) -> dict:
        return (await client.call_tool(name, args)).structured_content

    names = [tool.name for tool in (await client.list_tools()).tools]
    print("The client sees:", ", ".join(names))

    # The tools themselves are not listed: find, read, run. A model reads short text, a program asks for JSON.
    found = await call("search_tools", query="notes", as_json=True)
    print("Found:", ", ".join(tool["id"] for tool in found["tools"]))
    doc = await call("describe_tool", tool_id="notes:search", as_json=True)
    print("Takes:", ", ".join(doc["tool"]["inputSchema"]["properties"]))
    print("Result:", (await call("run_tool", tool_id="notes:search", args={"words": "tea"}))["structured"])

    # A call that the policy denies is refused; a tool that it denies entirely is not found either.
    refused = await call("run_tool", tool_id="notes:read", args={"name": "secret"})
    print("Refused:", refused["error"]["code"], "because", refused["error"]["details"]["reason"])

    # A result that is too large for a model is an outline; the whole is stored for this client.
    outline = (await call("run_tool", tool_id="notes:history"))["structured"]
    print("Outline:", outline["bytes"], "bytes,", outline["parts"][""])
    page = await call("read_result", handle=outline["handle"], grep="entry 1999")
    print("Read on:", page["value"])


if __name__ == "__main__":
    asyncio.run(main())
