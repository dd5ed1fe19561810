"""Guests as child processes that are ended politely, so that their coverage is known, too."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.engines.bubblewrap import require_bwrap
from tests.engines.images import test_image

from toolexec import Exec, Tool
from toolexec.code.tools import Tools
from toolexec.code.types import ExecuteRequest, Output
from toolexec.process.stream import PipeStream, SocketStream
from toolexec.runtime.containers.guest import extra_for
from toolexec.runtime.guest.bundle import GuestSettings, boot_bytes, boot_command
from toolexec.runtime.outcome import Ending
from toolexec.runtime.protocol.conversation import Conversation

LONG = 60


class Child:
    """A guest, and the tools it may call."""

    def __init__(self, command: list[str], directory: Path, *, stdio: bool = False) -> None:
        ours, theirs = socket.socketpair()
        given = {"stdin": theirs, "stdout": theirs} if stdio else {"pass_fds": [theirs.fileno()]}
        numbers = [] if stdio else [str(theirs.fileno())] * 2
        self.process = subprocess.Popen([*command, *numbers], cwd=directory, **given)
        theirs.close()
        self.talk = Conversation(SocketStream(ours))
        self.directory = directory
        self.output = Output()
        self.cancelled = 0
        self.ex = Exec(default_timeout=LONG)
        for name in ("echo", "hold"):
            self.ex.add(Tool(name=name, namespace="test", input_schema={"type": "object"}), handler=getattr(self, name))

    async def echo(self, args: dict[str, Any]) -> Any:
        """Give back the arguments, or the value under `give`."""
        return args.get("give", dict(args))

    async def hold(self, args: dict[str, Any]) -> None:
        """Take for ever."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def run(self, code: str, **settings: Any) -> Ending:
        """Run a program and return how it ended."""
        self.output = Output()
        tools = Tools(self.ex.index, self.ex.docs, self.ex.runner, output=self.output)
        request = ExecuteRequest(code=code, gateway=tools, output=self.output, **settings)
        return await asyncio.wait_for(self.talk.run(request), LONG)

    async def value(self, code: str, **settings: Any) -> Any:
        """The value of a program that succeeds."""
        ending = await self.run(code, **settings)
        assert ending.result is not None, ending
        assert "error" not in ending.result, ending.result
        return ending.result["value"]

    async def error(self, code: str, **settings: Any) -> Any:
        """Run a program and return its error."""
        ending = await self.run(code, **settings)
        assert ending.result is not None, ending
        return ending.result["error"]

    async def end(self) -> int:
        """The exit code after a good-bye."""
        await self.talk.aclose()
        return await asyncio.to_thread(self.process.wait, LONG)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Callable[..., Child]]:
    """Starts a guest: a function of a module, or a whole command."""
    children: list[Child] = []

    def start(function: str = "", *, command: list[str] | None = None, **settings: Any) -> Child:
        module, _, name = function.partition(":")
        text = _TRACED + f"import sys; from {module} import {name}; {name}(*map(int, sys.argv[1:] or (0, 1)))"
        child = Child(command or [sys.executable, "-c", text], tmp_path, **settings)
        children.append(child)
        return child

    yield start
    for child in children:
        await child.end()


def has_python(name: str) -> str:
    """The path of an interpreter such as python3.9, or "" if there is none."""
    import shutil

    found = shutil.which(name)
    if found is not None and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
        return found
    roots = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    paths = sorted(roots.glob(f"{name.removeprefix('python')}.*/bin/python"))
    return str(paths[-1]) if paths else ""


@pytest.fixture
def find_python() -> Callable[[str], str]:
    """Finds an interpreter by its version."""
    return has_python


class Boxed:
    """A guest of containers, in a plain child process or in a container of bubblewrap, and the tools it may call."""

    def __init__(self, process: asyncio.subprocess.Process, said: Path) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self.talk = Conversation(PipeStream(process.stdout, process.stdin))
        self.output = Output()
        self.order: list[str] = []
        self.said = said
        self.ex = Exec(default_timeout=LONG)
        for name in ("echo", "hold"):
            self.ex.add(Tool(name=name, namespace="test", input_schema={"type": "object"}), handler=getattr(self, name))

    async def echo(self, args: dict[str, Any]) -> Any:
        """Give back the arguments, or the value under `give`."""
        return args.get("give", dict(args))

    async def hold(self, args: dict[str, Any]) -> None:
        """Take for ever."""
        await asyncio.Event().wait()

    async def run(self, code: str, language: str = "python", **settings: Any) -> Ending:
        """Run a program and return how it ended."""
        self.order = []
        self.output = Output(settings.pop("limit", 1 << 20), tell=lambda stream, text: self.order.append(text))
        tools = Tools(self.ex.index, self.ex.docs, self.ex.runner, output=self.output)
        request = ExecuteRequest(code=code, language=language, gateway=tools, output=self.output, **settings)
        return await asyncio.wait_for(self.talk.run(request, extra_for(language, request)), LONG)

    async def value(self, code: str, language: str = "python", **settings: Any) -> Any:
        """The value of a program that succeeds."""
        ending = await self.run(code, language, **settings)
        assert ending.result is not None, (ending, self.said.read_text())
        assert "error" not in ending.result, ending.result
        return ending.result["value"]

    async def error(self, code: str, language: str = "python", **settings: Any) -> Any:
        """Run a program and return its error."""
        ending = await self.run(code, language, **settings)
        assert ending.result is not None, (ending, self.said.read_text())
        return ending.result["error"]

    async def end(self) -> int:
        """The exit code after a good-bye."""
        await self.talk.aclose()
        return await asyncio.wait_for(self.process.wait(), LONG)

    async def kill(self) -> None:
        """End it the hard way, if it has not ended."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.talk.aclose()
        await self.process.wait()
        self.process._transport.close()


_LOOSE = "import sys; from toolexec.runtime.guest.box.boot import boot; boot(sys.argv[1])"
_TRACED = """
import _thread, os, sys, threading
if "coverage" in sys.modules:  # which knows nothing of threads without `threading`, and of processes that just end
    start, leave, trace = _thread.start_new_thread, os._exit, sys.modules["coverage"].Coverage.current()
    def traced(function, given):
        sys.settrace(threading.gettrace())
        function(*given)
    def saved(code):
        try:
            if trace is not None:
                trace.stop()
                trace.save()
        finally:  # coverage fails where other threads end in the same moment
            leave(code)
    _thread.start_new_thread = lambda function, given: start(traced, (function, given))
    os._exit = saved
"""


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """Starts a guest of containers: `loose` from the files here, as coverage sees nothing else, or as it is `shipped`, or
    so in `bwrap` with the image of the tests."""
    boxes: list[Boxed] = []

    async def start(
        where: str = "loose",
        *,
        python: str = "",
        bwrap: Sequence[str] = (),
        root: Path | None = None,
        prefix: Sequence[str] = (),
        **settings: Any,
    ) -> Boxed:
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        if where != "bwrap":
            settings = {"work": str(work), "init": False, **settings}
        command = [*boot_command(GuestSettings(**settings), python or sys.executable)]
        first = boot_bytes()
        if where == "loose":
            command, first = [sys.executable, "-X", "utf8", "-c", _TRACED + _LOOSE, command[-1]], b""
        elif where == "bwrap":
            command = [*bwrap_command(root, bwrap), *boot_command(GuestSettings(**settings))]
        said = tmp_path / "said"
        with said.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(*prefix, *command, stdin=-1, stdout=-1, stderr=stderr)
        assert process.stdin is not None
        process.stdin.write(first)
        box = Boxed(process, said)
        boxes.append(box)
        await asyncio.wait_for(box.talk.start(), LONG)
        return box

    yield start
    for box in boxes:
        with suppress(TimeoutError):
            await asyncio.wait_for(box.end(), 2)  # which takes away its files
        await box.kill()


def bwrap_command(root: Path | None, more: Sequence[str]) -> list[str]:
    """A container of bubblewrap without a network and a user, which all but its own directories are read-only for."""
    require_bwrap()
    usr, etc = (root or test_image().root) / "usr", (root or test_image().root) / "etc"
    links = [("lib", "/lib"), ("lib64", "/lib64"), ("bin", "/bin"), ("sbin", "/sbin")]
    words = "--unshare-all --as-pid-1 --die-with-parent --new-session --clearenv --cap-drop ALL --uid 65534 --gid 65534"
    words += f" --tmpfs / --ro-bind {usr} /usr --ro-bind {etc} /etc --proc /proc --dev /dev --tmpfs /tmp --tmpfs /work"
    words += " --tmpfs /other --setenv PATH /usr/local/bin:/usr/bin:/bin"
    words += "".join(f" --symlink usr/{name} {path}" for name, path in links)
    return ["bwrap", *words.split(), *more, "--remount-ro", "/", "--chdir", "/work"]
