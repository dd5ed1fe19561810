"""What calls give back is cut to a budget, on the direct path only."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from toolexec import Exec, Step, ToolReply
from toolexec.errors import ConfigurationError, HandlerError, ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.content import image, text
from toolexec.model.events import StreamEvent
from toolexec.model.origin import HERE, Origin, acting
from toolexec.run.gate import Gate
from toolexec.run.layers.budget import Budget
from toolexec.run.outline import Outline
from toolexec.run.results import ResultStore
from toolexec.run.runner import ThreadRunner
from toolexec.run.types import Result

ROWS = [{"id": number, "name": f"row {number}"} for number in range(500)]
ME = Origin(session="me")


def make(budget: Budget, answer: Any = None) -> Exec:
    ex = Exec(gate=Gate(budget=budget))

    async def give() -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def count(rows: list[Any]) -> int:
        return len(rows)

    async def pieces() -> AsyncGenerator[Any, None]:
        for row in ROWS:
            yield row

    ex.add(give, "t:give")
    ex.add(count, "t:count")
    ex.add(pieces, "t:pieces")
    return ex


def size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


async def run(budget: Budget, answer: Any) -> Result:
    async with make(budget, answer) as ex:
        with acting(ME):
            return await ex.run_tool("t:give")


async def test_a_large_value_becomes_an_outline_with_a_handle() -> None:
    """The result says where the whole is, and the caller reads it there."""
    store = ResultStore(2000)
    result = await run(Budget(store), ROWS)
    assert result.ok
    assert isinstance(result.value, Outline)
    assert size(result.value) <= 2000
    assert result.to_dict()["handle"] == result.handle == result.value["handle"]
    assert store.read(result.handle, ME, path="[499].id").value == 499


async def test_a_small_value_is_left_alone() -> None:
    """A value that fits has no handle, and the result does not mention one."""
    store = ResultStore(2000)
    result = await run(Budget(store), ROWS[:3])
    assert result.value == ROWS[:3]
    assert "handle" not in result.to_dict()
    assert len(store) == 0


async def test_the_budget_of_calls_can_differ_from_that_of_the_store() -> None:
    """max_bytes counts where it is given."""
    result = await run(Budget(ResultStore(50_000), 1500), ROWS)
    assert size(result.value) <= 1500


async def test_chains_and_code_get_whole_values() -> None:
    """A step's value reaches the next step whole, and code sees all of it."""
    store = ResultStore(2000)
    async with make(Budget(store), ROWS) as ex:
        chain = await ex.run_chain(
            [Step(tool_id="t:give"), Step(tool_id="t:count", args={"rows": {"$ref": "steps.0"}})]
        )
        code = await ex.execute_code("return len(tools.t.give())")
    assert chain.raise_for_error().value == 500
    assert code.raise_for_error().value == 500
    assert len(store) == 0


async def test_the_last_event_of_a_stream_is_cut() -> None:
    """Chunks pass as they come; the value at the end is an outline."""
    store = ResultStore(2000)
    async with make(Budget(store), ROWS) as ex:
        with acting(ME):
            events = [event async for event in ex.stream_tool("t:pieces")]
    assert [event.data for event in events[:-1]] == ROWS
    last = events[-1]
    assert (last.kind, last.tool_id) == ("done", "t:pieces")
    assert store.read(last.data["handle"], ME).total == 500


async def test_the_error_that_ends_a_stream_is_cut() -> None:
    """A failure has a budget, too, in the event's data and in its error."""
    store = ResultStore(2000)
    error = HandlerError("no", details={"log": "x" * 5000})
    async with make(Budget(store), error) as ex:
        (event,) = [event async for event in ex.stream_tool("t:give")]
    assert event.kind == "error"
    assert event.error is not None
    assert size(event.data["details"]) <= 2000
    assert event.data["details"] == event.error.details


async def test_a_stream_that_is_left_early_is_closed() -> None:
    """Closing the outer stream ends the tool."""
    async with make(Budget(ResultStore())) as ex:
        events = ex.stream_tool("t:pieces")
        assert (await anext(events)).data == ROWS[0]
        await events.aclose()


async def test_strings_among_the_parts_are_cut_alike() -> None:
    """A part's text shows its ends, and says where it reads on: under the value's own handle where that is the text."""
    store = ResultStore(2000)
    words = "".join(f"word {number}\n" for number in range(1000))
    result = await run(Budget(store), ToolReply(content=[text(words)]))
    (part,) = result.content
    assert size(part) <= 2000
    assert f"read_result with handle {result.handle} and offset" in part["text"]
    assert part["text"].startswith("word 0\n")
    assert part["text"].endswith("word 999\n")
    assert len(store) == 1


async def test_the_structured_part_of_a_reply_is_cut_with_the_value() -> None:
    """No way leads around the budget: what the reply has beside the value is the outline as well."""
    store = ResultStore(2000)
    reply = ToolReply(content=[text(json.dumps(ROWS))], structured={"rows": ROWS}, has_structured=True)
    result = await run(Budget(store), reply)
    assert result.reply is not None
    assert result.reply.structured is result.value
    assert size(result.reply.to_mcp()) < 5000
    assert len(store) == 2


@pytest.mark.parametrize("value", [{"rows": ROWS}, ROWS], ids=["object", "list"])
async def test_a_text_that_is_the_json_of_the_value_is_kept_once(value: Any) -> None:
    """The note in the text names the handle of the value, as servers send both of them."""
    budget = Budget(ResultStore(max_bytes=2000))
    result = await run(budget, ToolReply(content=[text(json.dumps(value))], structured=value, has_structured=True))
    assert result.reply is not None
    assert len(budget.store) == 1
    assert budget.store.kept_bytes == size(value)
    assert f"read_result with handle {result.handle} has the value" in str(result.reply.content[0]["text"])
    assert budget.store.read(result.handle, ME, limit=1)


async def test_a_text_that_is_not_the_value_is_kept_beside_it() -> None:
    """A text with other data has a handle of its own."""
    budget = Budget(ResultStore(max_bytes=2000))
    reply = ToolReply(content=[text(json.dumps(ROWS[1:]))], structured={"rows": ROWS}, has_structured=True)
    await run(budget, reply)
    assert len(budget.store) == 2


async def test_many_parts_share_one_budget() -> None:
    """Parts that are over the budget together are left out, and their number is told."""
    result = await run(Budget(ResultStore(2000)), ToolReply(content=[text("word " * 60) for _ in range(50)]))
    assert size(list(result.content)) < 4500
    assert "more parts are left out" in result.content[-1]["text"]


async def test_images_have_a_budget_of_their_own() -> None:
    """A picture within it passes, one over it is a note with a handle under which it is kept."""
    store = ResultStore(2000)
    small, large = image(b"x" * 3000), image(b"y" * 30_000)
    result = await run(Budget(store, max_media_bytes=10_000), ToolReply(content=[small, large, small, text("fine")]))
    kinds = [part["type"] for part in result.content]
    assert kinds == ["image", "text", "image", "text"]
    note = result.content[1]["text"]
    assert note.startswith(f"[toolexec: image image/png of {size(large):,} bytes, too large to be shown")
    handle = note.partition("handle ")[2].partition(" ")[0]
    assert store.read(handle, ME, path="mimeType").value == "image/png"


async def test_what_cannot_be_kept_says_so() -> None:
    """Where the store has no room for a part there is no handle."""
    store = ResultStore(2000, max_kept_bytes=2500)
    reply = ToolReply(content=[image(b"y" * 5000), text("word " * 2000)])
    result = await run(Budget(store, max_media_bytes=0), reply)
    assert "it is not kept" in result.content[0]["text"]
    assert "; not kept]" in result.content[1]["text"]


async def test_a_long_error_is_cut() -> None:
    """The message shows its ends, the details are an outline."""
    store = ResultStore(2000)
    result = await run(Budget(store), HandlerError("why " * 5000, details={"log": "x" * 5000}))
    assert result.error is not None
    assert size(result.error.message) <= 2100
    assert size(result.error.details) <= 2000
    assert "read_result" in result.error.message


async def test_the_parts_of_a_failed_reply_are_cut() -> None:
    """A reply that reports an error is no way around the budget."""
    result = await run(Budget(ResultStore(2000)), ToolReply(content=[text("no " * 5000)], is_error=True))
    assert isinstance(result.error, ToolExecError)
    assert size(result.to_dict()) < 8000
    assert size(list(result.content)) <= 2100


@pytest.mark.full
async def test_a_value_that_is_no_json_is_an_error() -> None:
    """A value that cannot be measured is not passed on, even where no result is checked."""
    loop: list[Any] = []
    loop.append(loop)

    async def give() -> Any:
        return loop

    async with Exec(gate=Gate(budget=Budget(ResultStore())), validate_output=False) as ex:
        ex.add(give, "t:give")
        result = await ex.run_tool("t:give")
    assert (result.value, result.ok) == (None, False)
    assert result.error is not None
    assert result.error.tool_id == "t:give"


def test_settings_that_make_no_sense_are_refused() -> None:
    """A budget has room for an outline at least."""
    with pytest.raises(ConfigurationError, match="at least 1000"):
        Budget(ResultStore(), 10)
    with pytest.raises(ConfigurationError, match="0 or more"):
        Budget(ResultStore(), max_media_bytes=-1)


class _Here:
    """A runner that makes calls in the caller's thread."""

    async def run(self, call: ToolCall) -> Result:
        return Result(call.tool_id, ROWS)

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        raise NotImplementedError

    def runs_in_thread(self, call: ToolCall, within: float) -> bool:
        return call.tool_id == "t:here"

    def run_in_thread(self, call: ToolCall, wait: Any, within: float) -> Result | None:
        return Result(call.tool_id, ROWS) if self.runs_in_thread(call, within) else None


class _Elsewhere:
    """A runner that needs the event loop."""

    async def run(self, call: ToolCall) -> Result:
        return Result(call.tool_id, ROWS)

    def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        raise NotImplementedError


def no_find(tool_id: str) -> Any:
    raise AssertionError(tool_id)


def test_calls_that_need_no_event_loop_still_need_none() -> None:
    """The layer makes calls in the caller's thread wherever the runner inside can, with the same budget."""
    budget = Budget(ResultStore(2000))
    runner = budget.wrap(_Here(), no_find)
    assert isinstance(runner, ThreadRunner)
    code = HERE.within("code", "run")
    whole = runner.run_in_thread(ToolCall("t:here", origin=code), None, 1.0)  # pyright: ignore[reportArgumentType]
    direct = runner.run_in_thread(ToolCall("t:here", origin=HERE), None, 1.0)  # pyright: ignore[reportArgumentType]
    assert whole is not None
    assert whole.value is ROWS
    assert direct is not None
    assert direct.handle
    assert runner.runs_in_thread(ToolCall("t:here"), 1.0)
    assert runner.run_in_thread(ToolCall("t:loop"), None, 1.0) is None  # pyright: ignore[reportArgumentType]
    other = budget.wrap(_Elsewhere(), no_find)
    assert isinstance(other, ThreadRunner)
    assert not other.runs_in_thread(ToolCall("t:here"), 1.0)
    assert other.run_in_thread(ToolCall("t:here"), None, 1.0) is None  # pyright: ignore[reportArgumentType]
