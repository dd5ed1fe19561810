"""The parts of a gateway that settings describe, without anything outside of this process being touched."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from toolexec.config.blocks import KEYS
from toolexec.config.load import Loaded
from toolexec.config.mistakes import did_you_mean
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.exec.options import Options
    from toolexec.run.layers.rate_limit import RateLimit
    from toolexec.run.policy import Policy, Rule
    from toolexec.server.auth import ApiKey, AuthSettings
    from toolexec.server.http import HttpSettings
    from toolexec.server.settings import ServeSettings

__all__ = [
    "api_key",
    "auth_settings",
    "exec_options",
    "http_settings",
    "policy",
    "rate_limit",
    "rule",
    "serve_settings",
]

_CODE_LIMITS = ("max_chain_steps", "cpu_ms", "cpus", "memory", "pids", "disk")
_BYTES = {"memory": "memory_bytes", "disk": "disk_bytes"}


def rule(data: Any) -> Rule:
    """One rule of the policy; raises ConfigurationError."""
    from toolexec.run.policy import Rule

    return Rule.from_dict(data)


def policy(loaded: Loaded) -> Policy:
    """The policy; raises ConfigurationError."""
    from toolexec.run.policy import Policy

    block = loaded.settings.policy
    rules = [rule(each) for each in block.rules]
    return Policy(rules, default=block.default, remote_destructive=block.remote_destructive)


def rate_limit(loaded: Loaded) -> RateLimit | None:
    """The rate limits; None where there are none."""
    from toolexec.run.layers.rate_limit import RateLimit

    block = loaded.settings.limits
    rates: dict[str, Any] = {
        "overall": block.rate or None,
        "per_caller": block.rate_per_caller or None,
        "per_tool": block.rate_per_tool or None,
        "per_backend": block.rate_per_backend or None,
    }
    return RateLimit(**rates) if any(rates.values()) else None


def api_key(data: Any) -> ApiKey:
    """One API key; raises ConfigurationError, which says nothing of its values."""
    from toolexec.server.auth import ApiKey

    known = {each.name: each for each in fields(ApiKey)}
    for name in data:
        if name not in known:
            raise ConfigurationError(f"unknown key {name} of an API key; {did_you_mean(name, known)}")
    for name in ("id", "sha256"):
        if not isinstance(data.get(name), str):
            raise ConfigurationError(f"an API key needs {name}, a text; `toolexec keys new ID` prints both")
    lists = {name: data[name] for name in ("roles", "scopes") if name in data}
    for name, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigurationError(f"{name} of an API key must be a list of texts")
    for name in ("tenant", "expires"):
        if not isinstance(data.get(name, ""), str):
            raise ConfigurationError(f"{name} of an API key must be a text")
    values: dict[str, Any] = {**data, **{name: tuple(value) for name, value in lists.items()}}
    return ApiKey(**values)


def auth_settings(loaded: Loaded) -> AuthSettings:
    """Who may use the server; raises ConfigurationError."""
    from toolexec.server.auth import AuthSettings, JwtSettings

    block, tokens = loaded.settings.auth, loaded.settings.auth_jwt
    jwt = JwtSettings(**_values(loaded, "auth.jwt")) if tokens.issuer or loaded.has("auth.jwt") else None
    own: dict[str, Any] = {**_values(loaded, "auth"), "api_keys": tuple(api_key(each) for each in block.api_keys)}
    return AuthSettings(**own, jwt=jwt)


def http_settings(loaded: Loaded) -> HttpSettings:
    """How the server listens; raises ConfigurationError."""
    from toolexec.server.http import HttpSettings

    server = loaded.settings.server
    values = _values(loaded, "http")
    del values["required_backends"]  # that is what its health is about
    return HttpSettings(
        **values,
        host=server.host,
        port=server.port,
        path=server.path,
        sse=server.transport == "sse",
    )


def serve_settings(loaded: Loaded) -> ServeSettings:
    """What the server offers; raises ConfigurationError."""
    from toolexec.server.settings import ServeSettings

    values = _values(loaded, "server")
    for name in ("host", "port", "path", "log_level", "toolsets"):  # where it listens, what it says, what its Exec has
        del values[name]
    return ServeSettings(
        **values,
        approval_timeout=loaded.settings.approval.timeout,
        http=http_settings(loaded),
        auth=auth_settings(loaded),
    )


def exec_options(loaded: Loaded, base: Options, *, only_given: bool = False) -> Options:
    """The options of an Exec that the settings describe, upon *base*; with *only_given*, those that somebody has set.

    Raises ConfigurationError, and InvalidLimitsError for limits of code.
    """
    from dataclasses import replace

    from toolexec.code.limits import Limits

    limits, code = loaded.settings.limits, loaded.settings.code
    options: dict[str, tuple[str, Any]] = {
        "default_timeout": ("limits.call_timeout", limits.call_timeout or None),
        "start_timeout": ("limits.start_timeout", limits.start_timeout),
        "max_tool_calls": ("limits.max_tool_calls", limits.max_tool_calls),
        "enable_code_execution": ("code.enabled", code.enabled),
        "security_profile": ("code.profile", code.profile),
        "default_language": ("code.language", code.language),
        "unsafe_opt_in": ("code.unsafe_opt_in", code.unsafe_opt_in),
    }
    wanted = {
        name: value
        for name, (path, value) in options.items()
        if not only_given or loaded.values[path].layer != "default"
    }
    of_code = {name: getattr(limits, name) for name in _CODE_LIMITS}
    if any(of_code.values()):
        wanted["code_limits"] = Limits(**{_BYTES.get(name, name): value for name, value in of_code.items()})
    if loaded.has("sandboxes"):
        from toolexec.config.sandboxes import sandbox_settings

        wanted["runtime_backends"] = sandbox_settings(loaded)
    return replace(base, **wanted)


def _values(loaded: Loaded, block: str) -> dict[str, Any]:
    return {key.name: loaded.settings.get(key.path) for key in KEYS.values() if key.block == block}
