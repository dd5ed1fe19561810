"""The compiled sandboxes of this process: each is loaded once and shared."""

from __future__ import annotations

import atexit
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolexec.errors import SandboxUnavailableError, ToolExecError
from toolexec.process.steps import LogOnce, OnStep
from toolexec.runtime.wasm.cache import ComponentCache

if TYPE_CHECKING:
    from toolexec.runtime.wasm.instance import Program

logger: logging.Logger = logging.getLogger(__name__)
_SLOW: Final = "preparing the embedded sandbox for its first use; this takes up to a minute, once"
_programs: dict[tuple[Path, tuple[str, ...]], Program] = {}
_lock = threading.Lock()
atexit.register(_programs.clear)  # while wasmtime can still free them


def load_program(
    packages: Sequence[str] = (), *, folder: Path | None = None, progress: OnStep | None = None, quick: bool = False
) -> Program:
    """Return the sandbox with *packages*, from this process, the cache, or built and compiled now, which takes a while.

    *folder* is the cache directory. *progress* receives the steps of a build; without it, its start is logged. With
    *quick*, what must be compiled is so without optimising, and a process in the background does it again, for the
    next process to load. Raises SandboxUnavailableError that says what is missing.
    """
    cache = ComponentCache(folder)
    key = (cache.directory, tuple(sorted(packages)))
    with _lock:
        known = _programs.get(key)
        if known is not None:
            return known
        try:
            from toolexec.runtime.wasm.engine import compile_component, engine_fingerprint
            from toolexec.runtime.wasm.instance import Program

            program = cache.load(
                Program.load,
                fingerprint=engine_fingerprint(),
                compile=compile_component,
                quick=partial(compile_component, quick=True) if quick else None,
                packages=packages,
                progress=progress or LogOnce(logger, _SLOW),
            )
            if quick and cache.lacks(fingerprint=engine_fingerprint(), packages=packages):
                _optimise_in_background(cache.directory, packages)
        except ImportError as error:
            raise SandboxUnavailableError(
                f"the embedded sandbox needs wasmtime, which cannot be loaded: {error}; "
                "install it with: pip install wasmtime"
            ) from error
        except ToolExecError as error:
            raise SandboxUnavailableError(f"the embedded sandbox is not ready: {error}") from error
        _programs[key] = program
        return program


def optimise(directory: Path, packages: Sequence[str]) -> None:
    """Compile the sandbox with *packages* in the cache *directory* with all optimisations, unless that is done."""
    from toolexec.runtime.wasm.engine import compile_component, engine_fingerprint

    ComponentCache(directory).optimise(fingerprint=engine_fingerprint(), compile=compile_component, packages=packages)


_OPTIMISE: Final = """
import json, os, signal, sys
if os.fork():
    os._exit(0)
os.setsid()
os.nice(19)
signal.alarm(600)
sys.path[:], directory, packages = json.loads(sys.argv[1])
from pathlib import Path
from toolexec.runtime.wasm.programs import optimise
optimise(Path(directory), packages)
"""


def _optimise_in_background(directory: Path, packages: Sequence[str]) -> None:
    """Have a process of its own do it, which goes on when this one ends: a first use may be a short one.

    It is not done where this process is not Python itself but a program with Python in it.
    """
    if not Path(sys.executable or "").name.startswith(("python", "pypy")):
        return
    job = json.dumps([sys.path, str(directory), list(packages)])
    command = [sys.executable, "-S", "-c", _OPTIMISE, job]
    nothing = subprocess.DEVNULL
    try:
        subprocess.run(command, check=False, stdin=nothing, stdout=nothing, stderr=nothing, timeout=10)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        logger.info("the sandbox stays without optimisation: %s", error)
