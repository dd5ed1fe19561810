"""What a server can be set up with."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.errors import ConfigurationError
from toolexec.server.settings import ServeSettings


def test_every_setting_has_a_default() -> None:
    """No setting must be given."""
    settings = ServeSettings()
    assert (settings.transport, settings.expose, settings.name) == ("stdio", "meta", "toolexec")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transport", "carrier pigeon"),
        ("expose", "everything"),
        ("name", ""),
        ("page_size", 0),
        ("page_size", True),
        ("suspended_max", 1.5),
        ("max_line_bytes", -1),
        ("approval_timeout", 0),
        ("approval_timeout", float("nan")),
        ("approval_timeout", "1"),
        ("list_changed_debounce", False),
        ("direct_wait", -1),
        ("state_keys", ("short",)),
    ],
)
def test_values_that_make_no_sense(name: str, value: Any) -> None:
    """A setting that makes no sense is refused by its name."""
    with pytest.raises(ConfigurationError, match=name):
        ServeSettings(**{name: value})
