"""Programs in a sandbox: the same calls, and nothing of the machine but what the settings name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.engines.bubblewrap import require_bwrap

from toolexec import Exec
from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.command.running import Process, Program, start_here
from toolexec.backend.providers.command.sandbox import SandboxRules
from toolexec.backend.providers.kinds import source_of
from toolexec.errors import ConfigurationError, InputValidationError, RemoteToolError, ToolTimeoutError
from toolexec.model.call import ToolCall

REPOSITORY = Path(__file__).parents[4]

ECHO = {"argv": ["echo", "--", "{text}"]}


@dataclass
class Fake:
    """A sandbox that starts programs here, and notes which."""

    rules: SandboxRules
    problem: str = ""
    started: list[Program] = field(default_factory=list)
    closed: int = 0

    async def check(self) -> None:
        if self.problem:
            raise ConfigurationError(self.problem)

    def shows(self, path: Path, directory: Path) -> bool:
        return path.is_relative_to("/usr") or path.is_relative_to("/bin")

    async def start(self, program: Program) -> Process:
        self.started.append(program)
        return await start_here(program)

    async def aclose(self) -> None:
        self.closed += 1


class TestSettings:
    """Settings reach the sandbox, of whatever kind it is."""

    async def test_the_sandbox_starts_each_call(self, tmp_path: Path) -> None:
        """Each call is started by it, with the same arguments; the status says which it is."""
        made: list[Fake] = []

        def sandboxes(name: str, rules: SandboxRules) -> Fake:
            assert name == "mine"
            made.append(Fake(rules))
            return made[-1]

        settings = {"tools": {"t": ECHO}, "sandbox": "mine", "cwd": tmp_path, "sandbox_paths": ["more", "/opt"]}
        backend = SourceBackend("c", source_of("command", "c", settings, sandboxes=sandboxes))
        await backend.start()
        assert await backend.call("t", ToolCall("c:t", {"text": "$(id)"})) == "-- $(id)"
        assert backend.status().info["sandbox"] == "mine"
        await backend.aclose()
        [fake] = made
        assert [each.argv for each in fake.started] == [["echo", "--", "$(id)"]]
        assert fake.rules == SandboxRules(paths=(tmp_path / "more", Path("/opt")))
        assert fake.closed == 1

    async def test_a_program_that_it_does_not_show_is_skipped(self, tmp_path: Path) -> None:
        """With what to do about it; so is one whose directory would be everything."""
        (tmp_path / "own").write_text("#!/bin/sh\n")
        (tmp_path / "own").chmod(0o755)
        tools = {"own": {"argv": ["./own"]}, "root": {"argv": ["echo"], "cwd": "/"}}
        settings = {"tools": tools, "sandbox": "mine", "cwd": tmp_path}
        source = source_of("command", "c", settings, sandboxes=lambda _, rules: Fake(rules))
        skipped = (await source.load()).skipped
        assert "name its directory in sandbox_paths" in skipped["own"]
        assert "another directory than /" in skipped["root"]

    async def test_without_the_sandbox_there_are_no_tools(self) -> None:
        """Nothing runs outside of it instead; the reason is in the status, and it is tried again."""
        fake = Fake(SandboxRules(), problem="bubblewrap is not installed; apt install bubblewrap")
        settings = {"tools": {"t": ECHO}, "sandbox": "mine"}
        backend = SourceBackend("c", source_of("command", "c", settings, sandboxes=lambda *_: fake))
        await backend.start()
        status = backend.status()
        assert (status.available, status.reason) == (False, fake.problem)
        fake.problem = ""
        assert (await backend.refresh()).available
        await backend.aclose()

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"sandbox": "bubblewarp"}, "no sandbox 'bubblewarp' for programs; did you mean bubblewrap"),
            ({"sandbox_network": True}, "set sandbox"),
            ({"sandbox": "bubblewrap", "sandbox_netwrok": True}, "did you mean sandbox_network"),
            ({"sandbox": True}, "sandbox"),
        ],
        ids=str,
    )
    async def test_mistakes_are_refused_at_the_door(self, settings: dict[str, Any], message: str) -> None:
        """A setting that would have no effect, too."""
        async with Exec() as ex:
            with pytest.raises(ConfigurationError, match=message):
                ex.add_commands("c", tools={"t": ECHO}, **settings)

    def test_without_sandboxes_one_cannot_be_asked_for(self) -> None:
        """A caller that makes sources by hand passes in what makes sandboxes."""
        with pytest.raises(ConfigurationError, match="no sandboxes for programs"):
            source_of("command", "c", {"tools": {"t": ECHO}, "sandbox": "bubblewrap"})

    async def test_a_machine_without_bubblewrap(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The status says what to install."""
        pytest.importorskip("fcntl", reason="bubblewrap is for Linux")
        from toolexec.runtime.containers.bubblewrap import engine
        from toolexec.runtime.containers.bubblewrap.checks import NOT_INSTALLED, Machine

        monkeypatch.setattr(engine, "look", lambda *_: Machine(problem=NOT_INSTALLED))
        async with Exec() as ex:
            [status] = await ex.add_commands("c", tools={"t": ECHO}, sandbox="bubblewrap", cwd=tmp_path)
        assert not status.available
        assert status.reason is not None
        assert NOT_INSTALLED.reason in status.reason
        assert "apt-get install bubblewrap" in status.reason


@asynccontextmanager
async def sandboxed(directory: Path, tools: Mapping[str, Any], **settings: Any) -> AsyncGenerator[Exec]:
    """An Exec with programs in bubblewrap, in a directory that any user may read."""
    async with Exec() as ex:
        [status] = await ex.add_commands("c", tools=tools, sandbox="bubblewrap", cwd=directory, **settings)
        assert status.available, status.reason
        assert status.skipped == {}
        yield ex


async def call(directory: Path, argv: list[Any], args: Mapping[str, Any] | None = None, **tool: Any) -> Any:
    """Run one program once in bubblewrap."""
    settings = {key: tool.pop(key) for key in [*tool] if key.startswith("sandbox_")}
    async with sandboxed(directory, {"t": {"argv": argv, **tool}}, **settings) as ex:
        return (await ex.run_tool("c:t", args)).raise_for_error().value


def _command_lines() -> Iterator[bytes]:
    """Yield the command lines of all processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the programs may use, also where they are another user."""
    require_bwrap()
    made = tmp_path_factory.mktemp("programs")
    made.chmod(0o777)
    return made


@pytest.mark.full
class TestBubblewrap:
    """The real thing."""

    async def test_calls_are_the_same(self, directory: Path) -> None:
        """Arguments arrive literally, stdin is read, lines and JSON come back, exit codes mean the same."""
        for text in ["; rm -rf /", "$(id)", "a b", "'\"", "ü", "a\nb"]:
            assert await call(directory, ["printf", "%s", "{text}"], {"text": text}) == text
        assert await call(directory, ["cat"], {"text": "in"}, stdin="{text}") == "in"
        assert await call(directory, ["sh", "-c", "echo 1; echo 2"], output="lines") == ["1", "2"]
        assert await call(directory, ["echo", "[1]"], output="json") == [1]
        assert await call(directory, ["sh", "-c", "exit 3"], exit_codes={"3": "empty"}) == ""
        with pytest.raises(RemoteToolError) as caught:
            await call(directory, ["sh", "-c", "echo no >&2; exit 4"])
        assert (caught.value.details["exit_code"], caught.value.details["stderr"]) == (4, "no")

    async def test_output_is_streamed(self, directory: Path) -> None:
        """Line by line."""
        tool = {"argv": ["sh", "-c", "echo 1; echo 2"], "output": "lines"}
        async with sandboxed(directory, {"t": tool}) as ex:
            events = [event async for event in ex.stream_tool("c:t")]
        assert [event.data for event in events] == ["1", "2", ["1", "2"]]

    async def test_it_sees_its_directory_and_little_else(self, directory: Path) -> None:
        """No home, no other files, no processes, and no writing."""
        (directory / "mine").write_text("here")
        other = directory.parent / "other"
        other.write_text("secret")
        assert await call(directory, ["cat", "mine"]) == "here"
        for argv in (["cat", str(other)], ["ls", "/root"], ["ls", "/home"], ["touch", "new"], ["ls", str(REPOSITORY)]):
            with pytest.raises(RemoteToolError):
                await call(directory, argv)
        assert int(await call(directory, ["sh", "-c", "ls /proc | grep -c '^[0-9]'"])) <= 4
        assert await call(directory, ["sh", "-c", "touch /tmp/sandboxed-a $HOME/b && ls $HOME"]) == "b"
        assert not Path("/tmp/sandboxed-a").exists()
        assert not (directory / "b").exists()

    async def test_more_is_named_in_the_settings(self, directory: Path) -> None:
        """Further paths to read, and a directory to write to."""
        more = directory.parent / "more"
        more.mkdir(exist_ok=True)
        (more / "file").write_text("there")
        assert await call(directory, ["cat", str(more / "file")], sandbox_paths=[more]) == "there"
        with pytest.raises(RemoteToolError):
            await call(directory, ["touch", str(more / "new")], sandbox_paths=[more])
        await call(directory, ["touch", "new"], sandbox_writable=True)
        assert (directory / "new").exists()

    async def test_the_environment_is_the_one_of_the_settings(self, directory: Path) -> None:
        """Variables that the settings name, and no others."""
        names = "import json, os; print(json.dumps(sorted(os.environ)))"
        found = await call(directory, ["python3", "-I", "-c", names], env={"TOKEN": "abc"}, output="json")
        assert set(found) <= {"HOME", "LANG", "LC_CTYPE", "PATH", "PWD", "TOKEN"}
        assert "TOKEN" in found

    @pytest.mark.parametrize("allowed", [False, True])
    async def test_the_network_is_off_unless_allowed(self, directory: Path, allowed: bool) -> None:
        """Not even this machine can be reached."""
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1")
        port = server.sockets[0].getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2); print('reached')"
        async with server:
            work = call(directory, ["python3", "-I", "-c", code], sandbox_network=allowed)
            if allowed:
                assert await work == "reached"
            else:
                with pytest.raises(RemoteToolError):
                    await work

    async def test_a_program_that_takes_too_long_is_killed(self, directory: Path) -> None:
        """With all that it has started."""
        with pytest.raises(ToolTimeoutError):
            await call(directory, ["sh", "-c", "sleep 987654 & sleep 987654"], timeout=0.5)
        assert not any(b"987654" in each for each in _command_lines())

    async def test_arguments_that_are_too_long(self, directory: Path) -> None:
        """The call is refused, as it would be without a sandbox."""
        with pytest.raises(InputValidationError):
            await call(directory, ["echo", "{text}"], {"text": "x" * (1 << 18)})

    async def test_by_a_file_of_settings(self, directory: Path) -> None:
        """A file may name the sandbox, too."""
        file = directory / "tools.json"
        file.write_text(json.dumps({"sandbox": "bubblewrap", "tools": {"t": {"argv": ["id", "-u"]}}}))
        async with Exec() as ex:
            await ex.add_commands("c", file=file)
            result = await ex.run_tool("c:t")
        assert result.value == "65534"
