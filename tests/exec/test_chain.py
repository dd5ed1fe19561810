"""Chains of the facade: how values travel, what a failure does, and what is refused."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest

from toolexec import Step, Tool
from toolexec.errors import (
    HandlerError,
    InputValidationError,
    InvalidChainError,
    OutputValidationError,
    ToolNotFoundError,
)

ANY = {"type": "object"}


class TestPrevious:
    """How the value of the step before comes in."""

    async def test_as_the_arguments(self, kitchen: Any) -> None:
        """Without arguments of its own, a step takes the value as its arguments."""
        result = await kitchen.run(kitchen.give({"a": 1, "b": 2}), Step(tool_id="size", use_previous=True))
        assert kitchen.calls[1] == {"a": 1, "b": 2}
        assert result.value == 2

    @pytest.mark.parametrize("value", ["text", 5, [1, 2], None, True])
    async def test_a_value_that_is_no_mapping(self, kitchen: Any, value: Any) -> None:
        """Such a value comes in under `previous`."""
        await kitchen.run(kitchen.give(value), Step(tool_id="echo", use_previous=True))
        assert kitchen.calls[1] == {"previous": value}

    async def test_beside_other_arguments(self, kitchen: Any) -> None:
        """With arguments it is added to them."""
        await kitchen.run(kitchen.give({"a": 1}), Step(tool_id="echo", args={"b": 2}, use_previous=True))
        assert kitchen.calls[1] == {"previous": {"a": 1}, "b": 2}

    async def test_empty_arguments_are_arguments(self, kitchen: Any) -> None:
        """`{}` is not the same as none."""
        await kitchen.run(kitchen.give({"a": 1}), Step(tool_id="echo", args={}, use_previous=True))
        assert kitchen.calls[1] == {"previous": {"a": 1}}

    async def test_an_argument_of_that_name(self, kitchen: Any) -> None:
        """An argument of that name is not overwritten, even if it is null."""
        await kitchen.run(kitchen.give(1), Step(tool_id="echo", args={"previous": None}, use_previous=True))
        assert kitchen.calls[1] == {"previous": None}

    @pytest.mark.parametrize("args", [None, {}])
    async def test_the_first_step(self, kitchen: Any, args: Any) -> None:
        """There is no value yet: null."""
        await kitchen.run(Step(tool_id="echo", args=args, use_previous=True))
        assert kitchen.calls == [{"previous": None}]

    async def test_not_asked_for(self, kitchen: Any) -> None:
        """Nothing comes in by itself."""
        await kitchen.run(kitchen.give(1), Step(tool_id="echo"))
        assert kitchen.calls[1] == {}

    async def test_after_a_failure(self, kitchen: Any) -> None:
        """The previous value stays the last one there was."""
        await kitchen.run(
            kitchen.give("good"), Step(tool_id="fail", stop_on_error=False), Step(tool_id="echo", use_previous=True)
        )
        assert kitchen.calls[2] == {"previous": "good"}


class TestReferences:
    """Arguments that refer to earlier steps."""

    async def test_by_number_and_name(self, kitchen: Any) -> None:
        """Any earlier step can be referred to, not just the one before."""
        result = await kitchen.run(
            kitchen.give({"items": [{"id": 7}]}, name="fetch"),
            kitchen.give("between"),
            Step(tool_id="echo", args={"a": {"$ref": "steps.0.items[0].id"}, "b": {"$ref": "fetch.items[*].id"}}),
        )
        assert result.value == {"a": 7, "b": [7]}
        assert result.steps[2].args == {"a": 7, "b": [7]}

    async def test_together_with_previous(self, kitchen: Any) -> None:
        """Both ways can be used at once, and neither changes an earlier step's value."""
        result = await kitchen.run(
            kitchen.give({"a": 1}), Step(tool_id="echo", args={"$ref": "steps.0"}, use_previous=True)
        )
        assert kitchen.calls[1] == {"previous": {"a": 1}, "a": 1}
        assert result.steps[0].value == {"a": 1}

    async def test_to_a_failed_step(self, kitchen: Any) -> None:
        """Its value is null."""
        result = await kitchen.run(
            Step(tool_id="fail", stop_on_error=False), Step(tool_id="echo", args={"a": {"$ref": "steps.0.x"}})
        )
        assert result.value == {"a": None}

    async def test_whole_arguments_that_are_no_mapping(self, kitchen: Any) -> None:
        """Whole arguments of another type break the input schema, and that is the step's error."""
        result = await kitchen.run(kitchen.give(5), Step(tool_id="echo", args={"$ref": "steps.0"}))
        assert isinstance(result.error, InputValidationError)

    async def test_a_path_that_fails_on_the_value(self, kitchen: Any) -> None:
        """Such a path is the failure of that step; the result keeps the steps before."""
        result = await kitchen.run(
            kitchen.give(5),
            Step(tool_id="echo", args={"a": {"$ref": "steps.0.length(@)"}}),
            Step(tool_id="echo"),
        )
        assert isinstance(result.error, InvalidChainError)
        assert [step.skipped for step in result.steps] == [False, False, True]
        assert result.steps[0].value == 5
        assert result.steps[1].attempts == 0
        assert len(kitchen.calls) == 1

    async def test_a_failing_path_need_not_stop_the_chain(self, kitchen: Any) -> None:
        """`stop_on_error` counts for it as for any failure."""
        result = await kitchen.run(
            kitchen.give(5),
            Step(tool_id="echo", args={"a": {"$ref": "steps.0.nope(@)"}}, stop_on_error=False),
            Step(tool_id="echo", use_previous=True),
        )
        assert result.ok
        assert result.value == {"previous": 5}

    @pytest.mark.parametrize("reference", ["steps.1", "steps.2", "later", "own", "nobody.x", "steps.0.["])
    async def test_one_that_cannot_work(self, kitchen: Any, reference: str) -> None:
        """An impossible reference is found before anything runs."""
        steps = [
            kitchen.give(1),
            Step(tool_id="echo", args={"a": {"$ref": reference}}, name="own"),
            kitchen.give(2, name="later"),
        ]
        with pytest.raises(InvalidChainError):
            await kitchen.run(*steps)
        assert kitchen.calls == []


class TestFailures:
    """What a failing step does to the chain."""

    async def test_it_stops(self, kitchen: Any) -> None:
        """Later steps are reported as skipped, without value and error."""
        result = await kitchen.run(kitchen.give(1), Step(tool_id="fail"), Step(tool_id="echo", name="third"))
        assert isinstance(result.error, HandlerError)
        assert (result.ok, result.value, result.tool_id) == (False, None, "fail")
        first, second, third = result.steps
        assert (first.ok, first.value) == (True, 1)
        assert (second.ok, second.error) == (False, result.error)
        assert (third.skipped, third.ok, third.value, third.error, third.attempts) == (True, False, None, None, 0)
        assert (third.index, third.name) == (2, "third")
        with pytest.raises(HandlerError):
            result.raise_for_error()

    async def test_it_goes_on(self, kitchen: Any) -> None:
        """With `stop_on_error` false the failure is that step's alone."""
        result = await kitchen.run(Step(tool_id="fail", stop_on_error=False), kitchen.give(2))
        assert (result.ok, result.value, result.error) == (True, 2, None)
        assert isinstance(result.steps[0].error, HandlerError)
        assert result.raise_for_error() is result

    async def test_the_last_one_fails_without_stopping(self, kitchen: Any) -> None:
        """The chain is fine, and its value is null: that of the last step."""
        result = await kitchen.run(kitchen.give(1), Step(tool_id="fail", stop_on_error=False))
        assert (result.ok, result.value, result.tool_id) == (True, None, "fail")

    async def test_a_step_that_cannot_be_called(self, kitchen: Any) -> None:
        """An unknown tool is its step's error, before any step runs; one that may fail is left to its turn."""
        result = await kitchen.run(kitchen.give(1), Step(tool_id="ehco"), kitchen.give(2))
        assert isinstance(result.error, ToolNotFoundError)
        assert "echo" in str(result.error)
        assert [(step.skipped, step.attempts) for step in result.steps] == [(True, 0), (False, 0), (True, 0)]
        assert (result.value, result.tool_id, result.steps[1].error) == (None, "ehco", result.error)
        result = await kitchen.run(kitchen.give(1), Step(tool_id="ehco", stop_on_error=False))
        assert [type(step.error) for step in result.steps] == [type(None), ToolNotFoundError]
        assert result.steps[0].value == 1

    async def test_a_result_that_breaks_its_schema(self, kitchen: Any) -> None:
        """A failed check is a failed step; the value does not travel on."""
        tool = Tool(name="liar", input_schema=ANY, output_schema={"type": "integer"})
        kitchen.ex.add(tool, handler=lambda args: "five")
        result = await kitchen.run(
            kitchen.give(1), Step(tool_id="liar", stop_on_error=False), Step(tool_id="echo", use_previous=True)
        )
        assert isinstance(result.steps[1].error, OutputValidationError)
        assert result.value == {"previous": 1}

    async def test_an_empty_chain(self, kitchen: Any) -> None:
        """An empty chain is valid and has no results."""
        result = await kitchen.run()
        assert (result.ok, result.value, result.tool_id, result.steps) == (True, None, "", [])

    async def test_durations(self, kitchen: Any) -> None:
        """The chain takes at least as long as its steps."""
        result = await kitchen.run(kitchen.give(1), kitchen.give(2))
        assert 0 < sum(step.duration for step in result.steps) <= result.duration


class TestDefinitions:
    """What is refused before anything runs."""

    @pytest.mark.parametrize(
        "parts",
        [
            {"timeout": 0},
            {"timeout": -1},
            {"timeout": float("nan")},
            {"retries": -1},
            {"retry_pause": -0.1},
            {"name": "steps"},
            {"name": "two words"},
            {"name": "0th"},
            {"name": "a.b"},
            {"args": [1]},
            {"args": "text"},
        ],
    )
    async def test_a_step_that_makes_no_sense(self, kitchen: Any, parts: dict[str, Any]) -> None:
        """Limits, retries, names and arguments are checked."""
        with pytest.raises(InvalidChainError):
            await kitchen.run(kitchen.give(1), Step(tool_id="peek", **parts))
        assert kitchen.calls == []

    async def test_a_name_that_is_taken(self, kitchen: Any) -> None:
        """Two steps cannot share one."""
        with pytest.raises(InvalidChainError, match="taken"):
            await kitchen.run(kitchen.give(1, name="a"), kitchen.give(2, name="a"))

    async def test_the_given_arguments_stay(self, kitchen: Any) -> None:
        """Arguments are never changed, and any mapping will do."""
        args = MappingProxyType({"a": {"$ref": "steps.0"}, "b": [1]})
        result = await kitchen.run(kitchen.give(5), Step(tool_id="echo", args=args, use_previous=True))
        assert result.value == {"a": 5, "b": [1], "previous": 5}
        assert args == {"a": {"$ref": "steps.0"}, "b": [1]}


class TestJSON:
    """Steps from JSON, results as JSON."""

    def test_all_fields(self) -> None:
        """A step is written with the names of its fields, and `tool` for short."""
        step = Step.from_dict(
            {
                "tool": "ns:t",
                "args": {"a": 1},
                "use_previous": True,
                "stop_on_error": False,
                "name": "n",
                "timeout": 5,
                "retries": 2,
                "retry_pause": 0.5,
            }
        )
        assert step == Step(
            tool_id="ns:t",
            args={"a": 1},
            use_previous=True,
            stop_on_error=False,
            name="n",
            timeout=5,
            retries=2,
            retry_pause=0.5,
        )
        assert Step.from_dict({"tool_id": "t"}) == Step("t")

    async def test_a_chain_of_mappings(self, kitchen: Any) -> None:
        """A chain may be written as plain data, and mixed with steps."""
        result = await kitchen.ex.run_chain([{"tool": "echo", "args": {"give": 5}}, Step("echo", use_previous=True)])
        assert result.value == {"previous": 5}

    async def test_a_chain_of_something_else(self, kitchen: Any) -> None:
        """Refuses it before anything runs."""
        with pytest.raises(InvalidChainError, match="a step is a Step or a mapping"):
            await kitchen.ex.run_chain([kitchen.give(1), 5])  # type: ignore[list-item]
        assert kitchen.calls == []

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            ({}, "no tool"),
            ({"tool": 5}, "tool_id must be a string, not 5"),
            ({"tool": "t", "argz": {}}, "a step has no setting 'argz'; did you mean args?"),
            ({"tool": "t", 5: 6}, "a step has no setting '5'; there are tool, "),
            ({"tool": "t", "args": [1]}, "args must be a mapping of strings or None, not a list"),
            ({"tool": "t", "retries": "3"}, "retries must be an integer, not '3'"),
            ({"tool": "t", "args": {}, "retries": "3", "name": 5}, "name must be a string, not 5"),
            ({"tool": "t", "timeout": "5"}, "timeout must be a number or None, not '5'"),
            ({"tool": "t", "use_previous": "no"}, "use_previous must be true or false, not 'no'"),
        ],
    )
    def test_what_is_not_a_step(self, data: dict[str, Any], text: str) -> None:
        """Unknown keys, wrong types and a missing tool are named."""
        with pytest.raises(InvalidChainError, match="a step") as caught:
            Step.from_dict(data)
        assert text in str(caught.value)

    async def test_a_result(self, kitchen: Any) -> None:
        """The result is JSON with every step in it."""
        result = await kitchen.run(kitchen.give(1, name="first"), Step(tool_id="fail"), kitchen.give(2))
        data = json.loads(json.dumps(result.to_dict()))
        assert (data["ok"], data["value"], data["error"]["code"]) == (False, None, "handler_failed")
        assert [step["ok"] for step in data["steps"]] == [True, False, False]
        assert data["steps"][0]["name"] == "first"
        assert data["steps"][2]["skipped"] is True
        good = (await kitchen.run(kitchen.give(1))).to_dict()
        assert (good["ok"], good["value"], "error" in good) == (True, 1, False)
