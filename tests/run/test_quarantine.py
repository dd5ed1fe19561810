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


def test_the_oldest_go_and_other_files_stay(tmp_path: Path) -> None:
    """The newest answers stay, and so does whatever else is in the directory."""
    place = Quarantine(tmp_path, keep=2)
    others = [tmp_path / name for name in ("00000000.json", "package.json", "20200101-000000-00000000.txt")]
    for other in others:
        other.write_text("{}")
    kept = [hold(place) for _ in range(3)]
    assert len(place.all()) == 2
    assert {each.id for each in place.all()} < {*kept}
    assert all(other.exists() for other in others)
    with pytest.raises(ConfigurationError):
        Quarantine(tmp_path, keep=0)


def test_of_a_large_answer_the_start_is_kept(tmp_path: Path) -> None:
    """A server that sends large ones does not fill the disk."""
    place = Quarantine(tmp_path)
    answer = place.get(hold(place, "x" * 3_000_000)).answer
    assert isinstance(answer, dict)
    assert str(answer["start"]).startswith('{"value": "xxx')
    assert len(str(answer["start"])) == 1 << 20


@pytest.mark.parametrize("held", ["", "../x", "a/b", "x.json"])
def test_an_id_leads_nowhere_else(tmp_path: Path, held: str) -> None:
    """Another string than an ID is not there."""
    (tmp_path / "x.json.json").write_text("{}")
    with pytest.raises(ResultNotFoundError):
        Quarantine(tmp_path / "held").get(held)
