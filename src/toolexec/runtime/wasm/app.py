# pyright: reportMissingImports=false, reportMissingModuleSource=false, reportUntypedBaseClass=false
"""The program inside of the component: what programs need is imported when the component is built, and frozen with it.

This file runs in the component only, never on the host. Beside it lie copies of `stdlib.py`, `bundle.py` and the guest
program, and in `toolexec_packages` the added packages; see `component.py`.
"""

from __future__ import annotations

import array
import builtins
import codecs
import errno
import gc
import importlib
import io
import json
import linecache
import os
import pkgutil
import random
import sys
import types
import zoneinfo
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import toolexec_stdlib
import wit_world
from toolexec_bundle import Bundle, Deferred, Refusals

_HERE = Path(__file__).parent
_MOST_LISTED = 8192
_READY_CODECS = ("ascii", "cp1252", "latin-1", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "unicode-escape")


def _preload() -> None:
    for name in toolexec_stdlib.READY:
        importlib.import_module(name)
    for name in _READY_CODECS:
        codecs.lookup(name)
    bundle = Bundle.read(_HERE / "toolexec_packages")
    sys.meta_path.insert(0, bundle)
    failed = bundle.preload()
    report = {"python": sys.version.split()[0], "failed": failed}
    (_HERE / "report.json").write_text(json.dumps(report), "utf-8")
    if any("." not in name for name in failed):
        raise ImportError(f"a package cannot be imported: {failed}")  # the builder reads the report


def _defer_the_rest() -> None:
    """Keep the rest of the standard library as code: a run has to reset all memory that the image takes."""
    deferred = Deferred()
    for name in sorted(sys.stdlib_module_names):
        deferred.keep(name, without=toolexec_stdlib.UNAVAILABLE)
    for module in [*sys.modules.values()]:
        if hasattr(module, "__path__"):
            deferred.offer(module)
    sys.meta_path.insert(0, deferred)


def _start_guest() -> None:
    """Load the guest program and have it take its first steps; last, so that what each run uses lies together."""
    guest = importlib.import_module("toolexec_guest")
    for module in pkgutil.walk_packages(guest.__path__, f"{guest.__name__}."):
        importlib.import_module(module.name)  # what functions import when they are called must be there, too
    guest.start(json.dumps({"type": "warm"}), _answer, _answer)  # no run has to do that again
    linecache.clearcache()
    WitWorld.run = guest.start


def settle() -> None:
    """Load the rest, and forget what was only there while the component was built: its directories are gone later."""
    gc.collect()
    _fill_holes()
    _start_guest()
    sys.path.clear()
    sys.path_importer_cache.clear()
    zoneinfo.reset_tzpath(to=())
    sys.meta_path.insert(0, Refusals(toolexec_stdlib.UNAVAILABLE))  # before any search for files
    _enter_directory()
    gc.collect()
    gc.freeze()  # what is here stays; collecting it again would touch, and so copy, all of the shared memory
    _list_objects()
    _fill_holes()


def _enter_directory() -> None:
    """Enter a directory whose path is as long as that of `/workspace`, which is not there yet: the builder writes the
    one over the other, so that a run is there from its start on."""
    path = f"{_HERE}/".ljust(len("/workspace"), "_")
    if len(path) == len("/workspace") and not path.endswith("/"):
        Path(path).mkdir()
        os.chdir(path)
        (_HERE / "directory.txt").write_text(path, "utf-8")


_OF_CODE = ("co_consts", "co_names", "co_filename", "co_name", "co_qualname", "co_linetable", "co_exceptiontable")
"""What code refers to; the collector does not know of that."""


def _list_objects() -> None:
    """Write down where the objects are that stay, each with its type: the builder makes them immortal."""
    seen = bytearray()
    found = array.array("I")
    left: list[Any] = [*sys.modules.values()]
    with _real_open(_HERE / "objects.bin", "wb") as file:
        while left:
            each = left.pop()
            kind = type(each)
            address = id(each)
            at, bit = address >> 6, 1 << (address >> 3 & 7)
            if at >= len(seen):
                seen.extend(bytes(at + 1 - len(seen)))
            if seen[at] & bit or kind is types.FrameType:
                continue
            seen[at] |= bit
            found.extend((address, id(kind)))
            if len(found) > _MOST_LISTED:
                file.write(found.tobytes())
                del found[:]
            left.append(kind)
            left.extend(gc.get_referents(each))
            if kind is types.CodeType:
                left.extend(getattr(each, name) for name in _OF_CODE)
            elif issubclass(kind, dict):
                left.extend(dict.keys(each))
        file.write(found.tobytes())


_ROOM = 2 << 20
_plugs: deque[object] = deque()  # a list would move when it grows


def _fill_holes() -> None:
    """Take the free memory between the objects that are here, and leave some behind them, in one piece.

    A run allocates from free memory first, and that is spread over all pages: they would all have to be copied for it.
    """
    room = bytes(_ROOM)  # as large a hole is not there, so it comes after all of them
    end = id(room)
    for size in (*(1 << bits for bits in range(20, 12, -1)), *range(4096, 16, -16)):
        content = size - 21  # the header of a bytes object, its last zero, and that of the allocator
        while id(plug := bytes(content)) < end:
            _plugs.append(plug)
    while id(smallest := object()) < end:
        _plugs.append(smallest)


_real_open, _real_write = io.open, os.write


class _WrittenFile(io.FileIO):
    """A file whose writes fail with ENOSPC when the disk is full. The C library says EIO, and only then."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise _disk_full(error) from None


def _disk_full(error: OSError) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if error.errno == errno.EIO else error


def _open(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
) -> Any:
    """`open` as it is, but with `_WrittenFile` below whatever is written to."""
    binary = isinstance(mode, str) and "b" in mode
    odd = (encoding or errors or newline) is not None if binary else buffering == 0
    if odd or not isinstance(mode, str) or ("t" in mode and binary) or set("wax+").isdisjoint(mode):
        return _real_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    raw = _WrittenFile(file, mode.replace("b", "").replace("t", ""), closefd, opener)
    if buffering == 0:
        return raw
    size = io.DEFAULT_BUFFER_SIZE if buffering in (-1, 1) else buffering
    made = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw, size)
    if binary:
        return made
    text: Any = io.TextIOWrapper(made, io.text_encoding(encoding), errors, newline, buffering == 1)
    text.mode = mode
    return text


def _write(fd: int, data: Any) -> int:
    try:
        return _real_write(fd, data)
    except OSError as error:
        raise _disk_full(error) from None


_open.__name__ = _open.__qualname__ = "open"
_write.__name__ = _write.__qualname__ = "write"


def _tell_of_full_disks() -> None:
    builtins.open = io.open = sys.modules["_io"].open = _open  # type: ignore[assignment]
    posix: Any = sys.modules["posix"]
    os.write = posix.write = _write


def _answer(frame: str) -> str:
    """A host for the warm-up: there is none while the component is built."""
    answers = [{"type": "response", "id": message["id"], "payload": {"structured": 1}} for message in json.loads(frame)]
    return json.dumps(answers)


class WitWorld(wit_world.WitWorld):
    """What the host can call."""

    run: Callable[..., str]

    def start(self, frame: str) -> str:
        """Run what *frame* says; the guest program sets what belongs to one run, such as the random seed."""
        random.seed = _seed
        return WitWorld.run(frame, wit_world.exchange, wit_world.post)


_preload()
_tell_of_full_disks()
_defer_the_rest()

# componentize-py takes this function now, and calls it first in each guest: ten calls of the host for 2,496 random
# bytes, when the guest program seeds the generator anyway, from what the host has sent.
_seed = random.seed
random.seed = lambda *_arguments: None  # type: ignore[assignment]
