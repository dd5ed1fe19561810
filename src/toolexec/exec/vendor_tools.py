"""The path that `toolexec.adapter.export` had before; its names can be imported from here for one more release."""

from __future__ import annotations

import warnings
from typing import Any

from toolexec.adapter import export

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    if name not in export.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{__name__}.{name} is in toolexec.adapter.export now", DeprecationWarning, stacklevel=2)
    return getattr(export, name)
