"""Every setting there is: declared once, here. All else is made from it: the check of files, the names of variables,
help texts, the commented template, `config show`, and the table of the documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, Literal

from toolexec.config.kinds import (
    BYTES,
    FILES,
    NUMBER,
    PATH,
    PYTHON,
    RATE,
    SECONDS,
    SWITCH,
    TABLES,
    TEXT,
    TEXTS,
    WHOLE,
    Kind,
    bounded,
    choice,
    choices,
)

__all__ = [
    "BLOCKS",
    "KEYS",
    "ApprovalBlock",
    "AuditBlock",
    "AuthBlock",
    "CatalogueBlock",
    "CodeBlock",
    "HttpBlock",
    "JwtBlock",
    "Key",
    "LimitsBlock",
    "PinningBlock",
    "PolicyBlock",
    "ResultsBlock",
    "SandboxesBlock",
    "SecretsBlock",
    "ServerBlock",
    "Settings",
    "SourcesBlock",
    "TelemetryBlock",
]

_SECONDS = bounded(SECONDS, 0)
_TIME = bounded(SECONDS, 0.001)
_BYTES = bounded(BYTES, 0)
_COUNT = bounded(WHOLE, 0)
_SANDBOXES = ("wasm", "bubblewrap", "docker", "containerd", "gvisor", "kata", "unsafe_host")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting: `path` is its name with its block's, as in `limits.call_timeout`; a `secret` one is never shown."""

    path: str
    block: str
    name: str
    kind: Kind
    default: Any
    help: str
    secret: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "TOOLEXEC_" + self.path.replace(".", "__").upper()


def _key(default: Any, kind: Kind, help: str, *, secret: bool = False) -> Any:
    return field(default=default, metadata={"kind": kind, "help": help, "secret": secret})


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcesBlock:
    """Where tools come from, besides the `mcpServers` of the file itself."""

    python: tuple[str, ...] = _key((), PYTHON, "Python files (app.py) and modules (pkg.tools) with @tool functions.")
    include: tuple[str, ...] = _key((), FILES, "Files of other programs whose mcpServers are added.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBlock:
    """What toolexec serve offers, and where."""

    name: str = _key("toolexec", TEXT, "The name that clients see.")
    title: str = _key("", TEXT, "The name that people see.")
    transport: Literal["stdio", "http", "sse"] = _key(
        "stdio", choice("stdio", "http", "sse"), "How clients connect; sse has the older HTTP, too."
    )
    host: str = _key("127.0.0.1", TEXT, "The address to listen at; a public one needs auth, and TLS or behind_proxy.")
    port: int = _key(8080, bounded(WHOLE, 0, 65535), "The port to listen at; 0 means any free one.")
    path: str = _key("/mcp", TEXT, "The path of the MCP endpoint.")
    expose: Literal["meta", "direct", "code"] = _key(
        "meta", choice("meta", "direct", "code"), "What clients see: meta-tools, the tools themselves, or code only."
    )
    toolsets: tuple[str, ...] = _key(
        (), TEXTS, "The toolsets that there are for clients, all of them together; empty: every tool."
    )
    instructions: str = _key("", TEXT, "What the model is told about this server; empty means the usual text.")
    page_size: int = _key(50, bounded(WHOLE, 1, 1000), "How many tools one page of a list has.")
    list_changed: bool = _key(True, SWITCH, "Tell clients when the tools have changed.")
    list_changed_debounce: float = _key(0.15, _TIME, "How long changes of the tools are gathered before telling.")
    direct_wait: float = _key(8.0, _SECONDS, "How long a start may hold up the first list of tools, exposed directly.")
    suspended_max: int = _key(100, bounded(WHOLE, 1), "How many calls may wait for answers between requests.")
    state_keys: tuple[str, ...] = _key(
        (), TEXTS, "Keys of 32 bytes or more that seal such calls; none means a fresh one.", secret=True
    )
    max_line_bytes: int = _key(16 * 1024**2, bounded(BYTES, 1), "The longest message over stdio.")
    log_level: Literal["debug", "info", "warning", "error"] = _key(
        "warning", choice("debug", "info", "warning", "error"), "What goes to stderr."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpBlock:
    """How toolexec serve listens on HTTP."""

    behind_proxy: bool = _key(False, SWITCH, "A proxy in front of it does TLS.")
    trusted_proxies: tuple[str, ...] = _key(("127.0.0.1", "::1"), TEXTS, "Proxies that are believed who asks.")
    tls_cert: str = _key("", PATH, "The certificate's file, PEM.")
    tls_key: str = _key("", PATH, "The key's file, PEM; empty: it is in the certificate's.")
    allowed_hosts: tuple[str, ...] = _key((), TEXTS, "Names under which clients reach it: tools.example.com.")
    allowed_origins: tuple[str, ...] = _key((), TEXTS, "Web pages that may use it: https://app.example.com.")
    operator_roles: tuple[str, ...] = _key((), TEXTS, "Who may read /health and /metrics; empty: all who are let in.")
    required_backends: tuple[str, ...] = _key((), TEXTS, "Backends without which /readyz says no; sandbox is one, too.")
    sse_path: str = _key("/sse", TEXT, "The path of the older HTTP, for transport sse.")
    messages_path: str = _key("/messages", TEXT, "Where clients of the older HTTP post.")
    json_response: bool = _key(False, SWITCH, "Answer without event streams where possible: no progress then.")
    max_body_bytes: int = _key(4 * 1024**2, bounded(BYTES, 1), "The largest request.")
    max_header_bytes: int = _key(32 * 1024, bounded(BYTES, 1), "The largest head of a request.")
    max_json_depth: int = _key(100, bounded(WHOLE, 1), "How deeply the values of a request may be nested.")
    header_timeout: float = _key(10.0, _TIME, "How long the head of a request may take.")
    body_timeout: float = _key(30.0, _TIME, "How long the body of a request may take.")
    keep_alive: float = _key(15.0, _TIME, "How long a connection may stay without a request.")
    read_timeout: float = _key(30.0, _TIME, "How long a client may take to read what is sent to it.")
    max_connections: int = _key(1000, bounded(WHOLE, 1), "How many connections there may be at a time.")
    max_sessions: int = _key(1000, bounded(WHOLE, 1), "How many sessions there may be at a time.")
    session_idle: float = _key(1800.0, _TIME, "After how long without a request a session ends.")
    shutdown_grace: float = _key(3.0, bounded(SECONDS, 0, 60), "How long calls may go on when the server stops.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthBlock:
    """Who may use the HTTP server."""

    allow_anonymous: bool = _key(False, SWITCH, "Let in those without a key or token, as nobody in particular.")
    api_keys: tuple[Mapping[str, Any], ...] = _key(
        (), TABLES, "Keys: id, sha256, roles, scopes, tenant, expires. `toolexec keys new ID` makes one.", secret=True
    )
    required_scopes: tuple[str, ...] = _key((), TEXTS, "Scopes that every caller needs.")
    resource_url: str = _key("", TEXT, "This server's address as clients know it.")
    authorization_servers: tuple[str, ...] = _key((), TEXTS, "Where clients get their tokens.")
    max_failures: int = _key(20, bounded(WHOLE, 1), "Wrong credentials that one address may send in a minute.")


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtBlock:
    """Which tokens (JWT) are accepted; on as soon as there is an issuer."""

    issuer: str = _key("", TEXT, "The exact text that tokens have as iss.")
    audience: str = _key("", TEXT, "What tokens must be meant for; empty means auth.resource_url.")
    jwks_url: str = _key("", TEXT, "Where the issuer's public keys are.")
    jwks_file: str = _key("", PATH, "A file with the issuer's public keys.")
    algorithms: tuple[str, ...] = _key(("RS256", "ES256"), TEXTS, "How tokens may be signed.")
    leeway: float = _key(30.0, bounded(SECONDS, 0, 300), "How much clocks may differ.")
    id_claim: str = _key("sub", TEXT, "The claim with the caller's ID.")
    roles_claim: str = _key("roles", TEXT, "The claim with the roles.")
    scopes_claim: str = _key("scope", TEXT, "The claim with the scopes.")
    tenant_claim: str = _key("tenant", TEXT, "The claim with the tenant.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsBlock:
    """How long, how much and how often; 0 means no limit."""

    call_timeout: float = _key(30.0, _SECONDS, "How long one call may take.")
    start_timeout: float = _key(10.0, bounded(SECONDS, 0.01), "How long a start waits for slow servers.")
    rate: float = _key(0.0, RATE, "Calls of all together.")
    rate_per_caller: float = _key(0.0, RATE, "Calls of one caller.")
    rate_per_tool: float = _key(0.0, RATE, "Calls of one tool.")
    rate_per_backend: float = _key(0.0, RATE, "Calls to one backend.")
    max_tool_calls: int = _key(100, bounded(WHOLE, 1), "How many tool calls one run of code may make.")
    max_chain_steps: int = _key(0, _COUNT, "How many steps a chain in code may have.")
    cpu_ms: int = _key(0, _COUNT, "CPU time of one run of code, in milliseconds.")
    cpus: float = _key(0.0, bounded(NUMBER, 0), "CPU rate of code: 1.5 is one and a half cores.")
    memory: int = _key(0, _BYTES, "Memory of code.")
    pids: int = _key(0, _COUNT, "Processes of code.")
    disk: int = _key(0, _BYTES, "Files of code.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """Code that calls tools, in a sandbox."""

    enabled: bool = _key(True, SWITCH, "Whether code can be run at all.")
    profile: Literal["dev", "standard", "hardened", "wasm"] = _key(
        "standard", choice("dev", "standard", "hardened", "wasm"), "The security profile of code that asks for none."
    )
    language: str = _key("python", TEXT, "The language of code that names none.")
    unsafe_opt_in: bool = _key(False, SWITCH, "Allow the profile dev: code runs on this machine WITHOUT A SANDBOX.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxesBlock:
    """The sandboxes that code runs in."""

    use: tuple[str, ...] = _key(
        (), choices(*_SANDBOXES), "The kinds that may be used, the preferred one first; empty: all, in the usual order."
    )
    image: str = _key("", TEXT, "The image of container sandboxes; empty: each one's own default.")
    warm: int = _key(0, bounded(WHOLE, 0, 100), "How many guests each keeps started, for each way to run code.")
    max_running: int = _key(32, bounded(WHOLE, 1), "How many programs each container sandbox runs at once.")
    bwrap: str = _key("", PATH, "The program bwrap; empty: the one on the PATH.")
    runsc: str = _key("", PATH, "The program runsc, which is gVisor; empty: the one on the PATH.")
    docker_host: str = _key("", TEXT, "Where Docker or Podman listens: unix:///var/run/docker.sock.")
    docker_runtime: str = _key("", TEXT, "The runtime that Docker uses: runsc makes its containers gVisor's.")
    containerd_address: str = _key("", TEXT, "The socket of containerd; empty: the usual one.")
    egress: tuple[str, ...] = _key((), TEXTS, "Hosts that code in containers may reach: api.example.com.")
    egress_secrets: tuple[Mapping[str, Any], ...] = _key(
        (), TABLES, "Secrets that the proxy puts in for code: placeholder, value (a secretref:), hosts."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsBlock:
    """Results that are too large to be read at once."""

    max_bytes: int = _key(50_000, bounded(BYTES, 1000), "A larger result is shown as an outline, with a handle.")
    keep_seconds: float = _key(600.0, bounded(SECONDS, 1), "How long the whole of it is kept after each use.")
    max_kept_bytes: int = _key(256 * 1024**2, bounded(BYTES, 1000), "How much is kept in memory in all.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBlock:
    """What may be called, by whom."""

    default: Literal["allow", "deny", "ask"] = _key("allow", choice("allow", "deny", "ask"), "Where no rule fits.")
    remote_destructive: Literal["allow", "deny", "ask"] = _key(
        "ask", choice("allow", "deny", "ask"), "Destructive tools of remote servers where no rule fits."
    )
    rules: tuple[Mapping[str, Any], ...] = _key(
        (), TABLES, "Rules: effect, tools, namespaces, tags, backends, callers, roles, when, reason... Deny wins."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalBlock:
    """How somebody is asked about calls that the policy says to ask for."""

    mode: Literal["auto", "terminal", "client", "none"] = _key(
        "auto", choice("auto", "terminal", "client", "none"), "Who asks; none means that the answer is always no."
    )
    timeout: float = _key(120.0, bounded(SECONDS, 1), "How long to wait for an answer; then it is no.")
    remember: str = _key("", PATH, "The file of answers that hold always; empty: in the state folder.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditBlock:
    """The log of every call. toolexec serve has it on."""

    enabled: bool = _key(True, SWITCH, "Whether calls are logged.")
    path: str = _key("", PATH, "The file; empty: audit.jsonl in the state folder.")
    key_file: str = _key("", PATH, "A file with a key of 16 bytes or more, without which nobody can forge records.")
    args: Literal["digest", "redacted", "none"] = _key(
        "digest", choice("digest", "redacted", "none"), "What is logged of arguments."
    )
    format: Literal["auto", "jsonl", "sqlite"] = _key(
        "auto", choice("auto", "jsonl", "sqlite"), "The file's format; auto goes by its name."
    )
    sync: Literal["none", "always"] = _key("none", choice("none", "always"), "Whether every record waits for the disk.")
    max_bytes: int = _key(0, _BYTES, "A file that would grow larger is moved to path.1; 0: it grows on.")
    keep: int = _key(5, bounded(WHOLE, 1), "How many of the moved files stay.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PinningBlock:
    """Tools of remote servers stay as they were accepted. toolexec serve has it on."""

    enabled: bool = _key(True, SWITCH, "Whether a tool whose definition changed is kept in quarantine.")
    accept_first: bool = _key(True, SWITCH, "Accept tools that were never seen before.")
    path: str = _key("", PATH, "The file of what was accepted; empty: pins.json in the state folder.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryBlock:
    """Traces and metrics by OpenTelemetry."""

    enabled: bool = _key(False, SWITCH, "Whether every call has a span; where they go is set by OTEL_ variables.")
    record_args: bool = _key(False, SWITCH, "Record arguments and results, too, without secrets.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueBlock:
    """The tools of servers, kept in a file: they are there at once at the next start, before any server is."""

    path: str = _key("", PATH, "The file, SQLite; empty: tools are not kept.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretsBlock:
    """Secrets in the settings of servers: ${VAR} and secretref:."""

    strict: bool = _key(True, SWITCH, "Refuse a server whose ${VAR} is not set; else it stays as it is written.")
    providers: tuple[str, ...] = _key(
        ("env", "file", "command", "keyring"), choices("env", "file", "command", "keyring"), "Where secrets may be."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, one block each."""

    sources: SourcesBlock = field(default_factory=SourcesBlock)
    server: ServerBlock = field(default_factory=ServerBlock)
    http: HttpBlock = field(default_factory=HttpBlock)
    auth: AuthBlock = field(default_factory=AuthBlock)
    auth_jwt: JwtBlock = field(default_factory=JwtBlock)
    limits: LimitsBlock = field(default_factory=LimitsBlock)
    code: CodeBlock = field(default_factory=CodeBlock)
    sandboxes: SandboxesBlock = field(default_factory=SandboxesBlock)
    results: ResultsBlock = field(default_factory=ResultsBlock)
    policy: PolicyBlock = field(default_factory=PolicyBlock)
    approval: ApprovalBlock = field(default_factory=ApprovalBlock)
    audit: AuditBlock = field(default_factory=AuditBlock)
    pinning: PinningBlock = field(default_factory=PinningBlock)
    telemetry: TelemetryBlock = field(default_factory=TelemetryBlock)
    catalogue: CatalogueBlock = field(default_factory=CatalogueBlock)
    secrets: SecretsBlock = field(default_factory=SecretsBlock)

    def get(self, path: str) -> Any:
        """The value of the key with this path; raises KeyError for an unknown one."""
        key = KEYS[path]
        return getattr(getattr(self, key.block.replace(".", "_")), key.name)


def _blocks() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in fields(Settings):
        assert part.default_factory is not MISSING
        found[part.name.replace("_", ".")] = part.default_factory
    return found


BLOCKS: Final[Mapping[str, Any]] = _blocks()
"""The class of each block, by the name that files have for it."""

KEYS: Final[Mapping[str, Key]] = {
    f"{block}.{each.name}": Key(
        path=f"{block}.{each.name}", block=block, name=each.name, default=each.default, **each.metadata
    )
    for block, kind in BLOCKS.items()
    for each in fields(kind)
}
"""Every setting, by its path."""
