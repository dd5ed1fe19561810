"""What is under way while the sandbox is built, and how far it is."""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

from toolexec.errors import ConfigurationError

KILLED: Final = -9
"""The exit code of a program that took too long."""

Step = Literal["wait", "packages", "build", "compile"]
_T = TypeVar("_T")
_TICK_SECONDS: Final = 0.2
_MAX_OUTPUT: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildStep:
    """How far one step is.

    `name` is `"wait"` (another process builds the same), `"packages"`, `"build"` or `"compile"`; `fraction` of 0 to 1
    is an estimate by the time that it usually takes, 1.0 once it is done, and None where it is not known.
    """

    name: Step
    fraction: float | None
    message: str


OnStep = Callable[[BuildStep], None]
"""Gets every step several times a second, in the thread that asked for the work."""


class LogOnce:
    """Logs *message* as a warning when a build has begun *after* seconds ago, for callers that show no progress."""

    def __init__(self, logger: logging.Logger, message: str, after: float = 0.0) -> None:
        self._logger = logger
        self._message = message
        self._due: float | None = time.monotonic() + after

    def __call__(self, _step: BuildStep) -> None:
        """Take a step."""
        if self._due is not None and time.monotonic() >= self._due:
            self._due = None
            self._logger.warning(self._message)


def run_work(work: Callable[[], _T], *, name: Step, message: str, usual_seconds: float, progress: OnStep | None) -> _T:
    """Return the value of *work*, which reports nothing itself; *progress* gets how long it took of *usual_seconds*.

    With *progress* the work runs in a thread of its own. Raises what *work* and *progress* raise.
    """
    if progress is None:
        return work()
    values: list[_T] = []
    errors: list[BaseException] = []

    def _run() -> None:
        try:
            values.append(work())
        except BaseException as error:  # it is raised below, in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=_run, name=f"toolexec-{name}", daemon=True)
    thread.start()
    _tick(thread.is_alive, thread.join, name, message, usual_seconds, progress)
    if errors:
        raise errors[0]
    return values[0]


def run_command(
    command: Sequence[str],
    *,
    directory: Path,
    environment: Mapping[str, str],
    name: Step,
    message: str,
    usual_seconds: float,
    cap_seconds: float,
    progress: OnStep | None,
) -> tuple[int, str]:
    """Run a program in *directory*; gives its exit code and the end of its output, both streams in one.

    It is killed after *cap_seconds* (exit code KILLED), and when *progress* raises. Raises ConfigurationError when it
    cannot be started.
    """
    log = directory / f"{name}.log"
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter with our own arguments
                command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        except OSError as error:
            raise ConfigurationError(f"cannot start {command[0]}: {error}") from error
    deadline = time.monotonic() + cap_seconds

    def _runs() -> bool:
        return process.poll() is None and time.monotonic() < deadline

    def _wait(seconds: float) -> None:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    try:
        _tick(_runs, _wait, name, message, usual_seconds, progress)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return process.returncode, log.read_text("utf-8", "replace")[-_MAX_OUTPUT:].strip()


def _tick(
    runs: Callable[[], bool],
    wait: Callable[[float], None],
    name: Step,
    message: str,
    usual_seconds: float,
    progress: OnStep | None,
) -> None:
    """Report until nothing runs; the estimate nears 1 and never gets there, however long it takes."""
    start = time.monotonic()
    while runs():
        if progress is not None:
            share = (time.monotonic() - start) / usual_seconds
            progress(BuildStep(name=name, fraction=share if share < 0.8 else 1 - 0.04 / (share - 0.6), message=message))
        wait(_TICK_SECONDS)
    if progress is not None:
        progress(BuildStep(name=name, fraction=1.0, message=message))
