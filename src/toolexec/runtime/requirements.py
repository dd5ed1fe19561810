"""The packages that may be asked for, for a sandbox or an image: names as pip takes them, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from toolexec.errors import ConfigurationError

_REQUIREMENT: Final = re.compile(
    r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
    r"\s*(\[\s*[A-Za-z0-9._-]+(?:\s*,\s*[A-Za-z0-9._-]+)*\s*\])?"
    r"\s*((?:===?|~=|!=|<=?|>=?)\s*[A-Za-z0-9.*+!_-]+(?:\s*,\s*(?:===?|~=|!=|<=?|>=?)\s*[A-Za-z0-9.*+!_-]+)*)?"
)


def normal_requirements(requirements: Iterable[str]) -> tuple[str, ...]:
    """Return *requirements* in one spelling, sorted, each once: `("rich[x]>=14", …)`.

    A requirement is a name, with extras and versions if need be. Raises ConfigurationError for anything else, such as
    a path, a link or an option of pip.
    """
    found: set[str] = set()
    for text in requirements:
        match = _REQUIREMENT.fullmatch(text.strip())
        if match is None:
            raise ConfigurationError(
                f"{text!r} is not a package for the sandbox; give a name, as in 'rich', or one with versions, as in "
                "'rich>=14,<15'"
            )
        name = re.sub(r"[-_.]+", "-", match[1]).lower()
        found.add(name + re.sub(r"\s", "", (match[2] or "") + (match[3] or "")))
    return tuple(sorted(found))
