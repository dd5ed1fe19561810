"""Which remote runtimes there are, and how they are talked to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import ip_address, ip_network
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.declared import PathName, Seconds, setting
from toolexec.model.settings import checked
from toolexec.net.hosts import is_address
from toolexec.runtime.kinds import isolations

if TYPE_CHECKING:
    from toolexec.runtime.remote.keys import SigningKey


@checked("RemoteSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings:
    """Where the remote runtimes are, and what they are trusted with.

    `endpoints` are their addresses, such as `https://runtime.example.com/v1/execute`; each counts as one server. With
    `dns+https://runtime.code.svc:8090/v1/execute` every address that the name has is one, and so is every line of the
    file that `file:/etc/toolexec/runtimes` names, or every string in it, where it is a list of JSON. Both are looked up
    again about every `discovery_interval` seconds. An address that is found like this must be in one of `networks`
    (empty: any, but with `dns+http://` none of the internet, and one of this machine only for `localhost`); never used
    are those of link-local networks and of the metadata of clouds. `key_id` names the key that they
    know, `token` is its bearer token and `signing_key` the secret for signatures ("": the token); these two
    may be references, such as `secretref:env:RUNTIME_TOKEN`. `sandbox` is the kind of sandbox that code must run in
    there, and `isolation` what that gives ("": what it usually gives, which with Docker and a runtime of gVisor is
    `gvisor`, for one). Both are what profiles are judged by; an endpoint that says that it has something else is not
    used.

    `protocol` is `duplex`, one connection that goes out from here and carries everything, or `post`, a request for
    each run: then the endpoints must reach the tools at `gateway_url` ("": where this process listens, at
    `gateway_host` and `gateway_port`), and there are no sessions.

    `ca_file` has the certificates (PEM) that theirs are checked against ("": those of the system), `client_cert` and
    `client_key` are shown to them where they ask for that. `server_name` is the name that their certificates have ("":
    the one in the endpoint). An endpoint that does not answer within `connect_timeout` seconds is tried again later,
    and one that was silent for `silence` seconds counts as lost, and is looked for again;
    programs that run there are given up after `reconnect` seconds. `overhead` is by how much the answer to a program
    may be late, after its own time limit. Code and tokens go over `http://` to this machine alone, unless `plain_http`
    says that the network between is as good as TLS.

    Raises ConfigurationError for a value that makes no sense.
    """

    endpoints: tuple[str, ...] = setting(
        (), "Where they are: https://runtime.example.com/v1/execute, dns+https://NAME, file:/PATH."
    )
    discovery_interval: Seconds = setting(
        1.0, "How often names and files among the endpoints are resolved again.", above=0, most=3600, file_least=0.1
    )
    networks: tuple[str, ...] = setting(
        (), "Networks that resolved addresses may be in, such as 10.0.0.0/8; empty: the default networks."
    )
    key_id: str = setting("", "The ID of the key that they know.")
    token: str = setting("", "The bearer token of the key.", secret=True)
    signing_key: str = setting("", "Secret for signing requests; empty: the token.", secret=True)
    sandbox: str = setting("wasm", "The kind of sandbox that code must run in there.")
    isolation: str = setting("", "Isolation of code there: wasm, container, gvisor, vm; empty: that of the sandbox.")
    protocol: Literal["duplex", "post"] = setting(
        "duplex", "How programs are sent: over one connection, or by a request for each."
    )
    gateway_host: str = setting("127.0.0.1", "By post: local address where the tools listen.")
    gateway_port: int = setting(0, "By post: port of that address; 0 picks a free one.", least=0, most=65535)
    gateway_url: str = setting("", "By post: URL of that address as seen from there; empty: the address itself.")
    ca_file: PathName = setting("", "CA certificates for their servers, PEM; empty: those of the system.")
    client_cert: PathName = setting("", "Client certificate, PEM.")
    client_key: PathName = setting("", "Key of the client certificate, PEM; empty: it is in the certificate file.")
    server_name: str = setting("", "Name expected in their certificates; empty: the one in the endpoint.")
    plain_http: bool = setting(
        False, "Allow http:// endpoints on other machines, where the network itself is encrypted."
    )
    connect_timeout: Seconds = setting(5.0, "Time limit for connecting to an endpoint.", above=0, file_least=0.1)
    silence: Seconds = setting(10.0, "Silence after which a connection counts as lost.", above=0, file_least=0.1)
    reconnect: Seconds = setting(
        30.0, "How long to reconnect before the programs of a lost connection are given up.", above=0, file_least=0.1
    )
    overhead: Seconds = setting(
        5.0, "How long to wait for an answer beyond the program's time limit.", above=0, file_least=0.1
    )

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ConfigurationError("a remote runtime needs endpoints: https://runtime.example.com/v1/execute")
        for endpoint in self.endpoints:
            _check_endpoint(endpoint, plain_http=self.plain_http)
        if len({*self.endpoints}) < len(self.endpoints):
            raise ConfigurationError("the endpoints of a remote runtime are different ones")
        for network in self.networks:
            _check_network(network)
        if not self.key_id or not self.token:
            raise ConfigurationError("a remote runtime needs a key_id and a token, as its server has them")
        kinds = isolations()
        if self.sandbox not in kinds:
            hint = did_you_mean(self.sandbox, kinds, otherwise=f"use {', '.join(kinds)}")
            raise ConfigurationError(f"there is no sandbox {self.sandbox!r} for a remote runtime; {hint}")
        if self.isolation and self.isolation not in kinds.values():
            known = ", ".join(sorted({*kinds.values()}))
            raise ConfigurationError(f"there is no isolation {self.isolation!r}; use {known}")
        if self.client_key and not self.client_cert:
            raise ConfigurationError("client_key goes nowhere without client_cert")

    @property
    def expected_isolation(self) -> str:
        """What surrounds code there."""
        return self.isolation or isolations()[self.sandbox]

    def key(self) -> SigningKey:
        """Return the key, with the values of its references. Blocks; raises SecretError and ConfigurationError."""
        from toolexec.backend.secrets.resolver import SecretResolver
        from toolexec.runtime.remote.keys import SigningKey

        resolver = SecretResolver()
        return SigningKey(
            id=self.key_id,
            token=resolver.resolve(self.token, "token of the remote runtime"),
            secret=resolver.resolve(self.signing_key, "signing_key of the remote runtime"),
        )

    def at(self, *endpoints: str) -> RemoteSettings:
        """Return the same for other endpoints."""
        return replace(self, endpoints=endpoints)


def _check_endpoint(endpoint: str, *, plain_http: bool) -> None:
    if endpoint.startswith("file:"):
        if not PurePath(endpoint.removeprefix("file:")).is_absolute():
            raise ConfigurationError(f"the endpoint {endpoint!r} is not a file, such as file:/etc/toolexec/runtimes")
        return
    try:
        parts = urlsplit(endpoint.removeprefix("dns+"))
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"the endpoint {endpoint!r} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigurationError(f"the endpoint {endpoint!r} is not a URL of HTTP, such as https://runtime.example.com")
    if endpoint.startswith("dns+") and is_address(parts.hostname):
        raise ConfigurationError(f"the endpoint {endpoint!r} has an address already; leave dns+ out")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationError("an endpoint has neither a password nor a query; credentials go into token")
    if parts.scheme == "http" and not plain_http and not _is_here(parts.hostname):
        raise ConfigurationError(
            f"the endpoint {endpoint!r} would show code and tokens to the network; use https://, or plain_http where "
            "the network itself is encrypted"
        )


def _check_network(network: str) -> None:
    try:
        ip_network(network)
    except ValueError as error:
        raise ConfigurationError(f"{network!r} is not a network, such as 10.0.0.0/8: {error}") from None


def _is_here(host: str) -> bool:
    """Return whether a host is this machine: a loopback address, or localhost."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
