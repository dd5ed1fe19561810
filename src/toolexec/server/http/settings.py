"""The settings of the HTTP server, and which of them are too dangerous to start with."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from toolexec.errors import ConfigurationError
from toolexec.model.settings import checked
from toolexec.server.auth.settings import AuthSettings
from toolexec.server.http.replies import is_loopback, split_host

__all__ = ["HttpSettings", "check_exposure"]

_OWN_PATHS = ("/healthz", "/readyz", "/health", "/metrics")


@checked("HttpSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How the server listens.

    `host` and `port` (0: a free one) are where; `path` is where MCP is spoken. With `sse`, the older transport is
    there, too, at `sse_path` and `messages_path`. `tls_cert` and `tls_key` are PEM files (one file may hold both).
    `behind_proxy` says that a reverse proxy is in front, which speaks TLS; only the proxies at `trusted_proxies`
    (addresses or networks) are believed when they say whom a request is from.

    `allowed_hosts` are the names under which clients reach the server (`tools.example.com`; with a port only that
    one), `allowed_origins` the web pages that may (`https://app.example.com`). The loopback names are always right
    for a server that only this machine can reach.

    Limits: bytes of a body and of a request's head, how deep JSON may nest and how many values it may have
    (all callers wait while it is decoded), seconds until the head and the body must
    be there, until an idle connection is closed and until a client that does not read is dropped; `max_connections`
    and `max_sessions` at one time; a session ends after `session_idle` seconds without a request. When the server
    stops, calls may take `shutdown_grace` seconds more.

    `operator_roles`: who may read `/health` and `/metrics`; empty means every caller that is let in.
    `json_response` answers without event streams where that is possible: no progress then, but simpler for proxies.

    Raises ConfigurationError for a value that makes no sense.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    path: str = "/mcp"
    sse: bool = False
    sse_path: str = "/sse"
    messages_path: str = "/messages"
    tls_cert: str = ""
    tls_key: str = ""
    behind_proxy: bool = False
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    operator_roles: tuple[str, ...] = ()
    json_response: bool = False
    max_body_bytes: int = 4 * 2**20
    max_header_bytes: int = 32 * 2**10
    max_json_depth: int = 100
    max_json_values: int = 400_000
    header_timeout: float = 10.0
    body_timeout: float = 30.0
    keep_alive: float = 15.0
    read_timeout: float = 30.0
    max_connections: int = 1000
    max_sessions: int = 1000
    session_idle: float = 1800.0
    shutdown_grace: float = 3.0

    def __post_init__(self) -> None:
        if not self.host:
            raise ConfigurationError("host must be an address to listen on, such as 127.0.0.1")
        if not 0 <= self.port <= 65535:
            raise ConfigurationError(f"port must be 0 to 65535, not {self.port!r}")
        self._check_paths()
        self._check_limits()
        if self.tls_key and not self.tls_cert:
            raise ConfigurationError("tls_key needs tls_cert, the certificate that belongs to it")
        for name in self.allowed_hosts:
            if split_host(name) is None:
                raise ConfigurationError(f"allowed_hosts must be names such as tools.example.com, not {name!r}")
        for origin in self.allowed_origins:
            parts = urlsplit(origin)
            if parts.scheme not in ("http", "https") or origin != f"{parts.scheme}://{parts.netloc}" or "*" in origin:
                raise ConfigurationError(
                    f"allowed_origins must be origins such as https://app.example.com, without path and *: {origin!r}"
                )
        for network in self.trusted_proxies:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise ConfigurationError(f"trusted_proxies must be addresses or networks: {error}") from error

    def _check_paths(self) -> None:
        paths = [self.path, *((self.sse_path, self.messages_path) if self.sse else ())]
        for path in paths:
            if not re.fullmatch(r"/[A-Za-z0-9._~/-]*[A-Za-z0-9._~-]", path) or "//" in path:
                raise ConfigurationError(f"a path must begin with / and not end with it, such as /mcp, not {path!r}")
            if path in _OWN_PATHS or path.startswith("/.well-known/"):
                raise ConfigurationError(f"the path {path} is taken by the server itself; choose another one")
        if len(set(paths)) < len(paths):
            raise ConfigurationError("path, sse_path and messages_path must differ")

    def _check_limits(self) -> None:
        limits = ("max_body_bytes", "max_header_bytes", "max_json_depth", "max_json_values")
        for name in (*limits, "max_connections", "max_sessions"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be 1 or more, not {getattr(self, name)!r}")
        for name in ("header_timeout", "body_timeout", "keep_alive", "read_timeout", "session_idle"):
            if not 0 < getattr(self, name) < 1e7:
                raise ConfigurationError(f"{name} must be above 0 seconds, not {getattr(self, name)!r}")
        if not 0 <= self.shutdown_grace <= 60:
            raise ConfigurationError(f"shutdown_grace must be 0 to 60 seconds, not {self.shutdown_grace!r}")

    @property
    def public(self) -> bool:
        """Whether others than this machine can reach the server."""
        return self.behind_proxy or not is_loopback(self.host)


def check_exposure(http: HttpSettings, auth: AuthSettings) -> None:
    """Raise ConfigurationError when the server would be open to others than it should; the message says what to do."""
    if not http.public:
        return
    where = f"listening on {http.host}" if not http.behind_proxy else "serving behind a proxy"
    if not auth.on:
        raise ConfigurationError(
            f"{where} without authentication would let anybody run your tools; add API keys (`toolexec keys new ID`) "
            "or jwt, or listen on 127.0.0.1"
        )
    if auth.allow_anonymous:
        raise ConfigurationError(
            f"{where} with allow_anonymous would let anybody run your tools; take it away, or listen on 127.0.0.1"
        )
    if not http.tls_cert and not http.behind_proxy:
        raise ConfigurationError(
            f"{where} without TLS would show every key to the network; set tls_cert and tls_key, or behind_proxy if "
            "a reverse proxy in front of it speaks TLS"
        )
    wildcard = http.host in ("0.0.0.0", "::", "[::]", "*")  # noqa: S104 - recognised, not used
    if (http.behind_proxy or wildcard) and not http.allowed_hosts and not auth.resource_url:
        raise ConfigurationError(
            f"{where} needs allowed_hosts: the names under which clients reach it, such as tools.example.com"
        )
