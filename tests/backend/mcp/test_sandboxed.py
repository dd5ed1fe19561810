"""MCP servers in bubblewrap: what they can do is what they could do without, and what they cannot is everything else."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from tests.engines.bubblewrap import require_bwrap
from tests.engines.tiny_server import TINY
from tests.servers import EVERYTHING, npm_directory, require_npm_server
from tests.waiting import until

from toolexec import Exec
from toolexec.backend.mcp import MCPBackend
from toolexec.backend.secrets import SecretResolver
from toolexec.errors import ConnectionLostError
from toolexec.model.origin import Caller, Origin, acting

pytestmark = pytest.mark.full

HERE = Path(__file__).parent
PYTHON = {"read": [sys.prefix, sys.base_prefix, str(HERE)]}
"""What a server needs that runs in the Python of the tests, with its packages."""
TINY_COMMAND = ["python3", "-c", TINY]
ANN, BOB = Origin(caller=Caller(id="ann", method="api_key")), Origin(caller=Caller(id="bob", method="api_key"))


@pytest.fixture(autouse=True)
def bwrap() -> str:
    return require_bwrap()


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    async with Exec() as ex:
        yield ex


@asynccontextmanager
async def served(**settings: Any) -> AsyncGenerator[Exec]:
    """Yield an Exec with a server `s` that is connected."""
    async with Exec() as ex:
        [status] = await ex.add_mcp("s", **settings)
        assert status.available, status.reason
        yield ex


async def call(ex: Exec, name: str, /, **args: Any) -> Any:
    """Return what a tool of `s` gives, or its error."""
    result = await ex.run_tool(f"s:{name}", args)
    if result.error is not None:
        return result.error
    value = result.value
    return value["result"] if isinstance(value, dict) and value.keys() == {"result"} else value


async def replies(ex: Exec, name: str, args: dict[str, Any]) -> list[str]:
    """Return what the servers `plain` and `boxed` reply, but for their own names and the IDs of tasks."""
    results = await asyncio.gather(*(ex.run_tool(f"{server}:{name}", args) for server in ("plain", "boxed")))
    found = [repr(result.reply).replace("toolexec://plain", "toolexec://boxed") for result in results]
    return [re.sub(r"[0-9a-f]{32}", "TASK", each) for each in found]


def backend_of(ex: Exec) -> MCPBackend:
    backend = ex.backends.get("s")
    assert isinstance(backend, MCPBackend)
    return backend


class TestBehaved:
    """Servers that want nothing but what they have been given."""

    async def test_every_tool_gives_what_it_gives_without(self, ex: Exec) -> None:
        """Reply by reply, small and large."""
        command = [sys.executable, str(HERE / "sdk_server.py"), "stdio", "new", "0"]
        ex.add_mcp("plain", command=command)
        ex.add_mcp("boxed", command=command, sandbox=PYTHON)
        await ex.start()
        calls = {"add": {"a": 2, "b": 3}, "steps": {"count": 2}, "size": {"text": "é" * 9}, "parts": {}}
        calls |= {"big": {"characters": 1 << 20}, "wait": {"seconds": 0.01}}
        for name, args in calls.items():
            plain, boxed = await replies(ex, name, args)
            assert plain == boxed, name
            assert "content" in plain

    async def test_a_server_of_npm_has_all_its_tools(self, ex: Exec) -> None:
        """With node of this machine, and nothing of it but the packages, read-only."""
        command = require_npm_server("everything")
        box = {"read": [str(npm_directory() / "node_modules")]}
        ex.add_mcp("plain", command=[*command, "stdio"], stop_timeout=0.3)
        ex.add_mcp("boxed", command=[*command, "stdio"], stop_timeout=0.3, sandbox=box)
        await ex.start()
        plain, boxed = [each for each in ex.backend_statuses() if each.name in ("plain", "boxed")]
        assert boxed.available, boxed.reason
        assert boxed.tools == plain.tools > 10
        for name, args in EVERYTHING.items():
            if name != "get-env":
                one, other = await replies(ex, name, args)
                assert one == other, name
        env = (await ex.run_tool("boxed:get-env", {})).value
        assert env.keys() == {"PATH", "HOME", "PWD"}

    async def test_a_directory_can_be_changed_and_stays(self) -> None:
        """Only what is named in `write`; the working directory is read."""
        with tempfile.TemporaryDirectory(prefix="toolexec-boxed-") as made:
            own, other = Path(made, "own"), Path(made, "other")
            for each in (own, other):
                each.mkdir()
                each.chmod(0o777)  # root starts it as a user that has no files
            Path(made).chmod(0o755)
            (other / "note").write_text("here")
            box = {"write": [str(own)]}
            async with served(command=TINY_COMMAND, sandbox=box, cwd=str(other)) as ex:
                assert await call(ex, "look", of="note") == "here"
                assert "Read-only" in await call(ex, "write", of=f"{other}/note=changed")
                assert await call(ex, "write", of=f"{own}/note=kept") == "written"
            assert (own / "note").read_text() == "kept"
            assert (other / "note").read_text() == "here"

    async def test_root_says_of_a_directory_that_others_cannot_change(self, ex: Exec, tmp_path: Path) -> None:
        """The server is refused at the start, and not by each call."""
        if os.geteuid() != 0:
            pytest.skip("only root starts servers as another user")
        tmp_path.chmod(0o755)
        [status] = await ex.add_mcp("s", command=TINY_COMMAND, sandbox={"write": [str(tmp_path)]})
        assert "cannot be changed by all users" in (status.reason or "")

    async def test_secrets_are_in_its_environment_alone(self) -> None:
        """No process of this machine has them among its arguments, nor the one around the server in its variables."""
        secret = "s3cr3t-of-the-sandbox"
        resolver = SecretResolver({"env": lambda _: secret})
        async with served(
            command=TINY_COMMAND, sandbox="bubblewrap", env={"TOKEN": "secretref:env:TOKEN"}, secrets=resolver
        ) as ex:
            said = await ex.run_tool("s:variables", {"of": ""})
            assert said.value["TOKEN"] == "[REDACTED]"
            pid = backend_of(ex).status().info["pid"]
            assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if secret.encode() in _bytes(path)]
            assert secret.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


class TestHostile:
    """A server that tries everything."""

    async def test_it_gets_at_nothing(self, tmp_path: Path) -> None:
        """Files, variables, processes and ports of the host; more rights; more processes; more memory."""
        secret = tmp_path / "secret"
        secret.write_text("of the host")
        os.environ["OF_THE_HOST"] = "1"
        box = {**PYTHON, "memory_bytes": 128 << 20, "pids": 40}
        try:
            async with served(command=[sys.executable, str(HERE / "prying_server.py")], sandbox=box) as ex:
                for path in (str(secret), "/etc/shadow", "/etc/passwd", f"/proc/{os.getpid()}/environ", "/proc/1/maps"):
                    assert "Error" in await call(ex, "read", path=path), path
                for path in (str(tmp_path), str(Path.home() / ".cache"), "/var", "/sys"):
                    assert "Error" in (await call(ex, "listed", path=path))[0], path
                assert "OF_THE_HOST" not in await call(ex, "variables")
                uid, _, able, seen = await call(ex, "who")
                assert (uid, able) == (65534, 0)
                assert seen <= 3
                with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as listener:
                    assert "refused" in await call(ex, "connect", host="127.0.0.1", port=listener.server_port)
                assert "unreachable" in await call(ex, "connect", host="192.0.2.1", port=80)
                for path in ("/usr/x", "/x", str(HERE / "x"), "/proc/sys/kernel/hostname"):
                    assert "Error" in await call(ex, "write", path=path, text="x"), path
                assert await call(ex, "multiply") < 40
                error = await call(ex, "grow")
                assert isinstance(error, ConnectionLostError)
                assert "killed for its memory: sandbox.memory_bytes is 128 MiB" in error.message
                assert (await call(ex, "who"))[3] <= 3  # it was started again, alone
        finally:
            del os.environ["OF_THE_HOST"]

    async def test_callers_have_a_sandbox_each(self) -> None:
        """Bob's server cannot read what Ann's has written, though it looks for it; each keeps its own."""
        async with served(command=TINY_COMMAND, sandbox="bubblewrap", isolation="caller") as ex:

            async def ask(origin: Origin, name: str, of: str) -> Any:
                with acting(origin):
                    return await call(ex, name, of=of)

            first = await asyncio.gather(ask(ANN, "keep", "ann's"), ask(BOB, "keep", "bob's"))
            assert first == ["ann's", "bob's"]
            assert await ask(ANN, "keep", ".") == "ann's."
            assert await ask(BOB, "look", "/work/kept") == "bob's"
            assert backend_of(ex).status().info["instances"] == 2

    async def test_nothing_outlives_toolexec(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Though it is killed, and though the server has started processes that left its session."""
        program = f"""
            import asyncio, tempfile
            from toolexec import Exec

            tempfile.tempdir = {str(tmp_path)!r}

            async def main():
                async with Exec() as ex:
                    [status] = await ex.add_mcp("s", command={TINY_COMMAND!r}, sandbox={{"pids": 20, "hosts": ["a.example"]}})
                    await ex.run_tool("s:multiply", {{"of": ""}})
                    print(status.info["pid"], flush=True)
                    await asyncio.sleep(600)

            asyncio.run(main())
        """
        ran = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE)
        try:
            assert ran.stdout is not None
            pid = int(await asyncio.to_thread(ran.stdout.readline))
            inside = _namespace(pid)
            assert len(_members(inside)) > 10
        finally:
            ran.kill()
            ran.communicate()
        await until(lambda: not _members(inside))
        [left] = tmp_path.glob("toolexec-way-*")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        async with served(command=TINY_COMMAND, sandbox={"hosts": ["a.example"]}):
            assert not left.exists()  # the next one removes what a killed one could not


class TestNetwork:
    """The way out: none, or to some hosts."""

    async def test_only_the_hosts_that_are_named(self) -> None:
        """Through the proxy, which says no to all others; what was refused is in the status."""
        with answering() as port:
            box = {"hosts": [f"127.0.0.1:{port}"]}
            async with served(command=TINY_COMMAND, sandbox=box) as ex:
                for number in range(3):
                    answer = await call(ex, "fetch", of=f"http://127.0.0.1:{port}/{number}")
                    assert answer == "200 " + f"/{number}" * 20_000
                assert "BEGIN CERTIFICATE" in await call(ex, "look", of="/run/toolexec/ca.pem")
                sent = await call(ex, "post", of=f"4 http://127.0.0.1:{port}/")
                assert sent == " ".join([f"200 {4 << 20}"] * 8)
                assert "403" in await call(ex, "fetch", of="http://example.com/")
                assert await call(ex, "connect", of=f"127.0.0.1:{port}") == "ConnectionRefusedError"
                assert await call(ex, "connect", of="192.0.2.1:80") == "OSError"
                assert "example.com:80; name in sandbox.hosts" in str(backend_of(ex).status().info["lacks"])

    async def test_a_server_that_cannot_start_without_says_so(self, ex: Exec) -> None:
        """The reason is what it wrote, and what to set."""
        command = ["python3", "-c", "import socket; socket.create_connection(('registry.example.com', 443))"]
        [status] = await ex.add_mcp("s", command=command, sandbox="bubblewrap")
        assert not status.available
        assert "exited with 1" in (status.reason or "")
        assert "it seems to need the network" in (status.reason or "")
        assert "sandbox.hosts" in (status.reason or "")


class TestLost:
    """What goes wrong is said as it is of servers without a sandbox."""

    async def test_one_that_ends_is_started_again(self) -> None:
        """The call that it ended in has the reason; the next one finds another, which has nothing of the former."""
        async with served(command=TINY_COMMAND, sandbox="bubblewrap") as ex:
            assert await call(ex, "keep", of="a") == "a"
            error = await call(ex, "end", of="3")
            assert isinstance(error, ConnectionLostError)
            assert "exited with 3" in error.message
            assert "giving up" in error.message
            assert await call(ex, "keep", of="b") == "b"

    async def test_a_script_whose_python_is_elsewhere_says_which(self, ex: Exec) -> None:
        """As those that pip installs into a virtual environment; with both directories it starts."""
        with tempfile.TemporaryDirectory(prefix="toolexec-boxed-") as made:
            Path(made).chmod(0o755)
            script = Path(made, "server")
            script.write_text(f"#!{sys.executable}\n{TINY}")
            script.chmod(0o755)
            [status] = await ex.add_mcp("s", command=str(script), sandbox={"read": [made]})
            assert f"has no {sys.executable}" in (status.reason or "")
            assert str(Path(sys.executable).resolve()) in (status.reason or "")
            box = {"read": [made, sys.prefix, sys.base_prefix]}
            [status] = await ex.add_mcp("t", command=str(script), sandbox=box)
            assert status.available, status.reason

    @pytest.mark.parametrize(
        ("settings", "reason"),
        [
            ({"command": "no-such-server"}, "'no-such-server' was not found"),
            ({"command": [sys.executable, "x.py"]}, "name the directory that it needs in sandbox.read"),
            ({"command": "true", "sandbox": {"read": ["/opt/not-there"]}}, "there is no /opt/not-there"),
            ({"command": "true", "sandbox": {"image": "/opt/not-there"}}, "there is no directory /opt/not-there"),
            ({"command": "true", "cwd": "/opt/not-there"}, "no such directory"),
            ({"command": "true", "cwd": "/etc"}, "/etc belongs to the host"),
            ({"command": ["python3", "-c", "import no_such_part"]}, "name their directory in sandbox.read"),
        ],
        ids=str,
    )
    async def test_what_cannot_be_started_says_why(self, ex: Exec, settings: dict[str, Any], reason: str) -> None:
        """The reason names what is to be changed, and no process is left."""
        given: dict[str, Any] = {"sandbox": "bubblewrap", **settings}
        [status] = await ex.add_mcp("s", **given)
        assert not status.available
        assert reason in (status.reason or "")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


def _namespace(pid: int) -> str:
    """Return the namespace of processes that the children of *pid* are in."""
    own = os.readlink("/proc/self/ns/pid")
    for path in Path("/proc").glob("[0-9]*/stat"):
        parent = _bytes(path).rpartition(b")")[2].split()[1:2]
        if parent == [str(pid).encode()] and (found := os.readlink(path.parent / "ns" / "pid")) != own:
            return found
    raise AssertionError("there is no container")


def _members(namespace: str) -> list[str]:
    """Return the processes in a namespace."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(path / "ns" / "pid") == namespace:
                found.append(path.name)
        except OSError:
            continue
    return found


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = self.path.encode() * 20_000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        left = size = int(self.headers["Content-Length"])
        while left:
            left -= len(self.rfile.read(min(left, 1 << 16)))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(size).encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def answering() -> Generator[int]:
    """Yield the port of a server that answers each path with the path, many times."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
