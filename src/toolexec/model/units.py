"""Times and sizes as people write them: `5m` for seconds, `512M` for bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_TIME_UNITS: Final = {"": 1, "ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_SIZE_UNITS: Final = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def seconds(value: object) -> Any:
    """Return a time in seconds where *value* is a text such as `5m`, else *value*. Raises ValueError.

    >>> seconds("5m")
    300.0
    """
    return _with_unit(value, r"(\d+(?:\.\d+)?) ?([a-z]*)", _TIME_UNITS) if isinstance(value, str) else value


def size(value: object) -> Any:
    """Return a number of bytes where *value* is a text such as `4M`, else *value*. Raises ValueError.

    >>> size("4M")
    4194304
    """
    if isinstance(value, str):
        value = _with_unit(value, r"(\d+(?:\.\d+)?) ?([a-z]?)(?:i?b)?", _SIZE_UNITS)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _with_unit(value: str, pattern: str, units: Mapping[str, float]) -> float:
    match = re.fullmatch(pattern, value.strip().lower())
    if match is None or match[2] not in units:
        raise ValueError("unknown unit")
    return float(match[1]) * units[match[2]]
