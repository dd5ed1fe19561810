"""The guest for Python as one text: for sandboxes that have a Python and none of our files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["python_guest"]

_HERE: Final = Path(__file__).parent
_PACKAGES: Final = ("python", "bash")
_HEAD: Final = """\
import importlib.machinery, sys
class Finder:  # importlib.abc would take longer to import than all of the guest
    def find_spec(self, name, path=None, target=None):
        if name in SOURCES:
            source, is_package = SOURCES[name]
            return importlib.machinery.ModuleSpec(name, self, origin=file_of(name), is_package=is_package)
    def create_module(self, spec):
        return None
    def get_source(self, name):
        return SOURCES[name][0]
    def is_package(self, name):
        return SOURCES[name][1]
    def exec_module(self, module):
        name = module.__name__
        exec(compile(SOURCES[name][0], file_of(name), "exec", dont_inherit=True), module.__dict__)
def file_of(name):
    return "<" + name.replace(".", "/") + ".py>"
"""
_TAIL: Final = """\
sys.meta_path.insert(0, Finder())
"""


@cache
def python_guest() -> str:
    """The guest as one program of plain text, standard library only, for Python 3.9 and newer.

    It serves the host over file descriptors that are given as the last two arguments of its command, by default stdin
    and stdout: `python -I -c TEXT`, or `python -I -c TEXT 3 3` for one socket as descriptor 3.
    """
    return _bundle("toolexec_guest.python.stream", "serve")


@cache
def bash_guest() -> str:
    """The guest for bash, which needs a Python to talk to the host; see `python_guest`."""
    return _bundle("toolexec_guest.bash.broker", "serve")


def _bundle(module: str, function: str) -> str:
    """A program that calls *function* of *module* with the numbers of its descriptors."""
    return (
        f"{_HEAD}SOURCES = {_sources()!r}\n{_TAIL}"
        f"from {module} import {function}\n"
        f"{function}(*map(int, sys.argv[1:] or (0, 1)))\n"
    )


@cache
def _sources() -> dict[str, tuple[str, bool]]:
    """Name → text, and whether it is a package, of all modules of the guests that are written in Python."""
    found = {"toolexec_guest": ("", True)}
    for package in _PACKAGES:
        for path in sorted((_HERE / package).glob("*.py")):
            inside = path.stem == "__init__"
            name = f"toolexec_guest.{package}" + ("" if inside else f".{path.stem}")
            found[name] = (path.read_text("utf-8"), inside)
    return found
