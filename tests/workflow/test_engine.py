"""Workflows through an Exec: run_workflow, execute_code, the blocking form."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolexec import Exec
from toolexec.code.types import CodeEvent
from toolexec.errors import (
    CodeError,
    CodeTimeoutError,
    ConfigurationError,
    InputValidationError,
    ToolCallLimitError,
    WorkflowCheckError,
    WorkflowSyntaxError,
)
from toolexec.model.call import Progress

SEED = """
issue := run("github:create_issue", {title: "Found a bug"})
run("slack:post", {text: issue.title, tags: ["bug", issue.number]})
"""


def new_exec() -> Exec:
    ex = Exec()

    async def create_issue(title: str) -> dict[str, object]:
        return {"title": title, "number": 7}

    async def post(text: str, tags: list[object]) -> str:
        return f"{text} {tags}"

    async def wait() -> None:
        await asyncio.sleep(3600)

    ex.add(create_issue, "github:create_issue")
    ex.add(post, "slack:post")
    ex.add(wait, "t:wait")
    return ex


def test_two_lines_run_as_they_stand() -> None:
    """The result of one call goes into the next, and the trace has both."""
    with new_exec().sync as ex:
        result = ex.run_workflow(SEED)
    assert result.raise_for_error().value == "Found a bug ['bug', 7]"
    assert [call.tool_id for call in result.tool_calls] == ["github:create_issue", "slack:post"]
    assert result.language == "workflow"
    assert result.backend is not None
    assert result.backend.kind == "workflow"
    assert result.limits_enforced.timeout


@pytest.mark.parametrize("language", ["workflow", "dsl"])
def test_execute_code_runs_workflows(language: str) -> None:
    """The language is one of those of execute_code, under both of its names, also inside of a Markdown fence."""
    with new_exec().sync as ex:
        result = ex.execute_code(f"```\n{SEED}\n```", language=language)
    assert result.raise_for_error().value == "Found a bug ['bug', 7]"


def test_inputs_events_and_progress() -> None:
    """Inputs are given by name; prints and calls are reported while the workflow runs."""
    events: list[CodeEvent] = []
    steps: list[Progress] = []
    source = 'input title: string\nprint("begin")\nrun("github:create_issue", {title}).number'
    with new_exec().sync as ex:
        result = ex.run_workflow(source, {"title": "a"}, on_event=events.append, on_progress=steps.append)
    assert result.raise_for_error().value == 7
    assert [event.kind for event in events] == ["print", "call_start", "call_end"]
    assert [(step.done, step.message) for step in steps] == [
        (0, "started"),
        (1, "github:create_issue"),
        (1, "completed"),
    ]


def test_what_is_wrong_is_the_error_of_the_result() -> None:
    """Text that cannot be parsed, mistakes and wrong inputs are errors, with nothing run."""
    with new_exec().sync as ex:
        assert isinstance(ex.run_workflow("x := [1").error, WorkflowSyntaxError)
        checked = ex.run_workflow('run("github:create_isue", {title: "a"})\nbreak')
        assert isinstance(checked.error, WorkflowCheckError)
        kinds = [finding["kind"] for finding in checked.error.details["findings"]]
        assert sorted(kinds) == ["misplaced", "unknown-tool"]
        assert checked.tool_calls == []
        assert isinstance(ex.run_workflow("input n: integer\nn", {"n": "a"}).error, InputValidationError)


def test_a_failure_has_its_line() -> None:
    """The error of a run has the line and column, and the line itself."""
    with new_exec().sync as ex:
        error = ex.run_workflow("input xs: list = []\n\n  y := xs[0]").error
    assert isinstance(error, CodeError)
    assert (error.line, error.column, error.source) == (3, 8, "  y := xs[0]")


def test_limits_of_a_run() -> None:
    """Calls, time and tools can be limited for one run."""
    with new_exec().sync as ex:
        many = 'for i in range(5) { run("github:create_issue", {title: "a"}) }'
        result = ex.run_workflow(many, max_tool_calls=2)
        assert isinstance(result.error, ToolCallLimitError)
        assert len(result.tool_calls) == 2
        late = ex.run_workflow('try { run("t:wait") } catch { "caught" }', timeout=0.05)
        assert isinstance(late.error, CodeTimeoutError)
        assert ex.run_workflow('run("t:wait")', allowed_tools=["github:*"]).error is not None
        with pytest.raises(ConfigurationError, match="did you mean timeout"):
            ex.run_workflow("1", timout=1)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("metadata", [{"inputs": [1]}, {"inputs": "x"}, {"max_steps": "9"}, {"max_steps": -1}])
async def test_metadata_of_the_wrong_type_is_refused(metadata: dict[str, Any]) -> None:
    """Nothing runs, and the error names what is wrong."""
    async with Exec() as ex:
        with pytest.raises(ConfigurationError, match=r"inputs|max_steps"):
            await ex.execute_code("return 1", language="workflow", metadata=metadata)
