"""Which kinds of journal there are beside the files and databases of toolexec: those of packages and plugins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from toolexec.backend.plugins import JOURNALS, known_plugins, load_kind
from toolexec.durable.plugin import JOURNAL_API, JournalPlugin
from toolexec.errors import ConfigurationError, ToolExecError

if TYPE_CHECKING:
    from toolexec.durable.engine import DurableEngine
    from toolexec.durable.journal import Journal

DATABASES: Final = ("postgresql://", "postgres://", "secretref:")
"""What the address of a database begins with, or the reference to one."""

_WORD: Final = re.compile(r"[a-z][a-z0-9_]*")


def is_journal_kind(name: str) -> bool:
    """Return whether *name* is a kind of journal: of a plugin that is installed, or of a package that could be. Only a
    plain word is looked for; the name of a file is none."""
    return _WORD.fullmatch(name) is not None and name in known_plugins(JOURNALS)


def is_address(name: str) -> bool:
    """Return whether *name* is an address, or the reference to one, and no file's."""
    return "://" in name or name.startswith(DATABASES)


def journal_plugin(kind: str) -> JournalPlugin:
    """Return the object of a kind, imported if need be.

    Raises ConfigurationError for one that is not there, and for a plugin that cannot be used: it says which
    distribution that is from, and why. Raises MissingExtraError for a kind whose package is not installed.
    """
    return load_kind(JOURNALS, kind, JournalPlugin, JOURNAL_API, needed_for=f"the journal {kind}")


def make_journal(kind: str, given: Mapping[str, object] | None = None) -> Journal | DurableEngine:
    """Return a journal of *kind* with the settings *given* (default: its own); raises as `journal_plugin`, and
    ConfigurationError for settings that it refuses."""
    plugin = journal_plugin(kind)
    settings: Any = plugin.settings_class()
    try:
        return plugin.make(settings(**(given or {})))
    except ToolExecError:
        raise
    except Exception as error:  # of the plugin's code; it may quote what it was given
        raise ConfigurationError(
            f"the journal {kind} cannot be made with these settings: {type(error).__name__}"
        ) from error
