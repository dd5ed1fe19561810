"""The guests that are written in Python as one text or one message: for sandboxes that have none of our files."""

from __future__ import annotations

import ast
import importlib.util
import json
import marshal
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from toolexec.runtime.contract import OPEN_FILES
from toolexec.runtime.guest.sources import source_of

_HERE: Final = Path(__file__).parent
_BOXED: Final = ("python", "bash", "box")
_OF_PYTHON: Final = frozenset({"toolexec_guest.python.held"})
"""What a guest for bash has no use for, and does without: all of it is one argument of a command."""
_EMBEDDED: Final = ("threadless.py",)
"""What only guests of the embedded sandbox load, which have the sources themselves."""
_ANNOTATIONS: Final = re.compile(r"^from (?:typing|collections\.abc) import .*$", re.MULTILINE)
_NOTES: Final = re.compile(r"(?:^[ \t]*|  )# .*$", re.MULTILINE)
_COMMENTS: Final = re.compile(r"^[ \t]*//.*$", re.MULTILINE)
_TEXTS: Final = ("javascript/guest.cjs", "javascript/large.cjs", "javascript/values.cjs")
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

_STAGER: Final = """\
import os, sys
def read(size):
    data = b""
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            os._exit(1)
        data += part
    return data
exec(read(int.from_bytes(read(4), "big")), {"read": read, "settings": sys.argv[1]})
"""
"""Reads a program from stdin and not a byte more, as frames follow it there, and runs it."""

_LOADER: Final = """\
import marshal, sys
import _frozen_importlib_external
magic, modules, strings = marshal.loads(read(int.from_bytes(read(4), "big")))
Spec = type(sys.__spec__)  # to import importlib.machinery takes longer
class Finder:
    strings = strings
    same = magic == _frozen_importlib_external.MAGIC_NUMBER
    def find_spec(self, name, path=None, target=None):
        if name in modules:
            return Spec(name, self, origin=file_of(name), is_package=modules[name][0])
    def create_module(self, spec):
        return None
    def get_source(self, name):
        return modules[name][1]
    def is_package(self, name):
        return modules[name][0]
    def exec_module(self, module):
        name = module.__name__
        _, source, code = modules[name]
        code = marshal.loads(code) if self.same else compile(source, file_of(name), "exec", dont_inherit=True)
        exec(code, module.__dict__)
def file_of(name):
    return "<" + name.replace(".", "/") + ".py>"
sys.meta_path.insert(0, Finder())
sys.argv[1:] = []
"""

_BOOT: Final = """\
from toolexec_guest.box.boot import boot
boot(settings)
"""

_WAIT: Final = """\
from toolexec_guest.machine.zygote import wait_to_begin
wait_to_begin(strings["stager"], settings)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSettings:
    """How a guest in a container begins. Everybody in the container can read it, so there is no secret in it.

    `language` is what it will run first, and is ready for. `work` is its working directory, which must be there. With
    `init` it takes care of orphaned processes, as the first process of a container has to. `drop` names what it must
    give up by itself, as nothing did that before: `no_new_privileges`, `landlock` (it can write only to `work`, to /tmp
    and to a few devices, and has no TCP), `seccomp`. `open_files` is the bound of each process, `processes` one on all
    processes and threads of its user, where no control group counts them (0: none). A `warm` guest takes its time to be
    ready before it says hello, and is quicker then. `proxy_port` is where programs find a proxy to the network; 0 for
    none.
    """

    language: str = "python"
    work: str = "/work"
    init: bool = True
    drop: tuple[str, ...] = ()
    open_files: int = OPEN_FILES
    processes: int = 0
    warm: bool = False
    proxy_port: int = 0


def boot_command(settings: GuestSettings, python: str = "python3") -> tuple[str, ...]:
    """Return the command of a container for a guest, which then reads `boot_bytes` from its stdin."""
    return (python, "-I", "-X", "utf8", "-c", _STAGER, json.dumps(asdict(settings)))


def settings_of(command: Sequence[str]) -> GuestSettings | None:
    """Return the settings in a `boot_command`; None for any other command."""
    if len(command) != 7 or tuple(command[1:6]) != boot_command(GuestSettings())[1:6]:
        return None
    found: dict[str, Any] = json.loads(command[6])
    found["drop"] = tuple(found["drop"])
    return GuestSettings(**found)


@cache
def boot_bytes() -> bytes:
    """Return what the host writes to the stdin of a guest first; frames of the guest protocol follow.

    The same for all settings, and for any Python from 3.9 on: it has the text of each module and its compiled code,
    which a guest with another version of Python leaves alone.
    """
    return _program(_BOXED, _BOOT, {})


@cache
def zygote_bytes() -> bytes:
    """Return what the host has a virtual machine load before its snapshot: a guest that then waits for a restore.

    It becomes the guest of a `boot_command`, without reading `boot_bytes`, or executes any other command.
    """
    return _program((*_BOXED, "machine"), _WAIT, {"stager": _STAGER})


def _program(packages: tuple[str, ...], end: str, more: dict[str, str]) -> bytes:
    """What the stager reads: a loader, and the modules that it finds."""
    modules: dict[str, tuple[bool, str, bytes]] = {}
    for name, (text, inside) in _sources(packages).items():
        modules[name] = inside, text, _compiled(name, text)
    # Comments are left out, and their lines stay: the numbers of the others count.
    strings = {name: _COMMENTS.sub("", (_HERE / name).read_text("utf-8")) for name in _TEXTS} | more
    # version 2 of the format is what every Python reads
    return _sized((_LOADER + end).encode()) + _sized(marshal.dumps((importlib.util.MAGIC_NUMBER, modules, strings), 2))


@cache
def python_guest() -> str:
    """Return the guest as one program of plain text, standard library only, for Python 3.9 and newer.

    It serves the host over file descriptors that are given as the last two arguments of its command, by default stdin
    and stdout: `python -I -c TEXT`, or `python -I -c TEXT 3 3` for one socket as descriptor 3.
    """
    return _bundle("toolexec_guest.python.stream", _sources(("python",)))


@cache
def bash_guest() -> str:
    """Return the guest for bash, which needs a Python to talk to the host; see `python_guest`."""
    sources = {name: source for name, source in _sources(("python", "bash")).items() if name not in _OF_PYTHON}
    return _bundle("toolexec_guest.bash.broker", sources)


def _bundle(module: str, sources: Mapping[str, tuple[str, bool]]) -> str:
    """A program of these *sources* that serves by *module* with the numbers of its descriptors."""
    return (
        f"{_HEAD}SOURCES = {sources!r}\n{_TAIL}from {module} import serve\nserve(*map(int, sys.argv[1:] or (0, 1)))\n"
    )


@cache
def _sources(packages: tuple[str, ...]) -> dict[str, tuple[str, bool]]:
    """Name → text, and whether it is a package, of all modules of the guests that are written in Python.

    Annotations are never evaluated there, and `typing` takes longer to import than all the rest: its imports are gone,
    and so are docstrings and comments, which nothing there reads. What is left stays on its lines.
    """
    found: dict[str, tuple[str, bool]] = {"toolexec_guest": ("", True)}
    for package in packages:
        for name, path in _files(package):
            text = without_comments(_ANNOTATIONS.sub("", source_of(path).read_text("utf-8")))
            found[name] = _without_docstrings(text), path.stem == "__init__"
    return found


def without_comments(text: str) -> str:
    """Return the text of a module of the guests without its comments; all else keeps its line.

    It takes for a comment what looks like one. That no string of theirs does is tested, as to read the tokens would
    take 100 ms.
    """
    return _NOTES.sub("", text)


def _files(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((_HERE / package).glob("*.py")):
        if path.name in _EMBEDDED:
            continue
        yield f"toolexec_guest.{package}" + ("" if path.stem == "__init__" else f".{path.stem}"), path


def _without_docstrings(text: str) -> str:
    """Empty the lines of docstrings, so that all others keep their numbers: the compiled code has none either."""
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for statement in node.body if len(node.body) > 1 else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str())):  # also one that describes a constant
                    first, last = statement.lineno - 1, statement.end_lineno or 0
                    lines[first:last] = [""] * (last - first)
                case _:
                    pass
    return "\n".join(lines)


def _compiled(name: str, text: str) -> bytes:
    file = f"<{name.replace('.', '/')}.py>"
    return marshal.dumps(compile(text, file, "exec", dont_inherit=True, optimize=2))  # no docstrings: 25 KB less


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
