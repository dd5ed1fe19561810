# pyright: reportMissingImports=false, reportMissingModuleSource=false, reportUntypedBaseClass=false
"""The program inside of the component: everything is imported once, when the component is built, and frozen with it.

This file runs in the component only, never on the host. Beside it lie copies of `stdlib.py`, `bundle.py` and the guest
program, and in `toolexec_packages` the added packages; see `component.py`.
"""

from __future__ import annotations

import builtins
import codecs
import encodings
import errno
import gc
import importlib
import io
import json
import os
import pkgutil
import sys
import zoneinfo
from pathlib import Path
from types import ModuleType
from typing import Any

import toolexec_guest
import toolexec_stdlib
import wit_world
from toolexec_bundle import Bundle, Refusals

_HERE = Path(__file__).parent


def _preload() -> None:
    for name in (*toolexec_stdlib.INTERNAL, *toolexec_stdlib.STDLIB):
        importlib.import_module(name)
    for package in (toolexec_guest, *(sys.modules[name] for name in toolexec_stdlib.STDLIB)):
        _import_all_of(package)  # what functions import when they are called must be there, too
    for module in pkgutil.iter_modules(encodings.__path__):
        try:
            codecs.lookup(module.name)  # loads the codec's module, which could not be found later
        except LookupError:
            continue  # of another system, or of a library that is not there
    bundle = Bundle.read(_HERE / "toolexec_packages")
    sys.meta_path.insert(0, bundle)
    failed = bundle.preload()
    report = {"python": sys.version.split()[0], "failed": failed}
    (_HERE / "report.json").write_text(json.dumps(report), "utf-8")
    if any("." not in name for name in failed):
        raise ImportError(f"a package cannot be imported: {failed}")  # the builder reads the report


def _import_all_of(package: ModuleType) -> None:
    if package.__name__ in {"encodings", "multiprocessing"}:
        return  # encodings come by their names, and processes not at all
    for module in pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}."):
        if not module.name.endswith(".__main__") and module.name not in toolexec_stdlib.UNAVAILABLE:
            _import_all_of(importlib.import_module(module.name))


def _settle() -> None:
    """Forget what was only there while the component was built: its directories do not exist later."""
    sys.path.clear()
    sys.path_importer_cache.clear()
    zoneinfo.reset_tzpath(to=())
    sys.meta_path.insert(0, Refusals(toolexec_stdlib.UNAVAILABLE))  # before any search for files
    gc.collect()
    gc.freeze()  # what is here stays; collecting it again would touch, and so copy, all of the shared memory


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

    def start(self, frame: str) -> str:
        """Run what *frame* says; the guest program sets what belongs to one run, such as the random seed."""
        return toolexec_guest.start(frame, wit_world.exchange, wit_world.post)


_preload()
_tell_of_full_disks()
toolexec_guest.start(json.dumps({"type": "warm"}), _answer, _answer)  # no run has to do that again
_settle()
