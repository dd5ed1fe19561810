"""How to reach an MCP server, and the `mcpServers` files that say so."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from toolexec.errors import ConfigurationError
from toolexec.model.ids import check_segment, clean_segment

__all__ = ["MCPServer", "MCPTransport", "read_mcp_servers"]

MCPTransport: TypeAlias = Literal["auto", "stdio", "http", "sse"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MCPServer:
    """One MCP server: a `command` to start, or the `url` of one that runs.

    A command inherits only HOME, LOGNAME, PATH, SHELL, TERM and USER; `env` adds to that. `transport` `auto` means
    stdio for a command; for a URL streamable HTTP, and the older HTTP+SSE where the server refuses that.
    `connect_timeout` bounds one attempt to connect and list the tools. A lost connection is made again after a growing
    pause, at once when a call needs it, but at most `max_restarts` times within `restart_window` seconds; a command
    that cannot be started is tried again only when a call needs it. `stop_timeout` is how long a process may take to
    end by itself. `namespace` is that of the tools' IDs; the default is the name. All times are in seconds. The repr
    shows no arguments, environment, headers or URL query, which may hold secrets. Raises ConfigurationError for what
    cannot work.
    """

    name: str
    command: str = ""
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | Path | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    transport: MCPTransport = "auto"
    namespace: str = ""
    enabled: bool = True
    connect_timeout: float = 30.0
    max_restarts: int = 5
    restart_window: float = 60.0
    stop_timeout: float = 2.0

    def __post_init__(self) -> None:
        for label, segment in (("name", self.name), ("namespace", self.namespace or self.name)):
            problem = check_segment(segment)
            if problem:
                raise ConfigurationError(f"MCP server {self.name!r}: its {label} {problem}")
        if bool(self.command) == bool(self.url):
            raise ConfigurationError(f"MCP server {self.name}: give either a command or a url")
        if isinstance(self.args, str) or not all(isinstance(arg, str) for arg in self.args):
            raise ConfigurationError(f"MCP server {self.name}: args must be a list of texts")
        for label, texts in (("env", self.env), ("headers", self.headers)):
            if not all(isinstance(text, str) for pair in texts.items() for text in pair):
                raise ConfigurationError(f"MCP server {self.name}: {label} must map names to texts")
        self._check_transport()
        times = (self.connect_timeout, self.restart_window, self.stop_timeout)
        if not all(time > 0 for time in times) or not self.max_restarts >= 0:
            raise ConfigurationError(f"MCP server {self.name}: times must be above 0, max_restarts 0 or more")

    def _check_transport(self) -> None:
        if self.transport not in ("auto", "stdio", "http", "sse"):
            raise ConfigurationError(
                f"MCP server {self.name}: unknown transport {self.transport!r}; use auto, stdio, http or sse"
            )
        if self.command and self.transport in ("http", "sse"):
            raise ConfigurationError(f"MCP server {self.name}: a command speaks stdio, not {self.transport}")
        if self.url and (self.transport == "stdio" or not self.location):
            raise ConfigurationError(f"MCP server {self.name}: the url must be http:// or https://, over http or sse")

    def __repr__(self) -> str:
        where = f"url={self.location!r}" if self.url else f"command={self.command!r}"
        return f"MCPServer(name={self.name!r}, {where}, transport={self.transport!r})"

    @property
    def location(self) -> str:
        """The URL without user, password, query and fragment; empty when it is not one."""
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return ""
        if parts.scheme not in ("http", "https") or not host:
            return ""
        host = f"[{host}]" if ":" in host else host
        return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"

    def redact(self, text: str) -> str:
        """*text* with every value of `env` and `headers`, and what is secret in the URL, replaced by `***`."""
        values = [*self.env.values(), *self.headers.values()]
        values += [word for value in self.headers.values() for word in value.split()]
        if self.url:
            parts = urlsplit(self.url)
            values += [self.url.split("?", 1)[1] if "?" in self.url else "", parts.password or "", parts.username or ""]
            values += [value for pair in parse_qsl(parts.query) for value in pair[1:]]
        for value in sorted(set(values), key=len, reverse=True):
            if len(value) >= _SECRET_LENGTH:
                text = text.replace(value, "***")
        return text


_SECRET_LENGTH = 6  # anything shorter (`1`, `true`, a port) says nothing, and replacing it would garble the text

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
    ]
)
_FOREIGN_KEYS = frozenset(
    [
        "alwaysAllow",
        "auth",
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


def read_mcp_servers(path: str | Path) -> list[MCPServer]:
    """The servers of a JSON file in the form that Claude Desktop, Cursor (`mcpServers`) and VS Code (`servers`) write.

    Names that cannot be part of an ID are made legal; a relative `cwd` counts from the file's folder. Keys of other
    programs are ignored. Raises ConfigurationError that names the file, the server and the key.
    """
    path = Path(path)
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not JSON: {error}") from error
    places = [data, data.get("mcp")] if isinstance(data, dict) else []
    maps = [
        place[key] for place in places if isinstance(place, dict) for key in ("mcpServers", "servers") if key in place
    ]
    servers: Any = maps[0] if maps else None
    if not isinstance(servers, dict):
        raise ConfigurationError(f'{path} has no "mcpServers" object')
    found = [_read_server(path, str(name), entry) for name, entry in servers.items()]
    names = [server.name for server in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(f"{path}: several servers would be called {', '.join(twice)}; rename them")
    return found


def _read_server(path: Path, name: str, entry: Any) -> MCPServer:
    where = f"{path}: server {name!r}"
    if not isinstance(entry, dict):
        raise ConfigurationError(f"{where} must be an object")
    for key in entry.keys() - _KNOWN_KEYS - _FOREIGN_KEYS:
        close = difflib.get_close_matches(key, _KNOWN_KEYS, n=1)
        if close:
            raise ConfigurationError(f"{where} has the unknown key {key!r}; did you mean {close[0]!r}?")
    kind = next((entry[key] for key in ("type", "transport", "transportType") if entry.get(key)), "")
    if kind and (not isinstance(kind, str) or kind not in _TRANSPORTS):
        raise ConfigurationError(f"{where}: unknown type {kind!r}; use {', '.join(sorted(_TRANSPORTS))}")
    cwd = _typed(where, entry, "cwd", str)
    try:
        server = MCPServer(
            name=clean_segment(name),
            command=_typed(where, entry, "command", str) or "",
            args=tuple(_texts(where, entry, "args")),
            env=_text_map(where, entry, "env"),
            cwd=path.parent / cwd if cwd else None,
            url=next(filter(None, (_typed(where, entry, key, str) for key in ("url", "serverUrl", "httpUrl"))), ""),
            headers=_text_map(where, entry, "headers"),
            transport=_TRANSPORTS[kind] if kind else "auto",
            namespace=_typed(where, entry, "namespace", str) or "",
            enabled=not entry.get("disabled", False) and entry.get("enabled", True) is not False,
        )
        numbers = {
            key: entry[key]
            for key in ("connect_timeout", "max_restarts", "restart_window", "stop_timeout")
            if key in entry
        }
        return replace(server, **numbers) if numbers else server
    except (ConfigurationError, TypeError) as error:
        raise ConfigurationError(f"{where}: {error}") from error


def _typed(where: str, entry: Mapping[str, Any], key: str, kind: type) -> Any:
    value = entry.get(key)
    if value is not None and not isinstance(value, kind):
        raise ConfigurationError(f"{where}: {key} must be of type {kind.__name__}")
    return value


def _texts(where: str, entry: Mapping[str, Any], key: str) -> list[str]:
    values = _typed(where, entry, key, list) or []
    if not all(isinstance(value, str | int | float) for value in values):
        raise ConfigurationError(f"{where}: {key} must be a list of texts")
    return [_text(value) for value in values]


def _text_map(where: str, entry: Mapping[str, Any], key: str) -> dict[str, str]:
    values = _typed(where, entry, key, dict) or {}
    if not all(isinstance(value, str | int | float) for value in values.values()):
        raise ConfigurationError(f"{where}: {key} must map names to texts")
    return {name: _text(value) for name, value in values.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
