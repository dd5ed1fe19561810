"""A whole session with servers that give away their secrets on purpose: no visible output has one."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp.shared._otel as sdk_tracing
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.engines.programs import free_port
from tests.servers import server_environment

from toolexec import Exec
from toolexec.backend.mcp import MCPBackend, MCPServer
from toolexec.backend.secrets import SecretResolver
from toolexec.backend.secrets.scrub import spellings
from toolexec.errors import ToolExecError
from toolexec.model.redaction import REDACTED, Redactor
from toolexec.run.audit.log import AuditLog
from toolexec.run.gate import Gate
from toolexec.run.layers.audit import Audit
from toolexec.run.layers.telemetry import Telemetry

pytestmark = pytest.mark.full

LEAKING = str(Path(__file__).with_name("leaking_server.py"))
SECRETS = {
    "variable": "pl4nted-Variable/1==",
    "file": 'pl4nted "File" & 2?',
    "command": "PL4NTED_command_three",
    "url": "pl4nted+Url~4/x",
    "header": "pl4nted.Header.five",
}
TOOLS = ("described", "strings", "nested", "failing", "refusing", "telling")


@pytest.fixture
def http_url() -> Iterator[str]:
    """The URL of a leaking server that knows what its client sends it."""
    port = free_port()
    env = server_environment(PLANTED_4=SECRETS["url"], PLANTED_5=SECRETS["header"])
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen([sys.executable, LEAKING, "http", str(port)], stdout=nowhere, stderr=nowhere, env=env)
    deadline = time.monotonic() + 30
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


class Session:
    """An Exec with two leaking servers and one that lacks its secret, audited and traced; it keeps all that is seen."""

    def __init__(self, directory: Path, url: str) -> None:
        self.seen: list[str] = []
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        redact = Redactor()
        kept = directory / "kept"
        kept.write_text(SECRETS["file"] + "\n")
        kept.chmod(0o600)
        words = [sys.executable, "-c", f"print({SECRETS['command']!r})"]
        environment = {"A_VARIABLE": SECRETS["variable"], "URL_KEY": SECRETS["url"], "HEADER": SECRETS["header"]}
        secrets = SecretResolver({"quoted": _quoted(SECRETS["url"])}, environment=environment, redact=redact)
        self.audit = directory / "audit.jsonl"
        self.log = AuditLog.open(self.audit, args="redacted", redact=redact)
        telemetry = Telemetry(tracer_provider=self.provider, record_args=True, redact=redact)
        self.ex = Exec(gate=Gate(telemetry=telemetry, audit=Audit(self.log)), default_timeout=60)
        near = MCPServer(
            name="near",
            command=sys.executable,
            args=[LEAKING, "stdio"],
            env=server_environment(
                PLANTED_1="${A_VARIABLE}",
                PLANTED_2=f"secretref:file:{kept}",
                PLANTED_3=f"secretref:command:{shlex.join(words)}",
            ),
            stop_timeout=0.5,
            secrets=secrets,
        )
        far = MCPServer(
            name="far",
            url=f"{url}?Api_Key=secretref:quoted:url&x=${{URL_KEY}}",
            headers={"AuthoriZation": "Bearer ${HEADER}"},
            secrets=secrets,
        )
        lacking = MCPServer(
            name="lacking", url=url, headers={"A": "${A_VARIABLE} ${NOT_THERE}"}, max_restarts=0, secrets=secrets
        )
        self.ex.add_backends(*(MCPBackend(server) for server in (near, far, lacking)))
        self.seen.append(repr([near, far, lacking, secrets]))

    def note(self, *things: Any) -> None:
        """Keep all visible output of these, as text and as JSON, with the causes of errors."""
        for thing in things:
            self.seen.append(f"{thing!r}\n{thing}")
            if hasattr(thing, "to_dict"):
                self.seen.append(json.dumps(thing.to_dict(), ensure_ascii=False, default=repr))
            error = thing if isinstance(thing, BaseException) else getattr(thing, "error", None)
            if error is not None:
                self.seen.append("".join(traceback.format_exception(error)))
                self.seen.append(json.dumps(error.to_dict(), ensure_ascii=False, default=repr))

    async def run(self, tool_id: str, args: dict[str, Any] | None = None) -> None:
        """Run a tool and keep what comes of it."""
        try:
            self.note(await self.ex.run_tool(tool_id, args, on_progress=self.note))
        except ToolExecError as error:
            self.note(error)

    async def everything(self) -> None:
        """Use the servers in every way there is."""
        ex = self.ex
        await ex.start()
        self.note(*ex.backend_statuses())
        for server in ("near", "far"):
            self.note(*await ex.search_tools("key", 50))
            for name in TOOLS:
                self.note(await ex.get_tool_doc(f"{server}:{name}"))
                await self.run(f"{server}:{name}")
                self.note(*[event async for event in ex.stream_tool(f"{server}:{name}")])
            chain = await ex.run_chain([{"tool": f"{server}:nested"}, {"tool": f"{server}:failing"}])
            self.note(chain, *chain.steps)
            code = f"print(tools.{server}.strings())\ntry:\n    tools.{server}.refusing()\nexcept Exception as e:\n    print(e)\n"
            result = await ex.execute_code(f"{code}return tools.{server}.nested()")
            assert result.ok, result.error
            self.note(result)
        await self.run("lacking:anything")
        await self.run("near:dying")
        self.note(*ex.backend_statuses())

    async def arguments(self) -> None:
        """Send secrets as arguments, nested and under keys in mixed case. The caller sees what it sent itself; what is
        kept is only in the trace and the audit log."""
        for secret in SECRETS.values():
            await self.ex.run_tool(
                "far:digest", {"name": secret, "More": [{"ApI_kEy": secret, "u": f"x://u:{secret}@h"}]}
            )
            with pytest.raises(ToolExecError):
                await self.ex.run_tool("far:digest", {"name": [secret]})


def _quoted(secret: str) -> Any:
    from urllib.parse import quote

    return lambda _: quote(secret, safe="")


async def test_five_planted_secrets_are_nowhere(tmp_path, http_url, caplog, capfd, monkeypatch):
    """No result, error, document, status, log record, span, audit line or output of code has any of them."""
    caplog.set_level(logging.DEBUG)
    session = Session(tmp_path, http_url)
    monkeypatch.setattr(sdk_tracing, "_tracer", session.provider.get_tracer("mcp"))
    try:
        await session.everything()
        await session.arguments()
    finally:
        await session.ex.aclose()
        session.log.close()
    spans = "\n".join(span.to_json() for span in session.exporter.get_finished_spans())
    places = {
        "what was given": "\n".join(session.seen),
        "logs": caplog.text + "\n".join(f"{record.__dict__}" for record in caplog.records),
        "spans": spans,
        "audit": session.audit.read_text(),
        "output": "".join(capfd.readouterr()),
    }
    leaks = [
        f"{kind} in {place}"
        for kind, secret in SECRETS.items()
        for place, text in places.items()
        for spelled in spellings(secret)
        if spelled in text
    ]
    assert not leaks
    for place in ("what was given", "spans", "audit"):
        assert REDACTED in places[place], place
    assert "MCP send tools/call" in spans
    assert "lacking" in places["what was given"]
    assert "NOT_THERE is not set" in places["what was given"]
    assert "HTTP Request: POST" in places["logs"]


@pytest.mark.parametrize("profile", ["standard", "dev"])
async def test_code_sees_no_secret_and_no_environment(monkeypatch, profile):
    """Code in a sandbox, and code without one, has none of the host's environment variables and only its own."""
    monkeypatch.setenv("PLANTED_HERE", SECRETS["variable"])
    async with Exec() as ex:
        code = "import os, json\nprint(json.dumps(dict(os.environ)))\nreturn sorted(os.environ)"
        opt_in = {"unsafe_opt_in": True} if profile == "dev" else {}
        result = await ex.execute_code(code, profile=profile, env={"MINE": "1"}, **opt_in)
    assert result.ok, result.error
    assert "MINE" in result.value
    shared = {name for name in result.value if name in os.environ}
    assert shared <= {"HOME", "LANG", "LC_CTYPE", "PATH", "PWD", "TMPDIR"}
    assert SECRETS["variable"] not in repr(result)
