"""Tests wait with an end: a poll that never ends stops a whole run without a word."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests import waiting
from tests.workspace import packages

ROOT = Path(__file__).parent.parent
TESTS = (ROOT / "tests", *(package.directory / "tests" for package in packages()))
# A block that begins with a sleep: to parse all files takes seconds.
SLEEPS = re.compile(r":[ ]*(?:#.*)?\n(?:\s*#.*\n)*\s*(?:await )?[\w.]+\.sleep\(|while .*:.*\.sleep\(")


def _only_sleeps(loop: ast.While) -> bool:
    calls = [ast.unparse(node.func) for node in ast.walk(loop) if isinstance(node, ast.Call)]
    bounded = any("monotonic" in call for call in calls) or ast.unparse(loop.test) == "True"
    sleeps = [
        isinstance(line, ast.Expr) and ast.unparse(line).removeprefix("await ").split("(")[0].endswith(".sleep")
        for line in loop.body
    ]
    return all(sleeps) and not bounded


def test_polls_have_an_end() -> None:
    """Refuse a loop that does nothing but sleep, outside the one helper."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for tests in TESTS
        for path in sorted(tests.rglob("*.py"))
        if "while " in (text := path.read_text()) and SLEEPS.search(text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.While) and _only_sleeps(node)
    ]
    assert not found, f"wait with tests.waiting.until, which ends: {', '.join(found)}"


async def test_waiting_fails_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail when the condition never holds, sync or not."""
    monkeypatch.setattr(waiting, "PATIENCE", 0.02)

    async def never() -> bool:
        return False

    for condition in (never, lambda: 0):
        with pytest.raises(AssertionError, match="did not happen"):
            await waiting.until(condition)
    with pytest.raises(AssertionError, match="did not happen"):
        waiting.until_blocking(lambda: None)


async def test_waiting_gives_what_was_asked_for() -> None:
    """Return the first true answer."""
    answers = iter([0, 0, 7])
    assert await waiting.until(lambda: next(answers), 0) == 7
    answers = iter([0, "yes"])
    assert waiting.until_blocking(lambda: next(answers), 0) == "yes"
