"""Which versions of a tool there are, counted as a plain set would."""

from __future__ import annotations

import random

from toolexec.discovery.versions import Versions


def test_the_highest() -> None:
    """Semantic versions by precedence, above all other texts."""
    versions = Versions()
    assert not versions
    assert versions.highest("git", "log") is None
    for version in ("latest", "1.9.0", "1.10.0", "1.10.0-rc1"):
        versions.add("git", "log", version)
        versions.add("git", "log", version)
    assert versions
    assert versions.highest("git", "log") == "1.10.0"
    versions.discard("git", "log", "1.10.0")
    assert versions.highest("git", "log") == "1.10.0-rc1"
    assert versions.highest("git", "status") is None


def test_against_plain_sets() -> None:
    """However they come and go."""
    dice = random.Random(5)
    versions, model = Versions(), dict[tuple[str, str], set[str]]()
    for _ in range(3000):
        key = dice.choice("ab"), dice.choice("xyz")
        version = f"1.{dice.randrange(4)}"
        if version in model.get(key, ()):
            versions.discard(*key, version)
            model[key].discard(version)
        else:
            versions.add(*key, version)
            model.setdefault(key, set()).add(version)
        for known, wanted in model.items():
            assert versions.highest(*known) == max(wanted, default=None)
        assert bool(versions) is any(model.values())


def test_many_at_once() -> None:
    """From IDs, of which some have none."""
    versions = Versions()
    versions.add_all(["a", "a:b", "a:b:1.0", "a:b:2.0", "a:c:1.0", "d:b:3.0"])
    assert versions.highest("a", "b") == "2.0"
    assert versions.highest("a", "c") == "1.0"
    assert versions.highest("d", "b") == "3.0"
    assert versions.highest("", "a") is None
