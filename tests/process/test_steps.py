"""Long work is watched from the thread that asked for it."""

from __future__ import annotations

import logging
import os
import sys
import threading
from pathlib import Path

import pytest

from toolexec.errors import ConfigurationError
from toolexec.process.steps import BuildStep, LogOnce, run_command, run_work


def _command(directory: Path, code: str, **changes: object) -> tuple[int, str]:
    options: dict[str, object] = {
        "directory": directory,
        "environment": {**os.environ},
        "name": "build",
        "message": "m",
        "usual_seconds": 1.0,
        "cap_seconds": 60.0,
        "progress": None,
    }
    return run_command([sys.executable, "-c", code], **{**options, **changes})  # type: ignore[arg-type]


def test_work_without_watcher() -> None:
    """Without a watcher the work is done in this very thread."""
    assert (
        run_work(threading.current_thread, name="compile", message="", usual_seconds=1, progress=None)
        is threading.current_thread()
    )


def test_work_is_watched() -> None:
    """The watcher is notified in its own thread of the estimated progress, and of the end."""
    steps: list[BuildStep] = []
    threads: set[threading.Thread] = set()
    enough = threading.Event()

    def _watch(step: BuildStep) -> None:
        steps.append(step)
        threads.add(threading.current_thread())
        if len(steps) == 3:
            enough.set()

    value = run_work(lambda: enough.wait(60), name="compile", message="slowly", usual_seconds=0.001, progress=_watch)
    assert value is True
    assert threads == {threading.current_thread()}
    fractions = [step.fraction for step in steps]
    assert fractions == sorted(fractions, key=lambda fraction: fraction or 0)
    assert fractions[-1] == 1.0
    assert all(0 <= (fraction or 0) < 1 for fraction in fractions[:-1])
    assert {(step.name, step.message) for step in steps} == {("compile", "slowly")}


@pytest.mark.parametrize("watched", [True, False])
def test_failing_work(watched: bool) -> None:
    """An exception of the work comes out, watched or not."""

    def _fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run_work(_fail, name="compile", message="", usual_seconds=1, progress=(lambda _: None) if watched else None)


def test_command_output(tmp_path: Path) -> None:
    """A program's exit code and both its streams come back, and its directory is where it should be."""
    code = "import os, sys; print(os.getcwd()); print('bad', file=sys.stderr); sys.exit(3)"
    exit_code, output = _command(tmp_path, code)
    assert exit_code == 3
    assert set(output.splitlines()) == {str(tmp_path), "bad"}


def test_command_output_is_cut(tmp_path: Path) -> None:
    """Of a flood of output the end is kept."""
    exit_code, output = _command(tmp_path, "print('x' * 1_000_000 + 'end')")
    assert (exit_code, len(output) <= 4000, output[-4:]) == (0, True, "xend")


@pytest.mark.full
def test_command_that_hangs(tmp_path: Path) -> None:
    """A program that takes too long is killed."""
    assert _command(tmp_path, "import time; time.sleep(600)", cap_seconds=0.5)[0] == -9


def test_watcher_ends_the_command(tmp_path: Path) -> None:
    """When the watcher raises, the program is killed and the error comes out."""

    def _stop(step: BuildStep) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _command(tmp_path, "import time; time.sleep(600)", progress=_stop)


def test_command_that_is_not_there(tmp_path: Path) -> None:
    """A program that cannot be started is a configuration error."""
    with pytest.raises(ConfigurationError, match="cannot start"):
        run_command(
            [str(tmp_path / "none")],
            directory=tmp_path,
            environment={},
            name="build",
            message="",
            usual_seconds=1,
            cap_seconds=1,
            progress=None,
        )


@pytest.mark.parametrize(("after", "said"), [(0.0, ["this takes a while"]), (3600.0, [])])
def test_a_build_is_announced_once(caplog: pytest.LogCaptureFixture, after: float, said: list[str]) -> None:
    """Without a progress display, one line says why nothing happens for a while, where it is a while."""
    log = LogOnce(logging.getLogger("toolexec.test"), "this takes a while", after=after)
    with caplog.at_level(logging.WARNING):
        for text in ("one", "two"):
            log(BuildStep(name="build", fraction=0.5, message=text))
    assert [record.getMessage() for record in caplog.records] == said
