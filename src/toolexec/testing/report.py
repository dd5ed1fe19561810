"""The report of a contract suite, the same for every suite."""

from __future__ import annotations

import sys
from collections.abc import Collection, Generator
from contextlib import contextmanager
from types import FunctionType
from typing import Any


def checks_of(module: str) -> dict[str, Any]:
    """Return the checks of a suite by name: the public functions of one argument that *module* has defined until now,
    in that order."""
    functions = [found for found in vars(sys.modules[module]).values() if isinstance(found, FunctionType)]
    ours = [found for found in functions if found.__module__ == module and not found.__name__.startswith("_")]
    return {check.__name__: check for check in ours if check.__code__.co_argcount == 1}


class Report:
    """Collects the failures of the checks of one *subject*.

    *known_gaps* are the names of checks that it is known to fail; one that passes after all is a failure too, so that
    the list stays true. Raises ValueError for a gap that is not among *names*.
    """

    def __init__(self, subject: str, names: Collection[str], known_gaps: Collection[str]) -> None:
        unknown = sorted(set(known_gaps) - set(names))
        if unknown:
            raise ValueError(f"there are no checks {', '.join(unknown)}; there are {', '.join(names)}")
        self._subject = subject
        self._known_gaps = known_gaps
        self._failures: list[Exception] = []

    @contextmanager
    def check(self, name: str) -> Generator[None]:
        """Run one check inside; what it raises is kept, with the check's name as a note."""
        try:
            yield
        except Exception as error:
            if name not in self._known_gaps:
                error.add_note(f"{self._subject} check: {name}")
                self._failures.append(error)
        else:
            if name in self._known_gaps:
                self._failures.append(AssertionError(f"{name} is listed as a known gap, but it passes"))

    def conclude(self) -> None:
        """Raise an ExceptionGroup with all failures, if there are any."""
        if self._failures:
            raise ExceptionGroup(f"the {self._subject} does not keep its contract", self._failures)
