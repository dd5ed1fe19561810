"""An Exec in a forked child, or on a second event loop: it works where it can, and says so where it cannot."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Gate, tool
from toolexec.errors import BackendUnavailableError, ConfigurationError, ToolExecError
from toolexec.run.audit import AuditLog, verify
from toolexec.run.layers.audit import Audit

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
PATIENCE = 60


@tool("t:sync")
def plain() -> int:
    """Runs in a thread."""
    return os.getpid()


@tool("t:async")
async def asynchronous() -> int:
    """Runs on the event loop."""
    return os.getpid()


def make_exec() -> Exec:
    """An Exec with two Python functions."""
    ex = Exec()
    ex.add(plain)
    ex.add(asynchronous)
    return ex


def in_child(function: Callable[[], Any]) -> Any:
    """Return the result of *function* in a forked child, or its exception; fail when the child hangs."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def run() -> None:
        try:
            theirs.send(function())
        except BaseException as error:
            theirs.send(error if isinstance(error, ToolExecError) else traceback.format_exc())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads, which is what is tried here
        child = context.Process(target=run)
        child.start()
    theirs.close()
    try:
        assert ours.poll(PATIENCE), "the child hangs"
        return ours.recv()
    finally:
        ours.close()
        assert child.pid is not None
        if child.is_alive():
            child.join(5)
        if child.is_alive():
            os.kill(child.pid, signal.SIGKILL)
        child.join()


class TestForks:
    """A child of the process that used the Exec."""

    def test_python_functions_go_on(self) -> None:
        """Python functions need neither the threads nor the loop of the parent, and run in the child."""
        ex = make_exec()

        async def use() -> list[int]:
            return [(await ex.run_tool("t:sync")).value, (await ex.run_tool("t:async")).value]

        assert asyncio.run(use()) == [os.getpid()] * 2
        here, there = in_child(lambda: [os.getpid(), asyncio.run(use())])
        assert there == [here] * 2
        assert here != os.getpid()
        asyncio.run(ex.aclose())

    def test_the_blocking_twin_is_refused(self) -> None:
        """Its event loop runs in a thread of the parent; closing it in the child leaves that alone."""
        with make_exec().sync as ex:
            assert ex.run_tool("t:sync").value == os.getpid()
            error = in_child(lambda: ex.run_tool("t:sync"))
            assert isinstance(error, ConfigurationError)
            assert "forked" in error.message
            assert error.outcome == "not_sent"
            assert in_child(ex.close) is None
            assert ex.run_tool("t:sync").value == os.getpid()

    def test_a_blocking_twin_that_was_not_used_yet(self) -> None:
        """As servers do that fork their workers: made in the parent, first used in the child."""
        ex = make_exec().sync

        def use() -> Any:
            value = ex.run_tool("t:sync").value
            ex.close()
            return value != os.getppid()

        assert in_child(use) is True
        ex.close()

    def test_durable_runs_go_on(self, tmp_path: Path) -> None:
        """A journal in a file is opened again in the child: both write to it in turns, and each sees all runs."""
        ex = make_exec()
        ex.reconfigure(journal=tmp_path / "runs.db")

        async def use(run_id: str) -> list[str]:
            result = await ex.run_chain([{"tool_id": "t:sync"}, {"tool_id": "t:async"}], durable=run_id)
            assert result.value == os.getpid(), result
            return sorted([run.id for run in await ex.runs.list()])

        async def use_and_close(run_id: str) -> list[str]:
            seen = await use(run_id)
            await ex.aclose()
            return seen

        assert asyncio.run(use("a")) == ["a"]
        assert in_child(lambda: asyncio.run(use_and_close("b"))) == ["a", "b"]
        assert asyncio.run(use("c")) == ["a", "b", "c"]
        asyncio.run(ex.aclose())

    @pytest.mark.parametrize("name", ["audit.jsonl", "audit.db"])
    def test_an_audit_log_stays_whole(self, name: str, tmp_path: Path) -> None:
        """Parent and child log at the same time, each with its own lock on the file, and the log verifies."""
        log = AuditLog.open(tmp_path / name, state=tmp_path / "state")
        ex = Exec(gate=Gate(audit=Audit(log)))
        ex.add(plain)

        async def use(times: int = 40) -> int:
            return len([await ex.run_tool("t:sync") for _ in range(times)])

        assert asyncio.run(use(1)) == 1
        child = multiprocessing.get_context("fork").Process(target=lambda: asyncio.run(use()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child.start()
        asyncio.run(use())
        child.join(PATIENCE)
        assert child.exitcode == 0
        log.close()
        report = verify(tmp_path / name, state=tmp_path / "state")
        assert report.problems == ()
        assert report.records == 1 + 2 * (1 + 40 + 40)  # the header, and the beginning and end of each call

    def test_code_is_refused(self) -> None:
        """Sandboxes are the parent's; the child can make an Exec of its own and run code there."""
        ex = make_exec()

        async def scene() -> None:
            assert (await ex.execute_code("1 + 1")).value == 2

        asyncio.run(scene())
        error = in_child(lambda: asyncio.run(ex.execute_code("1")))
        assert isinstance(error, ConfigurationError)
        assert "make a new Exec in the child" in error.message
        assert in_child(lambda: asyncio.run(ex.aclose())) is None
        asyncio.run(ex.aclose())

    @pytest.mark.full
    async def test_a_server_is_refused(self) -> None:
        """Connections are the parent's: a child neither uses nor closes them."""
        ex = make_exec()
        server = [sys.executable, "-m", "mcp_server_time"]
        async with ex:
            (status,) = await ex.add_mcp("test", command=server)
            assert status.available, status.reason
            error = await asyncio.to_thread(
                in_child, lambda: asyncio.run(ex.run_tool("test:get_current_time", {"timezone": "UTC"}))
            )
            assert isinstance(error, BackendUnavailableError | ConfigurationError), error
            assert error.outcome == "not_sent"
            assert await asyncio.to_thread(in_child, lambda: asyncio.run(ex.aclose())) is None
            assert await asyncio.to_thread(in_child, lambda: asyncio.run(ex.start())) is not None
            assert next(s for s in ex.backend_statuses() if s.name == "test").available

    @pytest.mark.full
    async def test_worker_processes_stay_with_the_parent(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A killable handler has a process of the child's own, and closing there ends none of the parent's."""
        (tmp_path / "forked_tools.py").write_text(
            "import os\nfrom toolexec import tool\n\n"
            '@tool("t:killable", killable=True)\ndef killable() -> int:\n    """Its process."""\n    return os.getpid()\n'
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        import forked_tools  # pyright: ignore[reportMissingImports]

        ex = make_exec()
        ex.add(forked_tools.killable)

        async def use() -> int:
            return (await ex.run_tool("t:killable")).raise_for_error().value

        async def use_and_close() -> int:
            value = await use()
            await ex.aclose()
            return value

        async with ex:
            ours = await use()
            theirs = await asyncio.to_thread(in_child, lambda: asyncio.run(use_and_close()))
            assert isinstance(theirs, int), theirs
            assert theirs != ours
            assert await use() == ours


class TestLoops:
    """A second event loop, while the first one still runs in another thread."""

    @pytest.fixture
    def other(self) -> Any:
        """Runs a coroutine on an event loop in another thread."""

        async def run(work: Callable[[], Awaitable[Any]]) -> Any:
            async def main() -> Any:
                try:
                    return await asyncio.wait_for(work(), PATIENCE)
                except ToolExecError as error:
                    return error

            return await asyncio.to_thread(asyncio.run, main())

        return run

    async def test_code(self, other: Any) -> None:
        """Code belongs to the loop that ran some first."""
        async with make_exec() as ex:
            assert (await ex.execute_code("1")).value == 1

            async def last_of() -> Any:
                return [event async for event in ex.stream_code("1")]

            async def in_session() -> Any:
                async with ex.session() as session:
                    return await session.execute_code("1")

            for work in (lambda: ex.execute_code("1"), last_of, in_session, ex.aclose):
                error = await other(work)
                assert isinstance(error, ConfigurationError), work
                assert "exec.sync" in error.message
            assert (await ex.execute_code("2")).value == 2

    async def test_python_functions(self, other: Any) -> None:
        """Python functions run on any loop."""
        async with make_exec() as ex:
            await ex.run_tool("t:sync")
            assert (await other(lambda: ex.run_tool("t:sync"))).value == os.getpid()
            assert (await other(lambda: ex.run_tool("t:async"))).value == os.getpid()

    @pytest.mark.full
    async def test_a_server(self, other: Any) -> None:
        """Servers belong to the loop that started them."""
        async with make_exec() as ex:
            await ex.add_mcp("test", command=[sys.executable, "-m", "mcp_server_time"])
            error = await other(lambda: ex.run_tool("test:get_current_time", {"timezone": "UTC"}))
            assert isinstance(error, BackendUnavailableError)
            assert "another event loop" in error.message
            ex.add_mcp("later", command=[sys.executable, "-m", "mcp_server_time"])
            error = await other(ex.start)
            assert isinstance(error, ConfigurationError)

    def test_the_blocking_twin_of_an_exec_in_use(self) -> None:
        """Its loop is another one, too: code that ran elsewhere is refused there."""
        ex = make_exec()
        began, end = threading.Event(), threading.Event()

        async def main() -> None:
            await ex.execute_code("1")
            began.set()
            await asyncio.to_thread(end.wait, PATIENCE)
            await ex.aclose()

        thread = threading.Thread(target=lambda: asyncio.run(main()))
        thread.start()
        try:
            assert began.wait(PATIENCE)
            with pytest.raises(ConfigurationError, match="another event loop"):
                ex.sync.execute_code("1")
        finally:
            end.set()
            thread.join()
            ex.sync.close()
