"""The redactor takes out secrets, and leaves IDs and ordinary words alone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.model.redaction_tables import GO, STAY

from toolexec.model.redaction import REDACTED, Redactor


@pytest.mark.parametrize("value", STAY, ids=repr)
def test_ids_and_ordinary_words_stay(value: Any) -> None:
    """An ID or a word is not changed, alone or within a sentence."""
    redact = Redactor()
    assert redact.value(value) == value
    if isinstance(value, str):
        assert redact.text(f"He wrote {value}") == f"He wrote {value}"


@pytest.mark.parametrize("value", GO, ids=repr)
def test_secrets_go(value: Any) -> None:
    """A secret is taken out of values, and of strings around it."""
    redact = Redactor()
    assert REDACTED in str(redact.value(value))
    if isinstance(value, str):
        assert REDACTED in redact.text(f"see\n{value}")


def test_the_tables_are_long() -> None:
    """Each table has at least sixty entries, all different."""
    for table in (STAY, GO):
        assert len({repr(value) for value in table}) == len(table) >= 60
