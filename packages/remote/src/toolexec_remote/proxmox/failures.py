"""What the API of Proxmox VE says when something goes wrong, and what it means. Pure: no I/O, no clock.

Each error says by `retryable` whether the same call may succeed later, and by `reason` in one word what happened.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from toolexec.errors import SandboxFailedError, SandboxUnavailableError

_MOST: Final = 500


class ProxmoxError(Exception):
    """The API says no, with an HTTP *status*; or a task failed, or the API cannot be talked to, with the status 0.

    `reason` says in one word what happened (`auth`, `forbidden`, `locked`, ...), `message` the rest, and what to do.
    `retryable` says whether the same call may succeed later, `sent` whether it may have been carried out.
    """

    def __init__(
        self, message: str, *, reason: str, status: int = 0, retryable: bool = False, sent: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.status = status
        self.retryable = retryable
        self.sent = sent

    @property
    def more(self) -> dict[str, Any]:
        """What else the `details` of a run's error have."""
        return {}


class _Refusal(NamedTuple):
    """An answer: its status (0 for any), a pattern in its message, a word, what to do, and whether to try again."""

    status: int
    pattern: str
    reason: str
    advice: str = ""
    retryable: bool = False


_REFUSALS: Final = (  # the first that fits counts
    _Refusal(401, "", "auth", "see that the token, or the user and the password, are right and have not expired"),
    _Refusal(403, r"pool '.*' does not exist", "no_such_pool", "make it, by pveum pool add"),
    _Refusal(403, "", "forbidden"),
    _Refusal(
        0, r"does not exist on node|\.conf' does not exist|unable to find configuration file", "no_such_container"
    ),
    _Refusal(0, r"snapshot '.*' does not exist", "no_such_snapshot"),
    _Refusal(0, r"hostname lookup '.*' failed|no such cluster node|node '.*' does not exist", "no_such_node"),
    _Refusal(
        0,
        r"is locked|can't lock file|got timeout|Lost 'create' config lock",
        "locked",
        "try again later",
        retryable=True,
    ),
    _Refusal(0, r"already exists|already taken|config file already exists", "exists", retryable=True),
    _Refusal(0, r"already running", "already_running"),
    _Refusal(0, r"not running", "not_running"),
    _Refusal(0, r"can't start a CT if it's a template", "is_template", "name it as template, not as vmid"),
    _Refusal(0, r"(?i)linked clone feature .* not available", "no_linked_clone", "set full_clones"),
    _Refusal(0, r"only possible from a snapshot|running container without snapshots", "runs", "clone a template"),
    _Refusal(0, r"(?i)no space left|out of space|quota exceeded|not enough", "no_space", retryable=True),
    _Refusal(0, r"(?i)no quorum|not ready - no quorum", "no_quorum", retryable=True),
    _Refusal(0, r"storage '.*' (?:does not exist|is not)", "storage"),
    _Refusal(400, "", "invalid", "is it older than Proxmox VE 7?"),
    _Refusal(404, "", "not_found"),
    _Refusal(429, "", "throttled", retryable=True),
    _Refusal(501, "", "not_found", "is the url that of Proxmox VE?"),
    _Refusal(502, "", "node_down", retryable=True),
    _Refusal(503, "", "node_down", retryable=True),
    _Refusal(504, "", "node_down", retryable=True),
    _Refusal(595, "", "node_down", "the node cannot be reached from the one that answers", retryable=True),
    _Refusal(596, "", "node_down", "the node broke the connection to the one that answers", retryable=True),
    _Refusal(599, "", "node_down", "the node does not answer the one that we ask", retryable=True),
)
_UNSENT: Final = frozenset({595})
"""Statuses that say that the node, which the request was passed on to, has not had it."""


def refusal(status: int, message: str, what: str) -> ProxmoxError:
    """Return the error for an answer with *status* and *message* to the request *what* (`GET /nodes`)."""
    said = " ".join(message.split())[:_MOST]
    found = next(each for each in (*_REFUSALS, _Refusal(0, "", "failed")) if _fits(each, status, message))
    text = f"Proxmox refuses {what} ({status}): {said or 'without a word'}"
    return ProxmoxError(
        f"{text}; {found.advice}" if found.advice else text,
        reason=found.reason,
        status=status,
        retryable=found.retryable,
        sent=found.reason == "node_down" and status not in _UNSENT,
    )


def failed_task(kind: str, exit_status: str, log: str = "") -> ProxmoxError:
    """Return the error for a task that ended with something else than OK."""
    said = " ".join(exit_status.split())[:_MOST]
    found = next(each for each in (*_REFUSALS, _Refusal(0, "", "task_failed")) if _fits(each, 0, exit_status))
    text = f"the task {kind} of Proxmox failed: {said}"
    more = f"; {found.advice}" if found.advice else f" (its log ends: {log[-_MOST:]})" if log else ""
    return ProxmoxError(text + more, reason=found.reason, retryable=found.retryable)


def _fits(refused: _Refusal, status: int, message: str) -> bool:
    if refused.status not in (0, status):
        return False
    return not refused.pattern or re.search(refused.pattern, message) is not None


def unavailable(error: ProxmoxError, node: str, vmid: int) -> SandboxUnavailableError:
    """Return the same as the error of a run that has not begun."""
    failure = SandboxUnavailableError(
        error.message,
        retryable=error.retryable,
        details={"reason": error.reason, "status": error.status, "node": node, "vmid": vmid, **error.more},
    )
    failure.__cause__ = error
    return failure


def lost_container(node: str, vmid: int, state: str) -> SandboxFailedError:
    """Return the error of a run whose container, which is now in *state* (`stopped`, `gone`), was taken away."""
    happened = "was removed" if state == "gone" else f"is {state}"
    return SandboxFailedError(
        f"the container {vmid} on {node} {happened}, and not by us: its program is lost. It is not run again, as it "
        "may have done some of its work",
        details={
            "reason": "container_removed" if state == "gone" else "container_stopped",
            "began": True,
            "node": node,
            "vmid": vmid,
        },
    )
