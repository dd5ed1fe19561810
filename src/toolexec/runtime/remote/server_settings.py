"""How a server of sandboxes listens, whom it serves, and how much of it each may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.model.declared import Bytes, FileName, PathName, Seconds, duration, setting
from toolexec.model.settings import checked
from toolexec.run.run_request import PROFILES
from toolexec.runtime.remote.keys import MIN_SECRET_CHARS, SKEW, SigningKey

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
    running: int = setting(0, "Most runs of one tenant at once; 0: any number.", least=0)
    queued: int = setting(0, "Most waiting runs of one tenant; 0: any number.", least=0)
    rate: float = setting(
        0.0, "Most runs that a tenant may start per second, sessions included; 0: any number.", least=0
    )
    connections: int = setting(0, "Most connections of a tenant; 0: a fair share.", least=0)
    held: Bytes = setting(0, "Most bytes held for a tenant; 0: a fair share of max_held.", least=0)
    messages: float = setting(2000.0, "Messages of a tenant read per second, the rest wait; 0: any number.", least=0)
    weight: float = setting(1.0, "Weight of a tenant's fair share, relative to others.", above=0)


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

    host: str = setting("127.0.0.1", "Listen address; a public one needs TLS or behind_proxy.")
    port: int = setting(8090, "Listen port; 0 picks a free one.", least=0, most=65535)
    path: str = setting("/v1/execute", "The path of the endpoint.")
    tls_cert: FileName = setting("", "Certificate file, PEM.")
    tls_key: FileName = setting("", "Key file, PEM; empty: it is in the certificate file.")
    client_ca: FileName = setting(
        "", "CA certificates that client certificates are checked against, PEM; empty: none is required."
    )
    behind_proxy: bool = setting(False, "A proxy in front terminates TLS.")
    keys: Sequence[SigningKey] = setting(
        (), "Keys of clients: id, token, secret, tenant, expires; token and secret may be a secretref:.", secret=True
    )
    metrics_token: str = setting(
        "", "The bearer token of scrapers, for /metrics alone; may be a secretref:. Empty: there are none.", secret=True
    )
    profiles: Sequence[str] = setting(("standard", "hardened"), "The security profiles that clients may ask for.")
    processes: int = setting(1, "Processes that serve the port, each with its share of the limits.", least=1, most=64)
    max_running: int = setting(8, "Most runs at once.", least=1)
    max_queued: int = setting(1000, "Most runs that wait.", least=1)
    quota: TenantQuota = TenantQuota()
    quotas: Sequence[TenantQuota] = setting(
        (), "Quotas of individual tenants: tenant, running, queued, rate, connections, held, messages, weight."
    )
    max_connections: int = setting(0, "Most open connections; 0: three quarters of the process's file limit.", least=0)
    max_anonymous: int = setting(
        0, "Most connections without a key yet; 0: a quarter of the file limit, at most 256.", least=0
    )
    max_held: Bytes = setting(
        512 * 1024**2, "Most bytes of requests and results held at once, for all tenants.", least=1
    )
    slot_idle: Seconds = duration(60.0, "Idle time after which a slot goes to a waiting tenant.", file_least=0.1)
    state_directory: PathName = setting(
        "", "Directory that records starts and ends of runs; empty: in the state directory."
    )
    keeps: Seconds = duration(600.0, "How long these records are kept.", file_least=1)
    max_body_bytes: Bytes = setting(32 * 1024**2, "Largest request.", least=1)
    max_output_chars: Bytes = setting(16 * 1024**2, "Most characters of a program's output that are kept.", least=1)
    max_timeout: Seconds = duration(3600.0, "Longest time limit that a request may ask for.", file_least=0.1)
    skew: Seconds = duration(SKEW, "Allowed clock difference between client and server.", file_least=1)
    reconnect: Seconds = duration(30.0, "How long a client may be away before its run is stopped.", file_least=0.1)
    go_timeout: Seconds = duration(10.0, "Time limit for a client to confirm the start of a run.", file_least=0.1)
    ping: Seconds = duration(10.0, "Silence after which a connection is closed.", file_least=0.1)
    header_timeout: Seconds = duration(10.0, "Time limit for the first request on a new connection.", file_least=0.1)
    drain_grace: Seconds = setting(30.0, "How long runs may continue at shutdown.", least=0, below=1e7)
    gateway_hosts: Sequence[str] = setting((), "Hosts allowed as gateways of POST requests; empty: all.")
    gateway_private: bool = setting(False, "Allow private addresses for these hosts.")

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
