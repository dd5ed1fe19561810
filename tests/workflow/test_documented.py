"""The page about workflows has every function of the standard library as it is."""

from __future__ import annotations

import re
from pathlib import Path

from toolexec.workflow.functions import FUNCTIONS

PAGE = Path(__file__).parents[2] / "docs" / "workflow.md"


def test_the_table_of_functions_is_complete() -> None:
    """Each has its signature and what it gives."""
    table = PAGE.read_text().split("<!-- functions -->")[1]
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", table, re.MULTILINE)
    found = [(signature.replace("\\|", "|"), text.replace("\\|", "|")) for signature, text in rows]
    assert found == [(function.signature, _sentence(" ".join(function.doc.split()))) for function in FUNCTIONS.values()]


def _sentence(doc: str) -> str:
    text = doc.removeprefix("Return ")
    return text[0].upper() + text[1:]
