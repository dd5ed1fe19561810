"""Runs on Temporal's test server, which is quicker than the dev server and keeps no list of runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from packages.temporal.tests.server.servers import TestServer
from temporalio.client import WorkflowHandle

from toolexec import Exec, Step
from toolexec_temporal import TemporalEngine, TemporalSettings


@pytest.fixture(scope="module")
def quick_settings() -> Iterator[TemporalSettings]:
    """Start a test server for this module."""
    server = TestServer()
    server.start()
    try:
        yield TemporalSettings(address=server.address, linger=0.1)
    finally:
        server.stop()


# On a busy machine this server at times loses a workflow's task that a signal has caused: it says that it began, no
# worker gets it, and its time-out never comes. 3 of 36 runs hung so beside four busy loops, and none of 14 on the dev server.
@pytest.mark.soak
async def test_a_chain_with_a_wait(quick_settings: TemporalSettings) -> None:
    """A chain of twenty steps, of which one waits for an input that must fit a schema, ends with the value."""
    async with Exec(journal=TemporalEngine(quick_settings)) as ex:
        ex.add(lambda a, b: a + b, "math:add")
        asked = {"question": "How many?", "schema": {"type": "integer"}, "name": "count"}
        steps = [
            Step("run:input", asked),
            *(Step("math:add", {"a": {"$ref": f"steps.{n}"}, "b": 1}) for n in range(19)),
        ]
        async with ex.worker(isolations=[]):
            waiting = await ex.run_chain(steps, durable="quick")
            assert waiting.error is not None
            assert waiting.error.code == "run_waiting"
            await ex.runs.signal("quick", "count", 5)
            result = await ex.runs.resume("quick")
    assert result.raise_for_error().value == 24


async def test_a_page_without_the_last_event(quick_settings: TemporalSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that ends the wait for a result without one is asked again."""
    ask = WorkflowHandle[Any, Any].result
    pages = iter(["No completion event found"])

    async def result(self: WorkflowHandle[Any, Any], **options: Any) -> Any:
        for said in pages:
            raise RuntimeError(said)
        return await ask(self, **options)

    monkeypatch.setattr(WorkflowHandle, "result", result)
    async with Exec(journal=TemporalEngine(quick_settings)) as ex:
        ex.add(lambda a, b: a + b, "math:add")
        async with ex.worker(isolations=[]):
            done = await ex.run_chain([Step("math:add", {"a": 1, "b": 2})], durable="paged")
    assert done.raise_for_error().value == 3
    assert [*pages] == []
