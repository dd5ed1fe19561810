"""The settings of the parts of a gate that files have, too: declared here, apart from the parts, which few programs
load. A part that is made of its settings inherits them; of the others they are the defaults of arguments."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from toolexec.model.declared import Bytes, Seconds, setting
from toolexec.model.settings import checked

Effect: TypeAlias = Literal["allow", "deny", "ask"]
"""What a rule does with a call that it matches."""
ArgsMode: TypeAlias = Literal["digest", "redacted", "none"]
"""What the audit log has of arguments: a digest, themselves without secrets, or nothing."""
ScanAction: TypeAlias = Literal["hold", "report"]
"""What becomes of an answer in which something is found."""
ScannerName: TypeAlias = Literal["hidden", "secrets", "instructions"]
"""The scanners that are shipped."""
AuditFormat: TypeAlias = Literal["jsonl", "sqlite"]
AuditSync: TypeAlias = Literal["none", "always"]
CacheIdentity: TypeAlias = Literal["caller", "tenant", "none"]
"""Who shares answers: each caller has its own, the callers of one tenant share them, or all do."""

MIN_BYTES: Final = 1000
"""The smallest budget of a result: an outline must have room to say how to read on."""


@checked("ResultSettings")
@dataclass(eq=False, repr=False)
class ResultSettings:
    """How large a result may be that is shown whole, and how long the others are kept."""

    max_bytes: Bytes = setting(50_000, "A larger result is shown as an outline, with a handle.", least=MIN_BYTES)
    _: KW_ONLY
    keep_seconds: Seconds = setting(600.0, "How long the whole result is kept after each use.", above=0, file_least=1)
    max_kept_bytes: Bytes = setting(256 * 1024**2, "Memory for kept results in total.", above=0, file_least=MIN_BYTES)
    max_tokens: int = setting(
        0, "A result with more tokens is shown as an outline, with a handle; 0: only results.max_bytes counts.", least=0
    )


@checked("PolicySettings")
@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """What becomes of calls and runs that no rule matches."""

    default: Effect = setting("allow", "Effect when no rule matches.")
    remote_destructive: Effect = setting("ask", "Effect for destructive tools of remote servers when no rule matches.")
    remote_unmarked: Effect | None = setting(
        None, "Effect for remote tools not marked as destructive or not; empty: as remote_destructive."
    )
    default_runs: Effect = setting(
        "allow",
        "Effect for runs of code, workflows, chains and skills when no rule on runs matches.",
    )


@checked("ApprovalSettings")
@dataclass(frozen=True, kw_only=True)
class ApprovalSettings:
    """How an approver is asked."""

    timeout: Seconds = setting(120.0, "How long to wait for an answer before denying.", above=0, file_least=1)


@checked("AuditLog")
@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What the log of calls has, and how it is written. Raises ConfigurationError for a value that makes no sense."""

    args: ArgsMode = setting("digest", "How arguments are logged.")
    format: AuditFormat | None = setting(None, "Format of the file; auto: by its name.")
    sync: AuditSync = setting("none", "Whether every record waits for the disk.")
    max_bytes: Bytes = setting(0, "Size at which the file is rotated to path.1; 0: never.", least=0)
    keep: int = setting(5, "Rotated files to keep.", least=1)


@checked("PinningSettings")
@dataclass(frozen=True, kw_only=True)
class PinningSettings:
    """Which definitions of tools are accepted as they come."""

    accept_first: bool = setting(True, "Accept tools that were never seen before.")


@checked("ScanSettings")
@dataclass(frozen=True, kw_only=True)
class ScanSettings:
    """What becomes of answers in which scanners find something. Raises ConfigurationError for a value that makes no
    sense."""

    action: ScanAction = setting("hold", "With a finding: hold the answer for a person, or deliver and log it.")
    backends: tuple[str, ...] = setting(
        ("mcp", "provider"), "Backends whose answers are scanned: patterns of kinds, names or both (mcp:github)."
    )


@checked("TelemetrySettings")
@dataclass(frozen=True, kw_only=True)
class TelemetrySettings:
    """What spans have of calls."""

    record_args: bool = setting(False, "Also record arguments and results, without secrets.")


@checked("RetrySettings")
@dataclass(eq=False, repr=False, kw_only=True)
class RetrySettings:
    """How often and how long calls are made again."""

    attempts: int = setting(
        3, "Most attempts at a retryable call of a read-only or idempotent tool; 1: no retries.", least=1
    )
    attempt_timeout: float | None = setting(
        None, "Time limit of each attempt; 0: the time left for all.", above=0, file_least=0
    )
    within: Seconds = setting(
        30.0, "Time limit of all attempts together, for a call without its own.", above=0, file_least=0.001
    )
    budget: float = setting(0.2, "Share of extra calls that retries may add in the long run: 0.2 is 20 %.", least=0)


@checked("BreakerSettings")
@dataclass(eq=False, repr=False, kw_only=True)
class BreakerSettings:
    """When a backend is left alone, and for how long."""

    failures: int = setting(
        5, "Consecutive failures after which calls to a backend stop; 0: never.", least=1, file_least=0
    )
    reset: Seconds = setting(30.0, "How long calls to it stop.", above=0, file_least=0.001)


@checked("BulkheadSettings")
@dataclass(eq=False, repr=False)
class BulkheadSettings:
    """How many calls of one backend run at a time, and how many wait."""

    limit: int = setting(10, "Most concurrent calls per remote backend; 0: any number.", least=1, file_least=0)
    _: KW_ONLY
    queue: int = setting(100, "Most calls that wait per remote backend.", least=0)
    wait: Seconds = setting(5.0, "How long they may wait.", least=0)
    per_caller: int = setting(0, "Most of these calls per caller, waiting ones included; 0: any number.", least=0)


@checked("CacheSettings")
@dataclass(eq=False, repr=False)
class CacheSettings:
    """Which answers are kept, where and for how long."""

    ttl: Seconds = setting(300.0, "How long answers are cached; 0: only where a rule says so.", least=0)
    _: KW_ONLY
    identity: CacheIdentity = setting("caller", "Who shares cached answers; none: all callers share.")
    max_bytes: Bytes = setting(64 * 1024**2, "Size limit in memory, and of the file.", above=0, file_least=MIN_BYTES)
    path: str | Path | None = setting(None, "SQLite file that outlives the process; empty: memory only.")
