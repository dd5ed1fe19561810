"""One run of code or a workflow that is recorded while it is made."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import toolexec.durable.clock as host_clock
from toolexec.code.executor import CodeConfig
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.durable.journal import RunKind, RunRecord
from toolexec.durable.recorder import RECORDED_PREFIX, Recorder, RecordingStore
from toolexec.exec.run_data import TIMERS, settings_to_json
from toolexec.model.json_value import JSONDict
from toolexec.model.redaction import Redactor, redactor

if TYPE_CHECKING:
    from toolexec.exec.recorded import RunRecordings
    from toolexec.runtime.base import SandboxBackend

_GIVEN: Final = (
    *("language", "timeout", "limits", "allowed_tools", "env", "files", "profile", "args", "stdin", "seed", "now"),
    *("best_effort", "metadata", "on_error", "dry_run"),
)


class RecordedCode:
    """One run of code or a workflow that is recorded: `request` is what to run, `change` how, `write` at its end."""

    def __init__(
        self,
        of: RunRecordings,
        store: RecordingStore,
        request: ExecuteRequest,
        kind: RunKind,
        recorder: Recorder,
        backends: Callable[[], Sequence[SandboxBackend]],
    ) -> None:
        self.recorder = recorder
        self._hide: Redactor = redactor
        self._of = of
        self._backends = backends
        self._store = store
        self._kind: RunKind = kind
        self._asked = request
        self._began = host_clock.now()
        self._own: JSONDict = {"now": self._began}
        changes: JSONDict = {} if request.now is not None else {"now": self._began}
        if kind == "code":
            self._own |= {"seed": secrets.randbits(63), TIMERS: "steps"}
            changes |= {} if request.seed is not None else {"seed": self._own["seed"]}
            recorder.replay.keeps_time = request.now is None
        self.request: ExecuteRequest = request.given(**changes)

    def change(self, config: CodeConfig) -> CodeConfig:
        """Put the recorder into the executor."""
        return replace(config, run=self.recorder, deliveries=self.recorder.replay)

    async def write(self, result: CodeResult) -> bool:
        """Write the run down, now that it has ended, unless it got another sandbox than was to be expected;
        return whether it is there."""
        if (
            self._kind == "code"
            and result.backend is not None
            and not _can_repeat(self._backends(), result.backend.kind)
        ):
            self.recorder.give_up(f"{result.backend.kind} cannot make it again")
        return await self._of.write(self._store, self.recorder, result, partial(self._record, result), self._hide)

    def _record(self, result: CodeResult) -> RunRecord:
        asked = self._asked
        settings: JSONDict = {"given": given_to_json(asked), **self._own}
        return self._of.run_of(self.recorder.replay.run_id, self._kind, asked.code, settings, self._began, result)


def given_to_json(asked: ExecuteRequest) -> JSONDict:
    """Return what a program was given, as a journal keeps it."""
    given = {name: value for name in _GIVEN if (value := getattr(asked, name)) not in (None, "", b"")}
    return settings_to_json(given)


def _can_repeat(backends: Sequence[SandboxBackend], kind: str) -> bool:
    return any(backend.kind == kind and getattr(backend, "replays", ()) for backend in backends)


def new_id() -> str:
    """Return the ID of another recorded run."""
    return f"{RECORDED_PREFIX}{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
