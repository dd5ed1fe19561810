"""The former names of parts of the suites; they can be imported for one more release."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["former_names"]


def former_names(module: str, names: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return the `__getattr__` of *module* that gives each former name's object, with a DeprecationWarning."""

    def get(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} is {names[name].__name__} now", DeprecationWarning, stacklevel=2)
        return names[name]

    return get
