"""Which hosts code may reach, and which secrets are put in on the way there. Values and decisions only; no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from toolexec.errors import ConfigurationError
from toolexec.model.settings import checked
from toolexec.net.hosts import HostRule, read_rule, written_authority

Scheme: TypeAlias = Literal["http", "https"]
Place: TypeAlias = Literal["headers", "url", "body"]

_EXCEPT: Final = "!"
_PLACEHOLDER: Final = re.compile(r"[A-Za-z0-9_-]{8,128}")


class Origin(NamedTuple):
    """Where a request goes: `host` is in lower case, without brackets or a dot at its end."""

    scheme: Scheme
    host: str
    port: int

    @property
    def authority(self) -> str:
        """What a Host header says: without the port where that is the usual one."""
        return written_authority(self.scheme, self.host, self.port)


@checked("Secret")
@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A secret that code may use, and that is hidden in what comes back (see `EgressProxy`).

    `ref` says where it is kept, as after `secretref:` in a configuration (`env:API_TOKEN`, `file:PATH`,
    `keyring:SERVICE/NAME`). It is put in only on the way to `hosts`, written as in `Egress`, and only in those parts of
    a request that `where` names: `headers`, `url` (path and query), `body`. Without TLS it is sent only when
    `plain_http` is set. It needs at least 8 characters; a request that would use a shorter one is refused.

    Raises ConfigurationError for no hosts, and for parts that do not exist.
    """

    ref: str
    hosts: tuple[str, ...]
    where: tuple[Place, ...] = ("headers",)
    plain_http: bool = False

    def __post_init__(self) -> None:
        if not self.ref:
            raise ConfigurationError("a secret needs a reference that says where it is kept, such as env:API_TOKEN")
        if not self.hosts or isinstance(self.hosts, str):
            raise ConfigurationError(f"the secret {self.ref} needs the list of hosts that it may be sent to")
        for host in self.hosts:
            read_rule(host)
        unknown = sorted({*self.where} - {*get_args(Place)})
        if unknown or not self.where:
            raise ConfigurationError(
                f"a secret goes into {', '.join(get_args(Place))}, not into {unknown or 'nothing'}"
            )

    def goes_to(self, origin: Origin) -> bool:
        """Return whether it may be sent there."""
        return (origin.scheme == "https" or self.plain_http) and any(
            read_rule(host).matches(origin.host, origin.port) for host in self.hosts
        )


@checked("Egress")
@dataclass(frozen=True, slots=True, kw_only=True)
class Egress:
    """What code in a sandbox may reach over HTTP and HTTPS. By default nothing.

    `hosts` are names (`api.example.com`), all names below one (`*.example.com`, which is not `example.com` itself), or
    IP addresses, each for ports 80 and 443 or for the one that is given (`api.example.com:8443`). `*` is every name.
    With `!` before it, an entry is an exception from all others, wherever it is in the list: `!admin.example.com` and
    `!*.internal.example.com`, on every port or on the one that is given.
    `secrets` maps placeholders, 8 to 128 letters, digits, `_` and `-` that code uses in place of a secret, to what they
    stand for.

    What a name stands for is looked up on the host, and private and loopback addresses are refused unless
    `allow_private` is set. Link-local, metadata and multicast addresses are refused in any case, unless `hosts` has the
    address itself.

    `max_request_bytes` and `max_response_bytes` bound the body of one request and its response, `max_connections` how
    many connections of one sandbox are served at once. Times are in seconds: `connect_seconds` to reach a host,
    `header_seconds` for the head of a request to arrive, `idle_seconds` without a byte.

    Raises ConfigurationError for what cannot be meant.
    """

    hosts: tuple[str, ...] = ()
    secrets: Mapping[str, Secret] = field(default_factory=dict[str, Secret])
    allow_private: bool = False
    max_request_bytes: int = 64 << 20
    max_response_bytes: int = 1 << 30
    max_connections: int = 64
    connect_seconds: float = 10.0
    header_seconds: float = 20.0
    idle_seconds: float = 120.0

    def __post_init__(self) -> None:
        if isinstance(self.hosts, str):
            raise ConfigurationError("the hosts that code may reach are a list, not one text")
        for host in self.hosts:
            read_rule(host.removeprefix(_EXCEPT))
        if self.hosts and all(host.startswith(_EXCEPT) for host in self.hosts):
            raise ConfigurationError(f"{', '.join(self.hosts)} excludes hosts, and none is allowed; name one, or *")
        for placeholder, other in ((one, two) for one in self.secrets for two in self.secrets if one != two):
            if placeholder in other:
                raise ConfigurationError(f"the placeholder {placeholder} is part of {other}; use ones that differ")
        for placeholder in self.secrets:
            if not _PLACEHOLDER.fullmatch(placeholder):
                raise ConfigurationError(
                    f"{placeholder!r} cannot be a placeholder: use 8 to 128 letters, digits, _ and -"
                )
        for name in ("max_request_bytes", "max_response_bytes", "max_connections"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be 1 or more, not {getattr(self, name)!r}")
        for name in ("connect_seconds", "header_seconds", "idle_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} must be above 0, not {getattr(self, name)!r}")

    def allows(self, host: str, port: int) -> bool:
        """Return whether code may reach this host (in the form of `plain_host`) on this port."""
        if any(_excludes(rule, host, port) for rule in self.hosts):
            return False
        return any(rule.matches(host, port) for rule in self._allowed())

    def _allowed(self) -> list[HostRule]:
        return [read_rule(rule) for rule in self.hosts if not rule.startswith(_EXCEPT)]

    def names_address(self, address: str) -> bool:
        """Return whether `hosts` has this very IP address."""
        return any(rule.host == address and not rule.below for rule in self._allowed())

    def secrets_for(self, origin: Origin, place: Place) -> dict[str, Secret]:
        """Return the secrets that go into this part of requests to *origin*, by placeholder."""
        return {
            placeholder: secret
            for placeholder, secret in self.secrets.items()
            if place in secret.where and secret.goes_to(origin)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRecord:
    """One request of code, for traces and audits. It has no query, no header and no body, and so no secret.

    `path` and `method` are what the code wrote, cut to a bounded length. `status` is what the code got, 0 for none.
    `sent` and `received` count bytes of bodies. `reason` says why it was not allowed, or why it failed.
    """

    host: str
    port: int
    method: str
    path: str
    status: int
    sent: int
    received: int
    allowed: bool
    reason: str = ""


def _excludes(entry: str, host: str, port: int) -> bool:
    """Return whether an entry of `hosts` is an exception for this host, which holds on all ports unless it has one."""
    if not entry.startswith(_EXCEPT):
        return False
    rule = read_rule(entry.removeprefix(_EXCEPT))
    return (rule if rule.port else rule._replace(port=port)).matches(host, port)
