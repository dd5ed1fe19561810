"""What is asked of runs on Temporal, and what becomes of them when workers and their tools change."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packages.temporal.tests.server.servers import DevServer
from packages.temporal.tests.server.test_worker import write_settings
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest
from temporalio.service import RPCError
from tests.waiting import until, until_blocking

from toolexec import Exec, Gate, Policy, Rule, Step, Tool
from toolexec.errors import ConfigurationError
from toolexec.journal import RunRecord
from toolexec.model import Caller, Origin, acting
from toolexec.run import audit, layers
from toolexec_temporal import TemporalEngine, TemporalSettings

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
WAITS = [Step("t:note", {"n": 1}), Step("run:signal", {"name": "go"}), Step("t:note", {"n": 2})]
FLOW = 'run("t:note", {n: 1})\nrun("run:signal", {name: "go"})\nreturn run("t:note", {n: 2})'


class Worker:
    """Opens workers, and callers without one, whose tool writes down what it did."""

    def __init__(self, settings: TemporalSettings) -> None:
        self.settings = settings
        self.done: list[int] = []

    def exec(self, tools: tuple[str, ...] = ("note",), schema: Any = NUMBER, **options: Any) -> Exec:
        ex = Exec(journal=TemporalEngine(self.settings), **options)
        for name in tools:
            ex.add(Tool(name=name, namespace="t", input_schema=schema), handler=self.note)
        return ex

    async def note(self, args: dict[str, Any]) -> int:
        """Write it down; a negative number hangs."""
        self.done.append(args["n"])
        if args["n"] < 0 and self.done.count(args["n"]) == 1:
            await asyncio.Event().wait()
        return args["n"]

    @asynccontextmanager
    async def open(self, *, patience: float = 10.0, **options: Any) -> AsyncIterator[Exec]:
        async with self.exec(**options) as ex, ex.worker(patience=patience):
            yield ex


@pytest.fixture
def worker(settings: TemporalSettings) -> Worker:
    """A worker's tools."""
    return Worker(settings)


async def listed(ex: Exec, state: Any) -> list[RunRecord]:
    return await ex.runs.list([state])


@pytest.mark.parametrize("kind", ["chain", "workflow", "code"])
async def test_runs_that_wait_are_listed_as_such(worker: Worker, kind: str) -> None:
    """A list says what a run waits for, and so does `get` while no worker is there; once it is woken it does not."""
    async with worker.open() as ex:
        if kind == "chain":
            await ex.run_chain(WAITS, durable="run")
        elif kind == "workflow":
            await ex.run_workflow(FLOW, durable="run")
        else:
            code = "tools.t.note(n=1)\ntools.run('run:signal', {'name': 'go'})\nreturn tools.t.note(n=2)"
            await ex.execute_code(code, durable="run", timeout=120)
        [run] = await until(lambda: listed(ex, "waiting"), 0.1)
        assert [wait.name for wait in run.waits] == ["go"]
        assert await ex.runs.list(["running"]) == []
    async with worker.exec() as ex:
        run = await ex.runs.get("run")
        assert (run.state, [wait.name for wait in run.waits]) == ("waiting", ["go"])
    async with worker.open() as ex:
        await ex.runs.signal("run", "go")
        assert (await ex.runs.follow("run")).raise_for_error().value == 2
        assert [each.id for each in await until(lambda: listed(ex, "done"), 0.1)] == ["run"]
        assert await ex.runs.list(["waiting"]) == []
    assert worker.done == [1, 2]


async def test_what_is_for_journals_is_refused(worker: Worker) -> None:
    """The error says why there is nothing to accept, or to work on."""
    async with worker.exec() as ex:
        for asked, words in (
            (ex.runs.resume("x", accept_changes=True), "accept_changes is for runs in a journal"),
            (ex.runs.resume_due(), "its workers do that"),
            (ex.runs.work(), "its workers do that"),
        ):
            with pytest.raises(ConfigurationError, match=words):
                await asked


@pytest.mark.parametrize("answer", [{"done": True, "value": 5}, False])
async def test_a_lost_call_is_decided_by_a_signal(worker: Worker, answer: Any) -> None:
    """A call that cannot be repeated, and whose worker is lost, is begun once; the run waits until a signal has said
    what became of it."""
    async with worker.open(patience=0.1, default_timeout=None) as ex:
        running = asyncio.create_task(ex.run_chain([Step("t:note", {"n": -1})], durable="run"))
        await until(lambda: worker.done)
        running.cancel()
    async with worker.open() as ex:
        [run] = await until(lambda: listed(ex, "waiting"), 0.1)
        assert [(wait.kind, wait.name) for wait in run.waits] == [("settle", "settle:0")]
        assert worker.done == [-1]
        await ex.runs.signal("run", "settle:0", answer)
        result = await ex.runs.follow("run")
    assert result.raise_for_error().value == (5 if answer else -1)
    assert worker.done == ([-1] if answer else [-1, -1])


@pytest.mark.parametrize("kind", ["chain", "workflow"])
async def test_a_tool_that_is_changed_or_gone(worker: Worker, kind: str) -> None:
    """Earlier calls stay as they were; a call gets the tool as it is now, and one that is gone fails the run in words.
    Nothing is called twice."""
    begin = {
        "chain": lambda ex, name: ex.run_chain(WAITS, durable=name),
        "workflow": lambda ex, name: ex.run_workflow(FLOW, durable=name),
    }[kind]
    async with worker.open() as ex:
        for name in ("changed", "gone"):
            await begin(ex, name)
    wider = {**NUMBER, "properties": {"n": {"type": "integer"}, "more": {"type": "string"}}}
    async with worker.open(schema=wider) as ex:
        await ex.runs.signal("changed", "go")
        assert (await ex.runs.follow("changed")).raise_for_error().value == 2
    async with worker.open(tools=("other",)) as ex:
        await ex.runs.signal("gone", "go")
        result = await ex.runs.follow("gone")
        calls = await ex.runs.calls("gone") if kind == "workflow" else []
    assert result.error is not None
    assert "t:note" in str(result.error)
    assert worker.done == [1, 1, 2]
    assert [call.state for call in calls[:2]] in ([], ["done", "done"])


@pytest.mark.parametrize("kind", ["chain", "workflow"])
async def test_an_unknown_tool_is_found_before_anything_runs(worker: Worker, kind: str) -> None:
    """A later tool that does not exist refuses the run where it begins, and another worker says the same of it, also when
    it has that tool."""
    async with worker.open() as ex:
        if kind == "chain":
            begun = await ex.run_chain([Step("t:note", {"n": 1}), Step("t:nope", {"n": 2})], durable="run")
        else:
            begun = await ex.run_workflow('run("t:note", {n: 1})\nreturn run("t:nope", {n: 2})', durable="run")
        assert "t:nope" in str(begun.error)
    async with worker.open(tools=("note", "nope")) as ex:
        assert (await ex.runs.get("run")).state == "failed"
        assert "t:nope" in str((await ex.runs.follow("run")).error)
    assert worker.done == []


async def test_audit_records_a_run_once(worker: Worker, tmp_path: Path) -> None:
    """However often Temporal repeats a chain or a workflow, the log has it once, and its calls as parts of it."""
    path = tmp_path / "audit.jsonl"
    for _ in range(3):
        with closing(audit.AuditLog.open(path)) as log:
            async with worker.open(gate=Gate(audit=layers.Audit(log))) as ex:
                if not worker.done:
                    await ex.run_chain(WAITS, durable="chain")
                    await ex.run_workflow(FLOW, durable="flow")
                elif len(worker.done) == 2:
                    for name in ("chain", "flow"):
                        await ex.runs.signal(name, "go")
                        await ex.runs.follow(name)
                else:
                    for name in ("chain", "flow"):
                        assert len(await ex.runs.calls(name)) in (0, 3)
                        assert (await ex.runs.get(name)).state == "done"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    groups = [(each["kind"], each["run_id"]) for each in records if each.get("kind") in ("chain", "code")]
    assert sorted(groups) == [("chain", "chain"), ("code", "flow")]
    parents = [each.get("parent") for each in records if each.get("kind") == "call"]
    assert sorted(parents) == ["chain", "chain", "flow", "flow"]


async def test_the_roles_of_the_caller_hold_on_every_worker(worker: Worker) -> None:
    """A policy sees whom the run is for: not only the ID."""
    gate = Gate(policy=Policy([Rule("allow", tools="t:*", roles="buyer")], default="deny"))
    async with worker.open(gate=gate) as ex:
        results = []
        for name, roles in (("ann", ("buyer",)), ("bob", ())):
            with acting(Origin(caller=Caller(id=name, roles=roles))):
                results.append(await ex.run_chain([Step("t:note", {"n": 1})], durable=name))
    assert results[0].raise_for_error().value == 1
    assert results[1].error is not None
    assert worker.done == [1]


async def test_versions_of_workers(server: DevServer, settings: TemporalSettings) -> None:
    """A pinned run stays with the version that it began with; a new one goes to the current version."""
    done: dict[str, list[int]] = {"1": [], "2": []}
    versions: dict[str, Worker] = {}
    for build_id, notes in done.items():
        made = Worker(replace(settings, deployment=settings.task_queue, build_id=build_id, pinned=True))
        made.done = notes
        versions[build_id] = made
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(versions["1"].open())
        await make_current(old, settings.task_queue, "1")
        await old.run_chain(WAITS, durable="first")
        await stack.aclose()
        # Two versions cannot be in one process, as both would serve the task queue: the newer one takes over here.
        new = await stack.enter_async_context(versions["2"].open())
        await make_current(new, settings.task_queue, "2")
        second = await new.run_chain([Step("t:note", {"n": 7})], durable="second")
        await new.runs.signal("first", "go")
        assert (await new.runs.get("first")).state in ("running", "waiting")
        await stack.aclose()
        again = await stack.enter_async_context(versions["1"].open())
        first = await again.runs.follow("first")
    assert second.raise_for_error().value == 7
    assert first.raise_for_error().value == 2
    assert done == {"1": [1, 2], "2": [7]}


async def make_current(ex: Exec, deployment: str, build_id: str) -> None:
    """Have new runs go to a version, once the server knows of it."""
    engine = ex.options.journal
    assert isinstance(engine, TemporalEngine)
    client = await engine.client()
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace="default", deployment_name=deployment, build_id=build_id, ignore_missing_task_queues=True
    )

    async def made() -> bool:
        try:
            await client.workflow_service.set_worker_deployment_current_version(request)
        except RPCError:
            return False
        return True

    await until(made, 0.2)


def all_waiting(found: Any, count: int) -> Any:
    """Return a list of runs that is as long as it should be: Temporal's index lags by a moment."""
    return found if len(found["runs"]) == count else None


def test_the_command_line(server: DevServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`toolexec runs` lists, shows, signals, resumes, cancels, replays and forks runs on Temporal, each command in its own process."""
    monkeypatch.setenv("TEMPORAL_KEY", "a key of at least sixteen characters")
    file = write_settings(tmp_path, server.address)
    file.write_text(
        file.read_text().replace('task_queue = "shop"', 'task_queue = "cli"\nprefix = "cli-"\nlinger = 0.2')
    )
    chain = tmp_path / "chain.json"
    wait = {"tool": "run:signal", "args": {"name": "go"}, "name": "sent"}
    chain.write_text(json.dumps([wait, {"tool": "shop:price", "args": {"item": {"$ref": "sent"}}}]))

    def run(*words: str) -> Any:
        command = [sys.executable, "-m", "toolexec", *words, "-c", str(file), "--json"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode >= 0, f"{words} ended by signal {-done.returncode}: {done.stderr[-3000:]}"
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr

    serve = [sys.executable, "-m", "toolexec", "temporal", "worker", "--isolation", "wasm", "-c", str(file)]
    worker = subprocess.Popen(serve, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for name in ("one", "two"):
            code, result = run("chain", str(chain), "--durable", name)
            assert (code, result["error"]["code"]) == (4, "run_waiting")
        found = until_blocking(lambda: all_waiting(run("runs", "list", "--state", "waiting")[1], 2), 0.2)
        assert [(each["id"], each["waits"][0]["name"]) for each in found["runs"]] == [("two", "go"), ("one", "go")]
        code, shown = run("runs", "show", "one")
        assert (code, shown["state"], shown["calls"][0]["tool"]) == (0, "waiting", "run:signal")
        assert run("runs", "signal", "one", "go", "3")[1]["waited"] is True
        code, result = run("runs", "resume", "one")
        assert (code, result["value"]) == (0, 60)
        assert run("runs", "cancel", "two")[0] == 0
        code, result = run("runs", "resume", "two")
        assert (code, result["error"]["code"]) == (1, "run_cancelled")
        assert run("runs", "replay", "one")[1] == {"runId": "one", "same": True, "calls": 2}
        code, stop = run("replay", "one", "--to", "call:2", "--print", "calls")
        assert (code, stop["calls"][1]["args"]) == (0, {"item": 3})
        answer = tmp_path / "answer.json"
        answer.write_text("4")
        code, fork = run("runs", "fork", "one", "--at", "1", "--answer", str(answer))
        assert (code, fork["result"]["error"]["code"]) == (4, "run_unanswered")
        assert run("runs", "resume", fork["runId"])[1]["value"] == 80
        code, found = run("runs", "diff", "one", fork["runId"])
        assert (code, found["first"]) == (1, "0")
        assert run("runs", "signal", "none", "go")[0] != 0
        assert run("runs", "delete", "one")[0] == 0
    finally:
        worker.terminate()
        worker.wait(60)
