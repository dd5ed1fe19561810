"""Settings that are objects of a protocol."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from toolexec.errors import ConfigurationError
from toolexec.model.settings import checked


class Speaker(Protocol):
    """A part with one member."""

    @property
    def languages(self) -> frozenset[str]:
        """Return what it speaks."""
        ...


@checked("Room")
class Room:
    """A class with a part."""

    def __init__(self, speaker: Speaker) -> None:
        self.speaker = speaker


class Costly:
    """A part whose member may not be asked for yet."""

    @property
    def languages(self) -> frozenset[str]:
        """Fails, so that a look at it is seen."""
        raise AssertionError("a check of settings ran the code of a property")


class Relay:
    """A part that has another one's members."""

    def __getattr__(self, name: str) -> Any:
        if name == "languages":
            return frozenset({"python"})
        raise AttributeError(name)


def test_a_check_runs_no_property() -> None:
    """The class of a part says that it has the member."""
    looked: list[str] = []

    class Watched(Costly):
        def __getattribute__(self, name: str) -> Any:
            looked.append(name)
            return super().__getattribute__(name)

    Room(Watched())
    assert "languages" not in looked


def test_members_need_not_be_of_the_class() -> None:
    """An object that gets them elsewhere fits, and one without them is refused, with what it lacks."""
    relay: Any = Relay()
    assert Room(relay).speaker.languages == {"python"}
    mute: Any = type("Mute", (), {})()
    with pytest.raises(ConfigurationError, match="it has no languages"):
        Room(mute)
