"""Sessions that are suspended while they are idle: when they are, whose they are, and what becomes of a try that fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.waiting import until

from toolexec.errors import SandboxDeniedError, SandboxFailedError, SandboxUnavailableError
from toolexec.model import Caller, Origin
from toolexec.sandbox import BackendInfo, CodeResult, ExecuteRequest
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig
from toolexec_kubernetes.sessions import IdleSession
from toolexec_kubernetes.workspace import SessionPod

pytestmark = pytest.mark.anyio
ANN = ExecuteRequest(code="1", timeout=30, origin=Origin(caller=Caller(id="ann")))


class Inner:
    """A session in a pod."""

    def __init__(self) -> None:
        self.asked: list[ExecuteRequest] = []
        self.closed = False
        self.error: Exception | None = None

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        return CodeResult(value=1, backend=BackendInfo(kind="kubernetes", isolation="container"))

    async def aclose(self) -> None:
        self.closed = True


class Stand:
    """One session, and what it does with its pods."""

    def __init__(self, seconds: float) -> None:
        self.inners = [Inner()]
        self.pods: list[SessionPod] = []
        self.forgotten: list[SessionPod] = []
        self.closed: list[IdleSession] = []
        self.problem: BaseException | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.first = SessionPod()
        self.session = IdleSession(
            KubernetesBackend(KubernetesConfig(namespace="code")),
            ANN,
            self.inners[0],
            self.first,
            seconds=seconds,
            resume=self.resume,
            whose=lambda request: request.origin.caller.id,
            forget=self.forget,
            closed=self.closed.append,
        )

    async def resume(self, request: ExecuteRequest, pod: SessionPod) -> Any:
        assert 0 < request.seconds <= 30
        self.pods.append(pod)
        await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        self.inners.append(Inner())
        return self.inners[-1]

    async def forget(self, pod: SessionPod) -> None:
        self.forgotten.append(pod)

    async def suspended(self) -> None:
        await until(lambda: self.session.is_suspended)


async def test_it_is_suspended_and_goes_on() -> None:
    """The pod of before is closed as one that is suspended; closed by its user, it is removed."""
    stand = Stand(0.01)
    assert (await stand.session.execute(ANN)).backend.details == {}
    await stand.suspended()
    assert stand.inners[0].closed
    assert not stand.first.is_over
    assert (await stand.session.execute(ANN)).backend.details == {"resumed": True}
    assert stand.pods == [stand.first]
    await stand.suspended()
    await stand.session.aclose()
    assert stand.forgotten == [stand.first]
    assert stand.closed == [stand.session]
    with pytest.raises(SandboxFailedError, match="it was closed"):
        await stand.session.execute(ANN)


async def test_one_that_is_over_is_not_suspended() -> None:
    """The next program of a session that is over gets its error, and no other pod without a word."""
    stand = Stand(0.01)
    stand.first.is_over = True
    stand.inners[0].error = SandboxFailedError("it is over")
    with pytest.raises(SandboxFailedError, match="it is over"):
        await stand.session.execute(ANN)
    await stand.session._suspend()  # as by a timer that was set before
    assert not stand.session.is_suspended
    await stand.session.aclose()
    assert stand.inners[0].closed
    assert stand.forgotten == []


async def test_another_caller_cannot_use_it() -> None:
    stand = Stand(60)
    for caller in (Caller(id="bob"), Caller()):
        with pytest.raises(SandboxDeniedError, match="another caller"):
            await stand.session.execute(ANN.given(origin=Origin(caller=caller)))
    assert stand.inners[0].asked == []
    await stand.session.aclose()


async def test_a_try_that_failed_does_not_meet_the_next_one() -> None:
    """All that it has made is removed, and the next one has a pod of its own."""
    stand = Stand(0.01)
    await stand.suspended()
    stand.problem = SandboxUnavailableError("no room", retryable=True)
    with pytest.raises(SandboxUnavailableError, match="no room"):
        await stand.session.execute(ANN)
    assert stand.forgotten == [stand.first]
    stand.problem = None
    assert (await stand.session.execute(ANN)).value == 1
    assert stand.pods[0] is stand.first
    assert stand.pods[1] is not stand.first
    await stand.session.aclose()


async def test_one_that_is_closed_while_it_is_resumed_leaves_nothing() -> None:
    stand = Stand(0.01)
    await stand.suspended()
    stand.gate.clear()
    running = asyncio.create_task(stand.session.execute(ANN))
    await until(lambda: len(stand.pods) == 1)
    await stand.session.aclose()
    stand.gate.set()
    with pytest.raises(SandboxFailedError, match="it was closed"):
        await running
    assert stand.inners[-1].closed
    assert stand.inners[-1].asked == []
