"""The settings of the HTTP server, and which of them are too dangerous to start with."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from toolexec.errors import ConfigurationError
from toolexec.model.declared import Bytes, FileName, Seconds, duration, setting
from toolexec.model.settings import checked
from toolexec.server.auth.settings import AuthSettings
from toolexec.server.http.replies import is_loopback, split_host

_OWN_PATHS = ("/healthz", "/readyz", "/health", "/metrics", "/context")


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

    `operator_roles`: who may read `/health`, `/metrics` and `/context`; empty means every caller that is let in.
    `json_response` answers without event streams where that is possible: no progress then, but simpler for proxies.

    Raises ConfigurationError for a value that makes no sense.
    """

    host: str = setting("127.0.0.1", "Listen address; a public one needs auth, and TLS or behind_proxy.")
    port: int = setting(8080, "Listen port; 0 picks a free one.", least=0, most=65535)
    path: str = setting("/mcp", "The path of the MCP endpoint.")
    sse: bool = False
    behind_proxy: bool = setting(False, "A proxy in front terminates TLS.")
    trusted_proxies: tuple[str, ...] = setting(("127.0.0.1", "::1"), "Proxies whose forwarded-for headers are trusted.")
    tls_cert: FileName = setting("", "Certificate file, PEM.")
    tls_key: FileName = setting("", "Key file, PEM; empty: it is in the certificate file.")
    allowed_hosts: tuple[str, ...] = setting((), "Host names that clients use: tools.example.com.")
    allowed_origins: tuple[str, ...] = setting((), "Web origins allowed to connect: https://app.example.com.")
    operator_roles: tuple[str, ...] = setting(
        (), "Roles that may read /health, /metrics and /context; empty: any authenticated caller."
    )
    sse_path: str = setting("/sse", "Path of the older HTTP transport (sse).")
    messages_path: str = setting("/messages", "Path where clients of the older HTTP transport post.")
    json_response: bool = setting(False, "Answer without event streams where possible; disables progress.")
    max_body_bytes: Bytes = setting(4 * 1024**2, "Largest request body.", least=1)
    max_header_bytes: Bytes = setting(32 * 1024, "Largest request head.", least=1)
    max_json_depth: int = setting(100, "Deepest nesting of a request's values.", least=1)
    max_json_values: int = setting(400_000, "Most values in a request; parsing them blocks all others.", least=1)
    header_timeout: Seconds = duration(10.0, "Time limit for a request's head.")
    body_timeout: Seconds = duration(30.0, "Time limit for a request's body.")
    keep_alive: Seconds = duration(15.0, "Idle time after which a connection is closed.")
    read_timeout: Seconds = duration(30.0, "Time limit for a client to read a response.")
    max_connections: int = setting(1000, "Most connections at a time.", least=1)
    max_sessions: int = setting(1000, "Most sessions at a time.", least=1)
    session_idle: Seconds = duration(1800.0, "Idle time after which a session ends.")
    shutdown_grace: Seconds = setting(3.0, "How long running calls may continue at shutdown.", least=0, most=60)

    def __post_init__(self) -> None:
        if not self.host:
            raise ConfigurationError("host must be an address to listen on, such as 127.0.0.1")
        self._check_paths()
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
