"""How many examples a property gets where the default is too many for each run."""

from __future__ import annotations

from hypothesis import settings

_USUAL = 100


def examples(few: int) -> int:
    """Return *few*, and in the soak tier as many as all other properties get."""
    found = settings.default.max_examples if settings.default is not None else _USUAL
    return found if found > _USUAL else few
