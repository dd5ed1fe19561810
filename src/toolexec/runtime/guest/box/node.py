"""JavaScript, in Node.js."""

from __future__ import annotations

import os
import sys
from typing import Any

from .child import CHILD_FD, Child
from .processes import remove, scratch, write_file

_TEXTS = ("guest.cjs", "large.cjs", "values.cjs")


class Node:
    """Runs JavaScript programs, each in a process of its own, which is started before there is a program."""

    def __init__(self, line: Any, path: str) -> None:
        self._line = line
        self._path = path
        self._directory = ""
        self._child: Any = None

    def prepare(self, warm: bool) -> None:
        """Start a process, and if it should be *warm*, wait until it is ready."""
        child = self._start("warm" if warm else "")
        if warm:
            child.greet()

    def run(self, message: dict[str, Any]) -> Any:
        """Implement `Child.run`."""
        child = self._child or self._start("")
        return child.run(message)

    def finish(self) -> None:
        """Note that the result has been sent."""
        if self._child is not None:
            self._child.close()
        if self._directory:
            remove(self._directory)
        self._child, self._directory = None, ""

    def _start(self, how: str) -> Any:
        self._directory = scratch()
        for name in _TEXTS:
            write_file(self._directory + "/" + name, text_of("javascript/" + name))
        command = [self._path, "--expose-internals", self._directory + "/guest.cjs", str(CHILD_FD), how]
        self._child = Child(self._line, command)
        return self._child


def text_of(name: str) -> str:
    """Return a file of the guests that is not Python; see `boot_bytes`."""
    for finder in sys.meta_path:
        if hasattr(finder, "strings"):
            return finder.strings[name]  # type: ignore[attr-defined]
    with open(os.path.dirname(__file__) + "/../" + name) as file:  # noqa: PTH120, PTH123 - it was not shipped
        return file.read()
