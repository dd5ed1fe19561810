"""Go, compiled in the sandbox."""

from __future__ import annotations

import os
import time
from typing import Any

from ..python.values import to_text
from .child import CHILD_FD, Child
from .processes import move_high, output_of, remove, scratch, write_file

_CACHE = "/usr/lib/toolexec/go-cache"
_SETTINGS = {
    "GOFLAGS": "",
    "GOPROXY": "off",
    "GOTOOLCHAIN": "local",
    "GO111MODULE": "on",
    "GOWORK": "off",
    "CGO_ENABLED": "0",
    "GOTELEMETRY": "off",
}


class Go:
    """Compiles and runs Go programs; the host sends them as the text of a file beside the program as it was written.

    Compiled packages of the standard library are in the image, hopefully: without them each program takes long.
    """

    def __init__(self, line: Any, path: str) -> None:
        self._line = line
        self._path = path
        self._cache = ""
        self._directory = ""
        self._child: Any = None

    def prepare(self, warm: bool) -> None:
        """Be ready to compile."""
        if warm:
            self._own_cache()

    def run(self, message: dict[str, Any]) -> Any:
        """Implement `Child.run`; or the failure to compile, in the compiler's own words."""
        payload = dict(message["payload"])
        self._directory = directory = scratch()
        write_file(directory + "/go.mod", "module toolexec_program\n\ngo 1.21\n")
        write_file(directory + "/program.go", payload.pop("program", ""))
        write_file(directory + "/tools.go", payload.pop("tools", ""))
        payload.pop("code", None)
        code, said = self._compile(directory)
        if code != 0:
            return to_text({"error": {"kind": "CompileError", "message": said, "raw": True}})
        program = directory + "/program"
        if os.statvfs(directory).f_flag & os.ST_NOEXEC:
            program = _in_memory(program)
        self._child = Child(self._line, [program, str(CHILD_FD)])
        return self._child.run({**message, "payload": payload})

    def finish(self) -> None:
        """Note that the result has been sent."""
        if self._child is not None:
            self._child.close()
        if self._directory:
            remove(self._directory)
        self._child, self._directory = None, ""

    def _compile(self, directory: str) -> tuple[int, str]:
        env = {**os.environ, **_SETTINGS, "GOCACHE": self._own_cache(), "GOTMPDIR": directory}
        work = os.getcwd()  # noqa: PTH109 - pathlib takes long to import
        os.chdir(directory)
        try:
            return output_of([self._path, "build", "-trimpath", "-o", "program", "."], env)
        finally:
            os.chdir(work)

    def _own_cache(self) -> str:
        """A cache that can be written to, with links to what is in that of the image."""
        if self._cache:
            return self._cache
        theirs = os.environ.get("GOCACHE") or _CACHE
        if os.access(theirs, os.W_OK):
            return theirs
        cache = scratch()
        for directory in os.listdir(theirs) if os.access(theirs, os.R_OK) else ():  # noqa: PTH208
            if len(directory) == 2:
                os.mkdir(cache + "/" + directory)  # noqa: PTH102
                for name in os.listdir(theirs + "/" + directory):  # noqa: PTH208
                    path = "/" + directory + "/" + name
                    os.symlink(theirs + path, cache + path)  # noqa: PTH211
        write_file(cache + "/trim.txt", str(int(time.time())))  # or old entries would be removed
        self._cache = cache
        return cache


def _in_memory(path: str) -> str:
    """Another path of a program, in case the directory that it is in is not for programs."""
    low = os.memfd_create("program")
    memory = move_high(low)
    os.close(low)
    with open(path, "rb") as file:  # noqa: PTH123
        while os.sendfile(memory, file.fileno(), None, 1 << 24):
            pass
    return f"/proc/self/fd/{memory}"
