"""Packages that load what they export at its first use, so that importing one part does not import all others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["lazy_names"]


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]], *, unix_for: str = "", extra: str = "", needed_for: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that exports names of other modules (PEP 562).

    *homes* maps each module to the names that the package takes from it. A name is looked up once; then it is an
    ordinary attribute of the package. No name may be that of a submodule, which would take its place when it is loaded.
    *unix_for* is the subject of the UnsupportedPlatformError where these modules need what this system lacks; *extra*
    is that of the MissingExtraError where they need a dependency that is not installed, *needed_for* what it is for.
    """
    home_of = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> Any:
        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if unix_for or extra:
            with _explained(unix_for, extra, needed_for):
                value = getattr(import_module(home), name)
        else:
            value = getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted(vars(sys.modules[package]).keys() | home_of.keys())

    return load, listed


def _explained(unix_for: str, extra: str, needed_for: str) -> AbstractContextManager[None]:
    """Return what raises an error of toolexec where a module cannot be imported."""
    from toolexec.errors.extras import extra_needed, unix_needed

    return unix_needed(unix_for) if unix_for else extra_needed(extra, needed_for)
