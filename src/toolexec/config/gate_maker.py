"""From settings to the gate that they describe, and to what has changed of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from toolexec.config import parts
from toolexec.config.declared import values_for
from toolexec.config.entries import ENDPOINTS
from toolexec.config.loaded import LoadedConfig
from toolexec.config.toolsets import BLOCK as TOOLSETS
from toolexec.errors import ConfigurationError
from toolexec.run.settings import ApprovalSettings, AuditSettings, PinningSettings, ScanSettings, TelemetrySettings

if TYPE_CHECKING:
    from toolexec.model.origin import Approver
    from toolexec.run.audit import AuditLog
    from toolexec.run.endpoint_rules import EndpointRules
    from toolexec.run.gate import Gate, GatePart
    from toolexec.run.layers.rate_limit import RateLimit
    from toolexec.run.policy import Policy
    from toolexec.run.results import ResultStore

RATES: Final = ("rate", "rate_per_caller", "rate_per_tool", "rate_per_backend")
"""The keys of `[limits]` that are rates."""
_CODE_SHARES: Final = "limits.code_per_caller"
_KEEP_GOING: Final = ("fallback", "bulkhead", "breaker", "retry")
"""The parts of the gate that `[resilience]` describes, but for the ledger."""


def _key_in(file: str) -> bytes:
    """Return the key of the audit log, without white space around it. Raises ConfigurationError."""
    try:
        return Path(file).expanduser().read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(f"audit.key_file: {file} cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class GateMaker:
    """Makes the parts of the gate that are wanted. *terminal* and *state* are those of `build`; *store* gives what
    keeps large results. With *chooses* the gate says which tools there are, at each endpoint of a server; without, the
    Exec does."""

    loaded: LoadedConfig
    serving: bool
    terminal: Callable[[], Approver | None] | None
    state: Path
    store: Callable[[], ResultStore]
    chooses: bool = False

    def make(self) -> tuple[Gate | None, AuditLog | None]:
        """Return the gate, None where the default one will do, and the log that it writes."""
        policy = self._rules()
        rates = parts.rate_limit(self.loaded)
        made: dict[str, GatePart | None] = {
            "telemetry": self._telemetry(),
            "budget": self._budget(),
            "scan": self._scan(),
            "policy": policy,
            "pinning": self._pinning(),
            "approval": self._approval(policy) if policy is not None else None,
            "rate_limit": rates,
            "cache": parts.cache(self.loaded),
            "ledger": self._ledger(),
            **parts.resilience(self.loaded),
            "learning": self._learning(),
        }
        log = self._audit_log()
        if log is not None:
            from toolexec.run.layers.audit import Audit

            made["audit"] = Audit(log)
        if not any(part is not None for part in made.values()):
            return None, None
        from toolexec.run.gate import Gate, default_policy

        if policy is None:
            made["policy"] = policy = default_policy()
            made["approval"] = self._approval(policy)
        return Gate(**made, code_shares=parts.code_shares(self.loaded) if self.serving else None), log

    def remake(self, before: Gate, changed: Collection[str]) -> Gate:
        """Return the gate *before* with those parts made again that the *changed* keys describe: policy, toolsets,
        scan, rates, shares of code, the cache and what keeps calls going. All others are the same objects, with what
        they have counted and were answered; so are counts of rates that have not changed, and of runs of code. Raises
        ConfigurationError."""
        blocks = {key.partition(".")[0] for key in changed}
        made: dict[str, GatePart | None] = {}
        if {"policy", TOOLSETS, ENDPOINTS} & blocks or "server.toolsets" in changed:
            policy = made["policy"] = self._decider()
            by = getattr(before.approval, "by", None)
            made["approval"] = by(policy.decide) if by is not None else self._approval(policy)
        if "scan" in blocks:
            made["scan"] = self._scan()
        if "resilience" in blocks:
            made |= {**dict.fromkeys(_KEEP_GOING), **parts.resilience(self.loaded)}
            made |= {name: known for name in _KEEP_GOING if _is_same(known := getattr(before, name), made[name])}
        if any(f"limits.{name}" in changed for name in RATES):
            rates = made["rate_limit"] = parts.rate_limit(self.loaded)
            if rates is not None and before.rate_limit is not None:
                rates.take_over(cast("RateLimit", before.rate_limit))
        if "cache" in blocks:
            made["cache"] = parts.cache(self.loaded)
        shares = before.code_shares
        if _CODE_SHARES in changed:
            shares = parts.code_shares(self.loaded)
            if before.code_shares is not None:
                shares.take_over(before.code_shares)
        return before.replaced(made, code_shares=shares)

    def _wanted(self, *blocks: str) -> bool:
        return self.serving or any(self.loaded.has(block) for block in blocks)

    def _rules(self) -> Policy | EndpointRules | None:
        return self._decider() if self._wanted("policy", "approval") else None

    def _decider(self) -> Policy | EndpointRules:
        """Return the policy; of a server that shows some of its tools only, or has several endpoints, the rules of
        each."""
        if not self.chooses or not (self.loaded.endpoints or self.loaded.settings.server.toolsets):
            return parts.policy(self.loaded)
        from toolexec.config.endpoints import rules_at
        from toolexec.run.endpoint_rules import endpoint_rules

        return endpoint_rules(rules_at(self.loaded))

    def _approval(self, policy: Policy | EndpointRules) -> GatePart:
        from toolexec.config.asking import CallerIsNotAsked
        from toolexec.run.approvals import ApprovalMemory
        from toolexec.run.layers.approval import Approval

        block = self.loaded.settings.approval
        asks_here = block.mode == "terminal" or (block.mode == "auto" and not self.serving)
        ask = self.terminal() if asks_here and self.terminal is not None else None
        if block.mode == "terminal" and ask is None:
            raise ConfigurationError("approval.mode is terminal, and there is no terminal; use client, or none")
        memory = ApprovalMemory(self._place(block.remember, "approvals.json"))
        approval = Approval(policy.decide, ask=ask, remember=memory, **values_for(ApprovalSettings, block))
        return CallerIsNotAsked(approval) if block.mode in ("terminal", "none") else approval

    def _audit_log(self) -> AuditLog | None:
        block = self.loaded.settings.audit
        if not block.enabled or not self._wanted("audit"):
            return None
        from toolexec.run.audit import AuditLog

        return AuditLog.open(
            self._place(block.path, "audit.jsonl"),
            key=_key_in(block.key_file) if block.key_file else None,
            **values_for(AuditSettings, block),
        )

    def _pinning(self) -> GatePart | None:
        block = self.loaded.settings.pinning
        if not block.enabled or not self._wanted("pinning"):
            return None
        from toolexec.run.pinning import Pins

        return Pins(self._place(block.path, "pins.db"), **values_for(PinningSettings, block))

    def _scan(self) -> GatePart | None:
        block = self.loaded.settings.scan
        if not block.enabled:
            return None
        from toolexec.run.layers.scan import Scan
        from toolexec.run.quarantine import Quarantine
        from toolexec.run.scanners import SCANNERS

        kept = Quarantine(self._place(block.path, "quarantine"), keep=block.keep)
        scanners = [SCANNERS[name]() for name in block.scanners]
        return Scan(scanners, quarantine=kept, **values_for(ScanSettings, block))

    def _learning(self) -> GatePart | None:
        block = self.loaded.settings.learning
        if not block.outputs:
            return None
        from toolexec.run.layers.learning import Learning

        return Learning(self._place(block.path, "outputs.json"))

    def _ledger(self) -> GatePart | None:
        block = self.loaded.settings.resilience
        if not block.ledger:
            return None
        from toolexec.run.layers.ledger import Ledger

        return Ledger(self._place(block.ledger_path, "effects.db"))

    def _telemetry(self) -> GatePart | None:
        block = self.loaded.settings.telemetry
        if not block.enabled:
            return None
        from toolexec.run.layers.telemetry import Telemetry

        return Telemetry(**values_for(TelemetrySettings, block))

    def _budget(self) -> GatePart | None:
        if not self._wanted("results") and not self.loaded.settings.get("context.max_result_tokens"):
            return None
        from toolexec.run.layers.budget import Budget

        return Budget(self.store())

    def _place(self, given: str, name: str) -> Path:
        """Return the file that was given, or the one in the state directory, which is made for its owner alone.

        Raises ConfigurationError where it cannot be made, as in a home that is read-only.
        """
        if given:
            return Path(given)
        try:
            self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"the state directory {self.state} cannot be made: {error.strerror}; "
                "set XDG_STATE_HOME to a directory that can be written to",
                details={"directory": str(self.state)},
            ) from error
        return self.state / name


def _is_same(known: object, made: object) -> bool:
    """Return whether two parts of a gate go by the same settings."""
    if type(known) is not type(made) or not is_dataclass(known):
        return False
    return all(getattr(known, each.name) == getattr(made, each.name) for each in fields(known))
