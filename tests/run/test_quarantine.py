"""Held answers are files that only their owner can read, without secrets, and not more than there may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolexec.errors import ConfigurationError, ResultNotFoundError
from toolexec.model.origin import Caller
from toolexec.run.quarantine import Quarantine


def hold(place: Quarantine, value: object = "bad") -> str:
    """Hold an answer, and return its ID."""
    return place.hold("t:x", "mcp:hub", Caller(id="ann"), ["has hidden characters"], {"value": value})


def test_an_answer_is_kept_and_removed(tmp_path: Path) -> None:
    """Its file and directory are its owner's alone."""
    place = Quarantine(tmp_path / "held")
    assert place.all() == []
    held = hold(place, {"token": "abc", "text": "bad"})
    (file,) = place.directory.iterdir()
    assert (file.stat().st_mode & 0o777, place.directory.stat().st_mode & 0o777) == (0o600, 0o700)
    assert place.get(held) == place.all()[0]
    assert place.get(held).answer == {"value": {"token": "[REDACTED]", "text": "bad"}}
    place.remove(held)
    for gone in (place.get, place.remove):
        with pytest.raises(ResultNotFoundError, match="toolexec quarantine list"):
            gone(held)


def test_the_oldest_go(tmp_path: Path) -> None:
    """The newest stay; files of others are left out of the list."""
    place = Quarantine(tmp_path, keep=2)
    (tmp_path / "00000000.json").write_text("[]")
    for _ in range(3):
        hold(place)
    assert len(list(tmp_path.iterdir())) == 2
    (tmp_path / "zzz.json").write_text("{}")
    assert len(place.all()) == 2
    with pytest.raises(ConfigurationError):
        Quarantine(tmp_path, keep=0)


@pytest.mark.parametrize("held", ["", "../x", "a/b", "x.json"])
def test_an_id_leads_nowhere_else(tmp_path: Path, held: str) -> None:
    """Another string than an ID is not there."""
    (tmp_path / "x.json.json").write_text("{}")
    with pytest.raises(ResultNotFoundError):
        Quarantine(tmp_path / "held").get(held)
