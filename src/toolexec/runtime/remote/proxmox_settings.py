"""Where a Proxmox VE cluster is, which of its containers run code, and what may be done with them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

from toolexec.errors import ConfigurationError
from toolexec.model.declared import PathName, Seconds, setting
from toolexec.model.settings import checked
from toolexec.runtime.remote.settings import RemoteSettings

_NODE: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_TOKEN_ID: Final = re.compile(r"[^\s:/!@=]+@[A-Za-z][A-Za-z0-9.\-_]*![A-Za-z][A-Za-z0-9.\-_]*")
_USER: Final = re.compile(r"[^\s:/!@=]+@[A-Za-z][A-Za-z0-9.\-_]*")
_SNAPSHOT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]+")
_FINGERPRINT: Final = re.compile(r"(?:[0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}")
_FIRST_ID: Final = 100
_LAST_ID: Final = 999_999_999
_IP: Final = "{ip}"


@checked("ProxmoxSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class ProxmoxSettings:
    """Which containers of a Proxmox VE cluster run code, and how they and the runtime in them are reached.

    `url` is the address of the API (`https://pve.example.com:8006`). Its key is an API token (`token_id`, such as
    `agents@pve!toolexec`, and `token_secret`) or a user (`username`, such as `agents@pve`, and `password`); the secrets
    may be references (`secretref:env:PVE_TOKEN`). Its certificate is checked against `ca_file` (PEM), or must have the
    SHA-256 `fingerprint`; without both it must be one that the system trusts.

    On `node`, code runs in the container `vmid`, or in clones of the template `template`. The container `vmid` is
    started where it does not run, unless `auto_start` is off. `auto_stop` says when it is stopped, once no program has
    needed it for `linger` seconds, and at the end: `never`, when we have `started` it, or `always`. With `rollback`,
    the name of a snapshot, it goes back to that before each program, and programs run one after the other.
    Clones are linked ones unless `full_clones`; these may go to `storage`. They are members of `pool`. Each runs
    `runs_per_clone` programs (0: any number), one at a time, and is removed after that; there are at most `max_clones`,
    and `warm` of them are pre-warmed. A clone says in its notes which process it belongs to and until when;
    it is renewed all the time. Clones of dead processes are removed by others after `lease` seconds.

    `runtime` is where `toolexec runtime serve` listens in the container, with `{ip}` for its address:
    `https://{ip}:8090/v1/execute`. `network` is the interface of that address ("": the first one with an address).
    `key_id`, `runtime_token`, `signing_key`, `sandbox`, `isolation`, `plain_http`, `silence`, `reconnect` and
    `overhead` are those of `RemoteSettings`. `runtime_ca_file` has the certificates for TLS, and `server_name` is the
    name in that of the runtime, as clones have addresses of their own ("": the address).

    A container must be ready within `start_timeout` seconds, and may take `stop_timeout` to shut down until it is
    stopped hard. The API must answer a request within `timeout` seconds; tasks are asked for every `poll` seconds at
    most, and every `watch` seconds whether a container in use still runs.

    Raises ConfigurationError for values that make no sense.
    """

    url: str = setting("", "The address of the API: https://pve.example.com:8006.")
    token_id: str = setting("", "The ID of an API token: agents@pve!toolexec.")
    token_secret: str = setting("", "Its secret.", secret=True)
    username: str = setting("", "A user in place of a token: agents@pve.")
    password: str = setting("", "The password of the user.", secret=True)
    ca_file: PathName = setting("", "CA certificates for the API, PEM; empty: those of the system.")
    fingerprint: str = setting("", "SHA-256 fingerprint of its certificate, in place of ca_file.")
    node: str = setting("", "The node that the containers are on.")
    vmid: int = setting(0, "The number of the container that runs code.", least=0)
    template: int = setting(0, "Number of a template, in place of vmid: code runs in clones.", least=0)
    rollback: str = setting("", "The snapshot that the container goes back to before each program.")
    auto_start: bool = setting(True, "Start the container if it is stopped.")
    auto_stop: Literal["never", "started", "always"] = setting(
        "never", "When an unused container is stopped: never, only if toolexec started it, or always."
    )
    linger: Seconds = setting(60.0, "How long an unused container is kept before that.", least=0)
    full_clones: bool = setting(False, "Copy the template's volumes instead of linking them.")
    storage: str = setting("", "The storage of full clones; empty: that of the template.")
    pool: str = setting("", "The pool that clones are members of.")
    runs_per_clone: int = setting(1, "Programs that a clone runs before it is removed; 0: any number.", least=0)
    max_clones: int = setting(4, "Most clones at once.", least=1)
    warm: int = setting(0, "Clones kept started in advance.", least=0)
    lease: Seconds = setting(600.0, "Silence of a process after which its clones are removed.", above=0, file_least=1)
    runtime: str = setting("https://{ip}:8090/v1/execute", "Where toolexec runtime serve listens in the container.")
    network: str = setting("", "Network interface of that address: eth0; empty: the first one.")
    key_id: str = setting("", "The ID of the key that the runtime knows.")
    runtime_token: str = setting("", "The bearer token of the key.", secret=True)
    signing_key: str = setting("", "Secret for signing requests; empty: the token.", secret=True)
    sandbox: str = setting("wasm", "The kind of sandbox that code must run in, inside the container.")
    isolation: str = setting("", "Isolation of code there: wasm, container, gvisor, vm; empty: that of the sandbox.")
    runtime_ca_file: PathName = setting("", "CA certificates for the runtime, PEM.")
    server_name: str = setting("", "Name expected in the runtime's certificate; empty: its address.")
    plain_http: bool = setting(
        False, "Allow http:// for the runtime, where the network to the containers is encrypted."
    )
    silence: Seconds = setting(10.0, "Silence after which a connection counts as lost.", above=0, file_least=0.1)
    reconnect: Seconds = setting(
        30.0, "How long to reconnect before its programs are given up.", above=0, file_least=0.1
    )
    overhead: Seconds = setting(
        5.0, "How long to wait for an answer beyond the program's time limit.", above=0, file_least=0.1
    )
    start_timeout: Seconds = setting(120.0, "Time limit for a container's runtime to answer.", above=0, file_least=0.1)
    stop_timeout: Seconds = setting(
        30.0, "Time limit for shutting down, before it is stopped hard.", above=0, file_least=0.1
    )
    timeout: Seconds = setting(30.0, "Time limit for one answer of the API.", above=0, file_least=0.1)
    poll: Seconds = setting(2.0, "Longest interval between polls of a task's state.", above=0, file_least=0.01)
    watch: Seconds = setting(
        2.0, "Interval between checks that a container in use still runs.", above=0, file_least=0.01
    )

    def __post_init__(self) -> None:
        _check_url(self.url)
        self._check_credentials()
        self._check_containers()
        self.remote("192.0.2.1")  # raises for what makes no sense there

    def _check_credentials(self) -> None:
        if bool(self.token_id) == bool(self.username):
            raise ConfigurationError("Proxmox needs either a token_id, such as agents@pve!toolexec, or a username")
        if self.token_id and not _TOKEN_ID.fullmatch(self.token_id):
            raise ConfigurationError(f"the token_id {self.token_id!r} is not like agents@pve!toolexec")
        if self.username and not _USER.fullmatch(self.username):
            raise ConfigurationError(f"the username {self.username!r} has no realm, as agents@pve has")
        name = "token_secret" if self.token_id else "password"
        if not getattr(self, name):
            raise ConfigurationError(f"Proxmox needs a {name}, such as secretref:env:PVE_SECRET")
        if self.ca_file and self.fingerprint:
            raise ConfigurationError(
                "the certificate of Proxmox is checked by its ca_file or its fingerprint, not both"
            )
        if self.fingerprint and not _FINGERPRINT.fullmatch(self.fingerprint):
            raise ConfigurationError("the fingerprint has 32 bytes (SHA-256): 2F:8A:...; Proxmox shows it at its node")

    def _check_containers(self) -> None:
        if not _NODE.fullmatch(self.node):
            raise ConfigurationError(f"Proxmox needs a node, such as pve1; {self.node!r} is not the name of one")
        if bool(self.vmid) == bool(self.template):
            raise ConfigurationError("name a container (vmid) or a template for clones (template), and not both")
        if not _FIRST_ID <= (self.vmid or self.template) <= _LAST_ID:
            raise ConfigurationError(f"the number of a container (vmid, template) is {_FIRST_ID} or above")
        if self.rollback and not _SNAPSHOT.fullmatch(self.rollback):
            raise ConfigurationError(f"{self.rollback!r} is not the name of a snapshot")
        if self.rollback and (self.template or not self.auto_start):
            raise ConfigurationError("rollback is for a container (vmid) that may be started (auto_start)")
        if self.storage and not self.full_clones:
            raise ConfigurationError("linked clones stay in the storage of their template; set full_clones for another")
        if self.warm > self.max_clones:
            raise ConfigurationError(f"warm must be no more than max_clones, which is {self.max_clones}")

    @property
    def base(self) -> str:
        """The address of the API, without a slash at its end."""
        url = self.url.rstrip("/")
        return url if url.endswith("/api2/json") else f"{url}/api2/json"

    def remote(self, address: str) -> RemoteSettings:
        """Return how the runtime in a container at *address* is reached. Raises ConfigurationError."""
        host = f"[{address}]" if ":" in address else address
        return RemoteSettings(
            endpoints=(self.runtime.replace(_IP, host),),
            key_id=self.key_id,
            token=self.runtime_token,
            signing_key=self.signing_key,
            sandbox=self.sandbox,
            isolation=self.isolation,
            ca_file=self.runtime_ca_file,
            server_name=self.server_name,
            plain_http=self.plain_http,
            silence=self.silence,
            reconnect=self.reconnect,
            overhead=self.overhead,
        )

    @property
    def needs_address(self) -> bool:
        """Whether the address of a container is part of where its runtime is."""
        return _IP in self.runtime


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"the url {url!r} of Proxmox is not a URL: {error}") from None
    if parts.scheme != "https" or not parts.hostname or port == 0:
        raise ConfigurationError(f"the url {url!r} of Proxmox is not like https://pve.example.com:8006")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigurationError("the url of Proxmox has neither a password nor a query; set token_id and token_secret")
