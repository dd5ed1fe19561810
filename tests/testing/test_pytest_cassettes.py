"""The fixture `cassette`, in a run of pytest of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

# All that the tests inside import: each of their runs forgets what it was the first to import.
import toolexec.backend.providers.openapi.yaml_loader
import toolexec.exec.cassettes
import toolexec.exec.sync
import toolexec.testing.pytest_cassettes  # noqa: F401

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.full  # runs of pytest take a second each

TEST = """
import pytest
from toolexec import Exec, Tool

def double(args):
    return args["n"] * 2

def ask(cassette, *numbers):
    with Exec(cassette=cassette).sync as ex:
        ex.add(Tool(name="double", namespace="t", input_schema={"type": "object"}), handler=double)
        return [ex.run_tool("t:double", {"n": n}).value for n in numbers]

@pytest.mark.parametrize("n", [1, 2])
def test_numbers(cassette, n):
    assert ask(cassette, n, n + 1) == [n * 2, n * 2 + 2]

class TestAll:
    def test_numbers(self, cassette):
        assert ask(cassette, 7) == [14]
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory of tests that use the fixture."""
    monkeypatch.delenv("TOOLEXEC_CASSETTE__MODE", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # those of this environment take seconds to load
    pytester.makeconftest('pytest_plugins = ["toolexec.testing.pytest_cassettes"]')
    pytester.makepyfile(test_shop=TEST)
    return pytester


def run(suite: pytest.Pytester, *words: str, **counts: int) -> pytest.RunResult:
    """Run the tests, and compare how many passed."""
    done = suite.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:faulthandler", "-q", *words)
    done.assert_outcomes(**counts)
    return done


def test_each_test_has_a_cassette_beside_it(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option records, nothing replays, and the variable counts where there is no option."""
    run(suite, errors=3).stdout.fnmatch_lines(["*there is no cassette*"])
    run(suite, "--cassette-mode=record", passed=3)
    files = sorted(path.name for path in Path("cassettes/test_shop").iterdir())
    assert files == ["TestAll.test_numbers.yaml", "test_numbers-1.yaml", "test_numbers-2.yaml"]
    suite.makepyfile(test_shop=TEST.replace('args["n"] * 2', "1 / 0"))
    run(suite, passed=3)
    monkeypatch.setenv("TOOLEXEC_CASSETTE__MODE", "refresh")
    run(suite, failed=3)


def test_unused_calls_are_listed_and_unknown_ones_fail(suite: pytest.Pytester) -> None:
    """A test that catches the error of an unknown call fails at its end."""
    run(suite, "--cassette-mode=record", passed=3)
    asked = "assert ask(cassette, n, n + 1) == [n * 2, n * 2 + 2]"
    suite.makepyfile(test_shop=TEST.replace(asked, "assert ask(cassette, n) == [n * 2]"))
    listed = run(suite, passed=3)
    listed.stdout.fnmatch_lines(
        ["*recorded calls that were not made*", "test_shop.py::test_numbers?1?: t:double {'n': 2}"]
    )
    run(suite, "--cassette-unused=fail", passed=3, errors=2)
    caught = "try:\n        ask(cassette, 9)\n    except Exception:\n        pass"
    suite.makepyfile(test_shop=TEST.replace(asked, caught))
    run(suite, passed=3, errors=2)
