"""How a run that has its turn is executed: the sandbox that it goes to, and the outcome that is made of its result."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from toolexec.errors import (
    InvalidRequestError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.errors import Outcome as CallOutcome
from toolexec.remote import (
    JSONText,
    Runtime,
    RuntimeServerSettings,
    Turns,
    effective_profile,
    is_small,
    judged_kind,
    walked,
)
from toolexec.sandbox import CodeResult, ExecuteRequest, SandboxSession
from toolexec_remote.server.relay import RelayGateway
from toolexec_remote.server.remote_run import Outcome, RemoteRun
from toolexec_remote.server.tracing import run_span
from toolexec_remote.wire import encode_result


class Execution:
    """Executes runs in the sandboxes of *runtime*."""

    def __init__(self, runtime: Runtime, settings: RuntimeServerSettings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._pinned: dict[str, Runtime] = {}
        self._large = Turns()

    async def run(
        self, run: RemoteRun, request: ExecuteRequest, guest: SandboxSession | None, traceparent: str
    ) -> Outcome:
        """Return what became of a run: in the *guest* of its session, or else in the sandbox that it asks for."""
        most = min(run.seconds or self._settings.max_timeout, self._settings.max_timeout)
        if request.seconds > most:
            request = replace(request, timeout=most)
        with run_span(run.id, run.account, request, traceparent) as span:
            try:
                result = await self._place(run, request, guest).execute(request)
            except ToolExecError as error:
                if error.outcome is CallOutcome.NOT_SENT and not _has_begun(request):
                    return Outcome.refused(error)
                if error.outcome is CallOutcome.NOT_SENT:
                    error = SandboxFailedError(f"the program was lost after it had begun: {error.message}")
                result = CodeResult(stdout=request.output.text(), stderr=request.output.text("stderr"), error=error)
            span.finish(result)
        return await self._outcome(run.account, result)

    def _place(self, run: RemoteRun, request: ExecuteRequest, guest: SandboxSession | None) -> SandboxSession | Runtime:
        """Return what runs it; raises SandboxUnavailableError when the kind that it asks for is not here."""
        return guest if guest is not None else self.runtime_for(run.request.sandbox, request.profile)

    def runtime_for(self, kind: str, profile: str) -> Runtime:
        """Return what has only the sandboxes of this kind, or all for ""; raises SandboxUnavailableError where there is
        none for the profile."""
        if not kind:
            return self._runtime
        if kind not in self._pinned:
            named = {
                each: [
                    backend
                    for backend in self._runtime.candidates(each)
                    if kind in (backend.kind, judged_kind(backend))
                ]
                for each in self._settings.profiles
            }
            self._pinned[kind] = Runtime(
                {each: found for each, found in named.items() if found},
                default_profile=self._runtime.default_profile,
                limits=self._runtime.limits,
            )
        pinned = self._pinned[kind]
        if not pinned.candidates(effective_profile(profile, pinned.default_profile)[0]):
            raise SandboxUnavailableError(f"this server has no sandbox {kind} for the profile {profile}")
        return pinned

    async def stopped(self, run: RemoteRun, request: ExecuteRequest) -> Outcome:
        """Return the outcome of a run that was cancelled while it was executed."""
        output = request.output
        result = CodeResult(stdout=output.text(), stderr=output.text("stderr"), error=run.why_stopped)
        result.tool_calls = request.gateway.tool_calls() if isinstance(request.gateway, RelayGateway) else []
        return await self._outcome(run.account, result)

    async def _outcome(self, account: str, result: CodeResult) -> Outcome:
        """Return the outcome of a run, which is encoded off the event loop where it is large: one of a tenant at a
        time, as threads that compute take the interpreter from the loop, each for about a millisecond."""
        is_text = isinstance(result.value, JSONText)  # which is large
        if not is_text and is_small([result.value, result.stdout, result.stderr]) and not result.files:
            return self._encoded(result)
        async with self._large.taken(account, large=True):
            return await walked(lambda: self._encoded(result))

    def _encoded(self, result: CodeResult) -> Outcome:
        """Return the outcome of a run, whose value may be too large, or not JSON."""
        try:
            body = encode_result(result)
            if len(body) <= self._settings.max_message_bytes:
                return Outcome("result", body, result.error, hashlib.sha256(body).hexdigest())
            failure = SandboxFailedError(f"the result has {len(body)} bytes, more than can be sent; return less")
        except InvalidRequestError as error:
            failure = SandboxFailedError(f"the result cannot be sent: {error}")
        return Outcome("result", encode_result(replace(result, value=None, files={}, error=failure)), failure)


def _has_begun(request: ExecuteRequest) -> bool:
    """Return whether a program has shown that it runs: it has printed, or asked for something."""
    gateway = request.gateway
    return bool(request.output.text() or request.output.text("stderr")) or (
        isinstance(gateway, RelayGateway) and gateway.has_asked
    )
