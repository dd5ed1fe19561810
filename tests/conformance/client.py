"""toolexec's MCP client as the conformance suite drives it: `python client.py URL`, the scenario in the environment."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import os
import sys
import time
from collections.abc import Sequence
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


def be_a_new_user() -> None:
    """Keep the logins of a scenario for itself: its servers may get a port that those of another had before, whose
    tokens would be sent to them."""
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "").replace("/", "_")
    os.environ["XDG_STATE_HOME"] = os.path.join(os.environ["XDG_STATE_HOME"], scenario)


if __name__ == "__main__":
    gc.disable()  # in a life of two seconds, eighty times: a fifth of the imports, and half a second at the end
    take_turn()
    be_a_new_user()

import httpx2  # noqa: E402 - not before its turn

from toolexec import Exec, ToolExecError  # noqa: E402
from toolexec.backend.base import LoginBackend  # noqa: E402
from toolexec.errors import LoginRequiredError  # noqa: E402

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
NUMBERS = {"a": 5, "b": 3}
LOGINS = 3


async def main(url: str) -> None:
    # The suite sends null where its own schema asks for a boolean, to see what becomes of it on the wire.
    async with Exec(default_timeout=45, start_timeout=60, validate_input=False) as ex:
        await ex.add_mcp("suite", url=url, connect_timeout=45, auth=await _auth(url))
        for _ in range(LOGINS):
            status = next(each for each in ex.backend_statuses() if each.name == "suite")
            await _log_in(ex, status.reason or "")
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
    for _ in range(LOGINS):
        try:
            result = await ex.run_tool(tool_id, args)
        except LoginRequiredError as error:
            print(f"{tool_id}: {error.to_dict()}", file=sys.stderr)
            await _log_in(ex, error.command, error.details.get("scopes", ()))
        except ToolExecError as error:
            print(f"{tool_id}: {error.to_dict()}", file=sys.stderr)
            return
        else:
            print(f"{tool_id}: {result.to_dict()}", file=sys.stderr)
            return


async def _log_in(ex: Exec, reason: str, scopes: Sequence[str] = ()) -> None:
    """Run the command that a message names, as a person does who has seen it."""
    backend = ex.backends.get("suite")
    if "toolexec login suite" not in reason or not isinstance(backend, LoginBackend):
        return
    try:
        await backend.log_in(_visit, scopes=scopes)
    except ToolExecError as error:
        print(f"login: {error.to_dict()}", file=sys.stderr)


async def _visit(link: str, code: str) -> None:
    """Do what the person's browser does: open the link, and follow it back to this machine."""
    async with httpx2.AsyncClient(trust_env=False) as browser:
        answer = await browser.get(link)
        if "location" in answer.headers:
            await browser.get(answer.headers["location"])


async def _auth(url: str) -> dict[str, Any]:
    """Return what a person writes into the settings for a scenario: what they know of their client, and where it is
    registered."""
    auth: dict[str, Any] = {"kind": "oauth"}
    auth |= {name: CONTEXT[name] for name in ("client_id", "client_secret") if CONTEXT.get(name)}
    if CONTEXT.get("private_key_pem"):
        auth["private_key"] = CONTEXT["private_key_pem"]
    if SCENARIO.startswith("auth/client-credentials"):
        auth["flow"] = "client"
    if auth.keys() & {"client_secret", "private_key"}:
        origin = url.partition("/mcp")[0]
        async with httpx2.AsyncClient(trust_env=False) as client:
            for place in (
                f"{origin}/.well-known/oauth-protected-resource/mcp",
                f"{origin}/.well-known/oauth-protected-resource",
            ):
                answer = await client.get(place)
                if answer.status_code == 200:
                    auth["issuer"] = answer.json()["authorization_servers"][0]
                    break
    if SCENARIO == "auth/basic-cimd":
        auth["client_metadata_url"] = "https://conformance-test.local/client-metadata.json"
    return auth


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
    gc.freeze()  # the interpreter's end looks through all that is left
