"""Runs that are recorded while they are made: a share of the chains, workflows and code of an `Exec`."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import toolexec.durable.clock as host_clock
from toolexec.code.tools import ACTIVE
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.durable.journal import RunKind, RunRecord
from toolexec.durable.record import Record
from toolexec.durable.recorder import RECORDED, RecordedCall, Recorder, RecordingStore
from toolexec.errors import ConfigurationError, JournalError, RunError, ToolExecError
from toolexec.exec.chain import ChainResult, Chains, Step, steps_of
from toolexec.exec.recorded_code import RecordedCode, new_id
from toolexec.exec.recorded_data import NotTextError, without_secrets
from toolexec.exec.run_data import (
    APPROVED,
    chain_to_json,
    code_to_json,
    origin_to_json,
    steps_to_text,
    why_stopped,
)
from toolexec.model.json_value import JSONDict
from toolexec.model.languages import base_language
from toolexec.model.origin import current_origin
from toolexec.model.redaction import Redactor, redactor

if TYPE_CHECKING:
    from toolexec.exec.code import CodeRuns
    from toolexec.exec.durable import DurableRuns
    from toolexec.exec.options import Options
    from toolexec.exec.recorded_session import RecordedSession
    from toolexec.exec.scope import Scope
    from toolexec.exec.sources import Sources
    from toolexec.model.call import ProgressCallback
    from toolexec.model.json_value import JSONObject
    from toolexec.run.runner import Runner
    from toolexec.run.types import OnError

logger: logging.Logger = logging.getLogger(__name__)

_FEW: Final = 20
"""So many calls are written on the event loop: in some milliseconds."""
_SHORT: Final = 100_000
"""The same for so many characters."""
_LOOK_EACH: Final = 20
"""After how many recordings those are looked for that are kept no longer."""


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
        store, run_id, began = self._store(), new_id(), host_clock.now()
        recorder = self.recorder(run_id, "chain")
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
        recorder = self.recorder(new_id(), kind)
        return RecordedCode(self, self._store(), request, kind, recorder, lambda: code.runtime.backends)

    def begin_session(self, code: CodeRuns, opened: ExecuteRequest) -> RecordedSession | None:
        """Return what records the programs of a session; None for one that is not recorded, as `begin_code` says."""
        from toolexec.exec.recorded_session import RecordedSession

        language = code.language(opened)
        if base_language(language) != "python" or not self._is_taken():
            return None
        try:
            if not code.runtime.can_repeat("", language, opened.profile):
                return None
        except ToolExecError:
            return None
        return RecordedSession(self, self._store(), opened, lambda: code.runtime.backends)

    def recorder(self, run_id: str, kind: RunKind) -> Recorder:
        """Return what keeps the calls of a run."""
        return Recorder(self._runner, run_id, kind, self._record.max_bytes)

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
        hide: Redactor = redactor,
    ) -> bool:
        """Write a run down, unless it cannot be made again; return whether it is there. What fails here does not fail
        the run."""
        why = recorder.given_up
        if not why and why_stopped(result) is not None:
            why = "this process or its sandbox ended"
        if why:
            logger.info("the run %s is not recorded: %s", recorder.replay.run_id, why)
            return False
        calls = recorder.calls()
        self._made += 1
        work = partial(
            self._written,
            store,
            record,
            calls,
            recorder.replay.take_delivered(),
            hide,
            looks=self._made % _LOOK_EACH == 1,
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
        else:
            return True
        return False

    def _written(
        self,
        store: RecordingStore,
        record: Callable[[], RunRecord],
        calls: Sequence[RecordedCall],
        groups: Sequence[Sequence[str]],
        hide: Redactor,
        *,
        looks: bool,
    ) -> None:
        run, kept = without_secrets(record(), calls, self._scope.resolver.resolve, hide)
        store.record(run, kept, groups)
        if looks:
            limit, seconds = self._record.keep, self._record.keep_seconds
            while store.forget_recorded(limit, host_clock.now() - seconds if seconds else 0.0):
                pass
