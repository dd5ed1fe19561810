"""Questions about a call, over a journal whose writes take longer than a run that only waits is kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from toolexec import Exec, Gate, Policy, Rule
from toolexec.durable.journal import CallRecord, CallState, Wait
from toolexec.durable.sqlite import SQLiteJournal
from toolexec.errors import JournalError, RunWaitingError
from toolexec.model.json_value import JSONObject
from toolexec.run.layers.approval import Approval

FLOW = 'both := parallel { a: run("t:work", {}), b: run("run:signal", {name: "other"}) }\nreturn [both.a, both.b]'
QUESTION = "?settle.1"
APPROVAL = "?approve.1"


class LateJournal(SQLiteJournal):
    """A journal that is written to in threads. A write of the step *late* takes until the run is suspended, or for
    longer than one that only waits is kept; that of the end of the step *fails* fails, and of the beginning of the step
    *unbegun*."""

    def __init__(self, path: Path, late: str = "", fails: str = "") -> None:
        super().__init__(path, sync="each")
        self.late = late
        self.fails = fails
        self.unbegun = ""
        self.suspends = threading.Event()

    def begin(self, run_id: str, owner: str, call: CallRecord, delivered: Sequence[Sequence[str]] = ()) -> None:
        """Begin a call, late if it is that one, or not at all."""
        if call.step == self.unbegun:
            raise JournalError("the disk is full")
        self._linger(call.step)
        super().begin(run_id, owner, call, delivered)

    def end(self, run_id: str, owner: str, step: str, state: CallState, outcome: JSONObject) -> None:
        """End a call, late if it is that one, or not at all."""
        if step == self.fails:
            raise JournalError("the disk is full")
        self._linger(step)
        super().end(run_id, owner, step, state, outcome)

    def suspend(self, run_id: str, owner: str, waits: Sequence[Wait], delivered: Sequence[Sequence[str]] = ()) -> bool:
        """Suspend the run, and let the write be made."""
        suspended = super().suspend(run_id, owner, waits, delivered)
        self.suspends.set()
        return suspended

    def _linger(self, step: str) -> None:
        if self.late and step.endswith(self.late):
            self.suspends.wait(0.3)


class Work:
    """A tool that hangs when it is first called, if it is to, and the processes that call it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hangs = asyncio.Event()
        self.reached = asyncio.Event()
        self.count = 0

    async def work(self) -> int:
        """Count the calls that were not left."""
        self.reached.set()
        if self.hangs.is_set():
            await asyncio.Event().wait()
        self.count += 1
        return self.count

    async def names(self, *, ask: bool = False, late: str = "", fails: str = "", unbegun: str = "") -> list[str]:
        """Go on with the run in a process of its own; return what it waits for then, or [] when it has ended."""
        policy = Policy([Rule("ask", tools="t:work")] if ask else [])
        with LateJournal(self.path, late, fails) as journal:
            journal.unbegun = unbegun
            gate = Gate(policy=policy, approval=Approval(policy.decide))
            async with Exec(journal=journal, gate=gate, linger=0.03) as ex:
                ex.add(self.work, "t:work")
                running = asyncio.ensure_future(ex.run_workflow(FLOW, durable="run"))
                if self.hangs.is_set():
                    await self.reached.wait()
                    self.hangs.clear()
                    running.cancel()
                    await asyncio.wait([running])
                    return []
                result = await running
                if isinstance(result.error, RunWaitingError):
                    return sorted(wait["name"] for wait in result.error.details["waits"])
                assert result.raise_for_error().value[1] == "more"
                return []

    async def signal(self, name: str, payload: object) -> None:
        """Send the run something."""
        async with Exec(journal=self.path) as ex:
            await ex.runs.signal("run", name, payload)

    async def state(self) -> tuple[str, object]:
        """Return how the call ended, and with what."""
        async with Exec(journal=self.path) as ex:
            (call,) = [call for call in await ex.runs.calls("run") if call.tool == "t:work"]
            return call.state, (call.outcome or {}).get("value")


@pytest.fixture
def work(tmp_path: Path) -> Work:
    """Nothing is done."""
    return Work(tmp_path / "runs.db")


async def unsettled(work: Work) -> str:
    """Leave a call whose outcome is unknown; return the question about it."""
    work.hangs.set()
    await work.names()
    waits = await work.names()
    assert len(waits) == 2
    return next(name for name in waits if name.startswith("settle:"))


async def test_a_decision_is_carried_out_before_the_run_is_suspended(work: Work) -> None:
    """However long it takes to write it down: what else the run waits for does not leave it half done."""
    question = await unsettled(work)
    await work.signal(question, {"done": True, "value": 7})
    assert await work.names(late=QUESTION) == ["other"]
    assert (*await work.state(), work.count) == ("done", 7, 0)
    await work.signal("other", "more")
    assert await work.names() == []


async def test_a_decision_that_was_written_down_is_not_asked_for_again(work: Work) -> None:
    """The process that took it dies before it has written down what that makes of the call."""
    question = await unsettled(work)
    await work.signal(question, {"done": True, "value": 7})
    with pytest.raises(JournalError):
        await work.names(fails=question.removeprefix("settle:"))
    assert await work.names() == ["other"]
    assert (*await work.state(), work.count) == ("done", 7, 0)


async def test_a_call_that_is_not_done_is_asked_about_again_after_a_death(work: Work) -> None:
    """That it was to be made again does not say whether it was, and no effect comes twice."""
    question = await unsettled(work)
    await work.signal(question, False)
    with pytest.raises(JournalError):
        await work.names(fails=question.removeprefix("settle:"))
    assert work.count == 1
    assert await work.names() == ["other", question]


async def test_a_call_that_is_not_done_and_not_begun_again_is_not_asked_about_again(work: Work) -> None:
    """A process that dies between the decision and the call has made no other attempt: the next one makes it."""
    question = await unsettled(work)
    await work.signal(question, False)
    with pytest.raises(JournalError):
        await work.names(unbegun=question.removeprefix("settle:"))
    assert work.count == 0
    assert await work.names() == ["other"]
    assert (*await work.state(), work.count) == ("done", 1, 1)


async def test_a_run_is_not_suspended_without_its_question(work: Work) -> None:
    """The question may take its time to be written down; the run is suspended with it."""
    waits = await work.names(ask=True, late=APPROVAL)
    assert [name.partition(":")[0] for name in waits] == ["approve", "other"]
