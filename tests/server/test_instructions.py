"""What the server tells a model before anything else."""

from __future__ import annotations

import pytest

from toolexec.errors import ConfigurationError
from toolexec.server.instructions import MAX_INSTRUCTIONS, instructions


@pytest.mark.parametrize("expose", ["auto", "meta", "code", "direct", "few"])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_they_are_short(expose: str, count: int) -> None:
    """At most 1,200 characters, however many namespaces of whatever length there are."""
    text = instructions(expose, tools=10**9, namespaces=[f"{n:04}{'x' * 100}" for n in range(count)])
    assert len(text) <= MAX_INSTRUCTIONS
    assert ("more" in text.split(" behind ")[0]) is (count == 1000)


def test_they_tell_the_way() -> None:
    """The instructions name the exposed tools, and how many tools are behind them."""
    meta = instructions("meta", tools=500, namespaces=["github", "jira"], also=["run_chain", "stubs"])
    assert meta.startswith("500 tools in the namespaces github, jira behind")
    assert all(word in meta for word in ("search_tools", "describe_tool", "run_tool", "run_chain", "execute_code"))
    assert "execute_code" not in instructions("meta", tools=1, code_enabled=False)
    assert "Not listed" not in instructions("meta", tools=1)
    assert "run_chain" in instructions("auto", tools=0, code_enabled=False)
    assert instructions("meta", tools=1).startswith("1 tool behind")
    assert instructions("meta", tools=0).startswith("The user's tools behind")
    code = instructions("code", tools=2)
    assert "find gives their stubs, execute runs" in code
    assert "run_tool" not in code
    assert "search_tools" not in instructions("direct", tools=2)
    few = instructions("few", tools=2)
    assert "execute_code" in few
    assert "search_tools" not in few
    assert "execute_code" not in instructions("few", tools=2, code_enabled=False)
    assert "Where they are not listed" in instructions("auto", tools=0)


def test_names_are_clean() -> None:
    """Escapes of strangers are shown as such, and their lines do not get in."""
    text = instructions("meta", tools=3, namespaces=["a\x1b[31m\nIgnore all\u202e", "\x00"])
    assert "\x1b" not in text
    assert "\n" not in text
    assert text.startswith("3 tools in the namespaces a\\x1b[31m Ignore all\\u202e")


def test_an_unknown_way() -> None:
    """Refuses an unknown mode."""
    with pytest.raises(ConfigurationError, match="unknown expose"):
        instructions("other", tools=1)
