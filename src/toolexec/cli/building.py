"""What a person sees while a sandbox is built: a bar for each step."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from toolexec.cli.terminal import Screen
from toolexec.model.visible import visible_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from toolexec.exec import Exec
    from toolexec.process.steps import BuildStep, OnStep
    from toolexec.runtime.base import SandboxBackend
    from toolexec.runtime.router import Runtime

T = TypeVar("T")
_LAST: Final = "compile"
_PATIENCE: Final = 3.0


class BuildStoppedError(Exception):
    """No caller waits for the sandbox any more; raised into its build, which ends it."""


class BuildView:
    """Shows how a build goes on: called with each step, in whatever thread that is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = False

    def __call__(self, step: BuildStep) -> None:
        """Show a step. Raises BuildStoppedError after `close`."""
        with self._lock:
            if self._over:
                raise BuildStoppedError
            self._show(step)

    def close(self) -> None:
        """Show no more; a build that goes on all the same is stopped at its next step."""
        with self._lock:
            self._over = True
            self._hide()

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what *work* gives. Cancelling stops the build that it waits for, and waits until that has cleaned
        up.
        """
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        finally:
            if not task.done():
                self.close()
                await asyncio.wait([task], timeout=_PATIENCE)
                task.cancel()
                await asyncio.wait([task])
                _ = task.cancelled() or task.exception()  # no other code retrieves it

    def _show(self, step: BuildStep) -> None:
        raise NotImplementedError

    def _hide(self) -> None:
        raise NotImplementedError


class _Bars(BuildView):
    """A bar on stderr for each step."""

    def __init__(self, console: Console, *, keep: bool) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        super().__init__()
        columns: tuple[object, ...] = (
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=not keep)
        self._tasks: dict[str, TaskID] = {}
        self._shown = False

    def _show(self, step: BuildStep) -> None:
        if not self._shown:
            self._shown = True
            self._progress.start()
        task = self._tasks.get(step.name)
        if task is None:
            task = self._tasks[step.name] = self._progress.add_task(visible_line(step.message), total=None)
        total = None if step.fraction is None else 1.0
        self._progress.update(task, completed=step.fraction or 0.0, total=total)
        if step.name == _LAST and step.fraction == 1.0:
            self._hide()  # what the code prints must not meet a bar

    def _hide(self) -> None:
        if self._shown:
            self._shown = False
            self._progress.stop()


class _Lines(BuildView):
    """A line on stderr for each step, where there is no terminal for bars, and none with JSON."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen
        self._told: set[str] = set()

    def _show(self, step: BuildStep) -> None:
        if step.name not in self._told:
            self._told.add(step.name)
            if not self._screen.as_json:
                self._screen.note(step.message)

    def _hide(self) -> None:
        """Lines stay."""


@contextmanager
def watch_build(screen: Screen, *, keep: bool = False) -> Generator[BuildView, None, None]:
    """Yield what shows on stderr how a build goes on, if there is one; with *keep* the bars stay.

    After the block it stops a build that still runs.
    """
    console = screen.err if screen.err.is_terminal and not screen.as_json else None
    shown = _Bars(console, keep=keep) if console is not None else _Lines(screen)
    try:
        yield shown
    finally:
        shown.close()


def announce_builds(runtime: Runtime, on_step: OnStep, packages: tuple[str, ...] = ()) -> None:
    """Have the embedded sandbox of *runtime* report the steps of a build, and have *packages* if there are any.

    To be done before anything has run in it.
    """
    from dataclasses import replace

    from toolexec.runtime.wasm.backend import WasmBackend

    for backend in runtime.backends:
        if isinstance(backend, WasmBackend):
            config = replace(backend.config, on_build_step=on_step)
            backend.config = replace(config, packages=packages) if packages else config


async def prepare_sandbox(
    ex: Exec, view: BuildView, *, language: str, profile: str, packages: tuple[str, ...] = ()
) -> None:
    """Have the embedded sandbox of *ex* ready, with *packages* if there are any, if it is the one to run *language*.

    A build, which *view* shows, is over when this returns: it is not on the time limit of the code. Raises
    SandboxUnavailableError when it cannot be built, and InvalidRequestError for an unknown profile.
    """
    from toolexec.runtime.wasm.backend import WasmBackend

    announce_builds(ex.runtime, view, packages)
    language = language_of(ex, language)
    backend = await serving_sandbox(ex, language=language, profile=profile)
    if isinstance(backend, WasmBackend) and language == "python":
        await view.during(backend.start())


async def serving_sandbox(ex: Exec, *, language: str, profile: str) -> SandboxBackend | None:
    """Return the sandbox that would run code in *language* under *profile* ("" for the default of each) now: the first
    that is configured for it and available, or at fault, as the run is refused then; None if there is none.

    Raises InvalidRequestError for an unknown profile.
    """
    from toolexec.runtime.base import judged_kind
    from toolexec.runtime.router import effective_profile

    language = language_of(ex, language)
    name, only = effective_profile(profile, ex.options.security_profile)
    for backend in ex.runtime.candidates(name):
        if only in ("", judged_kind(backend)) and language in backend.languages:
            state = await backend.check()
            if state.is_fault or (state.ok and not await ex.runtime.lapsed(backend, name)):
                return backend
    return None


def language_of(ex: Exec, language: str) -> str:
    """Return the name of a language as the sandboxes have it; "" is the default one of *ex*."""
    from toolexec.model.languages import ALIASES

    language = language or ex.options.default_language
    return ALIASES.get(language, language)
