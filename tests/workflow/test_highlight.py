"""Colours for workflows."""

from __future__ import annotations

import pytest
from rich.console import Console

from toolexec.workflow.highlight import highlight


def styles(source: str) -> dict[str, str]:
    """Return the last style of each coloured piece."""
    return {source[span.start : span.end]: str(span.style) for span in highlight(source).spans}


def test_each_kind_has_its_colour() -> None:
    """Keywords, functions, constants, numbers, strings and comments differ; names, members and keys are plain."""
    found = styles('x := collect i in f(xs).run { {in: 5s, a: true, b: "c ${d + 1}"} }  # why')
    assert found["collect"] == "bold magenta"
    assert found["f"] == "blue"
    assert found["5s"] == "cyan"
    assert found["true"] == "cyan"
    assert found['"c ${d + 1}"'] == "green"
    assert found["1"] == "cyan"
    assert found["# why"] == "dim"
    assert not found.keys() & {"x", "xs", "run", "d"}


@pytest.mark.parametrize("source", ["", 'x := "abc ${', '"""', "'" * 5 + "${" * 100, "é \u202e ) ( ::="])
def test_wrong_workflows_have_colours_too(source: str) -> None:
    """The text is never changed, and anything can be shown."""
    assert highlight(source).plain == source
    Console(file=None, quiet=True).print(highlight(source))
