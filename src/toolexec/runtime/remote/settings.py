"""Which remote runtimes there are, and how they are talked to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from toolexec.backend.secrets.resolver import SecretResolver
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.settings import checked
from toolexec.runtime.kinds import isolations
from toolexec.runtime.remote.signature import SigningKey

__all__ = ["RemoteSettings"]


@checked("RemoteSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSettings:
    """Where the remote runtimes are, and what they are trusted with.

    `endpoints` are their addresses, such as `https://runtime.example.com/v1/execute`. `key_id` names the key that they
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
    the one in the endpoint). An endpoint that was silent for `silence` seconds counts as
    lost, and is looked for again; programs that run there are given up after `reconnect` seconds. `overhead` is by how
    much the answer to a program may be late, after its own time limit.

    Raises ConfigurationError for a value that makes no sense.
    """

    endpoints: tuple[str, ...] = ()
    key_id: str = ""
    token: str = field(default="", repr=False)
    signing_key: str = field(default="", repr=False)
    sandbox: str = "wasm"
    isolation: str = ""
    protocol: Literal["duplex", "post"] = "duplex"
    gateway_host: str = "127.0.0.1"
    gateway_port: int = 0
    gateway_url: str = ""
    ca_file: str | Path = ""
    client_cert: str | Path = ""
    client_key: str | Path = ""
    server_name: str = ""
    silence: float = 10.0
    reconnect: float = 30.0
    overhead: float = 5.0

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ConfigurationError("a remote runtime needs endpoints: https://runtime.example.com/v1/execute")
        for endpoint in self.endpoints:
            _check_endpoint(endpoint)
        if len({*self.endpoints}) < len(self.endpoints):
            raise ConfigurationError("the endpoints of a remote runtime are different ones")
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
        if not 0 <= self.gateway_port <= 65_535:
            raise ConfigurationError(f"gateway_port must be between 0 and 65535, not {self.gateway_port!r}")
        for name in ("silence", "reconnect", "overhead"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} must be above 0 seconds, not {getattr(self, name)!r}")

    @property
    def expected_isolation(self) -> str:
        """What surrounds code there."""
        return self.isolation or isolations()[self.sandbox]

    def key(self) -> SigningKey:
        """Return the key, with the values of its references. Blocks; raises SecretError and ConfigurationError."""
        resolver = SecretResolver()
        return SigningKey(
            id=self.key_id,
            token=resolver.resolve(self.token, "token of the remote runtime"),
            secret=resolver.resolve(self.signing_key, "signing_key of the remote runtime"),
        )

    def at(self, *endpoints: str) -> RemoteSettings:
        """Return the same for other endpoints."""
        return replace(self, endpoints=endpoints)


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"the endpoint {endpoint!r} is not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ConfigurationError(f"the endpoint {endpoint!r} is not a URL of HTTP, such as https://runtime.example.com")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationError("an endpoint has neither a password nor a query; credentials go into token")
