"""The names of the languages that code may be in: the other spellings of each, and which of them are one language."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ALIASES: Mapping[str, str] = {"py": "python", "js": "javascript", "sh": "bash", "golang": "go", "dsl": "workflow"}
TYPED: Mapping[str, str] = {"typescript": "javascript", "ts": "javascript", "tsx": "javascript"}
"""Languages with types → the one that runs when the types are gone."""
_VARIETIES: Final[Mapping[str, str]] = {"python-science": "python"}
"""Languages with more packages → the language; a sandbox may take the one for the other."""
KNOWN_LANGUAGES: tuple[str, ...] = ("python", "javascript", "bash", "go", "wasm")
"""Languages of the sandboxes that come with toolexec; those of plugins may have others."""


def base_language(name: str) -> str:
    """Return the one name of a language, in whatever spelling or variety it is asked for.

    >>> base_language("TypeScript"), base_language("py"), base_language("python-science")
    ('javascript', 'python', 'python')
    """
    name = name.strip().lower()
    for table in (ALIASES, TYPED, _VARIETIES):
        name = table.get(name, name)
    return name
