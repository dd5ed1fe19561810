"""Ask the gate which calls need an approval, and pass on one that was given outside of it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from toolexec.model.arguments import bounded
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONObject
from toolexec.model.origin import Origin, acting, current_origin
from toolexec.run.default_gate import DefaultGate
from toolexec.run.grants import Grant
from toolexec.run.layers.approval import Approval

if TYPE_CHECKING:
    from toolexec.exec.facade import Exec

__all__ = ["approved", "approves", "needs_approval"]


def approves(ex: Exec) -> bool:
    """Return whether the gate of *ex* may ask for approvals at all."""
    return _approval(ex) is not None


def needs_approval(ex: Exec, tool_id: str, args: JSONObject | None) -> bool:
    """Implement `Exec.needs_approval`."""
    approval = _approval(ex)
    entry = ex.visible()[0].find(tool_id) if approval is not None else None
    if approval is None or entry is None or not isinstance({} if args is None else args, Mapping):
        return False
    own = bounded(args, tool_id) if args else args
    return approval.needs(entry, ToolCall(tool_id, own, origin=current_origin()))


@contextmanager
def approved(ex: Exec, tool_id: str, args: JSONObject | None) -> Generator[Origin, None, None]:
    """Implement `Exec.approved`."""
    origin, approval = current_origin(), _approval(ex)
    otherwise = origin.ask or (approval.ask if approval is not None else None)
    with acting(replace(origin, ask=Grant(tool_id, args or {}, origin.caller, otherwise))) as granted:
        yield granted


def _approval(ex: Exec) -> Approval | None:
    gate = ex.options.gate
    full = gate.full() if isinstance(gate, DefaultGate) else gate
    return full.approval if full is not None and isinstance(full.approval, Approval) else None
