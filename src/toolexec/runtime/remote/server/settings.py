"""How a server of sandboxes listens, whom it serves, and how much of it each may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.model.settings import checked
from toolexec.runtime.base import PROFILES
from toolexec.runtime.remote.messages import MAX_HEAD_BYTES
from toolexec.runtime.remote.signature import SKEW, SigningKey

__all__ = ["RuntimeServerSettings", "TenantQuota"]

_LARGEST_RESULT: Final = 96 << 20  # what a program leaves in files, as Base64, with its output


@checked("TenantQuota")
@dataclass(frozen=True, slots=True, kw_only=True)
class TenantQuota:
    """How much one tenant may have: `running` and `queued` runs at a time, and new ones per second (`rate`). 0: as much
    as the server has. Raises ConfigurationError for a value below 0.
    """

    tenant: str = ""
    running: int = 0
    queued: int = 0
    rate: float = 0.0

    def __post_init__(self) -> None:
        for name in ("running", "queued", "rate"):
            if getattr(self, name) < 0:
                raise ConfigurationError(
                    f"{name} of a tenant must be 0 (no bound) or more, not {getattr(self, name)!r}"
                )


@checked("RuntimeServerSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeServerSettings:
    """How the server works; times are in seconds.

    `host`, `port` (0: a free one) and `path` are where it listens. `tls_cert` and `tls_key` are PEM files (one may hold
    both); with `client_ca`, a PEM file, clients need a certificate of one of these authorities. `behind_proxy` says
    that a proxy in front speaks TLS. `keys` are those of the clients.

    `profiles` are those that clients may ask for. `max_running` runs take place at once, `max_queued` wait; a tenant
    may have `quota`, or what `quotas` says of it. `state_directory` keeps what was started and how it ended, for
    `keeps` seconds; it belongs to one server.

    A body may have `max_body_bytes`, what is printed `max_output_chars`, and a program takes no longer than
    `max_timeout`; more is refused. `skew` is how far the clocks may differ. A run whose client is away for
    `reconnect` is stopped; a client has `go_timeout` to confirm a start. Connections that do not answer for `ping`, and
    new ones without a request for `header_timeout`, are closed. At the end, runs may take `drain_grace`.

    `gateway_hosts` are the hosts where tools of requests by POST may be (empty: all), `gateway_private` allows private
    addresses, too.

    Raises ConfigurationError for a value that makes no sense, and for a server that others could reach without keys or
    without TLS.
    """

    host: str = "127.0.0.1"
    port: int = 8090
    path: str = "/v1/execute"
    tls_cert: str = ""
    tls_key: str = ""
    client_ca: str = ""
    behind_proxy: bool = False
    keys: Sequence[SigningKey] = ()
    profiles: Sequence[str] = ("standard", "hardened")
    max_running: int = 8
    max_queued: int = 1000
    quota: TenantQuota = TenantQuota()
    quotas: Sequence[TenantQuota] = ()
    state_directory: str | Path = ""
    keeps: float = 600.0
    max_body_bytes: int = 32 << 20
    max_output_chars: int = 16 << 20
    max_timeout: float = 3600.0
    skew: float = SKEW
    reconnect: float = 30.0
    go_timeout: float = 10.0
    ping: float = 10.0
    header_timeout: float = 10.0
    drain_grace: float = 30.0
    gateway_hosts: Sequence[str] = ()
    gateway_private: bool = False

    def __post_init__(self) -> None:
        if not self.host or not 0 <= self.port <= 65535:
            raise ConfigurationError(f"host must be an address and port 0 to 65535, not {self.host!r} {self.port!r}")
        if not self.path.startswith("/") or self.path.endswith("/"):
            raise ConfigurationError(f"path must begin with / and not end with it, such as /v1/execute: {self.path!r}")
        if not self.keys:
            raise ConfigurationError(
                "a server of sandboxes needs keys, so that only their owners can run code on it; add one to keys"
            )
        if (self.tls_key or self.client_ca) and not self.tls_cert:
            raise ConfigurationError("tls_key and client_ca need tls_cert, the certificate of the server")
        if not (self.tls_cert or self.behind_proxy or self.host in ("127.0.0.1", "::1", "localhost")):
            raise ConfigurationError(
                f"listening on {self.host} without TLS would show code and tokens to the network; set tls_cert and "
                "tls_key, or behind_proxy if a proxy in front of it speaks TLS"
            )
        unknown = sorted({*self.profiles} - {*PROFILES})
        if unknown or not self.profiles:
            raise ConfigurationError(f"profiles must be some of {', '.join(PROFILES)}, not {unknown or 'empty'}")
        for name in ("max_running", "max_queued", "max_body_bytes", "max_output_chars"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be 1 or more, not {getattr(self, name)!r}")
        for name in ("keeps", "skew", "reconnect", "go_timeout", "ping", "header_timeout", "max_timeout"):
            if not 0 < getattr(self, name) < 1e7:
                raise ConfigurationError(f"{name} must be above 0 seconds, not {getattr(self, name)!r}")
        if not 0 <= self.drain_grace < 1e7:
            raise ConfigurationError(f"drain_grace must be 0 seconds or more, not {self.drain_grace!r}")

    @property
    def max_message_bytes(self) -> int:
        """How long a message of a connection may be, and a result."""
        return max(self.max_body_bytes, _LARGEST_RESULT) + MAX_HEAD_BYTES

    def quota_of(self, tenant: str) -> TenantQuota:
        """Return what holds for one tenant."""
        return next((each for each in self.quotas if each.tenant == tenant), replace(self.quota, tenant=tenant))
