"""The sandboxes of a runtime: those that are there, and those that are made when they are first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

from toolexec.errors import ConfigurationError, UnsupportedPlatformError
from toolexec.runtime.base import SandboxBackend, judged_kind


class Roster:
    """Sandboxes by kind, in order of their addition.

    One that is to be made later is made once, by the first thread that asks for it. It is left out where this
    operating system cannot have it, and when the roster is closed before.
    """

    def __init__(self) -> None:
        self._kinds: dict[str, None] = {}
        self._made: dict[str, SandboxBackend] = {}
        self._later: dict[str, Callable[[], SandboxBackend]] = {}
        self._serving: dict[str, list[str]] = {}  # with those that have another one do their work
        self._making = threading.RLock()

    def add(self, backend: SandboxBackend) -> None:
        """Add a sandbox; raises ConfigurationError for a kind that is there."""
        self._add(backend.kind, {backend.kind, judged_kind(backend)})
        self._made[backend.kind] = backend

    def add_later(self, kind: str, make: Callable[[], SandboxBackend]) -> None:
        """Add the sandbox of *kind* that *make* returns, which runs code by itself; raises ConfigurationError for a
        kind that is there."""
        self._add(kind, {kind})
        self._later[kind] = make

    def _add(self, kind: str, serves: set[str]) -> None:
        if kind in self._kinds:
            raise ConfigurationError(f"there is a sandbox of kind {kind} already; remove it first")
        self._kinds[kind] = None
        for each in serves:
            self._serving.setdefault(each, []).append(kind)

    def serving(self, kind: str) -> tuple[str, ...]:
        """Return the kinds that serve a profile as *kind* does: itself, and those that have it do their work."""
        return tuple(self._serving.get(kind, ()))

    def get(self, kind: str) -> SandboxBackend | None:
        """Return the sandbox of *kind*, made if need be; None where it is left out. Raises what its making raises."""
        made = self._made.get(kind)
        if made is not None:
            return made
        with self._making:
            make = self._later.get(kind)
            if make is not None:
                with suppress(UnsupportedPlatformError):  # those that work here are left
                    self._made[kind] = make()
                del self._later[kind]
            return self._made.get(kind)

    def __iter__(self) -> Iterator[SandboxBackend]:
        """Give all sandboxes, made if need be, one after the other."""
        for kind in tuple(self._kinds):
            backend = self.get(kind)
            if backend is not None:
                yield backend

    def close(self) -> None:
        """Have no more sandboxes made."""
        with self._making:
            self._later.clear()
