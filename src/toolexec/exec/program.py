"""What a durable run is of: the program, its settings, and who it is for, before there is a run."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final, cast

import toolexec.durable.clock as host_clock
from toolexec.durable.journal import RunKind, RunRecord
from toolexec.durable.recorder import RECORDED_PREFIX
from toolexec.errors import ConfigurationError, RunError
from toolexec.exec.run_data import APPROVED, TIMERS, origin_to_json, run_digest
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import current_origin

MAX_ID: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that was admitted: `given` are the settings of its runs as JSON, `origin` who they are for."""

    kind: RunKind
    source: str
    given: JSONDict
    origin: JSONDict
    caller: str
    approved: bool = False

    @classmethod
    def here(cls, kind: RunKind, source: str, given: JSONDict, *, approved: bool) -> Program:
        """Return a program for the caller of this moment."""
        origin = current_origin()
        return cls(
            kind=kind,
            source=source,
            given=given,
            origin=origin_to_json(origin),
            caller=origin.caller.id,
            approved=approved,
        )

    @property
    def digest(self) -> str:
        """What distinguishes its runs from those of others."""
        return run_digest(self.kind, self.source, self.given)

    def record(
        self, run_id: str, *, owner: str = "", lease: float = 0.0, queue: str = "", priority: int = 0
    ) -> RunRecord:
        """Return a run of it that begins now, with random numbers of its own."""
        kept: JSONDict = {"given": self.given, "origin": self.origin, APPROVED: self.approved}
        if self.kind != "chain":
            now = host_clock.now()
            kept |= {"seed": secrets.randbits(63), "now": round(now, 6) if self.kind == "code" else float(int(now))}
        if self.kind == "code":
            kept |= {TIMERS: "steps"}
        return RunRecord(
            id=run_id,
            kind=self.kind,
            source=self.source,
            digest=self.digest,
            settings=kept,
            caller=self.caller,
            owner=owner,
            lease=lease,
            queue=queue,
            priority=priority,
        )

    def to_dict(self) -> JSONDict:
        """Return it as JSON-able data."""
        names = ("kind", "source", "given", "origin", "caller", "approved")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_dict(cls, data: JSONObject) -> Program:
        """Return what `to_dict` has written; what is there beside it is left alone."""
        return cls(
            kind=cast("RunKind", data["kind"]),
            source=data["source"],
            given=data["given"],
            origin=data["origin"],
            caller=data["caller"],
            approved=data["approved"],
        )


def check_run_id(run_id: str) -> None:
    """Raise ConfigurationError for what cannot be the ID of a run."""
    if not isinstance(run_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"durable must be the ID of a run, a string, or None, not {run_id!r}")
    if not run_id or len(run_id) > MAX_ID or not run_id.isprintable():
        raise ConfigurationError(f"the ID of a run has 1 to {MAX_ID} printable characters, not {run_id[:50]!r}")
    if run_id.startswith(RECORDED_PREFIX):
        raise ConfigurationError(f"IDs with {RECORDED_PREFIX} are for recorded runs, which are not begun by their ID")


def check_same(run: RunRecord, wanted: RunRecord) -> None:
    """Raise RunError unless the run that has the ID is the one that is *wanted*."""
    if run.digest != wanted.digest or run.caller != wanted.caller:
        raise RunError(
            f"there is a run {run.id} already, begun with another source, other inputs or settings, or by another "
            "caller; take another ID, or resume it with those",
            code="run_changed",
            op="begin",
            details={"run_id": run.id},
        )
