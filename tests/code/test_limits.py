"""What a run is granted: bounds that can only be lowered."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.errors import InvalidLimitsError

NAMES = [field.name for field in fields(Limits)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-1, "1", None, True, float("nan")], ids=repr)
def test_bad_values_are_refused(name: str, value: Any) -> None:
    """Negative, no number, NaN: the error names the limit."""
    with pytest.raises(InvalidLimitsError, match=name):
        Limits(**{name: value})


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cpus"])
def test_only_a_rate_may_be_a_fraction(name: str) -> None:
    """Counts and sizes are integers."""
    with pytest.raises(InvalidLimitsError, match=name):
        Limits(**{name: 1.5})
    assert Limits(cpus=1.5).cpus == 1.5


def test_by_default_nothing_is_bounded() -> None:
    """0 is no bound."""
    assert [getattr(Limits(), name) for name in NAMES] == [0] * len(NAMES)
    assert Limits().set_names() == ()
    assert Limits().to_dict() == {}


@pytest.mark.parametrize(
    ("ours", "asked", "holds"),
    [(5, 3, 3), (5, 9, 5), (5, 0, 5), (0, 3, 3), (0, 0, 0), (5, 5, 5)],
    ids=["below", "above", "not asked", "no bound of ours", "none", "equal"],
)
def test_what_is_asked_for_only_tightens(ours: int, asked: int, holds: int) -> None:
    """The lower one holds, for each bound on its own."""
    for name in NAMES:
        narrowed = Limits(**{name: ours}).narrow(Limits(**{name: asked}))
        assert narrowed == Limits(**{name: holds})


def test_narrowing_is_for_each_bound() -> None:
    """One may come from here and one from there; neither side changes."""
    ours, asked = Limits(max_tool_calls=5, pids=2), Limits(max_tool_calls=9, memory_bytes=7)
    assert ours.narrow(asked) == Limits(max_tool_calls=5, pids=2, memory_bytes=7)
    assert ours == Limits(max_tool_calls=5, pids=2)


def test_reading_and_writing() -> None:
    """Limits that are set are written, and read back the same."""
    limits = Limits(max_tool_calls=5, cpus=0.5)
    assert limits.to_dict() == {"max_tool_calls": 5, "cpus": 0.5}
    assert limits.set_names() == ("max_tool_calls", "cpus")
    assert Limits.from_dict(limits.to_dict()) == limits


def test_unknown_names_are_refused() -> None:
    """A misspelt limit must not count as none; the error lists what there is."""
    with pytest.raises(InvalidLimitsError, match=r"max_calls.*max_tool_calls"):
        Limits.from_dict({"max_calls": 3})


def test_limits_are_values() -> None:
    """Limits cannot be changed."""
    with pytest.raises(FrozenInstanceError):
        Limits().max_tool_calls = 1000  # type: ignore[misc]


def test_nothing_is_enforced_unless_said() -> None:
    """All false by default, and all are listed."""
    assert set(LimitsEnforced().to_dict().values()) == {False}
    assert LimitsEnforced(memory=True).to_dict()["memory"] is True
    assert set(LimitsEnforced().to_dict()) == {
        "timeout", "tool_calls", "chain_steps", "memory", "cpu", "cpus", "pids", "disk",
    }  # fmt: skip
