"""`toolexec serve` as a process whose callers lose their rights: its tools, its settings, and what it has on record."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from tests.config.commands import COMMAND
from tests.server.auth.conftest import AUDIENCE, ISSUER, Issuer
from tests.server.processes import environment, served
from tests.server.test_restart import LIST, opened, post
from tests.waiting import until

from toolexec.server.auth.credentials import hash_key
from toolexec.server.settings import TaskSettings
from toolexec.server.tasks import StoredTask, TaskStore

APP = '''
import asyncio
from pathlib import Path
from toolexec import ExecutionError, tool

HERE = Path(__file__).parent


def did(name):
    with (HERE / "done").open("a") as out:
        out.write(f"{name}\\n")


@tool("office:try", read_only=True)
async def attempt() -> str:
    """Fail until it may succeed."""
    did("tried")
    if not (HERE / "go").exists():
        raise ExecutionError("the office is busy", retryable=True, details={"retry_after": 0.05})
    did("succeeded")
    return "done"


@tool("office:wait", read_only=True)
async def wait() -> str:
    """Wait until it may go on."""
    did("waited")
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    return "waited"


@tool("office:sign")
def sign() -> str:
    """Sign a paper."""
    did("signed")
    return "signed"


@tool("office:files", read_only=True)
def files() -> list[str]:
    """List all files."""
    return [f"file {number}" for number in range(20_000)]
'''
SETTINGS = """
[sources]
python = ["app.py"]
[server]
expose = "meta"
port = 0
[resilience]
attempts = 10000
retry_budget = 10000
breaker_failures = 100000
within = 600
[limits]
call_timeout = 600
"""


def key(name: str, endpoint: str = "", **more: Any) -> str:
    """Return the entry of an API key in the settings, at an endpoint if that is given; the key is `NAME's`."""
    facts = {"id": name, "sha256": hash_key(f"{name}'s"), **more}
    where = f"endpoints.{endpoint}.auth" if endpoint else "auth"
    return f"[[{where}.api_keys]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in facts.items())


class Office:
    """Servers over one state directory, what their tools did, and what is on record of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.issuer = Issuer()
        self.file = directory / "toolexec.toml"
        (directory / "app.py").write_text(APP)
        (directory / "done").touch()
        self.tokens = (
            f'[auth.jwt]\nissuer = "{ISSUER}"\naudience = "{AUDIENCE}"\nleeway = 0\n'
            f"jwks_file = {json.dumps(self.issuer.file(directory))}\n"
        )

    def set(self, *settings: str) -> None:
        """Have these settings beside those that all have."""
        self.file.write_text(SETTINGS + "".join(settings))

    def serve(self) -> AbstractContextManager[str]:
        return served(self.words, self.directory)

    @property
    def words(self) -> list[str]:
        """The command line of a server."""
        return [*COMMAND, "serve", "-c", str(self.file)]

    def command(self, *words: str) -> str:
        """Run a command over the same state directory to its end; return what it printed."""
        with self.begun(*words) as process:
            return process.communicate()[0]

    @contextmanager
    def begun(self, *words: str) -> Generator[subprocess.Popen[str]]:
        """Run a command over the same state directory during the block."""
        whole = [sys.executable, "-m", "toolexec", "-c", str(self.file), *words]
        pipe, there = subprocess.PIPE, environment(self.directory)
        with subprocess.Popen(whole, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=there) as process:
            try:
                yield process
            finally:
                process.terminate()

    def runs(self) -> list[dict[str, Any]]:
        """Return the durable runs that there are."""
        found: list[dict[str, Any]] = json.loads(self.command("--json", "runs", "list"))["runs"]
        return found

    def go(self) -> None:
        """Let the tools go on that wait."""
        (self.directory / "go").touch()

    @property
    def done(self) -> list[str]:
        """What tools did, one word each."""
        return (self.directory / "done").read_text().split()

    @property
    def state(self) -> Path:
        return self.directory / "state" / "toolexec"

    def records(self, tool: str) -> list[tuple[str, str]]:
        """Return what the audit log says of a tool: the kind of each record, and the outcome, with the error's code."""
        lines = map(json.loads, (self.state / "audit.jsonl").read_text().splitlines())
        found = [line for line in lines if line.get("tool") == tool and "outcome" in line]
        return [(line["kind"], line.get("error", {}).get("code") or line["outcome"]) for line in found]

    def task(self, task_id: str, endpoint: str = "") -> StoredTask:
        """Return what is kept of a task."""
        store = TaskStore(TaskSettings(path=str(self.state / (f"tasks.{endpoint}.db" if endpoint else "tasks.db"))))
        try:
            found = store.get_task(task_id)
        finally:
            store.close()
        assert found is not None
        return found

    async def is_refused(self, url: str, credential: str) -> None:
        """Wait until the server takes a key or token no more."""

        async def refused() -> bool:
            return (await post(url, credential, LIST)).status_code == 401

        await until(refused, pause=0.05)

    async def sessions(self, url: str, credential: str) -> int:
        """Return how many sessions there are."""
        async with httpx2.AsyncClient(timeout=60, verify=False) as http:
            headers = {"authorization": f"Bearer {credential}"}
            text = (await http.get(url.replace("/mcp", "/metrics"), headers=headers)).text
        return int(float(next(line for line in text.splitlines() if line.startswith("toolexec_sessions ")).split()[1]))

    async def call(self, url: str, credential: str, tool: str) -> httpx2.Response:
        """Call a tool in a session of its own."""
        session_id = await opened(url, credential)
        params = {"name": "run_tool", "arguments": {"tool_id": tool}}
        return await post(url, credential, {"id": 3, "method": "tools/call", "params": params}, session_id)
