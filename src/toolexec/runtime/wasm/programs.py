"""The compiled sandboxes of this process: each is loaded once and shared."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolexec.errors import SandboxUnavailableError, ToolExecError
from toolexec.process.steps import BuildStep, OnStep
from toolexec.runtime.wasm.cache import ComponentCache

if TYPE_CHECKING:
    from toolexec.runtime.wasm.instance import Program

__all__ = ["load_program"]

logger: logging.Logger = logging.getLogger(__name__)
_programs: dict[tuple[Path, tuple[str, ...]], Program] = {}
_lock = threading.Lock()
atexit.register(_programs.clear)  # while wasmtime can still free them


def load_program(
    packages: Sequence[str] = (), *, folder: Path | None = None, progress: OnStep | None = None
) -> Program:
    """Return the sandbox with *packages*, from this process, the cache, or built and compiled now, which takes a while.

    *folder* is the cache directory. *progress* receives the steps of a build; without it, its start is logged.
    Raises SandboxUnavailableError that says what is missing.
    """
    cache = ComponentCache(folder)
    key = (cache.directory, tuple(sorted(packages)))
    with _lock:
        known = _programs.get(key)
        if known is not None:
            return known
        try:
            from toolexec.runtime.wasm.engine import engine_fingerprint
            from toolexec.runtime.wasm.instance import Program

            program = cache.load(
                Program.load,
                fingerprint=engine_fingerprint(),
                compile=_compile,
                packages=packages,
                progress=progress or _LogOnce(),
            )
        except ImportError as error:
            raise SandboxUnavailableError(
                f"the embedded sandbox needs wasmtime, which cannot be loaded: {error}; "
                "install it with: pip install wasmtime"
            ) from error
        except ToolExecError as error:
            raise SandboxUnavailableError(f"the embedded sandbox is not ready: {error}") from error
        _programs[key] = program
        return program


def _compile(wasm: bytes) -> bytes:
    from wasmtime.component import Component

    from toolexec.runtime.wasm.engine import new_engine

    return bytes(Component(new_engine(), wasm).serialize())


class _LogOnce:
    """Says that a build began, for callers that show no progress."""

    def __init__(self) -> None:
        self._said = False

    def __call__(self, step: BuildStep) -> None:
        if not self._said:
            self._said = True
            logger.warning("preparing the embedded sandbox for its first use; this takes up to a minute, once")
