"""Whether an object has the methods of a protocol."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from toolexec.model.protocols import provides


@runtime_checkable
class Opens(Protocol):
    """Two methods."""

    def open(self) -> int:
        """Open."""
        ...

    def close(self) -> None:
        """Close."""
        ...


class Door:
    """Has both."""

    def open(self) -> int:
        """Open."""
        return 1

    def close(self) -> None:
        """Close."""


class Window:
    """Has one, and an attribute of an object with the name of the other."""

    def __init__(self) -> None:
        self.close = lambda: None

    def open(self) -> int:
        """Open."""
        return 2


def test_it_answers_by_the_class() -> None:
    """Answer for a class that inherits, and by its methods alone."""

    class Gate(Door):
        pass

    assert [provides(each, Opens) for each in (Door(), Gate(), Window(), 5, None)] == [True, True, False, False, False]
