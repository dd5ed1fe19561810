"""What a kind of journal is to everything else: one object, whichever distribution it comes from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import ConfigurationError

if TYPE_CHECKING:  # the help of all commands imports this, and nothing that those need
    from typer import Typer

    from toolexec.durable.engine import DurableEngine
    from toolexec.durable.journal import Journal

JOURNAL_API: Final = 1
"""The version of `JournalPlugin` and of all that it is made of; a plugin of another one is refused."""

_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPlugin:
    """One kind of journal: its settings, how it is made, and its commands.

    `kind` is its name, `api` the `JOURNAL_API` that it was written for: a number, and not the constant. `settings` is
    the class of its settings, a dataclass, or where that is, as `module:Name`: what it declares with `setting` are the
    keys of `[durable.KIND]`. `make(settings)` returns a `Journal`, which keeps runs that this process works on, or a
    `DurableEngine`, which runs them elsewhere; it connects to nothing. `cli` returns the commands that come under
    `toolexec`, by the kind.

    Raises ConfigurationError for a name that cannot be.

    >>> plugin = JournalPlugin(kind="shelf", api=1, settings=dict, make=lambda settings: settings["journal"])
    >>> plugin.settings_class().__name__
    'dict'
    """

    kind: str
    api: int
    settings: type[Any] | str
    make: Callable[[Any], Journal | DurableEngine]
    cli: Callable[[], Typer] | None = None

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind):
            raise ConfigurationError(
                f"the kind of a journal is a word of lower case letters, digits and _, not {self.kind!r}"
            )

    def settings_class(self) -> type[Any]:
        """Return the class of its settings, imported if need be."""
        if not isinstance(self.settings, str):
            return self.settings
        found: type[Any] = resolve_name(self.settings)
        return found
