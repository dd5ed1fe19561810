"""A watch learns where arguments come from, keeps no value, and costs nothing where it is not installed."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing
from typing import Any

import pytest
from tests.run.layers.link_approvals import LINK, SESSION, Approvals

from toolexec.backend import LocalBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery import InMemoryIndex
from toolexec.discovery.index import Index
from toolexec.discovery.links import Observations
from toolexec.model import LocalBinding, declare
from toolexec.model.origin import Caller, Origin
from toolexec.run import DefaultRunner, Result, Timeout, ToolCall
from toolexec.run.layers.link_watch import LinkWatch
from toolexec.run.runner import Runner
from toolexec.testing.runner_suite import RUNNER_CHECKS, run_runner_check


def layered(index: Index, backends: BackendRegistry) -> Runner:
    """A runner with a watch, for the contract suite."""
    return LinkWatch()(Timeout(DefaultRunner(index, backends), 30))


@pytest.mark.parametrize("check", RUNNER_CHECKS)
async def test_the_contract_of_runners(check: str) -> None:
    """A watched runner is a runner like any other."""
    await run_runner_check(layered, check)


class TestLearning:
    """Which links are noticed."""

    async def test_a_value_of_an_earlier_result(self) -> None:
        """With its path, and how often."""
        approvals = Approvals()
        for number in (1, 2):
            approvals.gives["begin"] = {"job": {"ref": f"job-{number}", "state": "on"}, "more": [{"n": 100 + number}]}
            await approvals.call("begin")
            await approvals.call("go", handle=f"job-{number}", where=[{"n": 100 + number}])
        assert approvals.seen() == [
            (*LINK[:4], 2, 2),
            ("t:begin", "more[].n", "t:go", "where.n", 2, 2),
        ]

    async def test_the_first_one_that_had_it(self) -> None:
        """A tool that repeats a value is not its source; neither is one that repeats its own arguments."""
        approvals = Approvals()
        approvals.gives = {"begin": {"job": {"ref": "job-1"}}, "other": {"echo": "job-1", "mine": "by hand"}}
        await approvals.call("begin")
        await approvals.call("other", job="job-1", note="by hand")
        await approvals.call("go", handle="job-1", note="by hand")
        assert {(p, t) for p, _, t, *_ in approvals.seen()} == {("t:begin", "t:other"), ("t:begin", "t:go")}

    async def test_its_own_values(self) -> None:
        """A tool that is called with what it gave, such as a cursor, is not linked to itself."""
        approvals = Approvals()
        approvals.gives["begin"] = {"next": "cursor-1"}
        await approvals.call("begin")
        await approvals.call("begin", cursor="cursor-1")
        assert approvals.seen() == []

    async def test_whole_results(self) -> None:
        """A result that is just the value."""
        approvals = Approvals()
        approvals.gives["begin"] = "job-1"
        await approvals.call("begin")
        await approvals.call("go", handle="job-1")
        assert approvals.seen() == [("t:begin", "@", "t:go", "handle", 1, 1)]

    async def test_misses_count(self) -> None:
        """Calls with values from nowhere make a link less sure."""
        approvals = Approvals()
        approvals.gives["begin"] = {"job": {"ref": "job-1"}}
        await approvals.call("begin")
        await approvals.call("go", handle="job-1")
        await approvals.call("go", handle="typed")
        await approvals.call("go", handle="typed")
        assert approvals.seen() == [(*LINK[:4], 1, 3)]

    async def test_failed_calls(self) -> None:
        """Neither what they were called with nor what they say counts."""
        approvals = Approvals()
        approvals.gives = {"begin": {"job": {"ref": "job-1"}}, "go": ValueError("job-2")}
        await approvals.call("begin")
        await approvals.call("go", handle="job-1")
        assert approvals.seen() == []

    async def test_sessions(self) -> None:
        """Callers, tenants, sessions and chains without one do not mix; calls of one session do, on whatever path."""
        approvals = Approvals()
        approvals.gives["begin"] = {"job": {"ref": "job-1"}}
        await approvals.call("begin")
        for origin in (
            Origin(),
            Origin(session="two"),
            Origin(session="one", caller=Caller(id="ann")),
            Origin(session="one", caller=Caller(tenant="ann")),
            Origin(parent="one"),
        ):
            await approvals.call("go", origin, handle="job-1")
        assert approvals.seen() == []
        await approvals.call("go", SESSION.within("chain", "run-1"), handle="job-1")
        assert approvals.seen() == [LINK]

    async def test_chains_without_a_session(self) -> None:
        """The run is what its calls have in common."""
        approvals = Approvals()
        approvals.gives["begin"] = {"job": {"ref": "job-1"}}
        run = Origin().within("code", "run-1")
        await approvals.call("begin", run)
        await approvals.call("go", Origin().within("code", "run-2"), handle="job-1")
        await approvals.call("go", run, handle="job-1")
        assert [seen[4] for seen in approvals.seen()] == [1]

    async def test_streams(self) -> None:
        """The whole value at the end counts as the result."""
        approvals = Approvals()
        approvals.gives["begin"] = {"job": {"ref": "job-1"}}
        await approvals.call("begin")
        async with aclosing(
            approvals.runner.stream(ToolCall("t:count", {"handle": "job-1"}, origin=SESSION))
        ) as events:
            assert [event.kind async for event in events] == ["chunk", "done"]
        await approvals.call("go", handle="job-1-next")
        assert {(p, t) for p, _, t, *_ in approvals.seen()} == {("t:begin", "t:count"), ("t:count", "t:go")}

    async def test_calls_in_the_callers_thread(self) -> None:
        """Watches such calls like all others; a runner without that path says so."""
        index, backends, local = InMemoryIndex(), BackendRegistry(), LocalBackend()
        backends.register(local)

        def begin() -> dict[str, str]:
            return {"ref": "job-1"}

        def go(handle: str) -> str:
            return handle

        def refuse() -> None:
            raise ValueError("no")

        for function in (begin, go, refuse):
            declared = declare(function)
            index.register(declared.tool, LocalBinding(declared.tool.id))
            local.add(declared)
        watch = LinkWatch()
        runner: Any = watch(DefaultRunner(index, backends))
        calls = [ToolCall("begin"), ToolCall("go", {"handle": "job-1"}), ToolCall("refuse")]
        assert all(runner.runs_in_thread(call, 10) for call in calls)
        assert [runner.run_in_thread(call, print, 10).ok for call in calls] == [True, True, False]
        assert [o.path for o in watch.observations.all()] == ["ref"]

        class LoopOnly:
            """A layer that needs the event loop."""

            run = stream = None

        bare: Any = watch(LoopOnly())  # type: ignore[arg-type]
        assert not bare.runs_in_thread(calls[0], 10)
        assert bare.run_in_thread(calls[0], print, 10) is None


async def test_what_cannot_be_looked_through(caplog: pytest.LogCaptureFixture) -> None:
    """A mapping that raises is logged, and the call goes on."""

    class Broken(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("no")

    approvals = Approvals()
    broken = Broken(a=1)
    watched: Any = approvals.watch(_Echo(broken))
    result = await watched.run(ToolCall("t:go", broken))
    assert result.value is broken
    assert caplog.text.count("could not be looked through") == 2


class _Echo:
    """A runner that gives one value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    async def run(self, call: ToolCall) -> Result:
        return Result(call.tool_id, self.value)

    def stream(self, call: ToolCall) -> Any:
        raise NotImplementedError


async def test_calls_at_the_same_time() -> None:
    """Each call's link is counted once."""
    approvals = Approvals()
    approvals.gives["begin"] = {"job": {"ref": "job-1"}}
    await approvals.call("begin")
    await asyncio.gather(*(approvals.call("go", handle="job-1") for _ in range(50)))
    assert approvals.seen() == [(*LINK[:4], 50, 50)]


def test_several_threads() -> None:
    """Nothing is lost when calls are watched from several threads at once."""
    watch = LinkWatch(Observations())
    watch.after(ToolCall("t:begin"), {}, "t:begin", {"ref": "job-1"})
    call = ToolCall("t:go", {"handle": "job-1"})

    def work() -> None:
        for number in range(200):
            watch.after(call, watch.before(call), "t:go", {"n": f"value-{number}"})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(o.seen, o.of) for o in watch.observations.all()] == [(800, 800)]
