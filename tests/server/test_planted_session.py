"""A whole session with `toolexec serve` in front of a server that gives away its secrets: no output has one."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.exec.test_planted_secrets import LEAKING, SECRETS
from tests.servers import server_environment

from toolexec.backend.secrets.scrub import spellings

pytestmark = pytest.mark.full

TOOLS = ("described", "strings", "nested", "failing", "refusing", "telling")


def _configure(directory: Path) -> dict[str, str]:
    """Write a configuration that holds no secret itself; gives the environment that some of them come from."""
    (directory / "kept").write_text(SECRETS["file"])
    (directory / "kept").chmod(0o600)
    (directory / "say.py").write_text(f"print({SECRETS['command']!r})")
    say = shlex.join([sys.executable, str(directory / "say.py")])
    near = {
        "command": sys.executable,
        "args": [LEAKING, "stdio"],
        "env": {
            "PLANTED_1": "${A_VARIABLE}",
            "PLANTED_2": f"secretref:file:{directory / 'kept'}",
            "PLANTED_3": f"secretref:command:{say}",
            "PLANTED_4": "${URL_KEY}",
            "PLANTED_5": "${HEADER}",
        },
    }
    lacking = {"url": "http://127.0.0.1:9/mcp?Key=${URL_KEY}", "headers": {"Authorization": "Bearer ${NOT_THERE}"}}
    config: dict[str, Any] = {
        "mcpServers": {"near": near, "lacking": lacking},
        "policy": {"remote_destructive": "allow"},
        "audit": {"path": str(directory / "audit.jsonl"), "args": "redacted"},
        "server": {"log_level": "debug"},
    }
    (directory / "toolexec.json").write_text(json.dumps(config))
    return {"A_VARIABLE": SECRETS["variable"], "URL_KEY": SECRETS["url"], "HEADER": SECRETS["header"]}


async def _session(client: Client) -> list[Any]:
    """All that a client hears in a session that tries everything."""
    received: list[Any] = [client.instructions]

    async def call(name: str, **args: Any) -> None:
        with suppress(MCPError):
            received.append(
                (await client.call_tool(name, args, progress_callback=_hear(received))).model_dump(mode="json")
            )

    received.append((await client.list_tools()).model_dump(mode="json"))
    await call("list_backends")
    await call("search_tools", query="needs no key", limit=20)
    await call("list_tools")
    for name in TOOLS:
        await call("describe_tool", tool_id=f"near:{name}", detail_level="full")
        await call("run_tool", tool_id=f"near:{name}")
        await call("run_tool", tool_id=f"near:{name}", args={"password": SECRETS["variable"]})
    await call("run_tool", tool_id="lacking:x")
    await call("run_chain", steps=[{"tool_id": f"near:{name}", "stop_on_error": False} for name in TOOLS])
    program = "\n".join(f"try:\n  print(tools.near.{name}())\nexcept Exception as e:\n  print(e)" for name in TOOLS)
    await call("execute_code", code=f"import os\nprint(dict(os.environ))\n{program}\nraise ValueError(str(tools))")
    await call("stubs", namespaces=["near"])
    return received


def _hear(received: list[Any]) -> Any:
    async def hear(*said: Any) -> None:
        received.append(said)

    return hear


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_no_output_has_a_secret(mode: Any, tmp_path: Path) -> None:
    """Replies, errors, progress, the server's log at its most talkative and the audit log: none has a planted secret,
    and the server that holds them works."""
    environment = _configure(tmp_path)
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "toolexec", "serve", "-c", str(tmp_path / "toolexec.json")],
        env=server_environment(XDG_STATE_HOME=str(tmp_path / "state"), **environment),
    )
    with (tmp_path / "stderr").open("w+") as stderr:
        async with Client(stdio_client(server, errlog=stderr), mode=mode) as client:
            received = await _session(client)
        stderr.seek(0)
        log = stderr.read()
    audit = (tmp_path / "audit.jsonl").read_text()
    state = "".join(
        path.read_bytes().decode(errors="replace") for path in (tmp_path / "state").rglob("*") if path.is_file()
    )
    said = json.dumps(received, default=str, ensure_ascii=False)
    assert "the key is [REDACTED]" in said
    assert audit.count('"outcome":"ok"') > 10
    for output in (said, log, audit, state):
        for name, secret in SECRETS.items():
            for spelling in spellings(secret):
                assert spelling not in output, name
