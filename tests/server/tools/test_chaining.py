"""run_chain."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Limits, ToolReply
from toolexec.model.content import audio, image, text
from toolexec.server.tools.chaining import RUN_CHAIN
from toolexec.server.tools.running import RUN_TOOL

from .conftest import Counter, refuses


def order(item: str, **more: Any) -> dict[str, Any]:
    """A step."""
    return {"tool_id": "shop:order", "args": {"item": item}, **more}


FAIL = {"tool_id": "shop:fail", "args": {"why": "empty"}}


class TestValues:
    """Chains that work."""

    async def test_values_travel(self, counter: Counter) -> None:
        """As all arguments, as `previous`, and by reference; results are in order, final is the last one."""
        value = await counter.value(
            RUN_CHAIN,
            steps=[
                order("tea", name="first"),
                {"tool_id": "anything", "use_previous": True},
                {"tool_id": "anything", "args": {"a": 1}, "use_previous": True},
                order("x", args={"item": {"$ref": "first.item"}, "count": {"$ref": "steps.0.count"}}),
            ],
        )
        first = {"item": "tea", "count": 1, "options": {}}
        assert [step["structured"] for step in value["results"]] == [first, first, {"a": 1, "previous": first}, first]
        assert value["final"] == first
        assert value["results"][0]["name"] == "first"
        assert value["results"][0]["backend"] == {"kind": "local", "name": "local"}
        assert "tool" not in value["results"][0]
        assert value["durationMs"] > 0

    async def test_a_null_is_a_value(self, counter: Counter) -> None:
        """A null is in the result of its step, and it is final."""
        value = await counter.value(RUN_CHAIN, steps=[{"tool_id": "shop:nothing"}])
        assert value["results"][0]["structured"] is None
        assert value["final"] is None

    async def test_what_is_shown(self, counter: Counter) -> None:
        """Backends unless switched off, tools when asked for."""
        value = await counter.value(RUN_CHAIN, steps=[order("a")], include_backends=False, include_tools=True)
        assert "backend" not in value["results"][0]
        assert value["results"][0]["tool"]["name"] == "order"

    async def test_what_lies_between_is_kept_short(self, counter: Counter) -> None:
        """A large value of a step comes as an outline; the chain itself has the whole, and so has final."""
        steps = [{"tool_id": "shop:many", "args": {"count": 500}}, {"tool_id": "anything", "use_previous": True}]
        value = await counter.value(RUN_CHAIN, steps=steps)
        assert value["results"][0]["cut"] is True
        assert len(value["final"]["previous"]) == 500
        cut = await counter.value(RUN_CHAIN, steps=steps, max_bytes=1000)
        assert cut["cut"] is True
        page = counter.results.read(cut["handle"], counter.origin, path="previous[499].id")
        assert page.value == 499

    async def test_parts_of_the_last_step(self, counter: Counter) -> None:
        """Parts of the last step come along."""
        reply = await counter.ask(RUN_CHAIN, steps=[{"tool_id": "media:draw"}])
        assert [part["type"] for part in reply.content] == ["image", "audio", "resource_link"]

    async def test_parts_stay_as_the_last_tool_gave_them(self, counter: Counter) -> None:
        """In their order, with text between them, as run_tool has them; then what else there is to say."""
        given = [image(b"x"), text("between"), audio(b"y"), text("after")]
        counter.ex.add(lambda: ToolReply(content=given), "mixed")
        reply = await counter.ask(
            RUN_CHAIN, steps=[{"tool_id": "shop:greet", "args": {"name": "A"}}, {"tool_id": "mixed"}]
        )
        alone = await counter.ask(RUN_TOOL, tool_id="mixed")
        assert reply.parts is not None
        assert reply.parts[:-1] == alone.parts == given
        rest = json.loads(reply.parts[-1]["text"])
        assert rest["results"][0]["structured"] == "hello A"
        assert "final" not in rest

    async def test_attempts_are_counted(self, counter: Counter) -> None:
        """A step that was tried again says how often it was called."""
        calls: list[int] = []

        async def flaky() -> str:
            calls.append(1)
            if len(calls) == 1:
                await asyncio.sleep(60)
            return "worked"

        from toolexec import tool

        counter.ex.add(tool("flaky", read_only=True)(flaky))
        value = await counter.value(RUN_CHAIN, steps=[{"tool_id": "flaky", "timeout": 0.05, "retries": 1}])
        assert value["results"][0]["attempts"] == 2


class TestFailures:
    """Chains that stop."""

    async def test_the_first_failure_stops_it(self, counter: Counter) -> None:
        """Earlier results are there, later steps are skipped, and the error names the step and the reason."""
        reply = await counter.ask(RUN_CHAIN, steps=[order("tea"), FAIL, order("x")])
        assert reply.is_error
        done, failed, skipped = reply.value["results"]
        assert done["structured"]["item"] == "tea"
        assert failed["error"]["code"] == "handler_failed"
        assert failed["error"]["step_index"] == 1
        assert skipped == {"tool_id": "shop:order", "skipped": True}
        assert reply.value["final"]["item"] == "tea"
        error = reply.value["error"]
        assert (error["code"], error["step_index"], error["tool_id"]) == ("chain_step_failed", 1, "shop:fail")
        assert error["retryable"] is False
        assert "empty" in error["message"]
        assert error["details"] == {
            "cause_code": "handler_failed",
            "cause_op": "execute",
            "cause_backend": "local",
            "cause_backend_kind": "local",
        }

    async def test_a_first_step_that_cannot_be_run(self, counter: Counter) -> None:
        """There is no final value, and the cause has no backend."""
        reply = await counter.ask(RUN_CHAIN, steps=[{"tool_id": "shop:none"}])
        assert "final" not in reply.value
        assert reply.value["error"]["details"] == {"cause_code": "tool_not_found", "cause_op": "resolve"}

    async def test_going_on(self, counter: Counter) -> None:
        """With stop_on_error false the chain goes on, and is no failure."""
        value = await counter.value(RUN_CHAIN, steps=[{**FAIL, "stop_on_error": False}, order("tea")])
        assert value["results"][0]["error"]["code"] == "handler_failed"
        assert value["final"]["item"] == "tea"

    @pytest.mark.parametrize(
        "steps",
        [
            [order("a", name="x"), order("b", name="x")],
            [order("a", name="not a word")],
            [order("a", retries=1)],
            [order("a", args={"item": {"$ref": "steps.4"}})],
        ],
    )
    async def test_one_that_cannot_work(self, counter: Counter, steps: Any) -> None:
        """Nothing is run, and the results are empty."""
        reply = await counter.ask(RUN_CHAIN, steps=steps)
        assert reply.value["results"] == []
        assert reply.value["error"]["code"] == "invalid_chain"

    async def test_too_many_steps(self) -> None:
        """The operator's limit holds, and so does the published one."""
        counter = Counter(code_limits=Limits(max_chain_steps=2))
        reply = await counter.ask(RUN_CHAIN, steps=[order("a")] * 3)
        assert reply.value["error"]["code"] == "chain_step_limit"
        assert reply.value["results"] == []
        assert refuses(RUN_CHAIN, steps=[])
        assert refuses(RUN_CHAIN, steps=[order("a")] * 51)
        assert refuses(RUN_CHAIN, steps=[order("a", other=1)])
        await counter.ex.aclose()

    async def test_a_step_later_than_ten(self, counter: Counter) -> None:
        """Its number is told right."""
        reply = await counter.ask(RUN_CHAIN, steps=[*([order("a")] * 12), FAIL])
        assert reply.value["error"]["step_index"] == 12
        assert "step 12" in reply.value["error"]["message"]

    async def test_cancelling(self, counter: Counter) -> None:
        """Stops the chain."""
        task = asyncio.ensure_future(counter.ask(RUN_CHAIN, steps=[{"tool_id": "shop:slow"}]))
        await until(lambda: counter.progress, 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_progress_of_every_step(counter: Counter) -> None:
    """The start, each step as it went, and no more than there are."""
    await counter.ask(RUN_CHAIN, steps=[order("a"), {**FAIL, "stop_on_error": False}, order("b")])
    assert [(p.done, p.total, p.message) for p in counter.progress] == [
        (0, 3, "started"),
        (1, 3, "step_completed"),
        (2, 3, "step_error"),
        (3, 3, "step_completed"),
    ]
