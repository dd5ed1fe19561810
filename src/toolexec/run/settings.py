"""The settings of the parts of a gate that files have, too: declared here, apart from the parts, which few programs
load. A part that is made of its settings inherits them; of the others they are the defaults of arguments."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from toolexec.model.declared import Bytes, Seconds, setting
from toolexec.model.settings import checked

__all__ = [
    "MIN_BYTES",
    "ApprovalSettings",
    "ArgsMode",
    "AuditFormat",
    "AuditSettings",
    "AuditSync",
    "BreakerSettings",
    "BulkheadSettings",
    "CacheIdentity",
    "CacheSettings",
    "ContextSettings",
    "Effect",
    "PinningSettings",
    "PolicySettings",
    "ResultSettings",
    "RetrySettings",
    "ScanAction",
    "ScanSettings",
    "ScannerName",
    "TelemetrySettings",
    "TokenCount",
]

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
TokenCount: TypeAlias = Literal["estimate", "exact", "off"]
"""By their characters, with the vocabulary of o200k, or not at all."""

MIN_BYTES: Final = 1000
"""The smallest budget of a result: an outline must have room to say how to read on."""


@checked("ResultSettings")
@dataclass(eq=False, repr=False)
class ResultSettings:
    """How large a result may be that is shown whole, and how long the others are kept."""

    max_bytes: Bytes = setting(50_000, "A larger result is shown as an outline, with a handle.", least=MIN_BYTES)
    _: KW_ONLY
    keep_seconds: Seconds = setting(600.0, "How long the whole of it is kept after each use.", above=0, file_least=1)
    max_kept_bytes: Bytes = setting(256 * 1024**2, "How much is kept in memory in all.", above=0, file_least=MIN_BYTES)
    max_tokens: int = setting(
        0, "A result of more tokens is shown as an outline, with a handle; 0: its bytes alone count.", least=0
    )


@checked("ContextSettings")
@dataclass(frozen=True, kw_only=True)
class ContextSettings:
    """How the tokens of conversations are counted, and how many there may be. Raises ConfigurationError for a value
    that makes no sense."""

    count: TokenCount = setting(
        "estimate", "How tokens are counted: by characters, with a vocabulary (exact needs rs-bpe), or not at all."
    )
    max_session_tokens: int = setting(0, "A conversation of more tokens gets no further calls; 0: no limit.", least=0)
    max_caller_tokens: int = setting(
        0, "A caller with more tokens, in all of its conversations, gets no further calls; 0: no limit.", least=0
    )
    idle: Seconds = setting(
        3600.0, "A conversation, or caller, without a call for so long begins at 0 again.", above=0, file_least=1
    )


@checked("PolicySettings")
@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """What becomes of calls and runs that no rule matches."""

    default: Effect = setting("allow", "Where no rule fits.")
    remote_destructive: Effect = setting("ask", "Destructive tools of remote servers where no rule fits.")
    remote_unmarked: Effect | None = setting(
        None, "Those of them that do not say whether they are destructive; the same where it is empty."
    )
    default_runs: Effect = setting(
        "allow", "Runs of code, workflows, chains and skills where no rule with runs, profiles or languages fits."
    )


@checked("ApprovalSettings")
@dataclass(frozen=True, kw_only=True)
class ApprovalSettings:
    """How an approver is asked."""

    timeout: Seconds = setting(120.0, "How long to wait for an answer; then it is no.", above=0, file_least=1)


@checked("AuditLog")
@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What the log of calls has, and how it is written. Raises ConfigurationError for a value that makes no sense."""

    args: ArgsMode = setting("digest", "What is logged of arguments.")
    format: AuditFormat | None = setting(None, "The file's format; auto goes by its name.")
    sync: AuditSync = setting("none", "Whether every record waits for the disk.")
    max_bytes: Bytes = setting(0, "A file that would grow larger is moved to path.1; 0: it grows on.", least=0)
    keep: int = setting(5, "How many of the moved files stay.", least=1)


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

    action: ScanAction = setting(
        "hold", "An answer in which something is found is held for a person, or is given and logged."
    )
    backends: tuple[str, ...] = setting(
        ("mcp", "provider"), "Whose answers are looked at: patterns of kinds, names or both (mcp:github)."
    )


@checked("TelemetrySettings")
@dataclass(frozen=True, kw_only=True)
class TelemetrySettings:
    """What spans have of calls."""

    record_args: bool = setting(False, "Record arguments and results, too, without secrets.")


@checked("RetrySettings")
@dataclass(eq=False, repr=False, kw_only=True)
class RetrySettings:
    """How often and how long calls are made again."""

    attempts: int = setting(
        3, "How often a call of a read-only or idempotent tool is made in all, where that may help; 1: once.", least=1
    )
    attempt_timeout: float | None = setting(
        None, "How long each attempt may take; 0: what is left for all of them.", above=0, file_least=0
    )
    within: Seconds = setting(
        30.0, "How long all attempts at a call may take that has no time limit of its own.", above=0, file_least=0.001
    )
    budget: float = setting(0.2, "How many more calls retries may make in the long run: 0.2 is 20 %.", least=0)


@checked("BreakerSettings")
@dataclass(eq=False, repr=False, kw_only=True)
class BreakerSettings:
    """When a backend is left alone, and for how long."""

    failures: int = setting(
        5, "After how many failed calls in a row a backend is left alone; 0: it never is.", least=1, file_least=0
    )
    reset: Seconds = setting(30.0, "For how long it is left alone.", above=0, file_least=0.001)


@checked("BulkheadSettings")
@dataclass(eq=False, repr=False)
class BulkheadSettings:
    """How many calls of one backend run at a time, and how many wait."""

    limit: int = setting(
        10, "How many calls of one remote backend run at a time; 0: any number.", least=1, file_least=0
    )
    _: KW_ONLY
    queue: int = setting(100, "How many more calls of it may wait for their turn.", least=0)
    wait: Seconds = setting(5.0, "For how long they may wait.", least=0)
    per_caller: int = setting(
        0, "How many of these, waiting ones among them, one caller may have; 0: any number.", least=0
    )


@checked("CacheSettings")
@dataclass(eq=False, repr=False)
class CacheSettings:
    """Which answers are kept, where and for how long."""

    ttl: Seconds = setting(300.0, "For how long an answer is kept; 0: only those that a rule names are.", least=0)
    _: KW_ONLY
    identity: CacheIdentity = setting("caller", "Who shares answers; none means that all do.")
    max_bytes: Bytes = setting(
        64 * 1024**2, "How much is kept in memory, and in the file.", above=0, file_least=MIN_BYTES
    )
    path: str | Path | None = setting(
        None, "A file that outlives the process, SQLite; empty: answers are kept in memory only."
    )
