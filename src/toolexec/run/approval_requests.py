"""Build what an approver gets to see of a call."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from toolexec.discovery.index import Registered
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONObject
from toolexec.model.origin import ApprovalRequest
from toolexec.model.redaction import Redactor
from toolexec.model.visible import visible_line
from toolexec.run.approvals import Approved
from toolexec.run.audit.record import canonical
from toolexec.run.policy_rules import Verdict

_MAX_DESCRIPTION: Final = 500
_MAX_KEPT: Final = 10_000
_KEY: Final = secrets.token_bytes(32)


def arguments_digest(args: JSONObject) -> str:
    """Return what distinguishes arguments from others within this process; it cannot be computed outside of it, and so
    reveals no secrets."""
    return hashlib.blake2b(canonical(args), digest_size=16, key=_KEY).hexdigest()


def argument_digests(args: JSONObject) -> dict[str, str]:
    """Return what `arguments_digest` gives for each argument by itself, by its name."""
    return {name: arguments_digest({"": value}) for name, value in args.items()}


class ApprovedArguments:
    """Knows with which arguments a tool was last approved for a caller in a session; it keeps digests only."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, Approved], dict[str, str]] = OrderedDict()

    def changed(self, session: str, wanted: Approved, digests: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names of the arguments that are not as they were then; none where nothing was approved yet.
        *digests* are what `argument_digests` gives."""
        before = self._kept.get((session, wanted))
        if before is None:
            return ()
        return tuple(name for name, digest in digests.items() if before.get(name) != digest)

    def keep(self, session: str, wanted: Approved, digests: dict[str, str]) -> None:
        """Record what was approved just now."""
        key = (session, wanted)
        self._kept[key] = digests
        self._kept.move_to_end(key)
        if len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)  # the next question marks nothing as changed


def request_of(
    entry: Registered, call: ToolCall, verdict: Verdict, redact: Redactor, changed: tuple[str, ...]
) -> ApprovalRequest:
    """Return the question about a call, with its arguments without secrets; *changed* are the names of those that are
    not as they were at the last approval."""
    tool, binding = entry.tool, entry.binding
    schema = tool.input_schema.to_json()
    args = call.args or {}
    listed = schema.get("required") if isinstance(schema, Mapping) else None
    required = tuple(name for name in listed if isinstance(name, str)) if isinstance(listed, list) else ()
    shown = redact.value(args, schema if isinstance(schema, dict) else None)
    return ApprovalRequest(
        tool_id=tool.id,
        args=shown if isinstance(shown, dict) else {"arguments": shown},
        reason=visible_line(verdict.reason, _MAX_DESCRIPTION)
        or f"the policy ({verdict.rule}) says that an approver must be asked",
        description=visible_line(redact.text(tool.description), _MAX_DESCRIPTION),
        caller=call.origin.caller,
        path=call.origin.path,
        run_id=call.run_id,
        longest=call.origin.approvals,
        required=required,
        changed=changed,
        backend=f"{binding.kind}:{binding.backend}" if binding.kind != "local" else "",
        digest=arguments_digest(args),
    )
