"""Where gRPC services are, and how they are reached."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypedDict

from toolexec.errors import ConfigurationError, SecretError
from toolexec.provider import (
    JSONObject,
    ProviderSettings,
    Scrubber,
    SecretResolver,
    check_segment,
    check_settings,
    checked,
)

_KEY: Final = re.compile(r"[0-9a-z_.-]+", re.ASCII)
_SCHEMES: Final = ("grpc://", "grpcs://")
_TARGET: Final = re.compile(r"unix:/{0,3}[^\s/]\S*|(?:dns:/{3}|ipv4:|ipv6:)?[^\s/]+", re.ASCII)


class GRPCSettings(TypedDict, total=False):
    """The settings of a `GRPCProvider` by keyword, beside its name and target; for type checkers."""

    descriptors: str | Path
    services: Sequence[str]
    namespace: str
    tls: bool
    ca: str | Path
    certificate: str | Path
    key: str | Path
    authority: str
    metadata: Mapping[str, str]
    timeout: float
    connect_timeout: float
    max_message_bytes: int
    idempotency_metadata: str


class AddedGRPC(GRPCSettings, ProviderSettings, total=False):
    """What `Exec.add_grpc` takes beside the name and the target."""


class _AllSettings(GRPCSettings, total=False):
    target: str


@checked("gRPC provider")
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GRPCProvider:
    """The services of one gRPC server.

    `target` is `host:port`, `unix:PATH`, or a URL `grpc://host:port`, with TLS `grpcs://host:port`. What services it
    has comes from `descriptors`, a file with a FileDescriptorSet (`protoc --include_imports --include_source_info -o
    FILE`, `buf build -o FILE`), or else from the server's reflection. `services` are the full names of those to offer;
    empty means all. `namespace` is that of the tools' IDs; the default is the name.

    `tls` is on for `grpcs://` and when one of `ca`, `certificate` and `key` is given: paths of PEM files, or PEM
    itself; the last two together identify the client. `authority` is the name to expect in the server's certificate,
    where it is not that of the target. `metadata` goes with every call. `timeout` is the longest that a call may take,
    0 means no limit but that of the call itself; `connect_timeout` bounds one attempt to connect, both in seconds.
    Messages of more than `max_message_bytes` (16 MiB) are neither sent nor taken. `idempotency_metadata` is the name of
    the metadata that takes the idempotency key of a call, for methods that have side effects; empty: none does.

    With `secrets`, references in target, ca, certificate, key and metadata are filled in when the services are read,
    and not before; the values are taken out of what the server says. The repr shows no metadata. Raises
    ConfigurationError for what cannot work.
    """

    name: str
    target: str
    descriptors: str | Path = ""
    services: Sequence[str] = ()
    namespace: str = ""
    tls: bool = False
    ca: str | Path = ""
    certificate: str | Path = ""
    key: str | Path = ""
    authority: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = 0.0
    connect_timeout: float = 10.0
    max_message_bytes: int = 16 << 20
    idempotency_metadata: str = "idempotency-key"
    secrets: SecretResolver | None = field(default=None, compare=False)
    hidden: frozenset[str] = field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        for label, segment in (("name", self.name), ("namespace", self.namespace or self.name)):
            if problem := check_segment(segment):
                raise ConfigurationError(f"provider {self.name!r}: its {label} {problem}")
        where = f"provider {self.name}"
        if self.secrets is None and not (self.address and _TARGET.fullmatch(self.address)):
            raise ConfigurationError(f"{where}: target must be host:port, unix:PATH, grpc://... or grpcs://...")
        if bool(self.certificate) != bool(self.key):
            raise ConfigurationError(f"{where}: give certificate and key together")
        if not (self.timeout >= 0 and self.connect_timeout > 0 and self.max_message_bytes > 0):
            raise ConfigurationError(
                f"{where}: timeout must be 0 or more, connect_timeout and max_message_bytes above 0"
            )
        for name in (*self.metadata, self.idempotency_metadata or "-"):
            if not _KEY.fullmatch(name) or name.startswith("grpc-") or name.endswith("-bin"):
                raise ConfigurationError(f"{where}: {name[:100]!r} cannot be the name of metadata")
        if not all(_is_plain(value) for value in self.metadata.values()):
            raise ConfigurationError(f"{where}: the metadata has characters that metadata cannot have")

    @classmethod
    def from_settings(cls, name: str, settings: JSONObject, *, secrets: SecretResolver | None = None) -> GRPCProvider:
        """Read `GRPCSettings` and the target. Raises ConfigurationError."""
        check_settings(f"provider {name}", _AllSettings, settings)
        if "target" not in settings:
            raise ConfigurationError(f"provider {name}: it needs a target, such as localhost:50051")
        return cls(name=name, secrets=secrets, **settings)

    @property
    def address(self) -> str:
        """The target without the scheme of a URL."""
        for scheme in _SCHEMES:
            if self.target.startswith(scheme):
                return self.target.removeprefix(scheme).rstrip("/")
        return self.target

    @property
    def encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return self.tls or self.target.startswith("grpcs://") or bool(self.ca or self.certificate)

    @property
    def destination(self) -> str:
        """The address that calls go to, with the scheme that says whether they are encrypted."""
        return f"{'grpcs' if self.encrypted else 'grpc'}://{self.address}"

    def scrubber(self) -> Scrubber:
        """Return what takes the secrets out of what the server says."""
        words = {word for value in self.metadata.values() for word in (value, *value.split())}
        return Scrubber(self.hidden | words)

    def resolved(self) -> GRPCProvider:
        """Return the provider with all references filled in. Blocks as long as a provider of secrets does.

        Raises SecretError, MissingExtraError, and ConfigurationError when the result cannot work.
        """
        if self.secrets is None:
            return self
        plain = {"target": self.target, "ca": str(self.ca), "certificate": str(self.certificate), "key": str(self.key)}
        metadata = {f"metadata.{name}": value for name, value in self.metadata.items()}
        where = f"provider {self.name}"
        found = self.secrets.expand(plain | metadata, where, public={"target"})
        values = {name: found.strings[f"metadata.{name}"] for name in self.metadata}
        for name, value in values.items():
            if not _is_plain(value):
                raise SecretError(
                    f"{where}: metadata.{name}: what was filled in has characters that metadata cannot have"
                )
        parts = {label: found.strings[label] for label in plain}
        return replace(self, **parts, metadata=values, secrets=None, hidden=self.hidden | found.secrets)

    def pem(self, what: str | Path) -> bytes | None:
        """Return what `ca`, `certificate` or `key` holds; None for nothing. Raises ConfigurationError."""
        if not what:
            return None
        text = str(what)
        if text.lstrip().startswith("-----BEGIN"):
            return text.encode()
        try:
            return Path(text).expanduser().read_bytes()
        except OSError as error:
            raise ConfigurationError(f"provider {self.name}: cannot read {text}: {error.strerror or error}") from error

    def __repr__(self) -> str:
        return f"GRPCProvider(name={self.name!r}, target={self.target!r})"


def _is_plain(value: str) -> bool:
    """Return whether a value can be sent: nothing but visible ASCII characters and spaces."""
    return value.isascii() and value.isprintable()
