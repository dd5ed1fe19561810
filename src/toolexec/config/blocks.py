"""Every setting that files have, by block. Each is declared once: in the dataclass that has it in the library, of which
its block is derived, or here, where it is for files only. All else is made from that: the check of files, the names of
variables, help strings, the commented template, `config show`, and the table of the documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final, Literal

from toolexec.code.limits import Limits
from toolexec.config.declared import Block, From, entry, of
from toolexec.config.kinds import (
    File,
    Files,
    JournalName,
    Kind,
    LentKind,
    ListOf,
    PythonNames,
    Rate,
    SandboxKinds,
    Seconds,
    WorkerCount,
    kind_of,
)
from toolexec.durable.record import Record
from toolexec.exec.options import Options
from toolexec.model.declared import declared
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.run.context_settings import ContextSettings
from toolexec.run.settings import (
    ApprovalSettings,
    AuditFormat,
    AuditSettings,
    BreakerSettings,
    BulkheadSettings,
    CacheSettings,
    Effect,
    PinningSettings,
    PolicySettings,
    ResultSettings,
    RetrySettings,
    ScannerName,
    ScanSettings,
    TelemetrySettings,
)
from toolexec.runtime.remote.proxmox_settings import ProxmoxSettings
from toolexec.runtime.remote.server_settings import RuntimeServerSettings, TenantQuota
from toolexec.runtime.remote.settings import RemoteSettings
from toolexec.runtime.sandbox_settings import SandboxSettings
from toolexec.server.auth.settings import AuthSettings, JwtSettings
from toolexec.server.auth.sign_in_settings import SignInSettings
from toolexec.server.http.settings import HttpSettings
from toolexec.server.settings import ServeSettings, TaskSettings


class SourcesBlock(Block):
    """Where tools come from, besides the `mcpServers` of the file itself."""

    python: PythonNames = entry((), "Python files (app.py) and modules (pkg.tools) with @tool functions.")
    include: Files = entry((), "Files of other programs whose mcpServers are imported.")
    skills: Files = entry((), "Skills: .workflow files with a front matter, or directories of them.")


@of(
    From(ServeSettings, leave=("approval_timeout", "max_result_bytes")),
    From(HttpSettings, only=("host", "port", "path")),
    defaults={"expose": "auto"},
    after={"host": "transport", "port": "host", "path": "port", "toolsets": "expose"},
)
class ServerBlock(Block):
    """What toolexec serve offers, and where."""

    toolsets: ListOf[str] = entry((), "Toolsets offered to clients, combined; empty: every tool.")
    log_level: Literal["debug", "info", "warning", "error"] = entry("warning", "Log level on stderr.")


@of(From(HttpSettings, leave=("host", "port", "path", "sse")), after={"required_backends": "operator_roles"})
class HttpBlock(Block):
    """How toolexec serve listens on HTTP."""

    required_backends: ListOf[str] = entry((), "Backends that must be up for /readyz to pass (`sandbox` is allowed).")


@of(JwtSettings, defaults={"issuer": ""})
class JwtBlock(Block):
    """Which tokens (JWT) are accepted; on as soon as there is an issuer."""


@of(SignInSettings, defaults={"client_id": ""})
class SignInBlock(Block):
    """People at the login page sign in at jwt.issuer, their identity provider; on as soon as there is a client."""


@of(AuthSettings, kinds={"api_keys": ListOf[JSONDict]})
class AuthBlock(Block):
    """Who may use the HTTP server."""

    jwt: JwtBlock = JwtBlock.model_construct()
    sign_in: SignInBlock = SignInBlock.model_construct()


@of(TaskSettings)
class TasksBlock(Block):
    """Calls that become MCP tasks, for clients that take them: they outlive their request."""


@of(
    From(
        Options,
        only=("default_timeout", "max_timeout", "start_timeout", "default_tool_calls", "max_tool_calls"),
        renamed={"default_timeout": "call_timeout"},
    ),
    From(Limits, leave=("max_tool_calls",), renamed={"memory_bytes": "memory", "disk_bytes": "disk"}),
    kinds={"call_timeout": Seconds, "max_timeout": Seconds, "default_tool_calls": int},
    defaults={"max_timeout": 0.0, "default_tool_calls": 0},
    after={
        "rate": "start_timeout",
        "rate_per_caller": "rate",
        "rate_per_tool": "rate_per_caller",
        "rate_per_backend": "rate_per_tool",
        "code_per_caller": "rate_per_backend",
    },
)
class LimitsBlock(Block):
    """How long, how much and how often; 0 means no limit."""

    rate: Rate = entry(0.0, "Call rate of all callers together.")
    rate_per_caller: Rate = entry(0.0, "Call rate per caller.")
    rate_per_tool: Rate = entry(0.0, "Call rate per tool.")
    rate_per_backend: Rate = entry(0.0, "Call rate per backend.")
    code_per_caller: int = entry(
        0, "Runs of code of one caller at a time, in toolexec serve; 0: half of sandboxes.max_running.", ge=0
    )


@of(
    From(
        Options,
        only=("enable_code_execution", "security_profile", "default_language", "unsafe_opt_in"),
        renamed={
            "enable_code_execution": "enabled",
            "security_profile": "profile",
            "default_language": "language",
        },
    )
)
class CodeBlock(Block):
    """Code that calls tools, in a sandbox."""


@of(RemoteSettings, kinds={"sandbox": LentKind})
class RemoteBlock(Block):
    """Sandboxes of other machines, behind remote runtimes (toolexec runtime serve); there are some as soon as there are
    endpoints."""


@of(ProxmoxSettings, kinds={"sandbox": LentKind})
class ProxmoxBlock(Block):
    """Sandboxes in containers of Proxmox VE, behind the remote runtime in each; there are some as soon as there is a
    url."""


@of(
    SandboxSettings,
    kinds={
        "use": SandboxKinds,
        "wasm_workers": WorkerCount,
        "egress": ListOf[str],
        "plugins": ListOf[JSONDict],
    },
    defaults={"egress": (), "plugins": ()},
    after={"egress_secrets": "egress"},
)
class SandboxesBlock(Block):
    """The sandboxes that code runs in."""

    egress_secrets: ListOf[JSONDict] = entry(
        (), "Secrets that the proxy inserts for code: placeholder, value (a secretref:), hosts."
    )
    remote: RemoteBlock = RemoteBlock.model_construct()
    proxmox: ProxmoxBlock = ProxmoxBlock.model_construct()


_OF_TENANTS: Final = {name: f"tenant_{name}" for name in declared(TenantQuota)}


@of(
    RuntimeServerSettings,
    From(TenantQuota, renamed=_OF_TENANTS),
    kinds={
        "keys": ListOf[JSONDict],
        "profiles": ListOf[Literal["dev", "standard", "hardened"]],
        "quotas": ListOf[JSONDict],
    },
    after=dict(zip(_OF_TENANTS.values(), ("max_queued", *_OF_TENANTS.values()), strict=False)),
)
class RuntimeServerBlock(Block):
    """What `toolexec runtime serve` lends to other machines: the sandboxes of [sandboxes], by signed requests."""


@of(From(ResultSettings, leave=("max_tokens",)))
class ResultsBlock(Block):
    """Results that are too large to be read at once."""


@of(
    ContextSettings,
    From(ResultSettings, only=("max_tokens",), renamed={"max_tokens": "max_result_tokens"}),
    after={"max_result_tokens": "max_caller_tokens"},
)
class ContextBlock(Block):
    """What conversations cost a model in tokens, and may cost."""


@of(
    PolicySettings,
    kinds={"remote_unmarked": Literal["", Effect]},
    defaults={"remote_unmarked": ""},
)
class PolicyBlock(Block):
    """What may be called, by whom."""

    rules: ListOf[JSONDict] = entry(
        (), "Rules: effect, tools, namespaces, tags, backends, callers, roles, runs, when, reason... Deny wins."
    )


@of(ApprovalSettings, after={"timeout": "mode"})
class ApprovalBlock(Block):
    """How somebody is asked about calls that the policy says to ask for."""

    mode: Literal["auto", "terminal", "client", "none"] = entry("auto", "How approval is requested; none denies.")
    remember: File = entry("", "File of remembered answers; empty: in the state directory.")


@of(
    AuditSettings,
    kinds={"format": Literal["auto", AuditFormat]},
    defaults={"format": "auto"},
    after={"enabled": "", "path": "enabled", "key_file": "path"},
)
class AuditBlock(Block):
    """The log of every call. toolexec serve has it on."""

    enabled: bool = entry(True, "Whether calls are logged.")
    path: File = entry("", "The log file; empty: audit.jsonl in the state directory.")
    key_file: File = entry("", "File with a key of 16 bytes or more that authenticates the records.")


@of(PinningSettings, after={"enabled": ""})
class PinningBlock(Block):
    """Tools of remote servers stay as they were accepted. toolexec serve has it on."""

    enabled: bool = entry(True, "Whether a tool whose definition changed is kept in quarantine.")
    path: File = entry("", "File of accepted definitions; empty: pins.db in the state directory.")


@of(ScanSettings, kinds={"backends": ListOf[str]}, after={"enabled": "", "scanners": "enabled"})
class ScanBlock(Block):
    """Answers are looked at before a model reads them."""

    enabled: bool = entry(False, "Whether answers are scanned.")
    scanners: ListOf[ScannerName] = entry(("hidden", "secrets", "instructions"), "Scanners to apply.")
    path: File = entry("", "Directory of held answers; empty: quarantine in the state directory.")
    keep: int = entry(1000, "Most held answers; the oldest are deleted.", ge=1)


@of(TelemetrySettings, after={"enabled": ""})
class TelemetryBlock(Block):
    """Traces and metrics by OpenTelemetry."""

    enabled: bool = entry(False, "Whether every call has a span; OTEL_ variables set the destination.")


class CatalogueBlock(Block):
    """The tools of servers, kept in a file: they are there at once at the next start, before any server is."""

    path: File = entry("", "SQLite file of the catalogue; empty: tools are not kept.")


@of(
    From(RetrySettings, renamed={"budget": "retry_budget"}),
    From(BreakerSettings, renamed={"failures": "breaker_failures", "reset": "breaker_reset"}),
    From(
        BulkheadSettings,
        renamed={
            "limit": "max_concurrent",
            "queue": "max_queue",
            "wait": "max_wait",
            "per_caller": "max_per_caller",
        },
    ),
    kinds={"attempt_timeout": Seconds},
    defaults={"attempt_timeout": 0.0, "limit": 50},
)
class ResilienceBlock(Block):
    """What happens when backends fail. On as soon as one of these is set."""

    fallbacks: ListOf[JSONDict] = entry(
        (), "Fallback tools when others fail: tools (a pattern), to (a list of IDs; * is the tool's name)."
    )
    ledger: bool = entry(False, "Record non-repeatable calls, and never repeat one of unknown outcome.")
    ledger_path: File = entry("", "SQLite file of these records; empty: effects.db in the state directory.")


class LearningBlock(Block):
    """What tools that declare no output schema answer is learned from their results: names and types, no values."""

    outputs: bool = entry(
        False, "Learn the output schema of tools that declare none, for stubs, descriptions and workflow check."
    )
    path: File = entry("", "File of what was learned; empty: outputs.json in the state directory.")


@of(
    From(Options, only=("journal", "linger", "timer_linger")),
    kinds={"journal": JournalName},
    defaults={"journal": ""},
    after={"postgres": "journal"},
)
class DurableBlock(Block):
    """Runs that go on where they stopped: chains, workflows and code with an ID."""

    postgres: str = entry(
        "", "PostgreSQL database in place of the file: its address, or secretref:env:NAME.", secret=True
    )


@of(Record, defaults={"share": 0.0})
class RecordBlock(Block):
    """Chains, workflows and code are recorded, durable or not, to be replayed, compared and forked."""


@of(
    From(Options, only=("cassette", "cassette_mode"), renamed={"cassette": "path", "cassette_mode": "mode"}),
    kinds={"path": File},
    defaults={"cassette": ""},
)
class CassetteBlock(Block):
    """Recorded calls, for tests without a network."""


@of(CacheSettings, kinds={"path": File}, defaults={"path": ""}, after={"rules": "ttl"})
class CacheBlock(Block):
    """Answers of read-only tools are kept. On as soon as one of these is set."""

    rules: ListOf[JSONDict] = entry(
        (), "Times for single tools: tools (a pattern), ttl; 0: never. Idempotent tools need a rule."
    )


class SecretsBlock(Block):
    """Secrets in the settings of servers: ${VAR} and secretref:."""

    strict: bool = entry(True, "Refuse a server whose ${VAR} is not set; otherwise the text stays as written.")
    providers: ListOf[Literal["env", "file", "command", "keyring"]] = entry(
        ("env", "file", "command", "keyring"), "Allowed sources of secrets."
    )


class Settings(Block):
    """All settings, one block each."""

    sources: SourcesBlock = SourcesBlock.model_construct()
    server: ServerBlock = ServerBlock.model_construct()
    http: HttpBlock = HttpBlock.model_construct()
    auth: AuthBlock = AuthBlock.model_construct()
    tasks: TasksBlock = TasksBlock.model_construct()
    limits: LimitsBlock = LimitsBlock.model_construct()
    code: CodeBlock = CodeBlock.model_construct()
    sandboxes: SandboxesBlock = SandboxesBlock.model_construct()
    runtime_server: RuntimeServerBlock = RuntimeServerBlock.model_construct()
    results: ResultsBlock = ResultsBlock.model_construct()
    context: ContextBlock = ContextBlock.model_construct()
    policy: PolicyBlock = PolicyBlock.model_construct()
    scan: ScanBlock = ScanBlock.model_construct()
    approval: ApprovalBlock = ApprovalBlock.model_construct()
    audit: AuditBlock = AuditBlock.model_construct()
    pinning: PinningBlock = PinningBlock.model_construct()
    telemetry: TelemetryBlock = TelemetryBlock.model_construct()
    catalogue: CatalogueBlock = CatalogueBlock.model_construct()
    resilience: ResilienceBlock = ResilienceBlock.model_construct()
    cache: CacheBlock = CacheBlock.model_construct()
    learning: LearningBlock = LearningBlock.model_construct()
    durable: DurableBlock = DurableBlock.model_construct()
    record: RecordBlock = RecordBlock.model_construct()
    cassette: CassetteBlock = CassetteBlock.model_construct()
    secrets: SecretsBlock = SecretsBlock.model_construct()

    def get(self, path: str) -> Any:
        """Return the value of the key with this path; raises KeyError for an unknown one."""
        return reduce(getattr, KEYS[path].path.split("."), self)

    @classmethod
    def of(cls, values: JSONObject) -> Settings:
        """Return the settings with these values, by path: every key has one, and they were read before."""
        tables: dict[str, JSONDict] = {"": {}, **{block: {} for block in BLOCKS}}
        for path, value in values.items():
            tables[KEYS[path].block][KEYS[path].name] = value
        for block in reversed([*BLOCKS]):  # a nested one comes after the one around it
            outer, _, name = block.rpartition(".")
            tables[outer][name] = BLOCKS[block].model_construct(**tables[block])
        return cls.model_construct(**tables[""])


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting: `path` is its name with its block's, as in `limits.call_timeout`; a `secret` one is never shown."""

    path: str
    block: str
    name: str
    kind: Kind
    default: object
    help: str
    secret: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "TOOLEXEC_" + self.path.replace(".", "__").upper()

    def read(self, value: Any, directory: Path | None = None) -> Any:
        """Return *value* in its one form; names of files count from *directory*. Raises pydantic's ValidationError."""
        return Settings.model_validate(self.table(value), context=directory).get(self.path)

    def table(self, value: Any) -> JSONDict:
        """Return *value* as a file has it: in the table of its block."""
        return reduce(lambda inner, name: {name: inner}, reversed(self.path.split(".")), value)


def _blocks(model: type[Block], prefix: str = "") -> Iterator[tuple[str, type[Block]]]:
    for name in model.names():
        each = model.model_fields[name]
        if isinstance(each.annotation, type) and issubclass(each.annotation, Block):
            yield f"{prefix}{name}", each.annotation
            yield from _blocks(each.annotation, f"{prefix}{name}.")


def keys_of(block: str, model: type[Block]) -> Iterator[Key]:
    """Yield the settings of one block, without those of blocks in it."""
    for name in model.names():
        each = model.model_fields[name]
        if not (isinstance(each.annotation, type) and issubclass(each.annotation, Block)):
            yield Key(
                path=f"{block}.{name}",
                block=block,
                name=name,
                kind=kind_of(each),
                default=each.default,
                help=each.description or "",
                secret=each.json_schema_extra is not None,
            )


BLOCKS: Final[Mapping[str, type[Block]]] = dict(_blocks(Settings))
"""The model of each block, by the name that files have for it; a nested one comes after the one around it."""

KEYS: Final[Mapping[str, Key]] = {key.path: key for block, model in BLOCKS.items() for key in keys_of(block, model)}
"""Every setting, by its path."""
