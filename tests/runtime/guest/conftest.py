"""Guests as child processes that are ended politely, so that their coverage is known, too."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Tool
from toolexec.code.output import Output
from toolexec.code.tools import Tools
from toolexec.runtime.base import ExecuteRequest
from toolexec.runtime.conversation import Conversation
from toolexec.runtime.outcome import Ending
from toolexec.runtime.stream import SocketStream

LONG = 60


class Child:
    """A guest, and the tools it may call."""

    def __init__(self, command: list[str], folder: Path, *, stdio: bool = False) -> None:
        ours, theirs = socket.socketpair()
        given = {"stdin": theirs, "stdout": theirs} if stdio else {"pass_fds": [theirs.fileno()]}
        numbers = [] if stdio else [str(theirs.fileno())] * 2
        self.process = subprocess.Popen([*command, *numbers], cwd=folder, **given)
        theirs.close()
        self.talk = Conversation(SocketStream(ours))
        self.folder = folder
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
        """How a program ended."""
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
        """What a program says of its failure."""
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
        text = f"import sys; from {module} import {name}; {name}(*map(int, sys.argv[1:] or (0, 1)))"
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
