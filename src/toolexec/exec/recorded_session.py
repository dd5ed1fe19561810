"""Sessions that are recorded while they are made: each program is a run, which needs those before it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import toolexec.durable.clock as host_clock
from toolexec.cassette.secrets import SessionRedactor
from toolexec.code.executor import CodeConfig
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import CodeTimeoutError
from toolexec.exec.recorded_code import RecordedCode, given_to_json, new_id
from toolexec.exec.run_data import SESSION
from toolexec.model.json_value import JSONDict
from toolexec.model.redaction import redactor

if TYPE_CHECKING:
    from toolexec.durable.recorder import Recorder, RecordingStore
    from toolexec.exec.recorded import RunRecordings
    from toolexec.runtime.base import SandboxBackend

_REPEATED: Final = ("code_error", "limit_exceeded")
"""The codes of failures after which a program that is made again has left the same behind."""


class RecordedSession:
    """The programs of one session: `request` is what to open it with, `change` how, `turn` is held by one at a time.

    Once a program cannot be made again, those after it cannot either, and are not recorded.
    """

    def __init__(
        self,
        of: RunRecordings,
        store: RecordingStore,
        opened: ExecuteRequest,
        backends: Callable[[], Sequence[SandboxBackend]],
    ) -> None:
        self.turn = asyncio.Lock()
        self._of = of
        self._store = store
        self._backends = backends
        self._now: float | None = opened.now
        self._hide = SessionRedactor(redactor)
        self._previous = ""
        self._number = 0
        self._over = ""
        began = opened.now if opened.now is not None else host_clock.now()
        self._seed: int = opened.seed if opened.seed is not None else secrets.randbits(63)
        self.request: ExecuteRequest = opened.given(now=began, seed=self._seed)
        given = given_to_json(opened)
        self._hide.learn({name: part for name, part in given.items() if name not in ("files", "stdin")})
        self._opened: JSONDict = {"given": given, "now": began, "seed": self._seed}

    def change(self, config: CodeConfig) -> CodeConfig:
        """Have the sandbox be opened as one whose programs are recorded."""
        replay = self._of.recorder("", "code").replay
        replay.keeps_time = self._now is None
        return replace(config, deliveries=replay)

    def begin(self, request: ExecuteRequest) -> RecordedCode:
        """Return what records the next program. What concerns the sandbox itself it has from the session."""
        asked = request.given(now=self._now, seed=self._seed, files={})
        recorder = self._of.recorder(new_id(), "code")
        if self._over:
            recorder.give_up(self._over)
        place: JSONDict = {"number": self._number + 1, "previous": self._previous, "opened": self._opened}
        return _Program(self._of, self._store, asked, recorder, self._backends, place, self._hide)

    def stop(self) -> None:
        """Record no more: a program was stopped before it had a result."""
        self._over = self._over or "a program before it was stopped"

    async def end(self, program: RecordedCode, result: CodeResult) -> None:
        """Write down a program that has ended."""
        error = result.error
        if not await program.write(result):
            self._over = self._over or "a program before it is not recorded"
        elif error is not None and (isinstance(error, CodeTimeoutError) or error.code not in _REPEATED):
            self.stop()
        self._previous = program.recorder.replay.run_id
        self._number += 1


class _Program(RecordedCode):
    """One program of a session."""

    def __init__(
        self,
        of: RunRecordings,
        store: RecordingStore,
        asked: ExecuteRequest,
        recorder: Recorder,
        backends: Callable[[], Sequence[SandboxBackend]],
        place: JSONDict,
        hide: SessionRedactor,
    ) -> None:
        super().__init__(of, store, asked, "code", recorder, backends)
        self._own |= {"seed": asked.seed, SESSION: place}
        self._hide = hide
