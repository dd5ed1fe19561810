"""Security profiles."""

from __future__ import annotations

import pytest

from toolexec.errors import InvalidRequestError
from toolexec.runtime.base import PROFILES
from toolexec.runtime.profiles import CANDIDATES, ISOLATIONS, effective_profile


def test_every_profile_is_described() -> None:
    """Who may serve it, and what isolation it asks for."""
    assert set(CANDIDATES) == set(ISOLATIONS) == set(PROFILES)


def test_only_dev_is_served_by_the_host() -> None:
    """And nothing else serves it."""
    assert CANDIDATES["dev"] == ("unsafe_host",)
    assert not any("unsafe_host" in CANDIDATES[profile] for profile in ("standard", "hardened"))
    assert not ISOLATIONS["standard"] & {"none", "process"}


def test_hardened_asks_for_more_than_standard() -> None:
    """What is good enough for `hardened` is so for `standard`; a plain container is not."""
    assert ISOLATIONS["hardened"] < ISOLATIONS["standard"] < ISOLATIONS["dev"]
    assert "container" not in ISOLATIONS["hardened"]


@pytest.mark.parametrize(
    ("asked", "default", "expected"),
    [
        ("", "standard", ("standard", "")),
        ("", "hardened", ("hardened", "")),
        ("dev", "hardened", ("dev", "")),
        ("wasm", "dev", ("standard", "wasm")),
        ("", "wasm", ("standard", "wasm")),
    ],
)
def test_the_profile_that_holds(asked: str, default: str, expected: tuple[str, str]) -> None:
    """What is asked for, else the default; `wasm` is `standard` on one kind of sandbox."""
    assert effective_profile(asked, default) == expected


@pytest.mark.parametrize("profile", ["none", "Standard", "safe ", "unsafe_host"])
def test_an_unknown_profile_is_refused(profile: str) -> None:
    """With the list of those that there are."""
    with pytest.raises(InvalidRequestError, match=r"use dev, standard, hardened or wasm|did you mean standard"):
        effective_profile(profile, "standard")
