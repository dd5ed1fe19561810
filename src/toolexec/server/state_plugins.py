"""Stores of a server's state that other distributions have, by the scheme of their address."""

from __future__ import annotations

import re
from typing import Final

from toolexec.backend.plugins import STATES, known_plugins, load_plugin
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.server.state import StateStore

_SCHEME: Final = re.compile(r"([a-z][a-z0-9]*)://.")


def open_state(address: str) -> StateStore:
    """Return the store at *address*, a URL or a secret reference to one; its scheme names the plugin. Nothing is
    connected to yet.

    Raises ConfigurationError for an address that cannot be one, of which it quotes the scheme only, and
    MissingExtraError where the package for it is not installed.
    """
    from toolexec.backend.secrets import SecretResolver

    url = SecretResolver().resolve(address, "server.state_url")
    found = _SCHEME.match(url)
    kinds = known_plugins(STATES)
    if found is None or found[1] not in kinds:
        raise ConfigurationError(
            f"state_url is not the address of a store: it begins with one of {', '.join(kinds)}, and ://",
            details={"setting": "server.state_url"},
        )
    make = load_plugin(STATES, found[1], needed_for=f"state_url with {found[1]}://")
    try:
        store = make(url)
    except ToolExecError:
        raise
    except Exception as error:  # of the plugin's code; it may quote the address, which has a password
        raise ConfigurationError(f"state_url cannot be used: {type(error).__name__}") from None
    if not isinstance(store, StateStore):
        raise ConfigurationError(f"the plugin for {found[1]}:// made a {type(store).__name__}, not a StateStore")
    return store
