"""The `mcpServers` files that say how to reach MCP servers, as Claude Desktop, Cursor and VS Code write them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from toolexec.backend.mcp.config import MCPServer, MCPTransport
from toolexec.backend.mcp.sandbox import read_server_sandbox
from toolexec.backend.secrets import SecretResolver
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.ids import clean_segment
from toolexec.model.json_value import JSONObject, JSONValue
from toolexec.net.oauth.settings import read_oauth

_KNOWN_KEYS = frozenset(
    [
        "command",
        "args",
        "env",
        "cwd",
        "url",
        "serverUrl",
        "httpUrl",
        "headers",
        "type",
        "transport",
        "transportType",
        "disabled",
        "enabled",
        "namespace",
        "connect_timeout",
        "max_restarts",
        "restart_window",
        "stop_timeout",
        "isolation",
        "max_instances",
        "instance_idle",
        "sandbox",
        "questions",
        "include",
        "exclude",
        "include_prompts",
        "exclude_prompts",
        "include_resources",
        "exclude_resources",
        "auth",
    ]
)
_AS_WRITTEN = (
    *("connect_timeout", "max_restarts", "restart_window", "stop_timeout"),
    *("isolation", "max_instances", "instance_idle", "questions"),
    *("include", "exclude", "include_prompts", "exclude_prompts", "include_resources", "exclude_resources"),
)
_FOREIGN_KEYS = frozenset(
    [
        "alwaysAllow",
        "autoApprove",
        "description",
        "dev",
        "disabledTools",
        "enabledTools",
        "envFile",
        "excludeTools",
        "gallery",
        "headersHelper",
        "icon",
        "id",
        "includeTools",
        "name",
        "oauth",
        "sandboxEnabled",
        "timeout",
        "title",
        "tools",
        "trust",
        "version",
    ]
)
_TRANSPORTS: Mapping[str, MCPTransport] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}


def server_table(data: JSONValue) -> tuple[tuple[str, ...], JSONValue]:
    """Return where the servers are in the data of a file, and what is there: `mcpServers` or `servers`, at the top or
    in `mcp`; else nothing and None.
    """
    inner = data.get("mcp") if isinstance(data, Mapping) else None
    for prefix, table in (((), data), (("mcp",), inner)):
        for key in ("mcpServers", "servers"):
            if isinstance(table, Mapping) and key in table:
                return (*prefix, key), table[key]
    return (), None


def read_mcp_servers(path: str | Path, *, secrets: SecretResolver | None = None) -> list[MCPServer]:
    """Return the servers of a JSON file in the form that Claude Desktop, Cursor (`mcpServers`) and VS Code (`servers`)
    write.

    Each is read as `read_mcp_server` does; a relative `cwd` counts from the file's directory. Raises ConfigurationError
    that names the file, the server and the key.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not JSON: {error}") from error
    _, servers = server_table(data)
    if not isinstance(servers, Mapping):
        raise ConfigurationError(f'{path} has no "mcpServers" object')
    found = [
        read_mcp_server(str(name), entry, where=str(path), directory=path.parent, secrets=secrets)
        for name, entry in servers.items()
    ]
    names = [server.name for server in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(f"{path}: several servers would be called {', '.join(twice)}; rename them")
    return found


def misspelt_keys(entry: JSONObject) -> dict[str, str]:
    """Return the unknown keys of a server that are close to a known one, each with that one."""
    found: dict[str, str] = {}
    for key in entry:
        if key not in _KNOWN_KEYS and key not in _FOREIGN_KEYS:
            close = difflib.get_close_matches(str(key), _KNOWN_KEYS, n=1)
            if close:
                found[key] = close[0]
    return found


def read_mcp_server(
    name: str, entry: JSONValue, *, where: str, directory: Path, secrets: SecretResolver | None = None
) -> MCPServer:
    """Return one server of an `mcpServers` table.

    A name that cannot be part of an ID is made legal; a relative `cwd` counts from *directory*. Keys of other programs
    are ignored. References are filled in by *secrets* when the server is connected, and left as they are without it.
    Raises ConfigurationError, which begins with *where* and names the server and the key.
    """
    where = f"{where}: server {name!r}"
    try:
        return _read(name, entry, directory, secrets)
    except (ConfigurationError, TypeError) as error:
        colon = "" if isinstance(error, _EntryError) else ":"
        raise ConfigurationError(f"{where}{colon} {error}") from error


class _EntryError(ConfigurationError):
    """What is wrong with an entry, as the end of a sentence that begins with its name."""


def _read(name: str, entry: JSONValue, directory: Path, secrets: SecretResolver | None) -> MCPServer:
    if not isinstance(entry, Mapping):
        raise _EntryError("must be an object")
    for key, close in misspelt_keys(entry).items():
        raise _EntryError(f"has the unknown key {key!r}; did you mean {close!r}?")
    kind = next((entry[key] for key in ("type", "transport", "transportType") if entry.get(key)), "")
    if kind and (not isinstance(kind, str) or kind not in _TRANSPORTS):
        hint = did_you_mean(kind, sorted(_TRANSPORTS), otherwise=f"use {', '.join(sorted(_TRANSPORTS))}")
        raise ConfigurationError(f"unknown type {kind!r}; {hint}")
    cwd = _typed(entry, "cwd", str)
    server = MCPServer(
        name=clean_segment(name),
        command=_typed(entry, "command", str) or "",
        args=tuple(_strings(entry, "args")),
        env=_text_map(entry, "env"),
        cwd=_located(directory, cwd, secrets) if cwd else None,
        url=next(filter(None, (_typed(entry, key, str) for key in ("url", "serverUrl", "httpUrl"))), ""),
        headers=_text_map(entry, "headers"),
        transport=_TRANSPORTS[kind] if kind else "auto",
        namespace=_typed(entry, "namespace", str) or "",
        enabled=not entry.get("disabled", False) and entry.get("enabled", True) is not False,
        secrets=secrets,
        auth=read_oauth(entry.get("auth")),
        sandbox=read_server_sandbox(entry.get("sandbox"), directory.absolute()),
    )
    more = {key: entry[key] for key in _AS_WRITTEN if key in entry}
    return replace(server, **more) if more else server


def _located(directory: Path, cwd: str, secrets: SecretResolver | None) -> str | Path:
    begins_later = secrets is not None and cwd.startswith(("${", "secretref:"))
    return cwd if begins_later else directory / cwd


def _typed(entry: JSONObject, key: str, kind: type) -> JSONValue:
    value = entry.get(key)
    if value is not None and not isinstance(value, kind):
        raise ConfigurationError(f"{key} must be of type {kind.__name__}")
    return value


def _strings(entry: JSONObject, key: str) -> list[str]:
    values = _typed(entry, key, list) or []
    if not all(isinstance(value, str | int | float) for value in values):
        raise ConfigurationError(f"{key} must be a list of strings")
    return [_text(value) for value in values]


def _text_map(entry: JSONObject, key: str) -> dict[str, str]:
    values = _typed(entry, key, dict) or {}
    if not all(isinstance(value, str | int | float) for value in values.values()):
        raise ConfigurationError(f"{key} must map names to strings")
    return {name: _text(value) for name, value in values.items()}


def _text(value: JSONValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)
