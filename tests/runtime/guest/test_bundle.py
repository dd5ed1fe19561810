"""The guests that are written in Python, each as one text."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec.runtime import guest
from toolexec.runtime.guest.bundle import bash_guest, python_guest, without_comments

CODE = """
import asyncio, sys, threading
seen = []
thread = threading.Thread(target=lambda: seen.append(tools.test.echo(give=1)))
thread.start()
thread.join()
async def main():
    task = asyncio.create_task(tools.test.echo(give=2))
    return [await task, *await asyncio.gather(tools.test.echo(give=3), tools.test.echo(give=4))]
return [*seen, *asyncio.run(main()), "%d.%d" % sys.version_info[:2]]
"""


@pytest.mark.full
@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
async def test_it_runs_in_every_python_from_3_9_on(
    start: Callable[..., Any], find_python: Callable[[str], str], version: str
) -> None:
    """From a command line, with nothing of ours beside it."""
    python = find_python(f"python{version}")
    if not python:
        pytest.skip(f"there is no Python {version} here")
    child = start(command=[python, "-I", "-S", "-c", python_guest()])
    assert await child.value(CODE) == [1, 2, 3, 4, version]
    assert await child.end() == 0


async def test_it_talks_over_stdin_and_stdout_by_default(start: Callable[..., Any]) -> None:
    """As a container does."""
    child = start(command=[sys.executable, "-I", "-c", python_guest()], stdio=True)
    assert await child.value("tools.test.echo(give=1)") == 1


async def test_no_trace_of_it_is_in_tracebacks(start: Callable[..., Any]) -> None:
    """Only the program's own frames."""
    child = start(command=[sys.executable, "-I", "-c", python_guest()])
    error = await child.error("def f():\n    return tools.test.nope()\nf()")
    assert error["line"] == 2
    assert "toolexec" not in error["traceback"]


async def test_the_guest_for_bash_runs_bash(start: Callable[..., Any]) -> None:
    """The guest for bash finds the source of its command."""
    child = start(command=[sys.executable, "-I", "-c", bash_guest()])
    assert await child.value("""tool return "$(tool run test:echo '{"give": 5}')" """) == 5


@pytest.mark.parametrize("text", [python_guest(), bash_guest()])
def test_it_is_one_text_of_the_standard_library(text: str) -> None:
    """Small enough for a command line, and free of imports of ours from outside."""
    assert len(text.encode()) < 120_000  # Linux takes 131,071 bytes as one argument (MAX_ARG_STRLEN)
    ast.parse(text, feature_version=(3, 9))
    assert "from toolexec." not in text
    assert "import toolexec." not in text


@pytest.mark.parametrize("path", sorted(Path(guest.__file__).parent.glob("*/*.py")), ids=lambda path: path.name)
def test_no_text_in_a_module_looks_like_a_comment(path: Path) -> None:
    """Leave comments out of the text of a guest, and nothing else: a search for them finds nothing in strings."""
    text = path.read_text("utf-8")
    assert ast.dump(ast.parse(without_comments(text))) == ast.dump(ast.parse(text))


def test_it_is_made_once() -> None:
    """Later asks get the same."""
    assert python_guest() is python_guest()
