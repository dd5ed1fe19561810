"""What is seen while a call runs."""

from __future__ import annotations

import io
import re

import pytest
from tests.waiting import until

from toolexec.cli.progress import watch
from toolexec.cli.terminal import Screen
from toolexec.model import Progress


class Terminal(io.StringIO):
    """A text file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


async def test_nobody_watches_a_pipe() -> None:
    """Nor JSON: there is no callback, so that tools need not report."""
    with watch(Screen(io.StringIO()), "x") as report:
        assert report is None
    with watch(Screen(Terminal(), as_json=True), "x") as report:
        assert report is None


async def test_short_work_shows_nothing() -> None:
    """No flicker for what is done at once."""
    out = Terminal()
    with watch(Screen(out), "x"):
        pass
    assert out.getvalue() == ""


async def test_long_work_shows_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spinner, until it is done."""
    monkeypatch.setattr("toolexec.cli.progress._PATIENCE", 0)
    out = Terminal()
    with watch(Screen(out), "git:git_log"):
        await until(lambda: "git:git_log" in out.getvalue())
    assert "/" not in _without_colours(out.getvalue())


async def test_reports_make_a_bar() -> None:
    """With the tool's words, which are cleaned and cut."""
    out = Terminal()
    with watch(Screen(out), "count") as report:
        assert report is not None
        report(Progress(done=1, total=3, message="\x1b[31mitem[bold] " + "x" * 100))
        report(Progress(done=3, total=3))
    text = _without_colours(out.getvalue())
    assert "item[bold] x" in text
    assert "x" * 60 not in text
    assert "3/3" in text


async def test_a_total_may_be_unknown() -> None:
    """Then the bar only shows that something happens."""
    out = Terminal()
    with watch(Screen(out), "count") as report:
        assert report is not None
        report(Progress(done=2.5))
    assert "2/?" in _without_colours(out.getvalue())


def _without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
