"""Points in time as people type them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from toolexec.cli.points_in_time import point_in_time
from toolexec.errors import ConfigurationError

NOW = datetime(2026, 11, 27, 1, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test is two hours east of Greenwich."""
    monkeypatch.setenv("TZ", "EET-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("today", "2026-11-26T22:00"),
        ("Yesterday", "2026-11-25T22:00"),
        ("90m", "2026-11-27T00:00"),
        ("6h", "2026-11-26T19:30"),
        ("7d", "2026-11-20T01:30"),
        ("2026-11-01", "2026-10-31T22:00"),
        ("2026-11-01T14:30", "2026-11-01T12:30"),
        ("2026-11-01T14:30Z", "2026-11-01T14:30"),
    ],
)
def test_a_time_is_meant_in_the_local_zone(text: str, when: str) -> None:
    """Days begin at midnight here; a time with a zone keeps it."""
    assert point_in_time(text, NOW) == datetime.fromisoformat(f"{when}+00:00")


@pytest.mark.parametrize("text", ["", "soon", "12", "5y", "2026-13-01", "9999999w"])
def test_anything_else_is_refused_with_what_to_write(text: str) -> None:
    """The error lists the forms."""
    with pytest.raises(ConfigurationError, match="write yesterday, today, a date"):
        point_in_time(text, NOW)
