"""One run of a server: its request, its state, and its end, and who is notified of it."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from toolexec.errors import Outcome as CallOutcome
from toolexec.errors import SandboxFailedError, ToolExecError
from toolexec.remote import Stream
from toolexec.sandbox import CodeResult
from toolexec_remote.server.admission import Ticket
from toolexec_remote.server.journal import Record
from toolexec_remote.server.relay import RelayGateway
from toolexec_remote.wire import RemoteRequest, encode_error, encode_result

RunState: TypeAlias = Literal["queued", "ready", "running", "done"]
_LOST: Final = (
    "the remote runtime was restarted while this program ran; it was stopped, may have done a part of its work, and is "
    "not repeated"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run: `kind` is `result`, or `refused` for one that never started; `encoded` the response to a run,
    `error` what went wrong, if that is known, and `digest` the SHA-256 of the body, where that was computed already."""

    kind: Literal["result", "refused"]
    encoded: bytes
    error: ToolExecError | None = None
    digest: str = ""

    @classmethod
    def refused(cls, error: ToolExecError) -> Outcome:
        """Return the outcome of a run that never started."""
        error.outcome = CallOutcome.NOT_SENT
        return cls("refused", b"", error)

    @property
    def body(self) -> bytes:
        """The response; a refusal is encoded only when it is sent, as no one is there for those that are given up."""
        return self.encoded if self.encoded or self.error is None else encode_error(self.error)


class Watcher(Protocol):
    """Is notified of what becomes of a run, on the event loop; but `printed` in any thread."""

    def ready(self, seconds: float) -> None:
        """Note that there is room: `go` is waited for, for so long."""
        ...

    def started(self) -> None:
        """Note that it is recorded, and goes to its sandbox, which may still refuse it."""
        ...

    def printed(self, stream: Stream, text: str) -> None:
        """Note that it has printed something."""
        ...

    def done(self, outcome: Outcome) -> None:
        """Note that it is over."""
        ...


class RemoteRun:
    """One run. `confirmed` is set when its caller wants it started."""

    def __init__(self, account: str, run_id: str, body: bytes, request: RemoteRequest, watcher: Watcher) -> None:
        self.account = account
        self.id = run_id
        self.digest = self.digest_of(body)
        self.request = request
        self.watcher = watcher
        self.state: RunState = "queued"
        self.confirmed = asyncio.Event()
        self.outcome: Outcome | None = None
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.ticket: Ticket | None = None
        self.stopped_for: ToolExecError | None = None
        self.has_begun: bool = False  # a task that is cancelled earlier runs none of what frees its place
        self.seconds = 0.0  # what is left of its time limit, as its caller says; 0: all of it
        self.size = len(body)
        self.gateway: RelayGateway | None = None
        self.ready_since = 0.0  # since when its confirmation is waited for

    @property
    def unconfirmed_since(self) -> float:
        """Implement `HeldPlace`."""
        return self.ready_since if self.state == "ready" else 0.0

    @property
    def waits_since(self) -> float:
        """Implement `HeldPlace`."""
        return self.gateway.waits_since if self.state == "running" and self.gateway is not None else 0.0

    @property
    def why_stopped(self) -> ToolExecError:
        """What it ends with when it is cancelled."""
        return self.stopped_for or SandboxFailedError("the server ends; the program was stopped")

    @staticmethod
    def digest_of(body: bytes) -> bytes:
        """Return what distinguishes requests."""
        return hashlib.sha256(body).digest()

    def stop(self, why: ToolExecError) -> None:
        """Stop it; it ends with *why*, unless it is over."""
        if self.outcome is None and self.task is not None:
            self.stopped_for = self.stopped_for or why
            if self.has_begun:
                self.task.cancel()

    async def ended(self) -> Outcome:
        """Return the outcome, once there is one."""
        await self.over.wait()
        assert self.outcome is not None
        return self.outcome

    def finish(self, outcome: Outcome) -> None:
        """Keep how it ended, and notify its watcher."""
        self.state, self.outcome = "done", outcome
        self.over.set()
        self.watcher.done(outcome)


def remembered(record: Record) -> Outcome:
    """Return the end that the journal has of a run; that of one that ran when its server died is an error."""
    if record.state == "ended":
        return Outcome("result", record.body)
    lost = SandboxFailedError(_LOST, code="remote_run_lost")
    return Outcome("result", encode_result(CodeResult(error=lost)), lost)
