"""How a server of sandboxes listens, whom it serves, and how much of it each may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.model.declared import Bytes, FileName, PathName, Seconds, duration, setting
from toolexec.model.settings import checked
from toolexec.runtime.base import PROFILES
from toolexec.runtime.remote.keys import MIN_SECRET_CHARS, SKEW, SigningKey

__all__ = ["MAX_HEAD_BYTES", "RuntimeServerSettings", "TenantQuota"]

MAX_HEAD_BYTES: Final = 64 << 10
"""How long the head of a message of a connection may be."""
_LARGEST_RESULT: Final = 96 << 20  # what a program leaves in files, as Base64, with its output


@checked("TenantQuota")
@dataclass(frozen=True, slots=True, kw_only=True)
class TenantQuota:
    """How much one tenant may have: `running` and `queued` runs at a time, new ones per second (`rate`), `connections`,
    bytes that are `held` for it, and `messages` per second. 0: a fair share of what the server has, and any rate.

    `weight` says how large that share is beside those of the others: the next place goes to the tenant that has had the
    least time of them for its weight. Raises ConfigurationError for a value below 0, and a weight of 0.
    """

    tenant: str = ""
    running: int = setting(0, "How many runs of one tenant take place at once; 0: any number.", least=0)
    queued: int = setting(0, "How many more of them may wait; 0: any number.", least=0)
    rate: float = setting(
        0.0, "How many runs a tenant may begin in a second, in sessions, too; 0: any number.", least=0
    )
    connections: int = setting(0, "How many connections a tenant may have; 0: a fair share.", least=0)
    held: Bytes = setting(0, "How many bytes may be held for a tenant; 0: a fair share of max_held.", least=0)
    messages: float = setting(
        2000.0, "How many messages of a tenant are read in a second, the others wait; 0: any number.", least=0
    )
    weight: float = setting(1.0, "How large the fair share of a tenant is, beside those of the others.", above=0)


@checked("RuntimeServerSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeServerSettings:
    """How the server works; times are in seconds.

    `host`, `port` (0: a free one) and `path` are where it listens. `tls_cert` and `tls_key` are PEM files (one may hold
    both); with `client_ca`, a PEM file, clients need a certificate of one of these authorities. `behind_proxy` says
    that a proxy in front speaks TLS. `keys` are those of the clients. `metrics_token` is the bearer token of scrapers,
    which read `/metrics` with it and nothing else ("": there are none).

    `processes` serve the port together, each with its own sandboxes, and its part of `max_running`, `max_queued`,
    `max_held`, `max_connections` and `max_anonymous` (where these two are not 0, and so of the files of each process),
    and of what quotas say: rounded up, so that a tenant has at least one of each.

    `profiles` are those that clients may ask for. `max_running` runs take place at once, `max_queued` wait; a tenant
    may have `quota`, or what `quotas` says of it. `state_directory` keeps what was started and how it ended, for
    `keeps` seconds; it belongs to one server.

    `max_connections` are open at once (0: three quarters of the files that the process may open), and `max_anonymous`
    of them may be without a key (0: a quarter of the files, at most 256). `max_held` bytes of requests and results are
    held at once, for all tenants: messages that are half read, runs that are not over, results that are not
    acknowledged. Where another tenant waits, a place that is not used for `slot_idle` is taken from a tenant that has
    more than its share: its caller does not confirm, its session is idle, or its program waits for an answer.

    A body may have `max_body_bytes`, what is printed `max_output_chars`, and a program takes no longer than
    `max_timeout`; more is refused. `skew` is how far the clocks may differ. A run whose client is away for
    `reconnect` is stopped; a client has `go_timeout` to confirm a start. Connections that do not answer for `ping`, and
    new ones without a request for `header_timeout`, are closed. At the end, runs may take `drain_grace`.

    `gateway_hosts` are the hosts where tools of requests by POST may be (empty: all), `gateway_private` allows private
    addresses, too.

    Raises ConfigurationError for a value that makes no sense, and for a server that others could reach without keys or
    without TLS.
    """

    host: str = setting("127.0.0.1", "The address to listen at; a public one needs TLS or behind_proxy.")
    port: int = setting(8090, "The port; 0 means any free one.", least=0, most=65535)
    path: str = setting("/v1/execute", "The path of the endpoint.")
    tls_cert: FileName = setting("", "The certificate's file, PEM.")
    tls_key: FileName = setting("", "The key's file, PEM; empty: it is in the certificate's.")
    client_ca: FileName = setting(
        "", "Clients need a certificate of an authority in this file, PEM; empty: they need none."
    )
    behind_proxy: bool = setting(False, "A proxy in front of it does TLS.")
    keys: Sequence[SigningKey] = setting(
        (), "Keys of clients: id, token, secret, tenant, expires; token and secret may be a secretref:.", secret=True
    )
    metrics_token: str = setting(
        "", "The bearer token of scrapers, for /metrics alone; may be a secretref:. Empty: there are none.", secret=True
    )
    profiles: Sequence[str] = setting(("standard", "hardened"), "The security profiles that clients may ask for.")
    processes: int = setting(
        1, "How many processes serve the port, each with its part of what is allowed.", least=1, most=64
    )
    max_running: int = setting(8, "How many runs take place at once.", least=1)
    max_queued: int = setting(1000, "How many more may wait.", least=1)
    quota: TenantQuota = TenantQuota()
    quotas: Sequence[TenantQuota] = setting(
        (), "Other quotas of single tenants: tenant, running, queued, rate, connections, held, messages, weight."
    )
    max_connections: int = setting(
        0, "How many connections may be open; 0: three quarters of the files that the process may open.", least=0
    )
    max_anonymous: int = setting(
        0, "How many of them may have shown no key; 0: a quarter of the files, at most 256.", least=0
    )
    max_held: Bytes = setting(
        512 * 1024**2, "How many bytes of requests and results are held at once, for all tenants.", least=1
    )
    slot_idle: Seconds = duration(
        60.0, "A place that is not used for so long is taken back, where another tenant waits.", file_least=0.1
    )
    state_directory: PathName = setting("", "Where starts and ends are kept; empty: in the state directory.")
    keeps: Seconds = duration(600.0, "For how long they are kept.", file_least=1)
    max_body_bytes: Bytes = setting(32 * 1024**2, "How long a request may be.", least=1)
    max_output_chars: Bytes = setting(16 * 1024**2, "How much of what a program prints may be kept.", least=1)
    max_timeout: Seconds = duration(3600.0, "The longest time limit that a request may ask for.", file_least=0.1)
    skew: Seconds = duration(SKEW, "How far the clocks of client and server may differ.", file_least=1)
    reconnect: Seconds = duration(30.0, "A run whose client is away for so long is stopped.", file_least=0.1)
    go_timeout: Seconds = duration(10.0, "How long a client may take to confirm the start of a run.", file_least=0.1)
    ping: Seconds = duration(10.0, "Connections that are silent for so long are closed.", file_least=0.1)
    header_timeout: Seconds = duration(
        10.0, "How long a new connection may take to bring its first request.", file_least=0.1
    )
    drain_grace: Seconds = setting(30.0, "How long runs may go on when the server is to end.", least=0, below=1e7)
    gateway_hosts: Sequence[str] = setting((), "Hosts where the tools of requests by POST may be; empty: all.")
    gateway_private: bool = setting(False, "They may have private addresses, too.")

    def __post_init__(self) -> None:
        if not self.host:
            raise ConfigurationError("host must be an address to listen at, such as 127.0.0.1")
        if not self.path.startswith("/") or self.path.endswith("/"):
            raise ConfigurationError(f"path must begin with / and not end with it, such as /v1/execute: {self.path!r}")
        if not self.keys:
            raise ConfigurationError(
                "a server of sandboxes needs keys, so that only their owners can run code on it; add one to keys"
            )
        if self.metrics_token and (len(self.metrics_token) < MIN_SECRET_CHARS or not self.metrics_token.isascii()):
            raise ConfigurationError(f"metrics_token needs at least {MIN_SECRET_CHARS} characters of ASCII")
        if any(self.metrics_token in (key.token, key.secret) for key in self.keys if self.metrics_token):
            raise ConfigurationError("metrics_token is for scrapers alone; it must not be that of a key")
        if (self.tls_key or self.client_ca) and not self.tls_cert:
            raise ConfigurationError("tls_key and client_ca need tls_cert, the certificate of the server")
        if not (self.tls_cert or self.behind_proxy or self.host in ("127.0.0.1", "::1", "localhost")):
            raise ConfigurationError(
                f"listening on {self.host} without TLS would show code and tokens to the network; set tls_cert and "
                "tls_key, or behind_proxy if a proxy in front of it speaks TLS"
            )
        if self.max_held < self.max_body_bytes:
            raise ConfigurationError("max_held must not be less than max_body_bytes, so that a request can be held")
        if self.max_held < self.processes * self.max_body_bytes:
            raise ConfigurationError(
                f"max_held must not be less than max_body_bytes for each of {self.processes} processes, so that each "
                "can hold a request"
            )
        if self.max_running < self.processes:
            raise ConfigurationError(f"max_running must not be less than the number of processes, {self.processes}")
        unknown = sorted({*self.profiles} - {*PROFILES})
        if unknown or not self.profiles:
            raise ConfigurationError(f"profiles must be some of {', '.join(PROFILES)}, not {unknown or 'empty'}")

    @property
    def max_message_bytes(self) -> int:
        """How long a message of a connection may be, and a result."""
        return max(self.max_body_bytes, _LARGEST_RESULT) + MAX_HEAD_BYTES

    def part(self, number: int) -> RuntimeServerSettings:
        """Return the settings of one of the `processes`, from 1 on: with its part of what all of them may have."""
        count = self.processes
        if count == 1:
            return self
        directory = self.state_directory
        return replace(
            self,
            processes=1,
            max_running=self.max_running // count + (number <= self.max_running % count),
            max_queued=-(-self.max_queued // count),
            max_held=self.max_held // count,
            max_connections=-(-self.max_connections // count),
            max_anonymous=-(-self.max_anonymous // count),
            quota=_part(self.quota, count),
            quotas=tuple(_part(each, count) for each in self.quotas),
            state_directory=f"{directory}/process-{number}" if directory else "",
        )

    def quota_of(self, tenant: str) -> TenantQuota:
        """Return what holds for one tenant."""
        return next((each for each in self.quotas if each.tenant == tenant), replace(self.quota, tenant=tenant))


def _part(quota: TenantQuota, count: int) -> TenantQuota:
    """Return what a tenant may have of one of *count* processes; 0 stays 0."""
    return replace(
        quota,
        running=-(-quota.running // count),
        queued=-(-quota.queued // count),
        rate=quota.rate / count,
        connections=-(-quota.connections // count),
        held=-(-quota.held // count),
        messages=quota.messages / count,
    )
