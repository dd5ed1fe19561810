"""What is shown while a sandbox is built, and how a build is stopped."""

from __future__ import annotations

import asyncio
import time
from io import StringIO

import pytest

from toolexec import Exec
from toolexec.cli.building import BuildStoppedError, announce_builds, prepare_sandbox, watch_build
from toolexec.cli.terminal import Screen
from toolexec.errors import InvalidRequestError
from toolexec.process.steps import BuildStep, run_work
from toolexec.runtime.wasm.backend import WasmBackend

STEPS = [
    BuildStep(name="wait", fraction=None, message="waiting"),
    BuildStep(name="build", fraction=0.5, message="building"),
    BuildStep(name="build", fraction=1.0, message="building"),
    BuildStep(name="compile", fraction=1.0, message="compiling"),
]


def test_a_terminal_gets_bars(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One for each step, on stderr; they stay if they are to."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = StringIO()
    with watch_build(Screen(out), keep=True) as view:
        for step in STEPS:
            view(step)
    shown = capsys.readouterr().err
    assert all(step.message in shown for step in STEPS)
    assert "100%" in shown
    assert out.getvalue() == ""


def test_without_a_terminal_there_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """One for each step; none with JSON."""
    with watch_build(Screen(StringIO())) as view:
        for step in STEPS:
            view(step)
    assert capsys.readouterr().err == "waiting\nbuilding\ncompiling\n"
    with watch_build(Screen(StringIO(), as_json=True)) as view:
        view(STEPS[0])
    assert capsys.readouterr().err == ""


def test_nothing_is_shown_when_nothing_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No empty bar flickers by."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    with watch_build(Screen(StringIO())):
        pass
    assert capsys.readouterr().err == ""


def test_a_build_ends_with_its_view() -> None:
    """Its caller does not wait for it any more."""
    with watch_build(Screen(StringIO())) as view:
        pass
    with pytest.raises(BuildStoppedError):
        view(STEPS[0])


async def test_cancelling_stops_the_build() -> None:
    """Cancelling waits until the build has seen it."""
    seen: list[type[BaseException]] = []
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(started.set)
        time.sleep(1)

    def build() -> None:
        try:
            run_work(work, name="build", message="building", usual_seconds=1, progress=view)
        except BuildStoppedError as error:
            seen.append(type(error))
            raise

    with watch_build(Screen(StringIO(), as_json=True)) as view:
        task = asyncio.create_task(view.during(asyncio.to_thread(build)))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert seen == [BuildStoppedError]


async def test_what_is_awaited_comes_back() -> None:
    """Its value, or what it raises."""

    async def fail() -> None:
        raise ValueError("no")

    with watch_build(Screen(StringIO())) as view:
        assert await view.during(asyncio.sleep(0, "value")) == "value"
        with pytest.raises(ValueError, match="no"):
            await view.during(fail())


@pytest.mark.usefixtures("sandbox")
async def test_the_sandbox_is_prepared() -> None:
    """If it is the one to run the language; it is loaded then, and a run need not wait for it."""
    backend = WasmBackend()
    async with Exec(runtime_backends=[backend]) as ex:
        with watch_build(Screen(StringIO())) as view:
            await prepare_sandbox(ex, view, language="bash", profile="")
            await prepare_sandbox(ex, view, language="js", profile="")
            assert "python" not in backend._loaded or backend._python().pool is None
            await prepare_sandbox(ex, view, language="py", profile="wasm")
            assert backend._python().pool is not None
            assert backend.config.on_build_step is view
            with pytest.raises(InvalidRequestError, match="unknown security profile"):
                await prepare_sandbox(ex, view, language="", profile="secret")


def test_packages_are_asked_for() -> None:
    """Those of the command take the place of the backend's."""
    backend = WasmBackend(packages=("rich",))
    ex = Exec(runtime_backends=[backend])
    announce_builds(ex.runtime, lambda _: None)
    assert backend.config.packages == ("rich",)
    announce_builds(ex.runtime, lambda _: None, ("humanize",))
    assert backend.config.packages == ("humanize",)
