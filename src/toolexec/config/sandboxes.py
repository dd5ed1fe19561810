"""The sandboxes that settings describe, and what code in them may reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from toolexec.config.blocks import KEYS
from toolexec.config.load import Loaded
from toolexec.config.mistakes import did_you_mean
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.runtime.egress.policy import Secret
    from toolexec.runtime.sandboxes import SandboxSettings

__all__ = ["egress_secret", "sandbox_settings"]

_REFERENCE: Final = "secretref:"
_KNOWN: Final = ("placeholder", "value", "hosts", "where", "plain_http")


def sandbox_settings(loaded: Loaded) -> SandboxSettings:
    """Which sandboxes there are; raises ConfigurationError."""
    from toolexec.runtime.egress.policy import Egress
    from toolexec.runtime.sandboxes import SandboxSettings

    values = {key.name: loaded.settings.get(key.path) for key in KEYS.values() if key.block == "sandboxes"}
    hosts, tables = values.pop("egress"), values.pop("egress_secrets")
    if tables and not hosts:
        raise ConfigurationError("sandboxes.egress_secrets go nowhere without hosts; name those in sandboxes.egress")
    secrets = dict(map(egress_secret, tables))
    return SandboxSettings(**values, egress=Egress(hosts=hosts, secrets=secrets) if hosts else None)


def egress_secret(data: Mapping[str, Any]) -> tuple[str, Secret]:
    """A placeholder and the secret that it stands for; raises ConfigurationError, which says nothing of its value."""
    from toolexec.runtime.egress.policy import Secret

    for name in data:
        if name not in _KNOWN:
            raise ConfigurationError(f"unknown key {name} of an egress secret; {did_you_mean(name, _KNOWN)}")
    placeholder, value = data.get("placeholder"), data.get("value")
    if not isinstance(placeholder, str):
        raise ConfigurationError("an egress secret needs placeholder, the text that code uses in its place")
    if not isinstance(value, str) or not value.startswith(_REFERENCE):
        raise ConfigurationError(
            f"the value of the egress secret {placeholder} must be a reference, such as secretref:env:API_TOKEN"
        )
    lists = {name: data[name] for name in ("hosts", "where") if name in data}
    for name, items in lists.items():
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise ConfigurationError(f"{name} of an egress secret must be a list of texts")
    if not isinstance(data.get("plain_http", False), bool):
        raise ConfigurationError("plain_http of an egress secret must be true or false")
    rest: dict[str, Any] = {name: tuple(items) for name, items in lists.items()}
    rest.setdefault("hosts", ())
    return placeholder, Secret(ref=value.removeprefix(_REFERENCE), plain_http=data.get("plain_http", False), **rest)
