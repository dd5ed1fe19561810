"""execute_code and run_workflow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.waiting import until

from toolexec.code.types import CodeResult, ToolCallRecord
from toolexec.errors import HandlerError
from toolexec.server.tools.coding import EXECUTE_CODE, RUN_WORKFLOW

from .conftest import Counter, refuses


class TestValues:
    """Code that works."""

    async def test_code_calls_tools(self, counter: Counter) -> None:
        """The value, what was printed, a short trace and the sandbox come back."""
        code = 'order = tools.shop.order(item="tea")\nprint("made", order["item"])\nreturn order["count"] + 1'
        value = await counter.value(EXECUTE_CODE, code=code)
        assert value["value"] == 2
        assert value["stdout"] == "made tea\n"
        assert value["toolCallCount"] == 1
        trace = value["toolCalls"][0]
        assert (trace["tool"], trace["ok"]) == ("shop:order", True)
        assert trace["ms"] >= 0
        assert value["backend"] == {"kind": "wasm", "isolation": "wasm"}
        assert "stderr" not in value

    async def test_as_the_description_teaches(self, counter: Counter) -> None:
        """Every form that it names works: by name, by ID, searching, describing, in parallel, catching a failure."""
        code = """
import asyncio
a = await tools.shop.greet(name="a")
b = await tools.run("shop:greet", {"name": "b"})
found = await tools.search("greet")
doc = await tools.describe("shop:greet")
both = await asyncio.gather(tools.shop.greet(name="c"), tools.shop.greet(name="d"))
try:
    await tools.shop.fail()
    code = ""
except ToolError as error:
    code = error.code
return [a, b, found[0]["id"], doc["id"], both, code]
"""
        value = await counter.value(EXECUTE_CODE, code=code)
        assert value["value"] == [
            "hello a",
            "hello b",
            "shop:greet",
            "shop:greet",
            ["hello c", "hello d"],
            "handler_failed",
        ]
        assert value["toolCalls"][-1]["code"] == "handler_failed"

    async def test_nothing_is_a_value(self, counter: Counter) -> None:
        """Code that gives nothing gives null."""
        assert (await counter.value(EXECUTE_CODE, code="x = 1"))["value"] is None

    async def test_a_last_result_is_noted(self, counter: Counter) -> None:
        """A last line `result = ...` is the value, and the reply says so within its schema."""
        value = await counter.value(EXECUTE_CODE, code="result = 1 + 1")
        assert value["value"] == 2
        assert len(value["notes"]) == 1
        assert "`return result`" in value["notes"][0]
        assert "notes" in str(EXECUTE_CODE.output_schema)

    async def test_much_of_everything(self, counter: Counter) -> None:
        """A large value is an outline, long output ends with the way to the rest."""
        code = 'print("y" * 20_000)\nreturn tools.shop.many(count=5000)'
        value = await counter.value(EXECUTE_CODE, code=code)
        assert value["cut"] is True
        assert counter.results.read(value["handle"], counter.origin, path="[4999].id").value == 4999
        assert len(value["stdout"]) < 3000
        assert "20001 characters in all; read_result" in value["stdout"]

    async def test_output_that_cannot_be_kept(self, counter: Counter) -> None:
        """The result says that the rest is lost."""
        counter.results = type(counter.results)(max_kept_bytes=100)
        value = await counter.value(EXECUTE_CODE, code='print("y" * 20_000)')
        assert "too many to be kept" in value["stdout"]


class TestFailures:
    """Code that fails."""

    async def test_an_exception(self, counter: Counter) -> None:
        """The error has the line; what was printed until then is there."""
        reply = await counter.ask(EXECUTE_CODE, code='print("before")\n1 / 0')
        assert reply.value["error"]["code"] == "code_error"
        assert reply.value["error"]["details"]["line"] == 2
        assert reply.value["stdout"] == "before\n"
        assert "value" not in reply.value

    async def test_limits_can_only_be_lowered(self) -> None:
        """Neither time nor the number of calls goes above what the operator set."""
        counter = Counter(max_tool_calls=2)
        counter.ex.add(lambda: 1, "one")
        calls = "for _ in range(9):\n    tools.one()"
        for asked in ({}, {"max_tool_calls": 2}, {"max_tool_calls": 1}):
            reply = await counter.ask(EXECUTE_CODE, asked, code=calls)
            assert reply.is_error
            made = [trace for trace in reply.value["toolCalls"] if trace["ok"]]
            assert len(made) == min(asked.get("max_tool_calls", 2), 2)
        error = await counter.error(EXECUTE_CODE, code=calls, max_tool_calls=1000)
        assert (error["code"], "above the ceiling of 2;" in error["message"]) == ("invalid_limits", True)
        await counter.ex.aclose()

    async def test_ceilings_where_the_operator_set_none(self, counter: Counter) -> None:
        """A server grants 1,000 calls and ten minutes; the ceiling is named."""
        for asked, ceiling in (({"max_tool_calls": 1001}, "of 1000"), ({"timeout_ms": 600_001}, "of 600 s")):
            error = await counter.error(EXECUTE_CODE, asked, code="1")
            assert error["code"] == "invalid_limits"
            assert f"above the ceiling {ceiling}" in error["message"]
        assert await counter.value(EXECUTE_CODE, {"max_tool_calls": 1000, "timeout_ms": 600_000}, code="1")

    async def test_ceilings_above_those_of_a_server(self) -> None:
        """A caller gets as much as the ceilings of the operator say."""
        counter = Counter(max_tool_calls=5000, max_timeout=3600)
        counter.ex.add(lambda: 1, "one")
        asked = {"max_tool_calls": 2000, "timeout_ms": 1_800_000}
        code = "return sum(tools.one() for _ in range(1100))"
        assert (await counter.value(EXECUTE_CODE, asked, code=code))["value"] == 1100
        await counter.ex.aclose()

    async def test_a_time_limit(self, counter: Counter) -> None:
        """A time limit ends the code."""
        await counter.value(EXECUTE_CODE, code="1")
        error = await counter.error(EXECUTE_CODE, code="while True: pass", timeout_ms=300)
        assert error["code"] == "code_timeout"

    async def test_allowed_tools(self, counter: Counter) -> None:
        """Others cannot be called."""
        code = 'tools.run("shop:fail", {})'
        reply = await counter.ask(EXECUTE_CODE, code=code, allowed_tools=["media:*"])
        assert reply.is_error
        assert "shop:fail" in reply.value["error"]["message"]

    async def test_what_cannot_be_run(self, counter: Counter) -> None:
        """An unknown language, and code that is switched off, are errors."""
        error = await counter.error(EXECUTE_CODE, code="1", language="cobol")
        assert error["code"] == "invalid_request"
        assert "python" in error["message"]
        off = Counter(enable_code_execution=False)
        assert (await off.error(EXECUTE_CODE, code="1"))["code"] == "configuration"
        await off.ex.aclose()

    @pytest.mark.parametrize(
        "args",
        [
            {},
            {"code": "1", "timeout_ms": 0},
            {"code": "1", "max_tool_calls": 0},
            {"code": "1", "profile": "dev"},
            {"code": "1", "unsafe_opt_in": True},
        ],
    )
    def test_what_a_caller_may_not_ask(self, args: Any) -> None:
        """Code is required, numbers have bounds, and the isolation cannot be chosen."""
        assert refuses(EXECUTE_CODE, **args)

    async def test_cancelling(self, counter: Counter) -> None:
        """Stops the code."""
        task = asyncio.ensure_future(counter.ask(EXECUTE_CODE, code="tools.shop.slow()"))
        await until(lambda: counter.progress, 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class TestTrace:
    """The calls that code made."""

    async def test_very_many_are_cut(self, counter: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
        """Failures stay, and the number of all is told."""
        calls = [ToolCallRecord("a:ok") for _ in range(99)] + [ToolCallRecord("a:bad", error=HandlerError("no"))]

        async def execute(code: str, **settings: Any) -> CodeResult:
            return CodeResult(value=1, tool_calls=calls)

        monkeypatch.setattr(counter.ex, "execute_code", execute)
        value = await counter.value(EXECUTE_CODE, code="1")
        assert value["toolCallCount"] == 100
        assert len(value["toolCalls"]) == 40
        assert value["toolCalls"][-1]["code"] == "handler_failed"

    async def test_progress_of_calls(self, counter: Counter) -> None:
        """Each call is told when it ended, between start and end."""
        await counter.value(EXECUTE_CODE, code="tools.shop.nothing()\ntools.shop.nothing()")
        await asyncio.sleep(0)
        told = [(p.done, p.message) for p in counter.progress]
        assert told[0] == (0, "started")
        assert told[-1] == (len(told) - 1, "finished")
        assert (1, "shop:nothing") in told


class TestWorkflows:
    """Programs that need no sandbox."""

    async def test_as_the_description_teaches(self) -> None:
        """Its example runs, and all that it names; where code is switched off, too."""
        counter = Counter(enable_code_execution=False)
        reminded: list[int] = []
        counter.ex.add(lambda: [{"id": 1, "days": 3}, {"id": 2, "days": 40}], "shop:orders")

        def remind(id: int) -> None:
            reminded.append(id)

        counter.ex.add(remind, "shop:remind")
        body = RUN_WORKFLOW.description.partition("it runs. ")[2].partition(" if a {}")[0]
        text = f"""input n: integer = 1
            {body}
            xs := late
            if n {{}}; for x in xs {{}}; try {{}} catch e {{}}; print("${{len(xs)}}"); return late
        """
        value = await counter.value(RUN_WORKFLOW, workflow=text, inputs={"n": 2})
        assert (value["value"], value["stdout"], reminded) == ([2], "1\n", [2])
        assert [(call["tool"], call["ok"]) for call in value["toolCalls"]] == [
            ("shop:orders", True),
            ("shop:remind", True),
        ]
        assert value["backend"] == {"kind": "workflow", "isolation": "interpreter"}
        await counter.ex.aclose()

    async def test_mistakes_are_data(self, counter: Counter) -> None:
        """All of them come with place and suggestion, and nothing has run."""
        text = 'x := run("shop:nothing")\ny := run("shop:ordr", {item: "tea"})\nrun("shop:greet", {nam: 1})\n'
        reply = await counter.ask(RUN_WORKFLOW, workflow=text)
        error = reply.value["error"]
        assert error["code"] == "workflow_check"
        found = [(each["kind"], each["line"]) for each in error["details"]["findings"]]
        assert found == [("unknown-tool", 2), ("extra-argument", 3)]
        assert "shop:order" in error["details"]["findings"][0]["suggestion"]
        assert "toolCalls" not in reply.value

    async def test_text_that_is_no_workflow(self, counter: Counter) -> None:
        """The error has the place, what was expected and what to write."""
        error = await counter.error(RUN_WORKFLOW, workflow="for (x in [1]) {}")
        assert error["code"] == "workflow_syntax"
        assert (error["details"]["line"], error["details"]["suggestion"]) == (1, "write `for x in xs { ... }`")

    async def test_wrong_inputs_and_failures(self, counter: Counter) -> None:
        """Inputs are checked before anything runs; the failure of a tool points at its line."""
        error = await counter.error(RUN_WORKFLOW, workflow="input n: integer\nreturn n", inputs={"n": "x"})
        assert error["code"] == "validation_input"
        reply = await counter.ask(RUN_WORKFLOW, workflow='run("shop:nothing")\nrun("shop:fail")')
        assert reply.value["error"]["details"]["line"] == 2
        assert [call["ok"] for call in reply.value["toolCalls"]] == [True, False]

    async def test_a_time_limit(self, counter: Counter) -> None:
        """A time limit ends the workflow."""
        error = await counter.error(RUN_WORKFLOW, workflow='run("shop:slow")', timeout_ms=100)
        assert error["code"] == "code_timeout"
        assert refuses(RUN_WORKFLOW, workflow="1", timeout_ms=0)
        assert refuses(RUN_WORKFLOW)

    async def test_progress_of_calls(self, counter: Counter) -> None:
        """Each call is reported when it ended."""
        await counter.value(RUN_WORKFLOW, workflow='run("shop:nothing")')
        assert [(each.done, each.message) for each in counter.progress] == [
            (0, "started"),
            (1, "shop:nothing"),
            (2, "finished"),
        ]


def test_the_description_is_short() -> None:
    """At most 900 characters."""
    assert len(EXECUTE_CODE.description) <= 900
