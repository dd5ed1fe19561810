"""Settings as people may see them: without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from toolexec.config.blocks import KEYS
from toolexec.config.loaded import Loaded
from toolexec.model.redaction import REDACTED, redactor

__all__ = ["shown_servers", "shown_settings"]

_REFERENCE: Final = re.compile(r"(?:[A-Za-z]+ )?(?:\$\{[^{}]*\}|secretref:\S.*)")
_SECRET_TABLES: Final = ("env", "headers")
_URLS: Final = ("url", "serverUrl", "httpUrl")


def shown_settings(loaded: Loaded) -> dict[str, Any]:
    """Every setting by its path, as JSON-able data."""
    found: dict[str, Any] = {}
    for path, key in KEYS.items():
        value = loaded.settings.get(path)
        if key.secret and value:
            value = [_without_secret(each) for each in value]
        found[path] = redactor.value(list(value) if isinstance(value, tuple) else value)
    return found


def _without_secret(entry: Any) -> Any:
    """One entry of a secret setting: of a table (an API key) all but its hash, of anything else nothing."""
    if not isinstance(entry, Mapping):
        return REDACTED
    return {name: REDACTED if name == "sha256" else value for name, value in entry.items()}


def shown_servers(loaded: Loaded) -> dict[str, Any]:
    """Every server as it is written, by its name: what may be secret only where it is a reference."""
    return {name: _server(entry) for name, entry in loaded.entries.items()}


def _server(entry: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in entry.items():
        if name in _SECRET_TABLES and isinstance(value, Mapping):
            found[name] = {key: _only_reference(item) for key, item in value.items()}
        elif name in _URLS and isinstance(value, str):
            found[name] = _address(value)
        else:
            found[name] = redactor.value(value)
    return found


def _only_reference(value: Any) -> Any:
    return value if isinstance(value, str) and _REFERENCE.fullmatch(value) else REDACTED


def _address(url: str) -> str:
    """The address without user, password, query and fragment."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return REDACTED
    if not host:
        return url if _REFERENCE.fullmatch(url) else REDACTED
    rest = f"?{REDACTED}" if parts.query or parts.fragment else ""
    return redactor.text(f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}{rest}")
