"""Runs that are recorded while they are made: a share of the chains, workflows and code of an `Exec`."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import toolexec.durable.clock as host_clock
from toolexec.code.executor import CodeConfig
from toolexec.code.tools import ACTIVE
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.durable.journal import RunKind, RunRecord
from toolexec.durable.record import Record
from toolexec.durable.recorder import RECORDED, RECORDED_PREFIX, RecordedCall, Recorder, RecordingStore
from toolexec.errors import ConfigurationError, JournalError, RunError, ToolExecError
from toolexec.exec.chain import ChainResult, Chains, Step, steps_of
from toolexec.exec.recorded_data import NotTextError, without_secrets
from toolexec.exec.run_data import (
    APPROVED,
    TIMERS,
    chain_to_json,
    code_to_json,
    origin_to_json,
    settings_to_json,
    steps_to_text,
    why_stopped,
)
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import current_origin
from toolexec.model.redaction import redactor

if TYPE_CHECKING:
    from toolexec.exec.code import CodeRuns
    from toolexec.exec.durable import DurableRuns
    from toolexec.exec.options import Options
    from toolexec.exec.scope import Scope
    from toolexec.exec.sources import Sources
    from toolexec.model.call import ProgressCallback
    from toolexec.model.json_value import JSONObject
    from toolexec.run.runner import Runner
    from toolexec.run.types import OnError
    from toolexec.runtime.base import SandboxBackend

__all__ = ["RecordedCode", "RunRecordings"]

logger: logging.Logger = logging.getLogger(__name__)

_FEW: Final = 20
"""So many calls are written on the event loop: in some milliseconds."""
_SHORT: Final = 100_000
"""The same for so many characters."""
_LOOK_EACH: Final = 20
"""After how many recordings those are looked for that are kept no longer."""
_GIVEN: Final = (
    *("language", "timeout", "limits", "allowed_tools", "env", "files", "profile", "args", "stdin", "seed", "now"),
    *("best_effort", "metadata", "on_error", "dry_run"),
)


class RunRecordings:
    """Records a share of the runs of one `Exec`, by its options."""

    def __init__(
        self, options: Options, scope: Scope, sources: Sources, runner: Runner, durable: Callable[[], DurableRuns]
    ) -> None:
        given = options.record
        self._record: Record = given if isinstance(given, Record) else Record(share=given or 0.0)
        self._options = options
        self._scope = scope
        self._sources = sources
        self._runner = runner
        self._durable = durable
        self._made = 0

    def _is_taken(self) -> bool:
        """Return whether the run that begins now is recorded: not one that is a part of another run."""
        return random.random() < self._record.share and ACTIVE.get() is None  # noqa: S311 - no secret

    async def run_chain(
        self,
        chains: Chains,
        steps: Sequence[Step | JSONObject],
        *,
        on_progress: ProgressCallback | None,
        on_error: OnError,
        dry_run: bool,
    ) -> ChainResult:
        """Run a chain as `Exec.run_chain` does, by *chains* where it is not recorded."""
        if not self._is_taken():
            return await chains.run(steps, on_progress=on_progress, on_error=on_error, dry_run=dry_run)
        store, run_id, began = self._store(), _new_id(), host_clock.now()
        recorder = Recorder(self._runner, run_id, "chain", self._record.max_bytes)
        chain = steps_of(steps, self._options.max_timeout)
        recorded = Chains(self._options, self._scope, self._sources, recorder)
        result = await recorded.run(chain, on_progress=on_progress, on_error=on_error, dry_run=dry_run)

        def record() -> RunRecord:
            settings = {"given": {"on_error": on_error, "dry_run": dry_run}}
            return self.run_of(run_id, "chain", steps_to_text(chain), settings, began, result)

        await self.write(store, recorder, result, record)
        return result

    def begin_code(self, code: CodeRuns, request: ExecuteRequest) -> RecordedCode | None:
        """Return what records a run of code or a workflow; None for one that is not recorded: it was not its turn, it
        is a part of another run, or its sandbox cannot make it again."""
        if request.gateway is not None or not self._is_taken():
            return None
        language = code.language(request)
        kind: RunKind = "workflow" if language == "workflow" else "code"
        try:
            if kind == "code" and not code.runtime.can_repeat(request.code, language, request.profile):
                return None
        except ToolExecError:  # the run raises it again, or is refused for it
            return None
        recorder = Recorder(self._runner, _new_id(), kind, self._record.max_bytes)
        return RecordedCode(self, self._store(), request, kind, recorder, lambda: code.runtime.backends)

    def _store(self) -> RecordingStore:
        return self._durable().recording_store

    def run_of(
        self,
        run_id: str,
        kind: RunKind,
        source: str,
        settings: JSONDict,
        began: float,
        result: ChainResult | CodeResult,
    ) -> RunRecord:
        """Return a run that has ended as the journal has it, with its secrets yet."""
        origin = current_origin()
        return RunRecord(
            id=run_id,
            kind=kind,
            source=source,
            digest="",
            settings={**settings, "origin": origin_to_json(origin), APPROVED: False, RECORDED: True},
            caller=origin.caller.id,
            state="done" if result.error is None else "failed",
            created=began,
            result=chain_to_json(result) if isinstance(result, ChainResult) else code_to_json(result),
        )

    async def write(
        self,
        store: RecordingStore,
        recorder: Recorder,
        result: ChainResult | CodeResult,
        record: Callable[[], RunRecord],
    ) -> None:
        """Write a run down, unless it cannot be made again. What fails here does not fail the run."""
        why = recorder.given_up
        if not why and why_stopped(result) is not None:
            why = "this process or its sandbox ended"
        if why:
            logger.info("the run %s is not recorded: %s", recorder.replay.run_id, why)
            return
        calls = recorder.calls()
        self._made += 1
        work = partial(
            self._written, store, record, calls, recorder.replay.take_delivered(), looks=self._made % _LOOK_EACH == 1
        )
        try:
            if len(calls) <= _FEW and recorder.size < _SHORT and not self._durable().journal.is_remote:
                work()
            else:
                await asyncio.to_thread(work)
        except NotTextError:
            logger.info("the run %s is not recorded: it was given files that are not text", recorder.replay.run_id)
        except (JournalError, RunError, ConfigurationError) as error:
            logger.warning("the run %s is not recorded: %s", recorder.replay.run_id, error)

    def _written(
        self,
        store: RecordingStore,
        record: Callable[[], RunRecord],
        calls: Sequence[RecordedCall],
        groups: Sequence[Sequence[str]],
        *,
        looks: bool,
    ) -> None:
        run, kept = without_secrets(record(), calls, self._scope.resolver.resolve, redactor)
        store.record(run, kept, groups)
        if looks:
            limit, seconds = self._record.keep, self._record.keep_seconds
            while store.forget_recorded(limit, host_clock.now() - seconds if seconds else 0.0):
                pass


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
        self._of = of
        self._backends = backends
        self._store = store
        self._kind: RunKind = kind
        self._recorder = recorder
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
        return replace(config, run=self._recorder, deliveries=self._recorder.replay)

    async def write(self, result: CodeResult) -> None:
        """Write the run down, now that it has ended, unless it got another sandbox than was to be expected."""
        if (
            self._kind == "code"
            and result.backend is not None
            and not _can_repeat(self._backends(), result.backend.kind)
        ):
            self._recorder.give_up(f"{result.backend.kind} cannot make it again")
        await self._of.write(self._store, self._recorder, result, partial(self._record, result))

    def _record(self, result: CodeResult) -> RunRecord:
        asked = self._asked
        given = {name: value for name in _GIVEN if (value := getattr(asked, name)) not in (None, "", b"")}
        settings: JSONDict = {"given": settings_to_json(given), **self._own}
        return self._of.run_of(self._recorder.replay.run_id, self._kind, asked.code, settings, self._began, result)


def _can_repeat(backends: Sequence[SandboxBackend], kind: str) -> bool:
    return any(backend.kind == kind and getattr(backend, "replays", ()) for backend in backends)


def _new_id() -> str:
    return f"{RECORDED_PREFIX}{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
